"""Sleeping to the microsecond under trio.

On Linux trio's own sleep ends in `epoll_wait`, whose timeout is a whole number of milliseconds: an open loop of 5,000
messages/s would send them in clumps of five. An alarm's descriptor becomes readable when it is due. The systems without
one give trio a timeout to the nanosecond.
"""

from __future__ import annotations

from types import TracebackType

import trio

from bmqctl.bench.plan import monotonic_ns
from bmqctl.bench.schedule import SECOND_NS
from broker.shell.host.calls import HOST

__all__ = ["Timer"]


class Timer:
    """A timer of one task, on CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._alarm = HOST.alarm()

    async def until(self, due_ns: int) -> None:
        """Sleep until `due_ns`; always a checkpoint."""
        left_ns = due_ns - monotonic_ns()
        if left_ns <= 0:
            await trio.lowlevel.checkpoint()
        elif self._alarm is None:
            await trio.sleep(left_ns / SECOND_NS)
        else:
            self._alarm.set(due_ns)
            await trio.lowlevel.wait_readable(self._alarm.fileno())
            self._alarm.clear()

    def __enter__(self) -> Timer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._alarm is not None:
            self._alarm.close()
