"""The open checkpoints of a queue of the revive log: popped messages that may have to be delivered again.

Source: PopReviveService. Notes are in the log in the order of their times: a checkpoint before the acknowledgements of
its messages, all of which arrive within a while after these were to become visible again. The original reads the log
again from its offset every second; here open checkpoints are kept in memory, and the log is read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from formats.rocketmq.remoting.bodies.popping import AckNote, BatchAckNote, CheckPoint

__all__ = ["ReviveQueue"]

# An acknowledgement enters the log within a second of the time for which it is meant; another second is a margin.
_WAIT_MS: Final = 2_000
# A checkpoint enters the log a second before its messages become visible again. One with a later time would delay the
# checkpoints after it, so its time counts as at most this much after it was read.
LATE_MS: Final = 10_000

_Key = tuple[str, str, int, int, int, str]


@dataclass(slots=True)
class _OpenPoint:
    point: CheckPoint
    revive_offset: int
    visible_ms: int
    acked: int


class ReviveQueue:
    """The open checkpoints of one queue. `next_offset` is that of the next note.

    `name` is the broker's, for checkpoints without one.
    """

    def __init__(self, next_offset: int, name: str) -> None:
        self.next_offset = next_offset
        self._name = name
        self._open: dict[_Key, _OpenPoint] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, note: CheckPoint | AckNote | BatchAckNote, offset: int, now_ms: int) -> None:
        """Process a note that was read at a time, from an offset of the log."""
        key = (note.topic, note.group, note.queue_id, note.start_offset, note.popped_ms, note.broker or self._name)
        if isinstance(note, CheckPoint):
            # A checkpoint that replaces another takes its position: they are processed in the order of the log.
            self._open.pop(key, None)
            self._open[key] = _OpenPoint(note, offset, min(note.visible_ms, now_ms + LATE_MS), note.bit_map)
            return
        known = self._open.get(key)
        if known is None:
            return
        offsets = known.point.offsets
        for each in note.ack_offsets if isinstance(note, BatchAckNote) else (note.ack_offset,):
            if each in offsets:
                known.acked |= 1 << offsets.index(each)

    def first_over(self, now_ms: int) -> tuple[CheckPoint, list[int], int] | None:
        """Return the first checkpoint if it is due; None otherwise.

        With it come the offsets of its unacknowledged messages, and its own offset in the log.
        """
        for known in self._open.values():
            point = known.point
            # The bound also holds after the clock was set back.
            known.visible_ms = min(known.visible_ms, now_ms + LATE_MS)
            if now_ms - known.visible_ms <= _WAIT_MS:
                return None
            left = [offset for place, offset in enumerate(point.offsets) if not known.acked >> place & 1]
            return point, left, known.revive_offset
        return None

    def drop_first(self) -> None:
        """Forget the first checkpoint, which was processed."""
        del self._open[next(iter(self._open))]
