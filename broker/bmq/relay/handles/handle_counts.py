# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Counts of the opens of a relay's clients, and of those reported to its upstream.

Each client's count fits the wire format, but the sum of many need not. The reported count is capped at the format's
maximum; a close is reported once the sum falls below it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["COUNT_MAX", "Count"]

# Maximum count in `QueueHandleParameters` and `ConsumerInfo`.
COUNT_MAX: Final = (1 << 31) - 1


class Count:
    """The count of an app's readers, or of a queue's writers. `open` is the number of clients' opens.

    Invariants: the reported count does not exceed the clients' opens; together with pending requests it does not exceed
    `COUNT_MAX`; it is positive while clients have opens.
    """

    __slots__ = ("_asking", "open", "told")

    def __init__(self) -> None:
        self.open = 0
        self.told = 0  # opens at the upstream
        self._asking = 0

    def ask(self, count: int) -> int:
        """Request `count` more opens; return the number to request upstream, possibly 0."""
        more = min(count, COUNT_MAX - self.told - self._asking)
        self._asking += more
        return more

    def answered(self, count: int, more: int, *, granted: bool) -> None:
        """Apply the upstream's answer to `ask(count)`, which returned `more`.

        Opens that needed no request are granted only while no other request is pending.
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
