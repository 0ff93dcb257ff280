"""Follows the journals of a store that a broker is writing.

A broker preallocates its journal, so only the records show where the end is: a slot without a sound record is read
again later. After a rollover the newer journal begins with copies of reported records, recognised by their numbers. A
stopping broker truncates its files to the written part, and continues in them when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.dump.dump import Journal
from bmqctl.stores.blazingmq.read.chunks import Chunk, ChunkScanner
from bmqctl.stores.blazingmq.read.files import NotAStoreFile, find_files
from bmqctl.stores.blazingmq.read.filters import Filters, number_above, places
from bmqctl.stores.blazingmq.read.reader import load_names, with_names
from formats.bmq.disk.columns import sound_kinds
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, parse_file_name
from formats.bmq.disk.journal import ANY_RECORD, RecordType
from formats.bmq.disk.numbers import RecordNumber
from formats.errors import FormatError

__all__ = ["Follower"]

BLOCK_RECORDS = 1 << 14
PROBE_RECORDS = 1 << 6

Open = Callable[[Path, ExitStack], Journal]


class Follower:
    """One partition, from the end of its newest journal, or from the start of the filters' ranges.

    `open_journal` opens the journal that a rollover creates. A context manager.
    """

    def __init__(self, path: Path, filters: Filters, open_journal: Open) -> None:
        self._open = open_journal
        self._stack = ExitStack()
        self._last: RecordNumber | None = None
        self._begin(path)
        reader = self.journal.reader
        begins = filters.since is not None or filters.seqnum_gt is not None or filters.offset_gt is not None
        self._place = places(reader, filters)[0] if begins else reader.record_end()
        self._scanner = self._new_scanner()
        for chunk in reader.chunks(max(0, self._place - 1), self._place):
            self._note_last(chunk)

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _begin(self, path: Path) -> None:
        with ExitStack() as stack:
            self.journal = self._open(path, stack)
            self._stack.close()
            self._stack = stack.pop_all()
        self._place = 0
        self._doubted = -1
        self._scanner = self._new_scanner()

    def _new_scanner(self) -> ChunkScanner:
        reader = self.journal.reader
        return ChunkScanner(reader.partition_id, reader.first_record_offset, self._place)

    def poll(self) -> Iterator[tuple[Journal, Chunk]]:
        yield from self._new_records()
        newer = self._newer_journal()
        while newer is not None:
            yield from self._rest()
            try:
                self._begin(newer)
            except (FormatError, NotAStoreFile, OSError):
                # It has no header yet, or has gone already.
                return
            yield from self._new_records()
            newer = self._newer_journal()

    def _rest(self) -> Iterator[tuple[Journal, Chunk]]:
        seen = None
        while seen != (self._place, self._doubted):
            seen = (self._place, self._doubted)
            yield from self._new_records()

    def _new_records(self) -> Iterator[tuple[Journal, Chunk]]:
        for chunk in with_names(self._chunks(), self.journal.names):
            fresh = self._not_told(chunk)
            if len(fresh):
                yield self.journal, fresh

    def _chunks(self) -> Iterator[Chunk]:
        count = self._ready()
        while count:
            chunk = self._scanner.chunk(self._place, self._records(count))
            self._place += count
            if (chunk.kinds == RecordType.QUEUE_OP).any():
                reader = self.journal.reader
                self.journal.names.update(load_names(reader.path, reader.partition_id))
            yield chunk
            count = self._ready()

    def _records(self, count: int) -> NDArray[Any]:
        block = self.journal.reader.read(self._place, count)
        return np.frombuffer(block, ANY_RECORD.dtype, len(block) // JOURNAL_RECORD_SIZE)

    def _ready(self) -> int:
        """Return the number of slots that are final.

        An unsound slot before a sound one may have been read before it was written: it is damaged if the next poll
        finds it unsound.
        """
        if not any(self._records(PROBE_RECORDS).tobytes()):
            return 0
        kinds = sound_kinds(self._records(BLOCK_RECORDS))
        unsound, sound = np.flatnonzero(kinds == 0), np.flatnonzero(kinds)
        if not len(sound):
            return 0
        if not len(unsound) or unsound[0] > 0:
            return int(unsound[0]) if len(unsound) else len(kinds)
        if self._doubted != self._place:
            self._doubted = self._place
            return 0
        return int(sound[0]) + 1

    def _not_told(self, chunk: Chunk) -> Chunk:
        if self._last is not None:
            chunk = chunk.where(number_above(chunk, self._last))
        self._note_last(chunk)
        return chunk

    def _note_last(self, chunk: Chunk) -> None:
        records = chunk.without_faults().records
        if len(records):
            last = records[-1:]
            self._last = RecordNumber(
                int(ANY_RECORD.column(last, "primary_lease_id")[0]), int(ANY_RECORD.column(last, "sequence_number")[0])
            )

    def _newer_journal(self) -> Path | None:
        path = self.journal.reader.path
        named = parse_file_name(path.name)
        if named is None:
            return None
        try:
            sets = find_files(path.parent).sets
        except NotAStoreFile:
            return None
        for files in sets:
            if files.journal and files.partition_id == named.partition_id and files.timestamp > named.timestamp:
                return path.parent / files.journal
        return None
