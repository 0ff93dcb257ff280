"""Linux's own calls."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import platform
import resource
import select
import socket
import ssl
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

assert sys.platform == "linux"

__all__ = ["LinuxHost"]

log = logging.getLogger("broker")

# In the kernel since 5.14; Python's mmap has no name for it.
MADV_POPULATE_WRITE: Final = 23

# sched_setattr(2), which the C library has only since glibc 2.41.
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
# struct sched_attr: size, policy, flags, nice, priority, runtime (here: the slice), deadline, period.
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")

_TFD_TIMER_ABSTIME: Final = 1
_SECOND_NS: Final = 1_000_000_000

# Fields of /proc/PID/stat after the program's name, which is in parentheses and may contain any characters.
_UTIME: Final = 14 - 3
_STIME: Final = 15 - 3


class LinuxHost:
    """The calls of Linux. The cost of an epoll depends on the number of ready descriptors, not of all."""

    name = "Linux"

    def poller(self) -> EpollPoller:
        return EpollPoller()

    def wakener(self) -> EventWakener:
        return EventWakener()

    def alarm(self) -> TimerAlarm:
        return TimerAlarm()

    def allocate(self, fd: int, start: int, size: int) -> None:
        os.posix_fallocate(fd, start, size)

    def flush_data(self, fd: int) -> None:
        os.fdatasync(fd)

    def flush(self, fd: int) -> None:
        os.fsync(fd)

    def read_nothing_ahead(self, mapped: mmap.mmap, start: int, size: int) -> None:
        # With read-ahead, the kernel would clear that much at the first touch: 8 MiB on some machines, in 20 ms.
        mapped.madvise(mmap.MADV_RANDOM, start, size)

    def map_ahead(self, mapped: mmap.mmap, start: int, size: int) -> None:
        with suppress(OSError):  # an older kernel: each page is mapped when it is touched
            mapped.madvise(MADV_POPULATE_WRITE, start, size)

    def unmap(self, mapped: mmap.mmap, start: int, size: int) -> None:
        mapped.madvise(mmap.MADV_DONTNEED, start, size)

    def acknowledge_at_once(self, sock: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def set_slice(self, ns: int) -> bool:
        # Kernels before 6.12 accept it and change nothing. Policies other than the normal one are left alone.
        number = _SCHED_SETATTR.get(platform.machine())
        if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
            return False
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, ns, 0, 0)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(number, 0, attributes, 0) == 0:
            return True
        log.debug("the kernel does not support a time slice per thread: %s", os.strerror(ctypes.get_errno()))
        return False

    def memory(self) -> tuple[int, int]:
        try:
            virtual, resident, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
        except OSError:
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            return most, most
        page = os.sysconf("SC_PAGESIZE")
        return int(virtual) * page, int(resident) * page

    def cpu_s(self, pid: int) -> float:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat[stat.rindex(")") + 2 :].split()
        return (int(fields[_UTIME]) + int(fields[_STIME])) / os.sysconf("SC_CLK_TCK")

    def anonymous_memory(self, pid: int) -> int:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise OSError(0, "the kernel does not report the process's anonymous memory")

    def open_files(self, pid: int) -> int:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())

    def load_certificate(self, context: ssl.SSLContext, pem: bytes) -> None:
        # OpenSSL reads files only. This one is in memory, and private.
        descriptor = os.memfd_create("certificate")
        try:
            os.write(descriptor, pem)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)


class EpollPoller:
    """An epoll, whose own descriptor is readable whenever one of its descriptors is ready."""

    def __init__(self) -> None:
        epoll = select.epoll()
        self.register = epoll.register
        self.modify = epoll.modify
        self.unregister = epoll.unregister
        self.poll = epoll.poll
        self.fileno = epoll.fileno
        self.close = epoll.close

    def arm(self) -> None:
        pass


class EventWakener:
    """An event descriptor."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def set(self) -> None:
        os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        os.eventfd_read(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class TimerAlarm:
    """A timer descriptor; Python has had calls for it since 3.13 only."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        # The flags of timerfd_create are those of open.
        self._fd: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()

    def fileno(self) -> int:
        return self._fd

    def set(self, due_ns: int) -> None:
        self._spec.it_value.tv_sec, self._spec.it_value.tv_nsec = divmod(due_ns, _SECOND_NS)
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def clear(self) -> None:
        os.read(self._fd, 8)

    def close(self) -> None:
        os.close(self._fd)
