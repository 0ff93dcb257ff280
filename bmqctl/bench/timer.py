"""Sleeping to the microsecond under trio.

Trio's own sleep ends in `epoll_wait`, whose timeout is a whole number of milliseconds: an open loop of 5,000
messages/s would send them in clumps of five. A timer file descriptor becomes readable when it is due.
"""

from __future__ import annotations

import ctypes
import os
import time
from types import TracebackType

import trio

from bmqctl.bench.plan import monotonic_ns
from bmqctl.bench.schedule import SECOND_NS

__all__ = ["Timer"]

TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class Timer:
    """A timer of one task, on CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        # The flags of timerfd_create are those of open.
        self._fd: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()

    async def until(self, due_ns: int) -> None:
        """Sleep until `due_ns`; always a checkpoint."""
        if due_ns <= monotonic_ns():
            await trio.lowlevel.checkpoint()
            return
        self._spec.it_value.tv_sec, self._spec.it_value.tv_nsec = divmod(due_ns, SECOND_NS)
        if self._libc.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        await trio.lowlevel.wait_readable(self._fd)
        os.read(self._fd, 8)

    def __enter__(self) -> Timer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        os.close(self._fd)
