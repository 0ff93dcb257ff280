"""The queues of a store, a file set, or a single file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bmqctl.common.regular import open_buffered
from bmqctl.stores.blazingmq.read.files import (
    FileKind,
    NotAStoreFile,
    companions,
    find_files,
    identify,
    read_blocks,
    read_written,
    recovery_sets,
)
from formats.bmq.disk.files import HEADERS_SIZE_MAX, JOURNAL_RECORD_SIZE, FileSet, FileType, open_file
from formats.bmq.disk.journal import scan
from formats.bmq.disk.ledger import parse_ledger_file_name
from formats.bmq.stores.queues import NamedByLedgers, Queue, QueueCatalog, read_ledgers
from formats.errors import FormatError

__all__ = ["find_queues"]

BLOCK_SIZE = (1 << 20) // JOURNAL_RECORD_SIZE * JOURNAL_RECORD_SIZE

Progress = Callable[[int, int], None]


def find_queues(path: Path, on_progress: Progress) -> list[Queue]:
    """The queues of the store in directory `path` (of each partition's newest files), or of the file `path`.

    A JOURNAL or QLIST file is read with those beside it, ledgers included. Raises NotAStoreFile for a DATA file, which
    names no queues.
    """
    if path.is_dir():
        found = find_files(path)
        in_ledgers = read_ledgers(read_written(path / name) for name in found.ledgers)
        if not any(files.journal for files in found.sets):
            return _of_ledgers(in_ledgers)
        sets = recovery_sets(path).values()
        return [queue for files in sets for queue in _read(path, files, in_ledgers, on_progress)]
    kind = identify(path)
    if kind is FileKind.LEDGER:
        return _of_ledgers(read_ledgers([read_written(path)]))
    if kind is FileKind.DATA:
        raise NotAStoreFile(f"{path} is a {kind}, which contains no queue names: give a JOURNAL, QLIST or ledger file")
    files = companions(path)
    if files is None:
        is_journal = kind is FileKind.JOURNAL
        files = FileSet(
            _partition_id(path), "", None, path.name if is_journal else None, None if is_journal else path.name
        )
    ledgers = sorted(beside for beside in path.parent.iterdir() if parse_ledger_file_name(beside.name))
    return _read(path.parent, files, read_ledgers(map(read_written, ledgers)), on_progress)


def _read(directory: Path, files: FileSet, in_ledgers: NamedByLedgers, on_progress: Progress) -> list[Queue]:
    qlist = read_written(directory / files.qlist) if files.qlist is not None else b""
    catalog = QueueCatalog(files.partition_id, qlist)
    if files.journal is not None:
        _feed(catalog, directory / files.journal, on_progress)
    return catalog.queues(in_ledgers)


def _feed(catalog: QueueCatalog, journal: Path, on_progress: Progress) -> None:
    """Add the journal to `catalog`. Damaged headers are ignored: QLIST and ledger name the queues."""
    with suppress(FormatError), open_buffered(journal) as file:
        first = open_file(file.read(HEADERS_SIZE_MAX), FileType.JOURNAL).first_record_offset
        size = journal.stat().st_size
        for offset, block in read_blocks(journal, first, BLOCK_SIZE):
            catalog.feed(offset, scan(block, 0, len(block) // JOURNAL_RECORD_SIZE))
            on_progress(offset, size)


def _of_ledgers(in_ledgers: NamedByLedgers) -> list[Queue]:
    partitions = sorted({partition_id for partition_id, _ in in_ledgers})
    return [queue for partition_id in partitions for queue in QueueCatalog(partition_id, b"").queues(in_ledgers)]


def _partition_id(path: Path) -> int:
    """The partition id in the header of a file whose name does not follow the store's scheme."""
    with open_buffered(path) as file:
        try:
            return open_file(file.read(HEADERS_SIZE_MAX)).file.partition_id
        except FormatError as error:
            raise NotAStoreFile(f"{path}: {error}") from None
