"""Waiting for what other processes, threads and tasks do.

The bounds are for what will never happen, and generous: a busy machine is slow, and nothing is wrong then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import trio

__all__ = ["WAIT_S", "eventually", "eventually_in_trio"]

WAIT_S: Final = 120
_STEP_S: Final = 0.02

T = TypeVar("T")


def eventually(
    look: Callable[[], T | None],
    timeout_s: float = WAIT_S,
    step_s: float = _STEP_S,
    state: Callable[[], object] | None = None,
) -> T:
    """Call `look` until it returns neither None nor False, and return that.

    `TimeoutError` if that is not so in time, with what `state` returns then.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        # The clock is read first: what is so when the time is over has come in time.
        is_over = time.monotonic() > deadline_s
        found = look()
        if found is not None and found is not False:
            return found
        if is_over:
            raise _too_late(timeout_s, state)
        time.sleep(step_s)


async def eventually_in_trio(
    look: Callable[[], T | None],
    timeout_s: float = WAIT_S,
    step_s: float = _STEP_S,
    state: Callable[[], object] | None = None,
) -> T:
    """Do as `eventually` does, by Trio's clock, while other tasks run."""
    deadline_s = trio.current_time() + timeout_s
    while True:
        is_over = trio.current_time() > deadline_s
        found = look()
        if found is not None and found is not False:
            return found
        if is_over:
            raise _too_late(timeout_s, state)
        await trio.sleep(step_s)


def _too_late(timeout_s: float, state: Callable[[], object] | None) -> TimeoutError:
    return TimeoutError(f"not so after {timeout_s} s" + (f": {state()}" if state is not None else ""))
