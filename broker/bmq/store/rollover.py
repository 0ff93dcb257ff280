"""Rollover: copies everything alive from one set of files to the next.

It keeps these records, in the order of the old journal: the operations that created the existing queues, operations on
single apps, purges, live messages, and their confirms. They keep their lease id, sequence number and time; only the
offsets of payloads and QLIST records are new.

A copy of the sync point that ended the old journal follows, under its own number: a replica writes it itself. The new
journal's header names it last; recovery ignores a set without that (source: mqbs::FileStore::rolloverImpl).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.recovery import is_among, last_purges, purges, record_keys
from broker.bmq.store.sieve import JournalRows
from formats.bmq.disk.data import MESSAGE_WORDS_MASK
from formats.bmq.disk.files import (
    FILE_HEADER,
    JOURNAL_FILE_HEADER,
    JOURNAL_RECORD_SIZE,
    MAGIC_SIZE,
    FileType,
    initial_bytes,
)
from formats.bmq.disk.journal import (
    ANY_RECORD,
    JOURNAL_OP_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    QueueOpRecord,
    QueueOpType,
    RecordType,
    SyncPointType,
    select,
)
from formats.bmq.disk.journal_packing import pack_sync_point
from formats.bmq.disk.keys import KEY_SIZE, NULL_KEY
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import parse_queue_record
from formats.schema import Buffer

__all__ = [
    "MAKING",
    "Rollover",
    "clear_header",
    "copy_queue",
    "copy_sync_point",
    "is_kept_operation",
    "write_first_sync_point",
    "write_header",
]

# Operations that have a record in QLIST.
MAKING: Final = (QueueOpType.CREATION, QueueOpType.ADDITION)


class Located(Protocol):
    offset: int


class Rollover:
    """The plan of a rollover; `journal` has the records that matter, by default all.

    `journal_bytes`, `data_bytes` and `qlist_bytes` are to be copied, besides headers. Messages are handled in columns:
    a million may be alive.
    """

    def __init__(
        self,
        files: PartitionFiles,
        alive: Mapping[bytes, Located],
        queue_keys: set[bytes],
        journal: JournalRows | None = None,
    ) -> None:
        self._files = files
        self._journal = journal or JournalRows(files)
        self._alive = alive
        self._queue_keys = queue_keys
        self._moved: dict[int, int] = {}
        self._offsets = np.empty(0, np.int64)  # of the DATA records to keep, in the journal's order
        self.qlist_bytes = 0
        self._rows = self._select()
        self._sizes = self._data_sizes()
        self.journal_bytes = len(self._rows) * JOURNAL_RECORD_SIZE
        self.data_bytes = int(self._sizes.sum())

    def _records(self) -> NDArray[np.void]:
        """The records, to be released soon: a file cannot be closed under a view."""
        return self._journal.part(0, len(self._journal))

    def _select(self) -> NDArray[np.int64]:
        records = self._records()
        messages, message_rows = select(records, RecordType.MESSAGE)
        offsets = MESSAGE_RECORD.column(messages, "message_offset_dwords").astype(np.int64) * DWORD
        # An earlier message with the same GUID was elsewhere.
        is_alive = is_among(offsets, np.fromiter((m.offset for m in self._alive.values()), np.int64, len(self._alive)))
        self._offsets = offsets[is_alive]
        assert len(self._offsets) == len(self._alive), "every message alive has one record"
        rows = [message_rows[is_alive], np.array(self._confirms(records) + self._queue_ops(records), np.int64)]
        return np.sort(np.concatenate(rows))

    def _confirms(self, records: NDArray[np.void]) -> list[int]:
        """Select the confirms of live messages, from the end of an earlier message with the same GUID on.

        Confirms may precede the message: apps that confirm automatically do so before it is written.
        """
        if not self._alive:
            return []
        # A cheap filter first: the first half of a GUID (counter and time) selects nearly only live messages.
        halves = _numbers(b"".join(key[KEY_SIZE : KEY_SIZE + 8] for key in self._alive))
        since = dict(self._sieved(records, RecordType.DELETION, halves))
        purged = last_purges(purges(records))
        return [
            row
            for key, row in self._sieved(records, RecordType.CONFIRM, halves)
            if since.get(key, -1) < row and purged.get(key[:KEY_SIZE], -1) < row
        ]

    def _sieved(
        self, records: NDArray[np.void], kind: RecordType, halves: NDArray[np.uint64]
    ) -> Iterator[tuple[bytes, int]]:
        """Yield (queue key and GUID, index) of the records of a kind about live messages."""
        found, rows = select(records, kind)
        near = is_among(_numbers(found["guid"].tobytes())[::2], halves)
        alive = self._alive
        for key, row in zip(record_keys(found[near]), rows[near].tolist(), strict=True):
            if key in alive:
                yield key, row

    def _queue_ops(self, records: NDArray[np.void]) -> list[int]:
        found, rows = select(records, RecordType.QUEUE_OP)
        data = found.tobytes()
        kept = []
        for n, row in enumerate(rows.tolist()):
            op = QUEUE_OP_RECORD.unpack(data, n * JOURNAL_RECORD_SIZE)
            if op.queue_key in self._queue_keys and is_kept_operation(op):
                kept.append(row)
                if op.queue_op_type in MAKING:
                    record = parse_queue_record(self._files.qlist.buffer, op.queue_uri_record_offset_words * WORD)
                    self.qlist_bytes += record.end - record.offset
        return kept

    def _data_sizes(self) -> NDArray[np.int64]:
        words = np.frombuffer(self._files.data.buffer, ">u4", self._files.data_end // WORD)
        return (words[self._offsets // WORD].astype(np.int64) & MESSAGE_WORDS_MASK) * WORD

    def copy(
        self, partition_id: int, timestamp: str, limits: PartitionLimits, records_due: int
    ) -> PartitionFiles | None:
        """Make a new set with all kept records, and disk space for `records_due` more; None if the disk is full."""
        fresh = PartitionFiles.create(self._files.directory, partition_id, timestamp, limits)
        if fresh is None:
            return None
        granted = (
            fresh.journal.reserve(fresh.journal_end + self.journal_bytes + records_due * JOURNAL_RECORD_SIZE)
            and fresh.data.reserve(fresh.data_end + self.data_bytes)
            and fresh.qlist.reserve(fresh.qlist_end + self.qlist_bytes)
        )
        if not granted:
            fresh.remove()
            return None
        starts = self._copy_data(fresh)
        kept = self._records()[self._rows]
        kinds = ANY_RECORD.column(kept, "type")
        kept.view(MESSAGE_RECORD.dtype)["message_offset_dwords"][kinds == RecordType.MESSAGE] = starts // DWORD
        first = fresh.journal_end
        fresh.journal_end += self.journal_bytes
        fresh.journal.buffer[first : fresh.journal_end] = kept.tobytes()
        for row in np.flatnonzero(kinds == RecordType.QUEUE_OP).tolist():
            copy_queue(self._files, fresh, first + row * JOURNAL_RECORD_SIZE)
        return fresh

    def _copy_data(self, fresh: PartitionFiles) -> NDArray[np.int64]:
        ends = fresh.data_end + np.cumsum(self._sizes)
        starts = ends - self._sizes
        breaks = np.flatnonzero(self._offsets[1:] != self._offsets[:-1] + self._sizes[:-1]) + 1
        old, new = self._files.data.buffer, fresh.data.buffer
        for first, behind in pairwise([0, *breaks.tolist(), len(starts)]):
            if first < behind:
                start, end = int(starts[first]), int(ends[behind - 1])
                source = int(self._offsets[first])
                new[start:end] = old[source : source + end - start]
                fresh.data_end = end
        self._moved = dict(zip(self._offsets.tolist(), starts.tolist(), strict=True))
        return starts

    def finish(self, fresh: PartitionFiles, first_sync_point: int) -> None:
        write_first_sync_point(fresh, first_sync_point)
        for message in self._alive.values():
            message.offset = self._moved[message.offset]


def _numbers(data: bytes) -> NDArray[np.uint64]:
    """Convert parts of GUIDs, 8 bytes each, to native numbers: numpy searches large arrays of others slowly."""
    return np.frombuffer(data, ">u8").astype(np.uint64)


def is_kept_operation(op: QueueOpRecord) -> bool:
    """Return True if an operation on an existing queue is carried over.

    Operations on one app still matter for earlier messages. The reference keeps all purges; others must do the same to
    stay in step.
    """
    return op.queue_op_type in (*MAKING, QueueOpType.PURGE) or op.app_key != NULL_KEY


def copy_queue(files: PartitionFiles, fresh: PartitionFiles, at: int) -> None:
    record = QUEUE_OP_RECORD.unpack(fresh.journal.buffer, at)
    if record.queue_op_type not in MAKING:
        return
    source = parse_queue_record(files.qlist.buffer, record.queue_uri_record_offset_words * WORD)
    start = fresh.qlist_end
    fresh.qlist_end = start + source.end - source.offset
    fresh.qlist.buffer[start : fresh.qlist_end] = files.qlist.buffer[source.offset : source.end]
    QUEUE_OP_RECORD.pack_into(fresh.journal.buffer, at, record._replace(queue_uri_record_offset_words=start // WORD))


def copy_sync_point(fresh: PartitionFiles, record: Buffer) -> None:
    """Write the first sync point of new files: the last one of the old files, with the new ends. There must be room."""
    ended = JOURNAL_OP_RECORD.unpack(record)
    pack_sync_point(
        fresh.journal.buffer,
        fresh.journal_end,
        ended.primary_lease_id,
        ended.sequence_number,
        ended.timestamp,
        SyncPointType.REGULAR,
        ended.sync_point_primary_lease_id,
        ended.sync_point_sequence_number,
        ended.primary_node_id,
        fresh.data_end // DWORD,
        fresh.qlist_end // WORD,
    )
    fresh.journal_end += JOURNAL_RECORD_SIZE


def write_first_sync_point(fresh: PartitionFiles, offset: int) -> None:
    header_at = FILE_HEADER.size
    header = JOURNAL_FILE_HEADER.unpack(fresh.journal.buffer, header_at)
    JOURNAL_FILE_HEADER.pack_into(
        fresh.journal.buffer,
        header_at,
        header._replace(first_sync_point_after_rollover_offset_words=offset // WORD),
    )


def clear_header(fresh: PartitionFiles) -> None:
    """Clear the header of a new journal until `write_header`, so that no process takes it for written."""
    size = len(initial_bytes(FileType.JOURNAL, 0))
    fresh.journal.buffer[:size] = bytes(size)


def write_header(fresh: PartitionFiles, partition_id: int, first_sync_point: int) -> None:
    """Write the header of a journal without one; `first_sync_point` is 0 if there is none.

    The magic comes last, in one write: for a process killed before, the journal does not exist.
    """
    head = bytearray(initial_bytes(FileType.JOURNAL, partition_id))
    header = JOURNAL_FILE_HEADER.unpack(head, FILE_HEADER.size)
    named = header._replace(first_sync_point_after_rollover_offset_words=first_sync_point // WORD)
    JOURNAL_FILE_HEADER.pack_into(head, FILE_HEADER.size, named)
    journal = fresh.journal.buffer
    journal[MAGIC_SIZE : len(head)] = head[MAGIC_SIZE:]
    journal[:MAGIC_SIZE] = head[:MAGIC_SIZE]
