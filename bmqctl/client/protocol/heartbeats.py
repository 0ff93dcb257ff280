"""The check that a broker is alive: after an interval of silence it is asked for a heartbeat."""

from __future__ import annotations

from enum import Enum

__all__ = ["Check", "Heartbeats"]


class Check(Enum):
    """The outcome of a check: the action to take."""

    ALIVE = "nothing"
    SILENT = "ask for a heartbeat"
    LOST = "give the broker up"


class Heartbeats:
    """The broker's signs of life, with the interval and the limit of its answer to our identity.

    Everything received sets `heard`. `missed` is the number of consecutive heartbeats without an answer.
    """

    __slots__ = ("_interval_ns", "_missed_max", "_next_ns", "heard", "missed")

    def __init__(self) -> None:
        self.heard = True
        self.missed = 0
        self._missed_max = 0
        self._interval_ns = 0  # 0 while there are no checks
        self._next_ns = 0

    def begin(self, interval_ms: int, missed_max: int, now_ns: int) -> None:
        """Begin to check; never, if the interval or the limit is 0."""
        self.heard = True
        self.missed = 0
        self._missed_max = missed_max
        self._interval_ns = interval_ms * 1_000_000 if missed_max else 0
        self._next_ns = now_ns + self._interval_ns

    def stop(self) -> None:
        self._interval_ns = 0

    @property
    def due_ns(self) -> int | None:
        """Time of the next check; None if there is none."""
        return self._next_ns if self._interval_ns else None

    def check(self, now_ns: int) -> Check:
        """Check the broker, once in an interval."""
        if not self._interval_ns or now_ns < self._next_ns:
            return Check.ALIVE
        self._next_ns = now_ns + self._interval_ns
        if self.heard:
            self.heard = False
            self.missed = 0
            return Check.ALIVE
        if self.missed >= self._missed_max:
            return Check.LOST
        self.missed += 1
        return Check.SILENT
