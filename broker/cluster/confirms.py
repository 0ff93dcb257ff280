"""The confirms of a hop's consumers, on their way up: those that may not have arrived go to the next upstream, too."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from broker.cluster.openings import Openings
from broker.cluster.upstream import UpstreamState
from broker.core.clock import Now
from broker.core.timers import Timers
from formats.wire.confirm import CONFIRM_HEADER_BYTES, pack_confirm
from formats.wire.event import EventType

__all__ = ["Confirms"]

# An upstream may be lost before it has done what it was sent: so many confirms, of so long, are sent again to the next.
# It is longer than a silent broker is waited for.
SENT_CONFIRMS_MAX = 1 << 16
SENT_CONFIRMS_MS = 40_000

# They are looked through no more often.
FORGET_MS = 200

# While there is no upstream: confirms of messages that are not here are not kept beyond this many.
UNKNOWN_CONFIRMS_MAX = 1 << 16

_OPEN = UpstreamState.OPEN


class Confirms:
    """Those of one queue, whose number upstream is `queue_id`."""

    def __init__(self, queue_id: int, openings: Openings, now: Now, timers: Timers) -> None:
        self._queue_id = queue_id
        self._openings = openings
        self._now = now
        self._timers = timers
        self._unsent: list[tuple[bytes, str]] = []
        self._sent: deque[tuple[int, bytes, str]] = deque(maxlen=SENT_CONFIRMS_MAX)  # when, first
        self._forgets = False

    @property
    def has_room(self) -> bool:
        """Whether a confirm of a message that is not here can be sent, or kept."""
        return self._openings.state is _OPEN or len(self._unsent) < UNKNOWN_CONFIRMS_MAX

    def send(self, app_id: str, guids: Sequence[bytes]) -> None:
        """Say that an app is done with messages, now or when there is an upstream."""
        consumer, upstream = self._openings.consumers.get(app_id), self._openings.upstream
        if self._openings.state is not _OPEN:
            self._unsent += [(guid, app_id) for guid in guids]
        elif consumer is not None and upstream is not None:
            queue_id, sub_id, now_ms = self._queue_id, consumer.sub_id, self._now.ms
            try:
                out = upstream.event(EventType.CONFIRM, CONFIRM_HEADER_BYTES)
                for guid in guids:
                    out += pack_confirm(queue_id, guid, sub_id)
            except Exception as error:
                # The next upstream is told of all that were sent lately.
                upstream.fail(error)
            if not self._forgets:
                self._forgets = True
                self._timers.at(now_ms + SENT_CONFIRMS_MS, self._forget)
            self._sent.extend([(now_ms, guid, app_id) for guid in guids])

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
        since_ms = self._now.ms - SENT_CONFIRMS_MS
        confirms = [(guid, app_id) for sent_ms, guid, app_id in self._sent if sent_ms >= since_ms]
        confirms += self._unsent
        self._sent.clear()
        self._unsent = []
        return confirms
