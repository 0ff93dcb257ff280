"""The files of a store, by path: their kind, companions, and bytes.

A broker may write these files, or truncate them when it rolls over or stops. Access to a truncated part of a mapped
file would kill this process (SIGBUS). So only DATA files are mapped, and only data that the journal refers to is read;
other files are read into memory, without the zeros of their preallocated tails.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from bmqctl.common.regular import next_data, open_buffered
from formats.bmq.disk.files import (
    FILE_HEADER,
    HEADERS_SIZE_MAX,
    MAGIC1,
    MAGIC2,
    FileSet,
    FileType,
    StoreFileName,
    group_file_sets,
    parse_file_name,
    recovery_set,
    rollover_finished,
)
from formats.bmq.disk.ledger import (
    LEDGER_EXTENSION,
    LEDGER_RECORD_HEADER,
    LedgerRecordType,
    open_ledger,
    parse_ledger_file_name,
)
from formats.bmq.disk.padding import WORD
from formats.errors import FormatError

__all__ = [
    "FileKind",
    "NotAStoreFile",
    "StoreFiles",
    "companions",
    "find_files",
    "identify",
    "is_finished",
    "map_data",
    "missing_journals",
    "read_blocks",
    "read_written",
    "recovery_sets",
]

BLOCK_SIZE = 1 << 20
_MAGICS = MAGIC1.to_bytes(4, "big") + MAGIC2.to_bytes(4, "big")


class FileKind(Enum):
    JOURNAL = FileType.JOURNAL
    DATA = FileType.DATA
    QLIST = FileType.QLIST
    LEDGER = None

    def __str__(self) -> str:
        return "cluster-state ledger" if self is FileKind.LEDGER else f"{self.name} file"


class NotAStoreFile(Exception):
    """A path that no command can work on; the text is one line."""


def identify(path: Path) -> FileKind:
    """Determine the kind of the file at `path` by its first bytes. Raises NotAStoreFile if it is unknown."""
    if path.is_dir():
        raise NotAStoreFile(f"{path} is a directory")
    try:
        with open_buffered(path) as file:
            start = file.read(FILE_HEADER.size)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise NotAStoreFile(f"{path}: {error.strerror or error}") from None
    if not start:
        raise NotAStoreFile(f"{path} is empty")
    if not any(start):
        raise NotAStoreFile(f"{path} holds {size} bytes and starts with zeros: it has no header")
    if start.startswith(_MAGICS) and len(start) == FILE_HEADER.size:
        kind = FILE_HEADER.unpack(start).file_type
        if kind in (FileType.JOURNAL, FileType.DATA, FileType.QLIST):
            return FileKind(FileType(kind))
        raise NotAStoreFile(f"{path} is a BlazingMQ file of unknown type {kind}")
    if _starts_ledger(start):
        return FileKind.LEDGER
    named = parse_file_name(path.name)
    if named is not None:
        return FileKind(named.file_type)
    if path.name.endswith(LEDGER_EXTENSION):
        return FileKind.LEDGER
    raise NotAStoreFile(f"{path} is not a file of a BlazingMQ store: it starts with {start[:8].hex(' ')}")


def _starts_ledger(start: bytes) -> bool:
    """Return True if a header and first record of known types follow: a ledger has no magic."""
    try:
        header, offset = open_ledger(start)
    except FormatError:
        return False
    known = {LEDGER_RECORD_HEADER.size // WORD << 4 | kind for kind in LedgerRecordType if kind}
    return not any(header.reserved) and (not any(start[offset:]) or start[offset] in known)


class StoreFiles(NamedTuple):
    """File sets, oldest first, and cluster-state ledgers of a store's directory."""

    sets: list[FileSet]
    ledgers: list[str]


def find_files(directory: Path) -> StoreFiles:
    """List the files of the store in `directory`. Raises NotAStoreFile if there are none."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except OSError as error:
        raise NotAStoreFile(f"{directory}: {error.strerror or error}") from None
    found = StoreFiles(group_file_sets(names), sorted(name for name in names if parse_ledger_file_name(name)))
    if not found.sets and not found.ledgers:
        raise NotAStoreFile(f"{directory} holds no files of a BlazingMQ store (bmq_*.bmq_journal, bmq_csl_*.bmq_csl)")
    return found


def recovery_sets(directory: Path) -> dict[int, FileSet]:
    """Choose the file set with a journal from which a broker would recover each partition.

    Raises NotAStoreFile if there is no journal.
    """
    by_partition: dict[int, list[FileSet]] = {}
    for files in find_files(directory).sets:
        if files.journal is not None:
            by_partition.setdefault(files.partition_id, []).append(files)
    if not by_partition:
        raise NotAStoreFile(f"{directory} holds no JOURNAL file")
    return {
        partition_id: recovery_set(sets, lambda files: is_finished(directory, files))
        for partition_id, sets in by_partition.items()
    }


def missing_journals(directory: Path) -> list[str]:
    """Name the missing journals of `directory`: those of partitions whose newest DATA file has none.

    Nothing else says what a DATA file contains.
    """
    if not directory.is_dir():
        return []
    newest: dict[int, FileSet] = {}
    for files in group_file_sets(entry.name for entry in directory.iterdir()):  # oldest first
        if files.data is not None or files.journal is not None:
            newest[files.partition_id] = files
    return [
        str(StoreFileName(files.partition_id, files.timestamp, FileType.JOURNAL))
        for _, files in sorted(newest.items())
        if files.journal is None
    ]


def is_finished(directory: Path, files: FileSet) -> bool:
    """Return True if the rollover that made these files is finished, as far as the journal can be read."""
    assert files.journal is not None
    try:
        with open_buffered(directory / files.journal) as file:
            return rollover_finished(file.read(HEADERS_SIZE_MAX))
    except (FormatError, OSError):
        return False


def companions(path: Path) -> FileSet | None:
    """Return the file set of `path`, by file names; None if its name is not a store file's."""
    named = parse_file_name(path.name)
    if named is None:
        return None
    kinds = (FileType.DATA, FileType.JOURNAL, FileType.QLIST)
    names = [str(named._replace(file_type=kind)) for kind in kinds]
    present = [name if path.with_name(name).is_file() else None for name in names]
    return FileSet(named.partition_id, named.timestamp, *present)


def read_blocks(path: Path, start: int = 0, block_size: int = BLOCK_SIZE) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes) of the file's blocks from `start`, without holes and blocks of zeros."""
    with open_buffered(path) as file:
        descriptor = file.fileno()
        offset = start
        while True:
            data = next_data(descriptor, offset)
            if data is None:
                return
            offset += (data - offset) // block_size * block_size
            block = os.pread(descriptor, block_size, offset)
            if not block:
                return
            if block.count(0) != len(block):
                yield offset, block
            offset += len(block)


def read_written(path: Path) -> bytearray:
    content = bytearray()
    for offset, block in read_blocks(path):
        content += bytes(offset - len(content))
        content += block
    return content


def map_data(path: Path) -> memoryview:
    """Map a DATA file; see the module for why others are not mapped."""
    with open_buffered(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
