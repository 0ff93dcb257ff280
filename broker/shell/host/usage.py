"""Processor time, memory and faults of this process over the last minute."""

from __future__ import annotations

import resource
import time
from collections import deque
from typing import NamedTuple

from broker.shell.host.calls import HOST

__all__ = ["SAMPLE_MS", "ProcessUsage"]

SAMPLE_MS = 10_000
# The window is the minute that other statistics cover.
SAMPLES_KEPT = 7


class UsageSample(NamedTuple):
    """Totals at one moment; memory is in bytes."""

    at_s: float
    system_s: float
    user_s: float
    resident: int
    virtual: int
    minor_faults: int
    major_faults: int
    swaps: int
    waits: int
    preemptions: int


class ProcessUsage:
    """Samples of this process. Call `sample` every `SAMPLE_MS`."""

    def __init__(self) -> None:
        self._samples: deque[UsageSample] = deque(maxlen=SAMPLES_KEPT)
        self.sample()

    def sample(self) -> None:
        self._samples.append(_sample())

    def metrics(self) -> dict[str, int]:
        """Return the values by the reference's names: CPU in percent of one processor, and the highest memory."""
        old, now = self._samples[0], _sample()
        duration_s = max(now.at_s - old.at_s, 1e-3)
        system, user = now.system_s - old.system_s, now.user_s - old.user_s
        samples = (*self._samples, now)
        return {
            "brkr_system_cpu_sys": round(100 * system / duration_s),
            "brkr_system_cpu_usr": round(100 * user / duration_s),
            "brkr_system_cpu_all": round(100 * (system + user) / duration_s),
            "brkr_system_mem_res": max(each.resident for each in samples),
            "brkr_system_mem_virt": max(each.virtual for each in samples),
            "brkr_system_os_pagefaults_minor": now.minor_faults - old.minor_faults,
            "brkr_system_os_pagefaults_major": now.major_faults - old.major_faults,
            "brkr_system_os_swaps": now.swaps - old.swaps,
            "brkr_system_os_ctxswitch_voluntary": now.waits - old.waits,
            "brkr_system_os_ctxswitch_involuntary": now.preemptions - old.preemptions,
        }


def _sample() -> UsageSample:
    used = resource.getrusage(resource.RUSAGE_SELF)
    virtual, resident = HOST.memory()
    return UsageSample(
        time.monotonic(),
        used.ru_stime,
        used.ru_utime,
        resident,
        virtual,
        used.ru_minflt,
        used.ru_majflt,
        used.ru_nswap,
        used.ru_nvcsw,
        used.ru_nivcsw,
    )
