"""Reader of a journal in chunks, from its start or from a position found by bisection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.chunks import Chunk, ChunkScanner
from bmqctl.stores.blazingmq.read.files import NotAStoreFile, find_files, read_written
from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.scan import JournalScan
from formats.bmq.disk.columns import sound_kinds
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType
from formats.bmq.disk.journal import QUEUE_OP_RECORD, Record, RecordType
from formats.bmq.stores.queues import NamedByLedgers, read_ledgers
from formats.bmq.stores.recover import iter_qlist
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["JournalReader", "ledgers_beside", "load_names", "with_names"]

BLOCK_RECORDS = 1 << 14


class JournalReader:
    """The records of the journal at `path`, in constant memory. A context manager.

    Raises FormatError if its headers are wrong. After a walk, `damaged` is True if a record followed a slot without
    one.
    """

    def __init__(self, path: Path) -> None:
        self._scan = JournalScan(path)
        self.path = path
        self.partition_id = self._scan.partition_id
        self.first_record_offset = self._scan.first_record_offset
        self.damaged = False

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scan.__exit__(kind, error, trace)

    @property
    def size(self) -> int:
        """The offset after the last possible record, in bytes: the final hole or the end."""
        return self._scan.data_end

    def index_of(self, offset: int) -> int:
        """The slot that contains byte `offset`, or the next one."""
        return max(0, -(-(offset - self.first_record_offset) // JOURNAL_RECORD_SIZE))

    def offset_of(self, place: int) -> int:
        """Return the offset of a slot, in bytes."""
        return self.first_record_offset + place * JOURNAL_RECORD_SIZE

    def read(self, place: int, count: int) -> bytes:
        return self._scan.read(self.offset_of(place), count * JOURNAL_RECORD_SIZE)

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
        """Yield the records of slots [`start`, `end`), or up to the current last one.

        Omits records written meanwhile: the first might be in a part already passed. A chunk is valid until the next is
        requested.
        """
        scanner = ChunkScanner(self.partition_id, self.first_record_offset, start)
        written = self.record_end()
        for found in self._scan.chunks(start, end, BLOCK_RECORDS):
            count = _before_new_record(found.records, written - found.first)
            chunk = scanner.chunk(found.first, found.records[:count])
            self.damaged |= scanner.damaged
            if len(chunk):
                yield chunk
            if count is not None:
                return
        last = (self.size - self.first_record_offset) // JOURNAL_RECORD_SIZE
        if start <= last and (end is None or last < end):
            rest = self.read(last, 1)
            if any(rest) and len(rest) < JOURNAL_RECORD_SIZE:
                yield scanner.torn(last, rest)

    def record_end(self) -> int:
        return self._scan.record_end()

    def find(self, is_beyond: Callable[[Record], bool]) -> int:
        return self._scan.find(is_beyond)


def _before_new_record(records: NDArray[Any], written: int) -> int | None:
    """Count the records before the first one not among the first `written`; None if there is none."""
    if written >= len(records):
        return None
    later = np.flatnonzero(sound_kinds(records)[max(0, written) :])
    return max(0, written) + int(later[0]) if len(later) else None


def with_names(chunks: Iterator[Chunk], names: QueueNames) -> Iterator[Chunk]:
    """Yield the chunks; while one is in use, `names` are those of its records."""
    for chunk in chunks:
        start = 0
        found = chunk.of_kind(RecordType.QUEUE_OP)
        for row, words in zip(found.rows.tolist(), found.records, strict=True):
            record = QUEUE_OP_RECORD.unpack(words.tobytes())
            if row > start and names.renames(record):
                yield chunk.between(start, row)
                start = row
            names.learn(record)
        if len(chunk) > start:
            yield chunk.between(start, len(chunk))


def load_names(journal: Path, partition_id: int, ledgers: NamedByLedgers | None = None) -> QueueNames:
    """Load names from the QLIST beside the journal, and from `ledgers`.

    Without `ledgers`, reads the directory's ledgers if QLIST is missing, empty or damaged.
    """
    path = journal.with_name(journal.name.replace(FileType.JOURNAL.extension, FileType.QLIST.extension))
    qlist = read_written(path) if path != journal and path.is_file() else b""
    if ledgers is None and not _names_queues(qlist):
        ledgers = ledgers_beside(journal)
    return QueueNames(partition_id, qlist, ledgers)


def _names_queues(qlist: Buffer) -> bool:
    try:
        return bool(list(iter_qlist(qlist)))
    except FormatError:
        return False


def ledgers_beside(journal: Path) -> NamedByLedgers:
    try:
        found = find_files(journal.parent).ledgers
    except NotAStoreFile:
        return {}
    return read_ledgers(read_written(journal.parent / name) for name in found)
