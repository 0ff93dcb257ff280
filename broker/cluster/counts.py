"""Counts of what a hop's clients have open, and of what its upstream is told.

Each client's count fits the wire, the sum of many need not: the upstream is told of no more than the wire carries, and
hears of a close when what is left is less than that.
"""

from __future__ import annotations

__all__ = ["COUNT_MAX", "Count"]

# What `QueueHandleParameters` and `ConsumerInfo` carry.
COUNT_MAX = (1 << 31) - 1


class Count:
    """Of an app's readers, or a queue's writers. `open` is how often clients have it open.

    Invariant: what the upstream was told is no more than clients have, and with what it is being asked for no more than
    `COUNT_MAX`. It knows of something as long as clients have something.
    """

    __slots__ = ("_asking", "open", "told")

    def __init__(self) -> None:
        self.open = 0
        self.told = 0  # how many the upstream has opened
        self._asking = 0

    def ask(self, count: int) -> int:
        """So many more are to be opened: for how many the upstream has to be asked, maybe none."""
        more = min(count, COUNT_MAX - self.told - self._asking)
        self._asking += more
        return more

    def answered(self, count: int, more: int, *, granted: bool) -> None:
        """What `ask` was told and returned, and whether the upstream has opened it.

        What it did not have to be asked for is granted only while nothing else is being asked.
        """
        self._asking -= more
        if granted:
            self.open += count
            self.told += more

    def give_back(self, count: int) -> int:
        """So many are open no longer: how many the upstream has to close, maybe none."""
        self.open -= count
        surplus = max(0, self.told - self.open)
        self.told -= surplus
        return surplus

    def tell(self) -> int:
        """A new upstream is told of all at once: how many."""
        self.told = min(self.open, COUNT_MAX)
        return self.told

    def forget(self) -> None:
        """The upstream knows of none; answers to come are about another."""
        self._asking = self.told = 0
