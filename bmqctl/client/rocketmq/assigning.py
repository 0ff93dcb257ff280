"""The part of a topic's queues that each consumer of a group gets, and how far each queue is consumed. Without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Progress", "share_of"]

Q = TypeVar("Q")


def share_of(member: str, members: Sequence[str], queues: Sequence[Q]) -> list[Q]:
    """The queues of one member, of a sorted list: neighbours, as many for each, and one more for the first.

    All members come to the same result, those with other clients, too (source: AllocateMessageQueueAveragely).
    """
    everyone = sorted(set(members))
    if member not in everyone:
        return []
    place = everyone.index(member)
    each, rest = divmod(len(queues), len(everyone))
    start = place * each + min(place, rest)
    return list(queues[start : start + each + (place < rest)])


class Progress:
    """The messages of a queue that were taken, and those among them that are settled.

    `offset` is that of the next message to take; what is before `settled_offset` is settled.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.committed = -1
        # In the order of the offsets.
        self._unsettled: dict[int, None] = {}

    @property
    def settled_offset(self) -> int:
        """The offset of the first message that is not settled."""
        return next(iter(self._unsettled), self.offset)

    def took(self, offsets: Sequence[int], next_offset: int) -> None:
        """Note messages that were taken, in their order, and the offset behind them."""
        for offset in offsets:
            self._unsettled[offset] = None
        self.offset = next_offset

    def settle(self, offset: int) -> None:
        """Note that a message is settled."""
        self._unsettled.pop(offset, None)
