"""Counts of the opens of a relay's clients, and of those reported to its upstream.

Each client's count fits the wire, the sum of many need not: the upstream is told of no more than the wire carries, and
hears of a close when what is left is less than that.
"""

from __future__ import annotations

__all__ = ["COUNT_MAX", "Count"]

# Maximum count in `QueueHandleParameters` and `ConsumerInfo`.
COUNT_MAX = (1 << 31) - 1


class Count:
    """The count of an app's readers, or a queue's writers. `open` is the number of clients' opens.

    Invariant: what the upstream was told is no more than clients have, and with what it is being asked for no more than
    `COUNT_MAX`. It knows of something as long as clients have something.
    """

    __slots__ = ("_asking", "open", "told")

    def __init__(self) -> None:
        self.open = 0
        self.told = 0  # how many the upstream has opened
        self._asking = 0

    def ask(self, count: int) -> int:
        """Request `count` more opens; return the number to request upstream, possibly 0."""
        more = min(count, COUNT_MAX - self.told - self._asking)
        self._asking += more
        return more

    def answered(self, count: int, more: int, *, granted: bool) -> None:
        """Apply the upstream's answer to `ask(count)`, which returned `more`.

        What it did not have to be asked for is granted only while nothing else is being asked.
        """
        self._asking -= more
        if granted:
            self.open += count
            self.told += more

    def give_back(self, count: int) -> int:
        """Give back `count` opens; return the number to close upstream, possibly 0."""
        self.open -= count
        surplus = max(0, self.told - self.open)
        self.told -= surplus
        return surplus

    def tell(self) -> int:
        """Return the total to report to a new upstream."""
        self.told = min(self.open, COUNT_MAX)
        return self.told

    def forget(self) -> None:
        """Reset the reported count; later answers are about another upstream."""
        self._asking = self.told = 0
