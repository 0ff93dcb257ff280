"""The account of a bridge: each message that was taken came to exactly one end, or is still in flight."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["OTHER_REASONS", "REASONS_MAX", "Account"]

# The reasons that are counted one by one. Texts of messages are in some of them, so that there can be any number.
REASONS_MAX: Final = 100
OTHER_REASONS: Final = "other reasons"


@dataclass(slots=True)
class Account:
    """Counts of messages. Each delivery by the source counts as taken, a message that comes again once more.

    `taken` is the sum of the next three and of what is in flight. `returned` are messages that the source keeps: the
    bridge was stopped, or lost the source, before they were acknowledged. `repeated` are sends beyond the first.
    `size_bytes` is the size of what was delivered, with its properties. `missing` counts the messages that the
    source should have and does not give: they are not taken.
    """

    taken: int = 0
    delivered: int = 0
    returned: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    size_bytes: int = 0
    missing: int = 0

    def refuse(self, reason: str) -> None:
        """Count a message that cannot be carried."""
        is_counted = reason in self.refused or len(self.refused) < REASONS_MAX
        self.refused[reason if is_counted else OTHER_REASONS] += 1

    @property
    def in_flight(self) -> int:
        """The messages that have come to no end yet."""
        return self.taken - self.delivered - self.returned - self.refused.total()

    def as_json(self) -> dict[str, Any]:
        return {
            "taken": self.taken,
            "delivered": self.delivered,
            "refused": self.refused.total(),
            "returned": self.returned,
            "in_flight": self.in_flight,
            "repeated": self.repeated,
            "bytes": self.size_bytes,
            "refused_by_reason": dict(self.refused),
        }
