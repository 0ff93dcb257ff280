"""Moving what is alive from one set of files to the next.

Kept are, in the order of the old journal: the operations that made the living queues and those on single apps, the
records of messages that are alive, and the confirms of those. They keep their lease id, sequence number and time; only
where a message's payload and a queue's QLIST record lie is new.

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
    DELETION_RECORD,
    MESSAGE_RECORD,
    QUEUE_OP_RECORD,
    QueueOpRecord,
    QueueOpType,
    RecordType,
    scan,
)
from formats.disk.keys import KEY_SIZE, NULL_KEY
from formats.disk.padding import DWORD, WORD
from formats.disk.qlist import parse_queue_record

__all__ = ["Rollover"]

# Operations that come with a record in QLIST.
_MAKING = (QueueOpType.CREATION, QueueOpType.ADDITION)


class Located(Protocol):
    """A message as far as its place goes."""

    guid: bytes
    offset: int


class Rollover:
    """What a rollover would carry over.

    `journal_bytes`, `data_bytes` and `qlist_bytes` say how much, without the headers of files; `copy` does it.
    """

    def __init__(self, files: PartitionFiles, alive: Mapping[bytes, Located], queue_keys: set[bytes]) -> None:
        self._files = files
        self._alive = alive
        self._queue_keys = queue_keys
        self._moved: dict[bytes, int] = {}
        self.qlist_bytes = 0
        self._records = self._select()
        self.journal_bytes = len(self._records) * JOURNAL_RECORD_SIZE
        data = files.data.buffer
        self.data_bytes = sum(self._data_size(data, m.offset) for m in alive.values())

    @staticmethod
    def _data_size(data: memoryview, offset: int) -> int:
        record = parse_data_record(data, offset)
        return record.end - record.offset

    def _queue_size(self, op: QueueOpRecord) -> int:
        record = parse_queue_record(self._files.qlist.buffer, op.queue_uri_record_offset_words * WORD)
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
            # A cheap sieve first: the first half of a GUID (counter and time; the other is mostly the client's id)
            # as a number finds nearly only those that are alive.
            halves = np.frombuffer(b"".join(key[KEY_SIZE : KEY_SIZE + 8] for key in self._alive), ">u8")
            for kind, layout in (
                (RecordType.MESSAGE, MESSAGE_RECORD),
                (RecordType.CONFIRM, CONFIRM_RECORD),
                (RecordType.DELETION, DELETION_RECORD),
            ):
                rows = np.flatnonzero(kinds == kind)
                guids = records[rows].view(layout.dtype)["guid"]
                wanted[rows[np.isin(np.frombuffer(guids.tobytes(), ">u8")[::2], halves)]] = True
        kept: list[int] = []
        met: set[bytes] = set()
        early: dict[bytes, list[int]] = {}
        for row in np.flatnonzero(wanted).tolist():
            self._sort_out(journal, first + row * JOURNAL_RECORD_SIZE, kept, met, early)
        kept.sort()
        return kept

    def _sort_out(
        self, journal: memoryview, offset: int, kept: list[int], met: set[bytes], early: dict[bytes, list[int]]
    ) -> None:
        """Whether to keep one record; `met` are the messages kept so far.

        Confirms that stand before their message (`early`) are its own unless a deletion follows: then they were of
        an earlier message with the same GUID.
        """
        kind = journal[offset] >> 4
        if kind == RecordType.QUEUE_OP:
            op = QUEUE_OP_RECORD.unpack(journal, offset)
            # What became of one app still says something about the messages before it.
            tells = op.queue_op_type in _MAKING or op.app_key != NULL_KEY
            if tells and op.queue_key in self._queue_keys:
                kept.append(offset)
                if op.queue_op_type in _MAKING:
                    self.qlist_bytes += self._queue_size(op)
        elif kind == RecordType.MESSAGE:
            message = MESSAGE_RECORD.unpack(journal, offset)
            key = message.queue_key + message.guid
            found = self._alive.get(key)
            if found is not None and found.offset == message.message_offset_dwords * DWORD:
                met.add(key)
                kept.append(offset)
                kept += early.pop(key, ())
        elif kind == RecordType.CONFIRM:
            confirm = CONFIRM_RECORD.unpack(journal, offset)
            key = confirm.queue_key + confirm.guid
            if key in met:
                kept.append(offset)
            elif key in self._alive:
                early.setdefault(key, []).append(offset)
        else:
            deletion = DELETION_RECORD.unpack(journal, offset)
            early.pop(deletion.queue_key + deletion.guid, None)

    def copy(
        self, partition_id: int, timestamp: str, limits: PartitionLimits, records_due: int
    ) -> PartitionFiles | None:
        """A new set with all that is kept, and disk for `records_due` more; None, nothing changed, on a full disk."""
        old = self._files
        fresh = PartitionFiles.create(old.directory, partition_id, timestamp, limits)
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
        if record.queue_op_type not in _MAKING:
            return
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
