# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The pace of healing replicas: slices are sent while no other work waits, below the machine's capacity.

All partitions of a node share it, since each delays the producers of the others.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from broker.common.clock import Now
from broker.common.timers import Timers

__all__ = ["HealingPace"]

# The rate under traffic: writing costs the receiving machine more than sending, and other processes may run there.
BYTES_PER_MS: Final = 116 << 10
# Arrears of this time are caught up.
ARREARS_MS: Final = 20
# After this time a slice is sent even though other work waits.
PATIENCE_MS: Final = 8
# Time without writes after which there is no limit.
QUIET_MS: Final = 100


def _only_a_step() -> None:
    """Do nothing: the timer's step itself sends more if allowed."""


class HealingPace:
    """The pace of one node: call `written` during a step, then `end_step`, then `may_send` and `sent` for each slice.

    `goes_on` is True if more may be sent in steps that have nothing else to do.
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
        self._written_ms = self._now.ms
        self._has_written = True

    def end_step(self, *, awaited: bool) -> None:
        """End a step; `awaited` if producers wait for replicas."""
        self._was_idle, self._is_idle = self._is_idle, not (awaited or self._has_written)
        self._is_awaited, self._has_written = awaited, False

    @property
    def may_send(self) -> bool:
        """True if a slice delays no other work, or has been delayed long enough itself.

        In the step in which a wait ends, the acknowledgement goes out first.
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
        now_ms = self._now.ms
        if not self._has_traffic:
            return
        self._due_ms = max(self._due_ms, now_ms - ARREARS_MS) + size / BYTES_PER_MS
        for wanted_ms in (self._due_ms, self._due_ms + PATIENCE_MS):
            if wanted_ms > now_ms:
                self._timers.at(ceil(wanted_ms), _only_a_step)
