# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The heartbeats of a link: they show that a silent peer still answers."""

from __future__ import annotations

__all__ = ["Heartbeats"]


class Heartbeats:
    """The times at which a peer came, and was last heard of, and the unanswered heartbeats since.

    `are_known` is True if the peer is known to answer heartbeats.
    """

    __slots__ = ("are_known", "heard_at_ms", "missed", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = self.heard_at_ms = now_ms
        self.missed = 0
        self.are_known = False

    def miss(self, now_ms: int, interval_ms: int, missed_max: int) -> bool:
        """Count another heartbeat if one is due; return True if so. None is due with a maximum or interval of 0."""
        if missed_max <= 0 or interval_ms <= 0 or now_ms - self.heard_at_ms < interval_ms * (self.missed + 1):
            return False
        self.missed += 1
        return True
