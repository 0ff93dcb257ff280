"""The progress of a consumer in a queue, without I/O."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Progress"]


class Progress:
    """The messages taken from a queue, and the settled ones among them.

    `offset` is that of the next message to take; all before `settled_offset` are settled.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.committed = -1
        # In the order of the offsets.
        self._unsettled: dict[int, None] = {}

    @property
    def settled_offset(self) -> int:
        return next(iter(self._unsettled), self.offset)

    def took(self, offsets: Sequence[int], next_offset: int) -> None:
        for offset in offsets:
            self._unsettled[offset] = None
        self.offset = next_offset

    def settle(self, offset: int) -> None:
        self._unsettled.pop(offset, None)
