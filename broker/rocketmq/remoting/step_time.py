"""The time that requests may take in one step of the loop, shared by all connections of a node.

A peer may send any number of requests at once. Where those of one read take long, its connection gives way: the rest of
them waits until other connections have been read, and is carried out in a later step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["CONNECTION_NS", "STEP_NS", "StepTime"]

# The time for the requests of all connections in one step, and what each connection gets if others have used that up.
STEP_NS: Final = 10_000_000
CONNECTION_NS: Final = 500_000


class GivingWay(Protocol):
    """A connection that leaves requests for later."""

    def go_on(self) -> None:
        """Take input again, and have the link flushed."""
        ...


class StepTime:
    """The time of the current step, and the connections that wait for a later one.

    `clock_ns` never goes back. It is read for each request. If it stands still, requests may take any time.
    """

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._until_ns = 0
        self._stopped: list[GivingWay] = []
        self._next: list[GivingWay] = []

    def begin(self) -> int:
        """Return the time until which the requests of a read may be carried out."""
        now_ns = self._clock_ns()
        if not self._until_ns:
            self._until_ns = now_ns + STEP_NS
        return max(self._until_ns, now_ns + CONNECTION_NS)

    def is_over(self, until_ns: int) -> bool:
        """Return whether a time that `begin` returned is over."""
        return self._clock_ns() > until_ns

    def give_way(self, connection: GivingWay) -> None:
        """Have a connection go on at the end of the next step, when others have been read."""
        self._stopped.append(connection)

    def end_step(self) -> bool:
        """Have those go on that have given way in the step before; return whether others wait for the next step."""
        going_on, self._next, self._stopped = self._next, self._stopped, []
        self._until_ns = 0
        for connection in going_on:
            connection.go_on()
        return bool(self._next)
