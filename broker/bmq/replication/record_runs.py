"""Runs of records in an event, parsed one after the other: those that a replica writes with one look at each.

`broker.bmq.replication.batches` does so for hundreds, in columns; for fewer, columns cost more than they save.
Messages, confirms and deletions that continue the partition are handled here. A run ends before anything else, which
is left to the code for single records, as are faults.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.bmq.replication.batches import AppendPoint
from formats.bmq.codes import StorageFlag, StorageMessageType
from formats.bmq.disk.data import DATA_HEADER, HEADER_WORDS_SHIFT, MESSAGE_WORDS_MASK, OPTIONS_WORDS_SHIFT, unpack_sizes
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import (
    ANY_RECORD,
    DELETION_RECORD,
    MESSAGE_RECORD,
    RECORD_MAGIC,
    SEQUENCE_NUMBER_MASK,
    TYPE_SHIFT,
    RecordType,
)
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.wire.storage import STORAGE_HEADER, STORAGE_PROTOCOL_VERSION

__all__ = ["Change", "RecordRun", "parse_run"]

# The constructor of a named tuple is interpreted, and there are two of them for each message.
_new: Final = tuple.__new__

# A longer run would delay other work.
RECORDS_MAX: Final = 512

_HEADER_SIZE: Final = STORAGE_HEADER.size
_HEAD_SIZE: Final = _HEADER_SIZE + JOURNAL_RECORD_SIZE
_FORM: Final = STORAGE_PROTOCOL_VERSION << 4 | _HEADER_SIZE // WORD
_FLAGS_SHIFT: Final = STORAGE_HEADER.bit["flags"].shift
_WORDS_MASK: Final = STORAGE_HEADER.mask("message_words")
_RECEIPT_REQUESTED: Final = int(StorageFlag.RECEIPT_REQUESTED)
_MESSAGE: Final = int(RecordType.MESSAGE)
_CONFIRM: Final = int(RecordType.CONFIRM)
_DELETION: Final = int(RecordType.DELETION)
_DATA_TYPE: Final = int(StorageMessageType.DATA)
_CONFIRM_TYPE: Final = int(StorageMessageType.CONFIRM)
_DELETION_TYPE: Final = int(StorageMessageType.DELETION)
_COMPRESSION_MASK: Final = MESSAGE_RECORD.mask("compression")
_DATA_HEADER_WORDS: Final = DATA_HEADER.size // WORD

# A header, and the words that all records have.
_head: Final[Callable[[memoryview, int], tuple[int, int, int, int, int, int, int, int]]] = Struct(
    STORAGE_HEADER.words.format + ANY_RECORD.partial("sequence_number", "primary_lease_id", "magic").format[1:]
).unpack_from
_message: Final = MESSAGE_RECORD.partial(
    "compression", "queue_key", "message_offset_dwords", "guid", "crc32c"
).unpack_from
_deletion: Final = DELETION_RECORD.partial("queue_key", "guid").unpack_from


class Change(NamedTuple):
    """A message that comes, or one that goes, whose `size` is -1.

    `offset` is that of its DATA record, `size` that of its payload.
    """

    queue_key: bytes
    guid: bytes
    offset: int
    compression: int
    size: int


class RecordRun(NamedTuple):
    """Records that continue a partition.

    `records` go to the journal and `entries`, of `data_size` bytes together, to DATA; `changes` are in their order.
    `asking` is the last record that requests a receipt. The rest of the event begins at `end`.
    """

    records: bytes
    entries: list[memoryview]
    data_size: int
    changes: list[Change]
    last: RecordNumber
    asking: RecordNumber | None
    end: int


def parse_run(data: memoryview, start: int, end: int, append_point: AppendPoint) -> RecordRun | None:
    """Parse the records from `start` on that are sound and go on where the partition ends, in one lease.

    None if there is none.
    """
    lease_id, number = append_point.position
    journal_at, data_at = append_point.journal_end // WORD, append_point.data_end
    records: list[memoryview] = []
    entries: list[memoryview] = []
    changes: list[Change] = []
    asking = 0
    at = start
    while end - at >= _HEAD_SIZE and len(records) < RECORDS_MAX:
        words, form, message_type, _, offset_words, word, record_lease_id, magic = _head(data, at)
        size = (words & _WORDS_MASK) * WORD
        if (
            size < _HEAD_SIZE
            or size > end - at
            or form != _FORM
            or offset_words != journal_at
            or magic != RECORD_MAGIC
            or record_lease_id != lease_id
            or word & SEQUENCE_NUMBER_MASK != number + 1
        ):
            break
        kind = word >> TYPE_SHIFT
        record = at + _HEADER_SIZE
        until = at + size
        if kind == _MESSAGE and message_type == _DATA_TYPE:
            change = _arrival(data, record, until, data_at)
            if change is None:
                break
            changes.append(change)
            entries.append(data[record + JOURNAL_RECORD_SIZE : until])
            data_at += size - _HEAD_SIZE
        elif kind == _DELETION and message_type == _DELETION_TYPE and size == _HEAD_SIZE:
            key, guid = _deletion(data, record)
            changes.append(_new(Change, (key, guid, 0, 0, -1)))
        elif kind != _CONFIRM or message_type != _CONFIRM_TYPE or size != _HEAD_SIZE:
            break
        records.append(data[record : record + JOURNAL_RECORD_SIZE])
        journal_at += JOURNAL_RECORD_SIZE // WORD
        number += 1
        if words >> _FLAGS_SHIFT & _RECEIPT_REQUESTED:
            asking = number
        at = until
    if not records:
        return None
    return _new(
        RecordRun,
        (
            b"".join(records),
            entries,
            data_at - append_point.data_end,
            changes,
            _new(RecordNumber, (lease_id, number)),
            _new(RecordNumber, (lease_id, asking)) if asking else None,
            at,
        ),
    )


def _arrival(data: memoryview, record: int, end: int, data_at: int) -> Change | None:
    """Read a message whose entry goes to DATA at `data_at`; None if it does not fit there, or is unsound."""
    word: int
    place: int
    word, key, place, guid, checksum = _message(data, record)
    at = record + JOURNAL_RECORD_SIZE
    size = end - at
    if place * DWORD != data_at or size <= DATA_HEADER.size or size % DWORD:
        return None
    lengths: int
    options: int
    lengths, options = unpack_sizes(data, at)
    padding = data[end - 1]
    begin = at + ((lengths >> HEADER_WORDS_SHIFT) + (options >> OPTIONS_WORDS_SHIFT)) * WORD
    if (
        (lengths & MESSAGE_WORDS_MASK) * WORD != size
        or lengths >> HEADER_WORDS_SHIFT < _DATA_HEADER_WORDS
        or not 1 <= padding <= DWORD
        or begin >= end - padding
        or crc32c(data[begin : end - padding]) != checksum
    ):
        return None
    return _new(Change, (key, guid, data_at, word & _COMPRESSION_MASK, end - padding - begin))
