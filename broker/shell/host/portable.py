"""Calls that Linux and macOS both have.

They are tested on Linux. The few lines for macOS alone are checked by mypy, and were not run.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import select
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

__all__ = ["PortableHost"]

_PIECE_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_PIECE_BYTES)
# More than a pipe holds.
_PIPE_BYTES: Final = 1 << 20
# getrusage(2) counts the most resident memory in bytes on macOS, else in KiB.
_RESIDENT_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class PortableHost:
    """Calls that are in POSIX, or that both systems have."""

    name = "portable"

    def poller(self) -> ThreadPoller:
        return ThreadPoller()

    def wakener(self) -> PipeWakener:
        return PipeWakener()

    def alarm(self) -> None:
        return None

    def allocate(self, fd: int, start: int, size: int) -> None:
        holes = [*_holes(fd, start, start + size)]
        disk = os.fstatvfs(fd)
        # A write that fails midway could not release its part, which would stay allocated.
        if sum(end - first for first, end in holes) > disk.f_bavail * disk.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for first, end in holes:
            at = first
            while at < end:
                at += os.pwrite(fd, memoryview(_ZEROS)[: end - at], at)

    def flush_data(self, fd: int) -> None:
        self.flush(fd)

    def flush(self, fd: int) -> None:
        if sys.platform == "darwin":
            # Its fsync leaves the data in the drive's cache. Not all of its file systems have this.
            with suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
                return
        os.fsync(fd)

    def read_nothing_ahead(self, mapped: mmap.mmap, start: int, size: int) -> None:
        pass

    def map_ahead(self, mapped: mmap.mmap, start: int, size: int) -> None:
        pass

    def unmap(self, mapped: mmap.mmap, start: int, size: int) -> None:
        pass

    def acknowledge_at_once(self, sock: Any) -> None:
        pass

    def set_slice(self, ns: int) -> bool:
        return False

    def memory(self) -> tuple[int, int]:
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RESIDENT_UNIT
        return resident, resident

    def cpu_s(self, pid: int) -> float:
        return _seconds(_told(pid, "ps", "-o", "time="))

    def anonymous_memory(self, pid: int) -> int:
        return int(_told(pid, "ps", "-o", "rss=")) << 10

    def open_files(self, pid: int) -> int:
        # One line for each, "f" and its number; the others are of the process, of its folder and of its mappings.
        return sum(line[0] == "f" and line[1:].isdigit() for line in _told(pid, "lsof", "-Ff").splitlines())

    def load_certificate(self, context: ssl.SSLContext, pem: bytes) -> None:
        # Only its owner may read it.
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)


def _holes(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file between two offsets for which no disk is allocated."""
    at = start
    while at < end:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            data = end
        if at < data:
            yield at, min(data, end)
        at = os.lseek(fd, data, os.SEEK_HOLE) if data < end else end


def _told(pid: int, *command: str) -> str:
    run = subprocess.run([*command, "-p", str(pid)], capture_output=True, text=True, check=False)
    if not run.stdout.strip():
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(pid))
    return run.stdout.strip()


def _seconds(text: str) -> float:
    """Read a time of `ps`: [days-][hours:]minutes:seconds, with a fraction on macOS."""
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + int(days or 0) * 86_400


class PipeWakener:
    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    def fileno(self) -> int:
        return self._reading

    def set(self) -> None:
        with suppress(BlockingIOError):  # it is full, and so readable
            os.write(self._writing, b"\0")

    def clear(self) -> None:
        os.read(self._reading, _PIPE_BYTES)

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


class ThreadPoller:
    """A poll for the loop, and another of the same descriptors for a thread that waits while the loop does not.

    The thread only reports that some descriptor is ready; the loop's own poll finds which. So a descriptor that is
    closed or reused meanwhile costs the loop one poll in vain.
    """

    def __init__(self) -> None:
        self._polled = select.poll()
        self._watcher: _Watcher | None = None
        self._masks: dict[int, int] = {}

    def register(self, fd: int, mask: int, /) -> None:
        if fd in self._masks:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._watch(fd, mask)

    def modify(self, fd: int, mask: int, /) -> None:
        if fd not in self._masks:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._watch(fd, mask)

    def _watch(self, fd: int, mask: int) -> None:
        self._masks[fd] = mask
        self._polled.register(fd, mask)
        if self._watcher is not None:
            self._watcher.watch(fd, mask)

    def unregister(self, fd: int, /) -> None:
        try:
            del self._masks[fd]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
        self._polled.unregister(fd)
        if self._watcher is not None:
            self._watcher.forget(fd)

    def poll(self, timeout_s: float, /) -> list[tuple[int, int]]:
        if self._watcher is not None:
            self._watcher.take()
        return self._polled.poll(timeout_s * 1000)

    def arm(self) -> None:
        if self._watcher is None:
            self._watcher = _Watcher(self._masks)
        self._watcher.begin()

    def fileno(self) -> int:
        assert self._watcher is not None
        return self._watcher.told.fileno()

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()


class _Watcher:
    """The thread. From `begin` on it waits until something is ready, sets `told`, and rests until the next `begin`."""

    def __init__(self, masks: dict[int, int]) -> None:
        self.told = PipeWakener()
        self._changed = PipeWakener()
        self._polled = select.poll()
        self._polled.register(self._changed.fileno(), select.POLLIN)
        for fd, mask in masks.items():
            self._polled.register(fd, mask)
        self._turns = threading.Semaphore(0)
        self._is_waiting = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="poll", daemon=True)
        self._thread.start()

    def watch(self, fd: int, mask: int) -> None:
        # A poll that is under way keeps to the descriptors that it began with.
        self._polled.register(fd, mask)
        self._changed.set()

    def forget(self, fd: int) -> None:
        self._polled.unregister(fd)
        self._changed.set()

    def begin(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._turns.release()

    def take(self) -> None:
        if self._is_waiting:
            with suppress(BlockingIOError):
                self.told.clear()
                self._is_waiting = False

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()
        self._turns.release()
        self._thread.join()
        self.told.close()
        self._changed.close()

    def _run(self) -> None:
        while True:
            self._turns.acquire()
            while not self._is_closed:
                ready = [fd for fd, _ in self._polled.poll()]
                if self._changed.fileno() not in ready:
                    break
                with suppress(BlockingIOError):
                    self._changed.clear()
            if self._is_closed:
                return
            self.told.set()
