# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Comparison of this node's wall clock with its monotonic clock and with other nodes' clocks.

Records have wall-clock times, from which the age of restored messages follows; events of this process have monotonic
ones.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from broker.bmq.core.alarms import alarm
from broker.common.clock import Now

__all__ = ["ALARM", "TOLERANCE_S", "Clocks", "HeardRecord", "span"]

log: Final = logging.getLogger("broker.node")

ALARM: Final = "CLOCK"

# The difference at which clocks are certainly not synchronised.
TOLERANCE_S: Final = 60


# Time for which a prompt record counts more than later ones that arrived late.
HEARD_FOR_MS: Final = 10_000


class HeardRecord(NamedTuple):
    """A primary's record that arrived when it was written: its lease, its time, and the monotonic time of arrival."""

    primary_lease_id: int
    timestamp: int
    ms: int

    def or_earlier(self, earlier: HeardRecord | None) -> HeardRecord:
        """Return this record or `earlier`, whichever shows the primary's clock more exactly.

        A record that arrives late makes the clock seem slow. Time goes back if the clock is set back.
        """
        if (
            earlier is None
            or earlier.primary_lease_id != self.primary_lease_id
            or self.timestamp < earlier.timestamp
            or self.ms - earlier.ms > HEARD_FOR_MS
            or self._distance_ms >= earlier._distance_ms
        ):
            return self
        return earlier

    @property
    def _distance_ms(self) -> int:
        return self.timestamp * 1000 - self.ms


class Clocks:
    """The wall clocks of a cluster, as distances to the monotonic clock here."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._others_ms: dict[int, int] = {}
        self._own_ms = self._distance_ms(now.wall_s)

    def _distance_ms(self, wall_s: int) -> int:
        return wall_s * 1000 - self._now.ms

    def told(self, node_id: int, wall_s: int) -> None:
        self._others_ms[node_id] = self._distance_ms(wall_s)

    @property
    def agrees(self) -> bool | None:
        """Return True if another node's clock agrees with this one; None if none is known."""
        if not self._others_ms:
            return None
        own_ms = self._distance_ms(self._now.wall_s)
        return any(abs(own_ms - other_ms) <= TOLERANCE_S * 1000 for other_ms in self._others_ms.values())

    def look(self) -> None:
        """Detect that the clock was set; to be called once a second."""
        was_ms, self._own_ms = self._own_ms, self._distance_ms(self._now.wall_s)
        moved_s = (self._own_ms - was_ms) // 1000
        if abs(moved_s) > TOLERANCE_S:
            way = "forward" if moved_s > 0 else "back"
            text = (
                f"The clock was set {way} by {span(abs(moved_s))}, or this machine was suspended. Stored messages "
                "expire as if it had not been set; new records carry the new time"
            )
            alarm(log, ALARM, text)


def span(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{number} {unit}" for number, unit in ((hours, "h"), (minutes, "min"), (rest, "s")) if number]
    return " ".join(parts[:2]) or "0 s"
