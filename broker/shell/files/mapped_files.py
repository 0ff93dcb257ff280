"""Mapped files.

A store file is sparse: it has its maximum length from the start. Chunks of it are allocated, which double from
`CHUNK_BYTES_MIN` to `CHUNK_BYTES` as the file fills, so that a queue with one message takes one page of disk. Writing a
mapped page that the disk cannot hold kills the process (SIGBUS), so every chunk is allocated before its first byte is
written, and a full disk becomes a result instead.

Files and folders are created for the account of the node only: they hold other people's messages.

Threads do the work that may wait for the disk: the next chunk is allocated while the one before is filled, and unused
files are closed, cut and deleted.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import mmap
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from broker.common.files import StoreFile, put_away
from broker.shell.host.calls import HOST
from formats.schema import Buffer

__all__ = [
    "PRIVATE_FILE",
    "UNMAPPED_BYTES",
    "DataDirectory",
    "DirectoryInUse",
    "MappedFile",
    "delete",
    "make_folder",
    "open_private",
    "open_regular",
    "read_regular",
    "set_aside",
]

# The longest chunk: small enough not to waste disk, large enough that allocating is rare at 100 MB/s.
CHUNK_BYTES = 8 << 20
CHUNK_BYTES_MIN = 4 << 10

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700

# Mapped at once ahead of writes: page by page, at first touch, this takes four times as long; much more would delay
# other work.
AHEAD_BYTES = 256 << 10

# The pages of a closed file are unmapped in parts of this size, since other allocations of memory wait in the kernel
# for each part: too long for a whole file of 1 GiB.
UNMAPPED_BYTES = 4 << 20
UNMAPPING_PAUSE_S = 0.0005

_ALLOCATING = ThreadPoolExecutor(1, "allocate")


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, for this account only. An existing folder stays as it is."""
    missing = [path]
    while True:
        try:
            missing[-1].mkdir(PRIVATE_FOLDER, exist_ok=True)
            break
        except FileNotFoundError:
            if missing[-1] == missing[-1].parent:
                raise
            missing.append(missing[-1].parent)
    for folder in reversed(missing[:-1]):
        folder.mkdir(PRIVATE_FOLDER, exist_ok=True)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file; a new one is for this account only. Also serves as an `opener` of `open`."""
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)


def open_regular(path: Path, flags: int) -> int:
    """Open a file of a store; a new one is for this account only.

    Raises `OSError` if it is not a regular file: opening a pipe would wait, and reading a device might never end.
    """
    descriptor = open_private(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return descriptor


def read_regular(path: Path) -> bytes:
    """Read a small file of a store. Raises `OSError` like `open_regular`."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read()


class MappedFile:
    """One mapped file; see `broker.common.files.StoreFile`."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        is_new = not path.exists()
        self._fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            size = max(size, os.fstat(self._fd).st_size)
            os.truncate(self._fd, size)
            self._map = mmap.mmap(self._fd, size)
        except BaseException:
            os.close(self._fd)
            if is_new:
                path.unlink()
            raise
        self._size = size
        self._allocated = self._granted = 0
        self._ahead: Future[int] | None = None  # the next chunk's allocation, which returns its end
        self._is_advised = False
        # Held while another thread flushes the file.
        self._closing = threading.Lock()
        self._closed = False
        self.buffer = memoryview(self._map)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def granted(self) -> int:
        return self._granted

    @property
    def data_end(self) -> int:
        # Reading 300 MB of holes takes most of a second; the file system knows their positions.
        end = 0
        while True:
            try:
                end = os.lseek(self._fd, os.lseek(self._fd, end, os.SEEK_DATA), os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return end

    def reserve(self, end: int) -> bool:
        if end <= self._granted:
            return True
        if end > self._size or (end > self._allocated and not self._allocate(end)):
            return False
        start = max(self._granted, end - AHEAD_BYTES)
        self._granted = min(self._allocated, -(-end // AHEAD_BYTES) * AHEAD_BYTES)
        self._map_ahead(start, self._granted)
        self._allocate_ahead(end)
        return True

    def write(self, start: int, data: Buffer) -> bool:
        end = start + len(data)
        if end > self._size or (end > self._allocated and not self._allocate(end)):
            return False
        # A write call takes whole pages, without clearing and mapping each of them first: five times as fast.
        with memoryview(data) as left:
            while start < end:
                start += os.pwrite(self._fd, left[start - end :], start)
        self._granted = max(self._granted, end)
        self._allocate_ahead(end)
        return True

    def _allocate(self, end: int) -> bool:
        if self._ahead is not None:
            self._allocated = max(self._allocated, self._ahead.result())
            self._ahead = None
            if end <= self._allocated:
                return True
        start = self._allocated
        chunk = _chunk_bytes(end)
        wanted = min(self._size, -(-end // chunk) * chunk)
        # On a nearly full disk the required part may fit where the whole chunk does not.
        for stop in (wanted, end):
            try:
                HOST.allocate(self._fd, start, stop - start)
            except OSError:
                continue
            self._allocated = stop
            return True
        return False

    def _allocate_ahead(self, end: int) -> None:
        """Begin to allocate the next chunk in a thread if half of the last one is in use."""
        start = self._allocated
        chunk = _chunk_bytes(start)
        if self._ahead is None and start < self._size and start - end < chunk // 2:
            stop = min(self._size, start + chunk)
            self._ahead = _ALLOCATING.submit(_allocated_to, self._fd, start, stop)

    def _map_ahead(self, start: int, end: int) -> None:
        start -= start % mmap.PAGESIZE
        # Once, for the whole rest: the kernel divides a mapping only when no other task walks through it, as the
        # write-back of the file's pages does.
        if not self._is_advised:
            self._is_advised = True
            HOST.read_nothing_ahead(self._map, start, self._size - start)
        HOST.map_ahead(self._map, start, end - start)

    def flush(self) -> None:
        # Writes through the mapping are already in the kernel's file cache.
        with self._closing:
            if not self._closed:
                HOST.flush_data(self._fd)

    def close(self, size: int | None = None) -> None:
        with self._closing:
            self._closed = True
        self.buffer.release()
        self._map.close()
        if self._ahead is not None:
            self._ahead.result()
        if size is not None:
            os.truncate(self._fd, size)
        os.close(self._fd)

    def unmap_slowly(self) -> None:
        """Unmap its pages in a thread, before it is closed."""
        with self._closing:
            self._closed = True
        for start in range(0, self._size, UNMAPPED_BYTES):
            HOST.unmap(self._map, start, min(UNMAPPED_BYTES, self._size - start))
            time.sleep(UNMAPPING_PAUSE_S)


def _chunk_bytes(end: int) -> int:
    return min(CHUNK_BYTES, max(CHUNK_BYTES_MIN, 1 << (end - 1).bit_length()))


def _allocated_to(fd: int, start: int, stop: int) -> int:
    """Allocate a part of a file, if the disk has room; return the end of the allocated part."""
    try:
        HOST.allocate(fd, start, stop - start)
    except OSError:
        return start
    return stop


DAMAGED_FOLDER = "damaged"


def set_aside(folder: Path, name: str) -> str:
    """Move a damaged file to where it is not deleted; return its new path."""
    damaged = folder / DAMAGED_FOLDER
    make_folder(damaged)
    target = damaged / name
    for number in itertools.count(2):
        if not target.exists():
            break
        target = damaged / f"{name}.{number}"
    (folder / name).rename(target)
    return str(target)


def delete(path: Path) -> None:
    """Delete a file. Its disk space is freed in a thread: that takes long for a large file."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # No descriptor is free, or the file does not exist.
        path.unlink()
        return
    try:
        path.unlink()
    except BaseException:
        os.close(held)
        raise
    threading.Thread(target=os.close, args=(held,), name=f"delete {path.name}").start()


class DirectoryInUse(Exception):
    """Another node holds the store; `holder` is the content of its lock file."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path}: in use by another node (pid {holder or 'unknown'}); stop it, or name another folder")


class DataDirectory:
    """The folder of a store, held by one process at a time.

    The lock is the kernel's: it ends with a killed node.
    """

    LOCK_NAME = "bmqctl.lock"

    def __init__(self, path: Path, archive: Path, archived_file_sets_max: int = 0) -> None:
        self._path = path
        self._archive = archive
        self._keep = archived_file_sets_max
        make_folder(path)
        lock = path / self.LOCK_NAME
        self._lock = open_regular(lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._lock, 32).decode(errors="replace").strip()
            os.close(self._lock)
            raise DirectoryInUse(path, holder) from None
        os.truncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())
        self._away = ThreadPoolExecutor(1, "put away")
        # Kept open, so that the folder can be flushed even when no descriptor is free.
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def path(self) -> str:
        return str(self._path)

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self._path.iterdir() if entry.is_file())

    def open(self, name: str, size: int) -> MappedFile:
        return MappedFile(self._path / name, size)

    def remove(self, name: str) -> None:
        delete(self._path / name)

    def archive(self, name: str) -> None:
        if self._keep == 0:
            delete(self._path / name)
            return
        make_folder(self._archive)
        # Not `rename`: the archive may be on another disk.
        shutil.move(self._path / name, self._archive / name)
        suffix = Path(name).suffix
        partition = name.split(".", 1)[0]
        kept = sorted(self._archive.glob(f"{partition}.*{suffix}"))
        for old in kept[: -self._keep]:
            delete(old)

    def put_away(self, files: Sequence[tuple[StoreFile, int]], failed: Callable[[Exception], None]) -> None:
        def work() -> None:
            try:
                for file, _ in files:
                    if isinstance(file, MappedFile):
                        file.unmap_slowly()
                put_away(self, files, failed)
            except Exception as error:
                failed(error)

        # One thread keeps the order of the calls.
        self._away.submit(work)

    def set_aside(self, name: str) -> str:
        return set_aside(self._path, name)

    def flush(self) -> None:
        HOST.flush(self._folder)

    def touch(self) -> None:
        """Change the time of the lock file.

        Raises `OSError` if the file system no longer accepts changes. A full disk is temporary, and raises nothing.
        """
        try:
            os.utime(self._lock)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def close(self) -> None:
        """Release the folder for other nodes, once all `put_away` work is done."""
        self._away.shutdown()
        os.close(self._folder)
        os.close(self._lock)
