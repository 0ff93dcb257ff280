"""The account of a bridge: each message taken has ended in exactly one way, or is in flight."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["OTHER_REASONS", "REASONS_MAX", "Account"]

# Reasons counted individually: some contain texts of messages, so their number is unbounded.
REASONS_MAX: Final = 100
OTHER_REASONS: Final = "other reasons"


@dataclass(slots=True)
class Account:
    """Counts of messages. Each delivery by the source counts as taken, a repeated one again.

    `taken` is the sum of the next three and the messages in flight. `returned` messages stay with the source: the
    bridge was stopped, or lost the source, before they were acknowledged. `repeated` are sends beyond the first.
    `size_bytes` is the size of the delivered messages with their properties. `missing` counts messages that the source
    should have but does not deliver; they are not taken.
    """

    taken: int = 0
    delivered: int = 0
    returned: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    size_bytes: int = 0
    missing: int = 0

    def refuse(self, reason: str) -> None:
        is_counted = reason in self.refused or len(self.refused) < REASONS_MAX
        self.refused[reason if is_counted else OTHER_REASONS] += 1

    @property
    def in_flight(self) -> int:
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
