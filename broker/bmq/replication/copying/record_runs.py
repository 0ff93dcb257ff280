# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Runs of messages, confirms and deletions in an event, which a replica parses and writes at once.

A run ends before any other record, and before one that is malformed or does not continue the partition.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

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

__all__ = ["RECORDS_MAX", "AppendPoint", "Change", "RecordRun", "follows", "parse_run", "payload_size"]

# A named tuple's own constructor is interpreted.
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

_head: Final[Callable[[memoryview, int], tuple[int, int, int, int, int, int, int, int]]] = Struct(
    STORAGE_HEADER.words.format + ANY_RECORD.partial("sequence_number", "primary_lease_id", "magic").format[1:]
).unpack_from
_message: Final = MESSAGE_RECORD.partial(
    "compression", "queue_key", "message_offset_dwords", "guid", "crc32c"
).unpack_from
_deletion: Final = DELETION_RECORD.partial("queue_key", "guid").unpack_from


class AppendPoint(NamedTuple):
    """The end of a replica, which new records must continue.

    With `gaps`, sequence numbers may be skipped. No record has a lease above `lease_id_max`.
    """

    position: RecordNumber
    journal_end: int
    data_end: int
    gaps: bool
    lease_id_max: int


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


def follows(point: AppendPoint, lease_id: int, number: int, next_lease_id: int, next_number: int) -> bool:
    """Return True if the record `next_number` of `next_lease_id` may come after `number` of `lease_id`."""
    if next_lease_id == lease_id:
        return next_number == number + 1 or (point.gaps and next_number > number and lease_id <= point.lease_id_max)
    return lease_id < next_lease_id <= point.lease_id_max and (next_number == 1 or point.gaps)


def parse_run(
    data: memoryview, start: int, end: int, point: AppendPoint, records_max: int = RECORDS_MAX
) -> RecordRun | None:
    """Parse at most `records_max` records from `start` on; None if the first is not one of a run."""
    lease_id, number = point.position
    journal_at, data_at = point.journal_end // WORD, point.data_end
    records: list[memoryview] = []
    entries: list[memoryview] = []
    changes: list[Change] = []
    asking: RecordNumber | None = None
    at = start
    while end - at >= _HEAD_SIZE and len(records) < records_max:
        words, form, message_type, _, offset_words, word, record_lease_id, magic = _head(data, at)
        size = (words & _WORDS_MASK) * WORD
        sequence_number = word & SEQUENCE_NUMBER_MASK
        if (
            size < _HEAD_SIZE
            or size > end - at
            or form != _FORM
            or offset_words != journal_at
            or magic != RECORD_MAGIC
            or (
                (record_lease_id != lease_id or sequence_number != number + 1)
                and not follows(point, lease_id, number, record_lease_id, sequence_number)
            )
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
        lease_id, number = record_lease_id, sequence_number
        if words >> _FLAGS_SHIFT & _RECEIPT_REQUESTED:
            asking = _new(RecordNumber, (lease_id, number))
        at = until
    if not records:
        return None
    last = _new(RecordNumber, (lease_id, number))
    return _new(RecordRun, (b"".join(records), entries, data_at - point.data_end, changes, last, asking, at))


def _arrival(data: memoryview, record: int, end: int, data_at: int) -> Change | None:
    """Read a message whose entry goes to DATA at `data_at`; None if it does not fit there, or is unsound."""
    word: int
    place: int
    word, key, place, guid, checksum = _message(data, record)
    size = payload_size(data, record + JOURNAL_RECORD_SIZE, end, checksum)
    if place * DWORD != data_at or size < 0:
        return None
    return _new(Change, (key, guid, data_at, word & _COMPRESSION_MASK, size))


def payload_size(data: memoryview, start: int, end: int, checksum: int) -> int:
    """Return the size of the payload if `data[start:end]` is one DATA record with this checksum; else -1."""
    size = end - start
    if size <= DATA_HEADER.size or size % DWORD:
        return -1
    lengths: int
    options: int
    lengths, options = unpack_sizes(data, start)
    padding = data[end - 1]
    begin = start + ((lengths >> HEADER_WORDS_SHIFT) + (options >> OPTIONS_WORDS_SHIFT)) * WORD
    if (
        (lengths & MESSAGE_WORDS_MASK) * WORD != size
        or lengths >> HEADER_WORDS_SHIFT < _DATA_HEADER_WORDS
        or not 1 <= padding <= DWORD
        or begin >= end - padding
        or crc32c(data[begin : end - padding]) != checksum
    ):
        return -1
    return end - padding - begin
