# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The active files of one partition: their ends, and their room for further records.

Invariants: `journal_end`, `data_end`, `qlist_end` are the offsets of the next records; everything below is written,
everything above is zero. A DATA record is complete before the journal record that names it is written, so a process
killed at any point leaves at most bytes that nothing refers to.

Fault model: a killed process loses nothing that was written, since the pages are the kernel's. A machine that loses
power may lose any page that was not flushed: the journal then ends at the first record that is not whole, and a payload
that does not match its checksum is found before the node serves it.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from broker.common.files import Directory, StoreFile
from formats.bmq.disk.files import FileSet, FileType, StoreFileName, initial_bytes

__all__ = ["FileEnds", "PartitionFiles", "PartitionLimits", "readable", "written_end", "zero_from"]

log: Final = logging.getLogger("broker.store")

SCAN_BYTES: Final = 1 << 20


class PartitionLimits:
    """Maximum sizes of a partition's files, in bytes."""

    __slots__ = ("data", "journal", "qlist")

    def __init__(self, journal: int, data: int, qlist: int) -> None:
        self.journal = journal
        self.data = data
        self.qlist = qlist


class FileEnds(NamedTuple):
    """The ends of the written parts of the files; zeros follow them."""

    journal: int
    data: int
    qlist: int


class PartitionFiles:
    """The three open files of one set."""

    __slots__ = ("data", "data_end", "directory", "journal", "journal_end", "qlist", "qlist_end", "timestamp")

    def __init__(
        self, directory: Directory, timestamp: str, journal: StoreFile, data: StoreFile, qlist: StoreFile
    ) -> None:
        self.directory = directory
        self.timestamp = timestamp
        self.journal = journal
        self.data = data
        self.qlist = qlist
        self.journal_end = self.data_end = self.qlist_end = 0

    @classmethod
    def open(cls, directory: Directory, file_set: FileSet, limits: PartitionLimits) -> PartitionFiles:
        """Open an existing complete set; recovery sets the ends."""
        assert file_set.journal is not None
        assert file_set.data is not None
        assert file_set.qlist is not None
        return cls(
            directory,
            file_set.timestamp,
            directory.open(file_set.journal, limits.journal),
            directory.open(file_set.data, limits.data),
            directory.open(file_set.qlist, limits.qlist),
        )

    @classmethod
    def create(
        cls, directory: Directory, partition_id: int, timestamp: str, limits: PartitionLimits
    ) -> PartitionFiles | None:
        """Make an empty set like `make`; return None on failure."""
        try:
            return cls.make(directory, partition_id, timestamp, limits)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                log.error("partition %d gets no new files: %s", partition_id, error)
            return None

    @classmethod
    def make(cls, directory: Directory, partition_id: int, timestamp: str, limits: PartitionLimits) -> PartitionFiles:
        """Make an empty set. Raises `OSError`, leaving no files, if the disk is full or no file can be opened."""
        opened: list[StoreFile] = []
        ends: list[int] = []
        sizes = {FileType.JOURNAL: limits.journal, FileType.DATA: limits.data, FileType.QLIST: limits.qlist}
        for file_type, size in sizes.items():
            name = str(StoreFileName(partition_id, timestamp, file_type))
            try:
                file = directory.open(name, size)
            except OSError:
                _remove(directory, opened)
                raise
            opened.append(file)
            head = initial_bytes(file_type, partition_id)
            if not file.reserve(len(head)):
                _remove(directory, opened)
                raise OSError(errno.ENOSPC, "No space left on device", directory.path)
            file.buffer[: len(head)] = head
            ends.append(len(head))
        files = cls(directory, timestamp, *opened)
        files.journal_end, files.data_end, files.qlist_end = ends
        return files

    @property
    def ends(self) -> FileEnds:
        return FileEnds(self.journal_end, self.data_end, self.qlist_end)

    def flush(self) -> None:
        for file in (self.data, self.qlist, self.journal):
            file.flush()

    def close(self) -> None:
        """Truncate the files to their written parts, as the reference does on a clean stop, and close them."""
        self.journal.close(self.journal_end)
        self.data.close(self.data_end)
        self.qlist.close(self.qlist_end)

    def remove(self) -> None:
        """Close and delete the files, the journal last, so that the remains after a crash are recognisable."""
        for file in (self.qlist, self.data, self.journal):
            file.close()
            self.directory.remove(file.name)

    def set_aside(self) -> None:
        for file in (self.qlist, self.data, self.journal):
            file.close()
            self.directory.set_aside(file.name)

    def retire(self, failed: Callable[[Exception], None]) -> None:
        """Close the files and take them out of service; see `Directory.put_away`."""
        files = ((self.journal, self.journal_end), (self.data, self.data_end), (self.qlist, self.qlist_end))
        self.directory.put_away(files, failed)


def _remove(directory: Directory, opened: list[StoreFile]) -> None:
    for each in reversed(opened):  # the journal last, as in `PartitionFiles.remove`
        each.close()
        directory.remove(each.name)


def readable(file: StoreFile, end: int | None = None) -> memoryview:
    """Return the front of a file with all data ever written to it; up to `end`, if known.

    Reading a hole makes a file system in memory allocate pages, and kills the reader if it is full.
    """
    return file.buffer[: file.data_end if end is None else end]


def zero_from(file: StoreFile, end: int, dirty_end: int | None = None) -> int:
    """Clear the file from `end`, up to `dirty_end` if known; return the number of bytes that were not zero."""
    if dirty_end is None:
        dirty_end = written_end(file)
    if dirty_end <= end:
        return 0
    dirty = np.frombuffer(file.buffer, np.uint8)[end:dirty_end]
    count = int(np.count_nonzero(dirty))
    dirty[:] = 0
    return count


def written_end(file: StoreFile) -> int:
    data = np.frombuffer(readable(file), np.uint8)
    # In pieces: numpy skips zeros fast, but is slow to locate other values in a long array.
    for start in range(len(data) // SCAN_BYTES * SCAN_BYTES, -1, -SCAN_BYTES):
        dirty = np.flatnonzero(data[start : start + SCAN_BYTES])
        if dirty.size:
            return start + int(dirty[-1]) + 1
    return 0
