"""The wait for a broker that is copying records into the file being read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["settling"]

# 2.5 seconds in all: a busy machine may interrupt a broker in the middle of a write.
_SETTLE_S: Final = tuple(0.01 * 2**step for step in range(8))


def settling() -> Callable[[], bool]:
    """Return a function that waits, longer with each call, and returns False when the time is over."""
    waits = iter(_SETTLE_S)

    def settle() -> bool:
        wait_s = next(waits, None)
        if wait_s is not None:
            time.sleep(wait_s)
        return wait_s is not None

    return settle
