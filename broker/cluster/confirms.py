"""The confirms of a hop's consumers, on their way up: those that may not have arrived go to the next upstream, too.

An upstream takes them from who reads the app there. If nobody reads it any longer by then, they wait until somebody
here opens it again, who is to get none of those messages. So do those of a hop that nobody has open any longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from broker.cluster.openings import Openings
from broker.cluster.upstream import UpstreamState
from broker.core.clock import Now
from broker.core.timers import Timers
from broker.core.unknown_confirms import CONFIRMS_KEPT_MAX, CONFIRMS_KEPT_MS
from formats.wire.confirm import CONFIRM_HEADER_BYTES, pack_confirm
from formats.wire.event import EventType

__all__ = ["Confirms", "Given", "LeftConfirms"]

# An upstream may be lost before it has done what it was sent: so many confirms, of so long, are sent again to the next.
SENT_CONFIRMS_MAX = CONFIRMS_KEPT_MAX
SENT_CONFIRMS_MS = CONFIRMS_KEPT_MS

# They are looked through no more often.
FORGET_MS = 200

# While there is no upstream: confirms of messages that are not here are not kept beyond this many.
UNKNOWN_CONFIRMS_MAX = 1 << 16

_OPEN = UpstreamState.OPEN

# When a consumer gave a confirm, the message's GUID, and the app.
Given = tuple[int, bytes, str]


class Confirms:
    """Those of one queue, whose number upstream is `queue_id`."""

    def __init__(self, queue_id: int, openings: Openings, now: Now, timers: Timers) -> None:
        self._queue_id = queue_id
        self._openings = openings
        self._now = now
        self._timers = timers
        self._unsent: list[Given] = []
        self._sent: deque[Given] = deque(maxlen=SENT_CONFIRMS_MAX)
        self._untold: set[str] = set()  # apps that were not read at this upstream when it was to be told of them
        self._forgets = False

    @property
    def has_room(self) -> bool:
        """Return whether a confirm of a message that is not here can be sent, or kept."""
        return self._openings.state is _OPEN or len(self._unsent) < UNKNOWN_CONFIRMS_MAX

    def send(self, app_id: str, guids: Sequence[bytes]) -> None:
        """Say that an app is done with messages, now or when it can be said."""
        consumer, upstream = self._openings.consumers.get(app_id), self._openings.upstream
        queue_id, now_ms = self._queue_id, self._now.ms
        if self._openings.state is not _OPEN or upstream is None:
            self._unsent += [(now_ms, guid, app_id) for guid in guids]
            return
        if consumer is not None and consumer.reads.told:
            sub_id = consumer.sub_id
            try:
                out = upstream.event(EventType.CONFIRM, CONFIRM_HEADER_BYTES)
                for guid in guids:
                    out += pack_confirm(queue_id, guid, sub_id)
            except Exception as error:
                # The next upstream is told of all that were sent lately.
                upstream.fail(error)
        else:
            self._untold.add(app_id)
        if not self._forgets:
            self._forgets = True
            self._timers.at(now_ms + SENT_CONFIRMS_MS, self._forget)
        self._sent.extend([(now_ms, guid, app_id) for guid in guids])

    def opened(self, app_id: str) -> None:
        """The upstream lets an app be read: it hears what it could not be told before."""
        if app_id in self._untold:
            self._untold.discard(app_id)
            guids = [guid for guid, of_app in self._recent() if of_app == app_id]
            self._sent = deque((each for each in self._sent if each[2] != app_id), maxlen=SENT_CONFIRMS_MAX)
            self.send(app_id, guids)

    def _recent(self) -> list[tuple[bytes, str]]:
        """Return the confirms that another upstream may not know of: sent to this one, or about to be."""
        since_ms = self._now.ms - SENT_CONFIRMS_MS
        return [(guid, app_id) for sent_ms, guid, app_id in self._sent if sent_ms >= since_ms]

    def _forget(self) -> None:
        """Forget those of long ago, and look again while there are others."""
        sent, since_ms = self._sent, self._now.ms - SENT_CONFIRMS_MS
        while sent and sent[0][0] <= since_ms:
            sent.popleft()
        self._forgets = bool(sent)
        if sent:
            self._timers.at(max(sent[0][0] + SENT_CONFIRMS_MS, self._now.ms + FORGET_MS), self._forget)

    def take(self) -> list[tuple[bytes, str]]:
        """Those that have found no way up, or may not have arrived: GUID and app id."""
        confirms = self._recent()
        confirms += [(guid, app_id) for _, guid, app_id in self._unsent]
        self._sent.clear()
        self._unsent = []
        self._untold.clear()
        return confirms

    def leave(self) -> list[Given]:
        """As `take`, for who has the queue here after this hop."""
        given = [*self._sent, *self._unsent]
        self.take()
        return given

    def inherit(self, given: Iterable[Given]) -> None:
        """Send up what another hop has left of this queue, before anybody here gets anything."""
        self._sent.extend(given)
        self._untold.update(app_id for _, _, app_id in self._sent)


class LeftConfirms:
    """The confirms of lately of queues that nobody has open here any longer: an upstream may be lost with them."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._left: dict[str, list[Given]] = {}  # by URI, oldest first
        self._count = 0

    @property
    def uris(self) -> tuple[str, ...]:
        """The queues that have left some."""
        return tuple(self._left)

    def keep(self, uri: str, given: list[Given]) -> None:
        """A hop is no more."""
        given = self.take(uri) + given
        if given:
            self._left[uri] = given
            self._count += len(given)
        since_ms = self._now.ms - SENT_CONFIRMS_MS
        while self._left:
            oldest = next(iter(self._left))
            if self._count <= SENT_CONFIRMS_MAX and self._left[oldest][-1][0] > since_ms:
                break
            self._count -= len(self._left.pop(oldest))

    def take(self, uri: str) -> list[Given]:
        """Hand over what was left of a queue; the caller is responsible for it from now on."""
        given = self._left.pop(uri, [])
        self._count -= len(given)
        since_ms = self._now.ms - SENT_CONFIRMS_MS
        return [each for each in given if each[0] > since_ms]
