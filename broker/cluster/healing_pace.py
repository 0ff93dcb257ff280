"""When replicas that heal get more: while nobody is kept waiting, and then not all that the machine could do.

One pace for all shards of a node: what one of them sends keeps the producers of the others waiting just the same.
"""

from __future__ import annotations

from math import ceil

from broker.core.clock import Now
from broker.core.timers import Timers

__all__ = ["HealingPace"]

# So much while there is traffic: to write it takes more of a machine than to send it, and so does whatever else runs
# there.
BYTES_PER_MS = 116 << 10
# What could not be sent for so long is made up for,
ARREARS_MS = 20
# and what could not be sent for so long is sent though somebody waits.
PATIENCE_MS = 8
# When nothing was written for so long, there is no traffic, and no limit.
QUIET_MS = 100


def _only_a_step() -> None:
    """A timer's action: after each step more is sent if it may be."""


class HealingPace:
    """The steps of a node, as those who heal others see them: `written` during one, then `end_step`, then `may_send`
    and `sent` for each slice. `goes_on` tells whether more may be sent in steps that have nothing else to do.
    """

    def __init__(self, now: Now, timers: Timers) -> None:
        self._now = now
        self._timers = timers
        self._due_ms = 0.0
        self._written_ms = now.ms - QUIET_MS
        self._has_written = False
        self._is_idle = self._was_idle = True
        self._is_awaited = False

    def written(self) -> None:
        """New records were sent to the replicas."""
        self._written_ms = self._now.ms
        self._has_written = True

    def end_step(self, *, awaited: bool) -> None:
        """What this step had to write is written; `awaited` if producers wait for copies of something."""
        self._was_idle, self._is_idle = self._is_idle, not (awaited or self._has_written)
        self._is_awaited, self._has_written = awaited, False

    @property
    def may_send(self) -> bool:
        """Whether a slice keeps nobody waiting, or has been kept waiting itself.

        In the step in which somebody's wait ends that goes out first: the acknowledgement.
        """
        return self._is_late or (self._was_idle and self._is_idle and self._is_due)

    @property
    def goes_on(self) -> bool:
        return self._is_late or (not self._is_awaited and self._is_due)

    @property
    def _is_due(self) -> bool:
        return self._due_ms <= self._now.ms

    @property
    def _is_late(self) -> bool:
        return self._due_ms + PATIENCE_MS <= self._now.ms

    @property
    def _has_traffic(self) -> bool:
        return self._now.ms - self._written_ms < QUIET_MS

    def sent(self, size: int) -> None:
        """A slice of `size` bytes was."""
        now_ms = self._now.ms
        if not self._has_traffic:
            return
        self._due_ms = max(self._due_ms, now_ms - ARREARS_MS) + size / BYTES_PER_MS
        for wanted_ms in (self._due_ms, self._due_ms + PATIENCE_MS):
            if wanted_ms > now_ms:
                self._timers.at(ceil(wanted_ms), _only_a_step)
