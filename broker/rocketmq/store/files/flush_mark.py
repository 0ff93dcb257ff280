"""The mark of the last flush in its file; see `formats.rocketmq.files.flush_mark`."""

from __future__ import annotations

from broker.common.files import StoreFile
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.ports import Folder
from formats.rocketmq.files.flush_mark import FLUSH_MARK, MARK_NAME, FlushMark, decode_mark, encode_mark

__all__ = ["FLUSH_MARK", "MARK_NAME", "FlushMark", "find_mark", "make_mark", "need_small", "read_mark", "write_mark"]


def _open_small(root: Folder, name: str, size: int) -> StoreFile | None:
    """Open a small file; None if it is new and the disk has no room for it.

    A file without disk space cannot be read everywhere: a full memory file system ends the process (SIGBUS).
    """
    is_new = name not in root.names()
    file = root.open(name, size)
    if is_new and not file.reserve(size):
        file.close()
        root.remove(name)
        return None
    return file


def need_small(root: Folder, name: str, size: int) -> StoreFile:
    """Open a small file, allocated on the disk if new. Raises `DiskFull`."""
    file = _open_small(root, name, size)
    if file is None:
        raise DiskFull(f"{root.path_of(name)}: no disk space for {size} bytes")
    return file


def find_mark(root: Folder) -> StoreFile | None:
    return root.open(MARK_NAME, FLUSH_MARK.size) if MARK_NAME in root.names() else None


def make_mark(root: Folder) -> StoreFile | None:
    """Open the file of the mark; None if it is new and the disk has no room for it."""
    return _open_small(root, MARK_NAME, FLUSH_MARK.size)


def read_mark(file: StoreFile) -> FlushMark | None:
    """Return the mark in a file; None without one that is whole."""
    return decode_mark(file.buffer)


def write_mark(file: StoreFile, stored_ms: int, log_end: int) -> None:
    """Write a mark, unless the disk has no room for it."""
    if file.reserve(FLUSH_MARK.size):
        file.buffer[: FLUSH_MARK.size] = encode_mark(stored_ms, log_end)
