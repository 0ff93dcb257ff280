"""The speed of this machine beside that for which bounds on processor time were chosen."""

from __future__ import annotations

import json
import time
from typing import Final

__all__ = ["slowness"]

# The time of the fixed piece of work on the machine for which the bounds were chosen.
WORK_S: Final = 0.02
TRIES: Final = 5


def slowness() -> float:
    """Return the factor, at least 1, by the fastest of a few tries at a fixed piece of work."""
    return max(1.0, min(_work_s() for _ in range(TRIES)) / WORK_S)


def _work_s() -> float:
    text = "[" + "0," * (1 << 19) + "0]"
    begin = time.thread_time()
    json.loads(text)
    return time.thread_time() - begin
