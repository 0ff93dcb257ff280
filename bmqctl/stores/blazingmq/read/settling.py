"""The wait for a broker that is copying records into a file that is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["settling"]

# 2.5 seconds in all: on a busy machine, a broker may be interrupted in the middle of a write.
_SETTLE_S: Final = tuple(0.01 * 2**step for step in range(8))


def settling() -> Callable[[], bool]:
    """Return a function that waits, longer with each call; it returns False when it has waited long enough."""
    waits = iter(_SETTLE_S)

    def settle() -> bool:
        wait_s = next(waits, None)
        if wait_s is not None:
            time.sleep(wait_s)
        return wait_s is not None

    return settle
