# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A relay's confirms in flight. The next upstream also gets confirms that may have been lost.

An upstream accepts them only from a reader of the app. Without a reader, or after the relay is closed, they wait until
a client opens the app again, which must not receive those messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from broker.bmq.queue.unknown_confirms import CONFIRMS_KEPT_MAX, CONFIRMS_KEPT_MS
from broker.bmq.relay.handles.client_handles import ClientHandles
from broker.bmq.relay.upstream import UpstreamState
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.wire.confirm import CONFIRM_HEADER_BYTES, pack_confirms
from formats.bmq.wire.event import EventType

__all__ = ["UNSENT_CONFIRMS_MAX", "Confirms", "Given", "LeftConfirms"]

# An upstream may be lost before it has processed its input: recent confirms up to this number are sent again.
SENT_CONFIRMS_MAX: Final = CONFIRMS_KEPT_MAX
SENT_CONFIRMS_MS: Final = CONFIRMS_KEPT_MS

# Confirms sent again in a unit of work.
SENT_PER_UNIT: Final = 16

# Minimum interval between searches for old confirms.
FORGET_MS: Final = 200

# Confirms of unknown messages that are kept at least while the upstream is not open.
UNKNOWN_CONFIRMS_MAX: Final = 1 << 16

# Recent confirms that are to be resent are kept in addition.
UNSENT_CONFIRMS_MAX: Final = UNKNOWN_CONFIRMS_MAX + SENT_CONFIRMS_MAX

_OPEN: Final = UpstreamState.OPEN

# The time of a confirm, the message's GUID, and the app.
Given = tuple[int, bytes, str]


class Confirms:
    """The confirms of one queue, whose number upstream is `queue_id`."""

    def __init__(self, queue_id: int, opens: ClientHandles, now: Now, timers: Timers) -> None:
        self._queue_id = queue_id
        self._opens = opens
        self._now = now
        self._timers = timers
        self._unsent: deque[Given] = deque()
        self._sent: deque[Given] = deque(maxlen=SENT_CONFIRMS_MAX)
        self._untold: set[str] = set()  # apps without a reader at this upstream when their confirms were due
        self._forgets = False

    def has_room_for(self, count: int) -> bool:
        """Return True if confirms of messages that are not here can be sent, or kept."""
        return self._opens.state is _OPEN or len(self._unsent) + count <= UNSENT_CONFIRMS_MAX

    def send(self, app_id: str, guids: Sequence[bytes]) -> None:
        if not guids:
            return
        if self._opens.state is not _OPEN:
            now_ms = self._now.ms
            self._unsent.extend([(now_ms, guid, app_id) for guid in guids])
        else:
            self._send_up(app_id, guids)

    def _send_up(self, app_id: str, guids: Sequence[bytes]) -> None:
        consumer, upstream = self._opens.consumers.get(app_id), self._opens.upstream
        assert upstream is not None
        queue_id, now_ms = self._queue_id, self._now.ms
        if consumer is not None and consumer.reads.told:
            sub_id = consumer.sub_id
            try:
                out = upstream.event(EventType.CONFIRM, CONFIRM_HEADER_BYTES)
                out += pack_confirms(queue_id, guids, sub_id)
            except Exception as error:
                # The next upstream receives all recently sent ones.
                upstream.fail(error)
        else:
            self._untold.add(app_id)
        if not self._forgets:
            self._forgets = True
            self._timers.at(now_ms + SENT_CONFIRMS_MS, self._forget)
        self._sent.extend([(now_ms, guid, app_id) for guid in guids])

    def begin_resending(self) -> None:
        """Begin to resend pending and possibly lost confirms to an upstream that knows the opens.

        Call `send_some` until none are left; confirms that come meanwhile are included.
        """
        since_ms = self._now.ms - SENT_CONFIRMS_MS
        self._unsent.extendleft([each for each in reversed(self._sent) if each[0] >= since_ms])
        self._sent.clear()
        self._untold.clear()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send_some(self) -> int:
        """Send some of the kept confirms; return the units of work."""
        part = [self._unsent.popleft() for _ in range(min(len(self._unsent), SENT_PER_UNIT))]
        for app_id, of_app in groupby(part, itemgetter(2)):
            self._send_up(app_id, [guid for _, guid, _ in of_app])
        return 1

    def opened(self, app_id: str) -> None:
        """Send delayed confirms of an app that the upstream has opened."""
        if app_id in self._untold:
            self._untold.discard(app_id)
            guids = [guid for guid, of_app in self._recent() if of_app == app_id]
            self._sent = deque([each for each in self._sent if each[2] != app_id], maxlen=SENT_CONFIRMS_MAX)
            self.send(app_id, guids)

    def _recent(self) -> list[tuple[bytes, str]]:
        """Return the confirms that another upstream may not have."""
        since_ms = self._now.ms - SENT_CONFIRMS_MS
        return [(guid, app_id) for sent_ms, guid, app_id in self._sent if sent_ms >= since_ms]

    def _forget(self) -> None:
        sent, since_ms = self._sent, self._now.ms - SENT_CONFIRMS_MS
        while sent and sent[0][0] <= since_ms:
            sent.popleft()
        self._forgets = bool(sent)
        if sent:
            self._timers.at(max(sent[0][0] + SENT_CONFIRMS_MS, self._now.ms + FORGET_MS), self._forget)

    def take(self) -> list[tuple[bytes, str]]:
        """Take the confirms that were not sent or may be lost: GUID and app id."""
        confirms = self._recent()
        confirms += [(guid, app_id) for _, guid, app_id in self._unsent]
        self._sent.clear()
        self._unsent.clear()
        self._untold.clear()
        return confirms

    def leave(self) -> list[Given]:
        given = [*self._sent, *self._unsent]
        self.take()
        return given

    def inherit(self, given: Iterable[Given]) -> None:
        """Send the confirms that a closed relay of this queue has left, before any delivery here."""
        self._sent.extend(given)
        self._untold.update(app_id for _, _, app_id in self._sent)


class LeftConfirms:
    """Recent confirms of queues that no client has open: they may be lost with an upstream."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._left: dict[str, list[Given]] = {}  # by URI, oldest first
        self._count = 0

    @property
    def uris(self) -> tuple[str, ...]:
        return tuple(self._left)

    def keep(self, uri: str, given: list[Given]) -> None:
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
        given = self._left.pop(uri, [])
        self._count -= len(given)
        since_ms = self._now.ms - SENT_CONFIRMS_MS
        return [each for each in given if each[0] > since_ms]
