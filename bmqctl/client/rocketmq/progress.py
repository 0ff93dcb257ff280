"""The progress in a queue that is consumed, without I/O."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Progress"]


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
        """Note messages that were taken, in their order, and the offset after them."""
        for offset in offsets:
            self._unsettled[offset] = None
        self.offset = next_offset

    def settle(self, offset: int) -> None:
        """Note that a message is settled."""
        self._unsettled.pop(offset, None)
