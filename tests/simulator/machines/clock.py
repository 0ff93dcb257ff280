"""Time in a simulated world: only the next due action happens, and each machine's clock has its own rate."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

__all__ = ["Clock", "MachineClock"]

MILLION = 1_000_000


class Clock:
    """The true time, in microseconds from the beginning, and the actions due."""

    def __init__(self) -> None:
        self.us = 0
        self.steps = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, us: int, action: Callable[[], None]) -> None:
        """Let `action` happen in `us` microseconds, after all earlier actions for that moment."""
        heapq.heappush(self._heap, (self.us + us, next(self._numbers), action))

    def step(self) -> None:
        self.us, _, action = heapq.heappop(self._heap)
        self.steps += 1
        action()


class MachineClock:
    """One machine's clock: a rate, in parts per million off the true one, and a wall clock that jumps."""

    def __init__(self, clock: Clock, wall_s: int, drift_ppm: int = 0, uptime_ms: int = MILLION) -> None:
        self._clock = clock
        self._wall_s = wall_s
        self._off_s = 0
        self.was_set = False
        self._factor = (MILLION + drift_ppm) / MILLION
        self._uptime_ms = uptime_ms

    @property
    def ms(self) -> int:
        """The monotonic clock."""
        return self._uptime_ms + int(self._clock.us * self._factor) // 1000

    @property
    def wall_s(self) -> int:
        return self._wall_s + self._off_s + int(self._clock.us * self._factor) // MILLION

    def set_wall(self, seconds_off: int) -> None:
        self._off_s = seconds_off
        self.was_set = True
