"""The time slice of this process under the kernel's scheduler."""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import struct

__all__ = ["LONG_SLICE_NS", "set_slice"]

log = logging.getLogger("broker")

# A process with a long slice yields at once to one that wakes up with a shorter slice, about 3 ms by default; its share
# of the processor is the same.
LONG_SLICE_NS = 100_000_000

# sched_setattr(2), which the C library has only since glibc 2.41.
_SYSCALLS = {"x86_64": 314, "aarch64": 274}
# struct sched_attr: size, policy, flags, nice, priority, runtime (here: the slice), deadline, period.
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")


def set_slice(ns: int) -> bool:
    """Ask the kernel for slices of `ns` nanoseconds, 0 for its own choice; return True if it accepted.

    Kernels before 6.12 accept it and change nothing. Policies other than the normal one are left alone.
    """
    number = _SYSCALLS.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, ns, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, 0, attributes, 0) == 0:
        return True
    log.debug("the kernel does not support a time slice per thread: %s", os.strerror(ctypes.get_errno()))
    return False
