"""The time that requests may take in one step of the loop, shared by all connections of a node.

If the requests of one read take too long, their connection gives way: the others wait for a later step, until other
connections have been read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["CONNECTION_NS", "STEP_NS", "StepTime"]

# For all connections in one step, and the minimum for each after that is spent.
STEP_NS: Final = 10_000_000
CONNECTION_NS: Final = 500_000


class GivingWay(Protocol):
    """A connection that leaves requests for a later step."""

    def go_on(self) -> None:
        """Take input again, and flush the link."""
        ...


class StepTime:
    """The time of the present step, and the connections that wait for a later one.

    `clock_ns`, which never goes back, is read for each request. With a clock that stands still, time is unlimited.
    """

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._until_ns = 0
        self._stopped: list[GivingWay] = []
        self._next: list[GivingWay] = []

    def begin(self) -> int:
        """Return the time until which requests of one read may be carried out."""
        now_ns = self._clock_ns()
        if not self._until_ns:
            self._until_ns = now_ns + STEP_NS
        return max(self._until_ns, now_ns + CONNECTION_NS)

    def is_over(self, until_ns: int) -> bool:
        """Return whether a time from `begin` has passed."""
        return self._clock_ns() > until_ns

    def give_way(self, connection: GivingWay) -> None:
        """Continue a connection at the end of the next step, after others were read."""
        self._stopped.append(connection)

    def end_step(self) -> bool:
        """Continue the connections that gave way in the last step; return whether others wait for the next one."""
        self._until_ns = 0
        if not self._stopped and not self._next:
            return False
        going_on, self._next, self._stopped = self._next, self._stopped, []
        for connection in going_on:
            connection.go_on()
        return bool(self._next)
