"""Moving what is alive from one set of files to the next.

Kept are, in the order of the old journal: the operations that made the living queues, the records of messages that
are alive, and the confirms of those. They keep their lease id, sequence number and time; only where a message's
payload and a queue's QLIST record lie is new.

The new journal's header names its first sync point last of all: a set without it is not finished, and recovery
takes the older one (source: mqbs::FileStore::rollover).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from broker.store.partition_files import PartitionFiles, PartitionLimits
from formats.disk.data import parse_data_record
from formats.disk.files import FILE_HEADER, JOURNAL_FILE_HEADER, JOURNAL_RECORD_SIZE, FileType, open_file
from formats.disk.journal import (
    ANY_RECORD,
    CONFIRM_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    QueueOpType,
    RecordType,
    scan,
)
from formats.disk.padding import DWORD, WORD
from formats.disk.qlist import parse_queue_record

__all__ = ["Rollover"]


class Located(Protocol):
    """A message as far as its place goes."""

    guid: bytes
    offset: int


class Rollover:
    """What a rollover would carry over: `journal_bytes` and `data_bytes` say how much, `copy` does it."""

    def __init__(self, files: PartitionFiles, alive: Mapping[bytes, Located], queue_keys: set[bytes]) -> None:
        self._files = files
        self._alive = alive
        self._queue_keys = queue_keys
        self._moved: dict[bytes, int] = {}
        self._records = self._select()
        self.journal_bytes = len(self._records) * JOURNAL_RECORD_SIZE
        data = files.data.buffer
        self.data_bytes = sum(self._data_size(data, m.offset) for m in alive.values())

    @staticmethod
    def _data_size(data: memoryview, offset: int) -> int:
        record = parse_data_record(data, offset)
        return record.end - record.offset

    def _select(self) -> list[int]:
        """The offsets of the records to keep."""
        journal = self._files.journal.buffer
        first = open_file(journal, FileType.JOURNAL).first_record_offset
        count = (self._files.journal_end - first) // JOURNAL_RECORD_SIZE
        records = scan(journal, first, count)
        kinds = ANY_RECORD.column(records, "type")
        wanted = kinds == RecordType.QUEUE_OP
        if self._alive:
            # A cheap sieve first: half a GUID as a number finds nearly only those that are alive.
            halves = np.frombuffer(b"".join(key[-8:] for key in self._alive), ">u8")
            for kind, layout in ((RecordType.MESSAGE, MESSAGE_RECORD), (RecordType.CONFIRM, CONFIRM_RECORD)):
                rows = np.flatnonzero(kinds == kind)
                guids = records[rows].view(layout.dtype)["guid"]
                tails = np.frombuffer(guids.tobytes(), ">u8")[1::2]
                wanted[rows[np.isin(tails, halves)]] = True
        kept: list[int] = []
        met: set[bytes] = set()
        for row in np.flatnonzero(wanted).tolist():
            offset = first + row * JOURNAL_RECORD_SIZE
            if self._keeps(journal, offset, met):
                kept.append(offset)
        return kept

    def _keeps(self, journal: memoryview, offset: int, met: set[bytes]) -> bool:
        kind = journal[offset] >> 4
        if kind == RecordType.QUEUE_OP:
            op = QUEUE_OP_RECORD.unpack(journal, offset)
            made = op.queue_op_type in (QueueOpType.CREATION, QueueOpType.ADDITION)
            return made and op.queue_key in self._queue_keys
        if kind == RecordType.MESSAGE:
            message = MESSAGE_RECORD.unpack(journal, offset)
            key = message.queue_key + message.guid
            found = self._alive.get(key)
            if found is None or found.offset != message.message_offset_dwords * DWORD:
                return False
            met.add(key)
            return True
        confirm = CONFIRM_RECORD.unpack(journal, offset)
        return confirm.queue_key + confirm.guid in met

    def copy(self, partition_id: int, timestamp: str, limits: PartitionLimits) -> PartitionFiles | None:
        """A new set with all that is kept; None, nothing changed, when the disk is full."""
        old = self._files
        fresh = PartitionFiles.create(old.directory, partition_id, timestamp, limits)
        if fresh is None:
            return None
        granted = (
            fresh.journal.reserve(fresh.journal_end + self.journal_bytes + JOURNAL_RECORD_SIZE)
            and fresh.data.reserve(fresh.data_end + self.data_bytes)
            and fresh.qlist.reserve(min(old.qlist_end, limits.qlist))
        )
        if not granted:
            for file in (fresh.journal, fresh.data, fresh.qlist):
                file.close()
                old.directory.remove(file.name)
            return None
        for offset in self._records:
            at = fresh.journal_end
            fresh.journal.buffer[at : at + JOURNAL_RECORD_SIZE] = old.journal.buffer[
                offset : offset + JOURNAL_RECORD_SIZE
            ]
            kind = old.journal.buffer[offset] >> 4
            if kind == RecordType.MESSAGE:
                self._copy_message(fresh, at)
            elif kind == RecordType.QUEUE_OP:
                self._copy_queue(fresh, at)
            fresh.journal_end = at + JOURNAL_RECORD_SIZE
        return fresh

    def _copy_message(self, fresh: PartitionFiles, at: int) -> None:
        record = MESSAGE_RECORD.unpack(fresh.journal.buffer, at)
        source = parse_data_record(self._files.data.buffer, record.message_offset_dwords * DWORD)
        start = fresh.data_end
        fresh.data_end = start + source.end - source.offset
        fresh.data.buffer[start : fresh.data_end] = self._files.data.buffer[source.offset : source.end]
        MESSAGE_RECORD.pack_into(fresh.journal.buffer, at, record._replace(message_offset_dwords=start // DWORD))
        self._moved[record.queue_key + record.guid] = start

    def _copy_queue(self, fresh: PartitionFiles, at: int) -> None:
        record = QUEUE_OP_RECORD.unpack(fresh.journal.buffer, at)
        source = parse_queue_record(self._files.qlist.buffer, record.queue_uri_record_offset_words * WORD)
        start = fresh.qlist_end
        fresh.qlist_end = start + source.end - source.offset
        fresh.qlist.buffer[start : fresh.qlist_end] = self._files.qlist.buffer[source.offset : source.end]
        QUEUE_OP_RECORD.pack_into(
            fresh.journal.buffer, at, record._replace(queue_uri_record_offset_words=start // WORD)
        )

    def finish(self, fresh: PartitionFiles, first_sync_point: int) -> None:
        """The new set is whole: its header says so, and the messages are where it has them."""
        header_at = FILE_HEADER.size
        header = JOURNAL_FILE_HEADER.unpack(fresh.journal.buffer, header_at)
        JOURNAL_FILE_HEADER.pack_into(
            fresh.journal.buffer,
            header_at,
            header._replace(first_sync_point_after_rollover_offset_words=first_sync_point // WORD),
        )
        for key, message in self._alive.items():
            message.offset = self._moved[key]
