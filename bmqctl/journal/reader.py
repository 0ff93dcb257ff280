"""A journal read from its file, a block at a time: from its start, or from a record that is looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bmqctl.journal.chunks import Chunk, ChunkScanner
from bmqctl.journal.files import NotAStoreFile, find_files, read_blocks, read_written
from bmqctl.journal.names import QueueNames
from formats.disk.columns import sound_kinds
from formats.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.disk.journal import ANY_RECORD, QUEUE_OP_RECORD, Record, RecordType, decode_record
from formats.disk.queues import NamedByLedgers, read_ledgers
from formats.disk.recover import iter_qlist
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["JournalReader", "ledgers_beside", "load_names", "with_names"]

BLOCK_RECORDS = 1 << 14
PROBE_RECORDS = 1 << 7
HEADERS_MAX = 1 << 12


class JournalReader:
    """The records of the journal at `path`: memory does not grow with the file. FormatError if its headers are wrong.

    `damaged` tells, after a walk, whether a record followed a place that holds none.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            opened = open_file(file.read(HEADERS_MAX), FileType.JOURNAL)
        self.path = path
        self.partition_id = opened.file.partition_id
        self.first_record_offset = opened.first_record_offset
        self.damaged = False

    def index_of(self, offset: int) -> int:
        """Which place `offset`, in bytes, is in, or the first one after it if it is in none."""
        return max(0, -(-(offset - self.first_record_offset) // JOURNAL_RECORD_SIZE))

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[Chunk]:
        """The records from place `start` to before `end`, or to the last one that there is now.

        What a broker writes meanwhile is left out: its first records might lie where nothing was read yet.
        """
        scanner = ChunkScanner(self.partition_id, self.first_record_offset, start)
        written = self.record_end()
        first = self.first_record_offset + start * JOURNAL_RECORD_SIZE
        for offset, block in read_blocks(self.path, first, BLOCK_RECORDS * JOURNAL_RECORD_SIZE):
            place = self.index_of(offset)
            if end is not None:
                block = block[: max(0, end - place) * JOURNAL_RECORD_SIZE]
            count = _before_new_record(block, written - place)
            is_last = count is not None or not block
            chunk = scanner.chunk(offset, block if count is None else block[: count * JOURNAL_RECORD_SIZE])
            self.damaged |= scanner.damaged
            if len(chunk):
                yield chunk
            if is_last:
                return

    def record_end(self) -> int:
        """The place after the last record."""
        return self.find(lambda record: False)

    def find(self, is_beyond: Callable[[Record], bool]) -> int:
        """The first place from which on records are beyond, by bisection: those before it must not be."""
        low, high = 0, self.index_of(self.path.stat().st_size)
        while low < high:
            middle = (low + high) // 2
            place, record = self._first_record(middle, high)
            if record is None or is_beyond(record):
                high = middle
            else:
                low = place + 1
        return low

    def _first_record(self, start: int, end: int) -> tuple[int, Record | None]:
        """The first sound record in the places from `start` to before `end`, and its place."""
        first = self.first_record_offset + start * JOURNAL_RECORD_SIZE
        for offset, block in read_blocks(self.path, first, PROBE_RECORDS * JOURNAL_RECORD_SIZE):
            for at in range(0, len(block), JOURNAL_RECORD_SIZE):
                place = self.index_of(offset + at)
                if place >= end:
                    return end, None
                try:
                    return place, decode_record(block, at)
                except FormatError:
                    continue
        return end, None


def _before_new_record(block: bytes, written: int) -> int | None:
    """How many places of the block come before the first record that is not among the `written` first places; None
    if there is no such record."""
    count = len(block) // JOURNAL_RECORD_SIZE
    if written >= count:
        return None
    later = np.flatnonzero(sound_kinds(np.frombuffer(block, ANY_RECORD.dtype, count))[max(0, written) :])
    return max(0, written) + int(later[0]) if len(later) else None


def with_names(chunks: Iterator[Chunk], names: QueueNames) -> Iterator[Chunk]:
    """The same records; while a chunk is out, `names` are those of its records."""
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
    """Names from the QLIST beside the journal, and from `ledgers`.

    Without `ledgers`, where QLIST is missing, empty or damaged, from those in the directory.
    """
    path = journal.with_name(journal.name.replace(FileType.JOURNAL.extension, FileType.QLIST.extension))
    qlist = read_written(path) if path != journal and path.is_file() else b""
    if ledgers is None and not _names_queues(qlist):
        ledgers = ledgers_beside(journal)
    return QueueNames(partition_id, qlist, ledgers)


def _names_queues(qlist: Buffer) -> bool:
    """Whether there are queues in it, and no damage."""
    try:
        return bool(list(iter_qlist(qlist)))
    except FormatError:
        return False


def ledgers_beside(journal: Path) -> NamedByLedgers:
    """What the ledgers in the journal's directory name."""
    try:
        found = find_files(journal.parent).ledgers
    except NotAStoreFile:
        return {}
    return read_ledgers(read_written(journal.parent / name) for name in found)
