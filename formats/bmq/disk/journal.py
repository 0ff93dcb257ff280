"""Journal records: 60 bytes each, five kinds with a common header (source: mqbs::RecordHeader and mqbs::*Record).

`AnyRecord` has the header, 20 bytes, and the magic "*rEc", the last four bytes. The flags depend on the kind: the low
bits of a message's reference count, a confirm's reason, a deletion's flag.

Read one record with `decode_record`, or a whole file with `scan` as a numpy array (no copy); `select` takes the records
of one kind from a scan. `journal_packing` has the writers.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.keys import KEY_SIZE
from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, bits, i32, raw, u8, u32, u64, zeros

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ANY_RECORD",
    "CONFIRM_RECORD",
    "DELETION_RECORD",
    "JOURNAL_OP_RECORD",
    "LAYOUTS",
    "MESSAGE_RECORD",
    "QUEUE_OP_RECORD",
    "RECORD_MAGIC",
    "REF_COUNT_MAX",
    "SEQUENCE_NUMBER_MASK",
    "TYPE_SHIFT",
    "AnyRecord",
    "ConfirmReason",
    "ConfirmRecord",
    "DeletionRecord",
    "DeletionRecordFlag",
    "JournalOpRecord",
    "JournalOpType",
    "MessageRecord",
    "QueueOpRecord",
    "QueueOpType",
    "Record",
    "RecordType",
    "SyncPointType",
    "decode_record",
    "scan",
    "select",
]

RECORD_MAGIC = 0x2A724563  # *rEc
GUID_SIZE = 16
REF_COUNT_MAX = (1 << 20) - 1


class RecordType(IntEnum):
    """mqbs::RecordType."""

    UNDEFINED = 0
    MESSAGE = 1
    CONFIRM = 2
    DELETION = 3
    QUEUE_OP = 4
    JOURNAL_OP = 5


class ConfirmReason(IntFlag):
    """mqbs::ConfirmReason, a mask."""

    CONFIRMED = 0
    REJECTED = 1
    AUTO_CONFIRMED = 2


class DeletionRecordFlag(IntFlag):
    """mqbs::DeletionRecordFlag: the reason of a deletion."""

    NONE = 0
    IMPLICIT_CONFIRM = 1
    TTL_EXPIRATION = 2
    NO_SC_QUORUM = 4


class QueueOpType(IntEnum):
    """mqbs::QueueOpType."""

    UNDEFINED = 0
    PURGE = 1
    CREATION = 2
    DELETION = 3
    ADDITION = 4


class JournalOpType(IntEnum):
    """mqbs::JournalOpType."""

    UNDEFINED = 0
    UNUSED = 1
    SYNCPOINT = 2


class SyncPointType(IntEnum):
    """mqbs::SyncPointType."""

    UNDEFINED = 0
    REGULAR = 1
    ROLLOVER = 2


class AnyRecord(NamedTuple):
    """The fields of all records; `body` is the kind's own 36 bytes, `timestamp` is in seconds since the epoch.

    mqbs::RecordHeader, 60 bytes:

         0 | type 4 | flags 12 | sequence_number 48 |
         8 | primary_lease_id 32                    |
        12 | timestamp 64                           |
        20 | body 288                               |
        56 | magic 32                               |
    """

    type: Annotated[int, bits(4, word=64), "A RecordType."]
    flags: Annotated[int, bits(12), "The kind's own 12 bits."]
    sequence_number: Annotated[int, bits(48), "The record's number within the lease, from 1."]
    primary_lease_id: Annotated[int, u32, "The lease of the primary that wrote the record."]
    timestamp: Annotated[int, u64, "When the record was written, in seconds since the epoch."]
    body: Annotated[bytes, raw(36), "The kind's own fields."]
    magic: Annotated[int, u32, 'Ends every record: 0x2A724563, "*rEc".']


class MessageRecord(NamedTuple):
    """A message that was posted. Its data is in the DATA file at `message_offset_dwords`, and `crc32c` covers it.

    The reference count, the number of apps that must confirm, is split: see `ref_count`.

    mqbs::MessageRecord, 60 bytes:

         0 | type 4 | ref_count_low 12 | sequence_number 48                             |
         8 | primary_lease_id 32                                                        |
        12 | timestamp 64                                                               |
        20 | ref_count_high 8 | reserved 5 | compression 3 | queue_key 40 | file_key 40 |
        32 | message_offset_dwords 32                                                   |
        36 | guid 128                                                                   |
        52 | crc32c 32                                                                  |
        56 | magic 32                                                                   |
    """

    type: Annotated[int, bits(4, word=64), "A RecordType: MESSAGE."]
    ref_count_low: Annotated[int, bits(12), "Low 12 bits of the reference count, the number of apps that must confirm."]
    sequence_number: Annotated[int, bits(48), "The record's number within the lease, from 1."]
    primary_lease_id: Annotated[int, u32, "The lease of the primary that wrote the record."]
    timestamp: Annotated[int, u64, "When the record was written, in seconds since the epoch."]
    ref_count_high: Annotated[int, u8, "High 8 bits of the reference count."]
    reserved: Annotated[int, bits(5), "Reserved; written as zero."]
    compression: Annotated[int, bits(3), "A CompressionAlgorithm."]
    queue_key: Annotated[bytes, raw(KEY_SIZE), "The queue's key."]
    file_key: Annotated[bytes, raw(KEY_SIZE), "Not used; the null key."]
    message_offset_dwords: Annotated[
        int, u32, "Where the message's record begins in the DATA file, in units of 8 bytes."
    ]
    guid: Annotated[bytes, raw(GUID_SIZE), "The message's GUID."]
    crc32c: Annotated[int, u32, "CRC32-C of properties and payload in the DATA file, without padding."]
    magic: Annotated[int, u32, 'Ends every record: 0x2A724563, "*rEc".']

    @property
    def ref_count(self) -> int:
        return self.ref_count_high << 12 | self.ref_count_low


class ConfirmRecord(NamedTuple):
    """The confirm of a message by one app; `reason` is a ConfirmReason.

    mqbs::ConfirmRecord, 60 bytes:

         0 | type 4 | reason 12 | sequence_number 48  |
         8 | primary_lease_id 32                      |
        12 | timestamp 64                             |
        20 | reserved1 16 | queue_key 40 | app_key 40 |
        32 | guid 128                                 |
        48 | reserved2 64                             |
        56 | magic 32                                 |
    """

    type: Annotated[int, bits(4, word=64), "A RecordType: CONFIRM."]
    reason: Annotated[int, bits(12), "A ConfirmReason."]
    sequence_number: Annotated[int, bits(48), "The record's number within the lease, from 1."]
    primary_lease_id: Annotated[int, u32, "The lease of the primary that wrote the record."]
    timestamp: Annotated[int, u64, "When the record was written, in seconds since the epoch."]
    reserved1: Annotated[bytes, zeros(2), "Reserved; written as zero."]
    queue_key: Annotated[bytes, raw(KEY_SIZE), "The queue's key."]
    app_key: Annotated[bytes, raw(KEY_SIZE), "The key of the app that is done with the message; null without fan-out."]
    guid: Annotated[bytes, raw(GUID_SIZE), "The message's GUID."]
    reserved2: Annotated[bytes, zeros(8), "Reserved; written as zero."]
    magic: Annotated[int, u32, 'Ends every record: 0x2A724563, "*rEc".']


class DeletionRecord(NamedTuple):
    """The deletion of a message for all apps; `deletion_flag` is a DeletionRecordFlag.

    mqbs::DeletionRecord, 60 bytes:

         0 | type 4 | deletion_flag 12 | sequence_number 48 |
         8 | primary_lease_id 32                            |
        12 | timestamp 64                                   |
        20 | reserved1 24 | queue_key 40                    |
        28 | guid 128                                       |
        44 | reserved2 96                                   |
        56 | magic 32                                       |
    """

    type: Annotated[int, bits(4, word=64), "A RecordType: DELETION."]
    deletion_flag: Annotated[int, bits(12), "A DeletionRecordFlag: why the message went."]
    sequence_number: Annotated[int, bits(48), "The record's number within the lease, from 1."]
    primary_lease_id: Annotated[int, u32, "The lease of the primary that wrote the record."]
    timestamp: Annotated[int, u64, "When the record was written, in seconds since the epoch."]
    reserved1: Annotated[bytes, zeros(3), "Reserved; written as zero."]
    queue_key: Annotated[bytes, raw(KEY_SIZE), "The queue's key."]
    guid: Annotated[bytes, raw(GUID_SIZE), "The message's GUID."]
    reserved2: Annotated[bytes, zeros(12), "Reserved; written as zero."]
    magic: Annotated[int, u32, 'Ends every record: 0x2A724563, "*rEc".']


class QueueOpRecord(NamedTuple):
    """The creation, change, purge or deletion of a queue; `queue_op_type` is a QueueOpType.

    CREATION and ADDITION refer to QLIST by `queue_uri_record_offset_words`. PURGE of one app (`app_key` not null) gives
    in `start_*` the oldest message that it affects. A null `app_key` means the whole queue: bmqctl's broker then gives
    the oldest message that was never acknowledged, if any, and the reference writes zeros.

    mqbs::QueueOpRecord, 60 bytes:

         0 | type 4 | flags 12 | sequence_number 48   |
         8 | primary_lease_id 32                      |
        12 | timestamp 64                             |
        20 | reserved1 16 | queue_key 40 | app_key 40 |
        32 | queue_op_type 32                         |
        36 | queue_uri_record_offset_words 32         |
        40 | start_sequence_number 64                 |
        48 | start_primary_lease_id 32                |
        52 | reserved2 32                             |
        56 | magic 32                                 |
    """

    type: Annotated[int, bits(4, word=64), "A RecordType: QUEUE_OP."]
    flags: Annotated[int, bits(12), "Not used."]
    sequence_number: Annotated[int, bits(48), "The record's number within the lease, from 1."]
    primary_lease_id: Annotated[int, u32, "The lease of the primary that wrote the record."]
    timestamp: Annotated[int, u64, "When the record was written, in seconds since the epoch."]
    reserved1: Annotated[bytes, zeros(2), "Reserved; written as zero."]
    queue_key: Annotated[bytes, raw(KEY_SIZE), "The queue's key."]
    app_key: Annotated[bytes, raw(KEY_SIZE), "The app that it concerns; null for the whole queue."]
    queue_op_type: Annotated[int, i32, "A QueueOpType."]
    queue_uri_record_offset_words: Annotated[
        int, u32, "CREATION and ADDITION: where the queue's record begins in the QLIST file, in words."
    ]
    start_sequence_number: Annotated[
        int, u64, "PURGE of one app: the sequence number of the oldest message that it touches."
    ]
    start_primary_lease_id: Annotated[int, u32, "PURGE of one app: the lease of that message."]
    reserved2: Annotated[bytes, zeros(4), "Reserved; written as zero."]
    magic: Annotated[int, u32, 'Ends every record: 0x2A724563, "*rEc".']


class JournalOpRecord(NamedTuple):
    """A sync point, up to which the three files agree. A `journal_op_type` other than SYNCPOINT is kept as it is.

    `data_file_offset_dwords` and `qlist_file_offset_words` are the sizes of those files when it was written.

    mqbs::JournalOpRecord, 60 bytes:

         0 | type 4 | flags 12 | sequence_number 48 |
         8 | primary_lease_id 32                    |
        12 | timestamp 64                           |
        20 | reserved1 24 | sync_point_type 8       |
        24 | journal_op_type 32                     |
        28 | sync_point_sequence_number 64          |
        36 | primary_node_id 32                     |
        40 | sync_point_primary_lease_id 32         |
        44 | data_file_offset_dwords 32             |
        48 | qlist_file_offset_words 32             |
        52 | reserved2 32                           |
        56 | magic 32                               |
    """

    type: Annotated[int, bits(4, word=64), "A RecordType: JOURNAL_OP."]
    flags: Annotated[int, bits(12), "Not used."]
    sequence_number: Annotated[int, bits(48), "The record's number within the lease, from 1."]
    primary_lease_id: Annotated[int, u32, "The lease of the primary that wrote the record."]
    timestamp: Annotated[int, u64, "When the record was written, in seconds since the epoch."]
    reserved1: Annotated[bytes, zeros(3), "Reserved; written as zero."]
    sync_point_type: Annotated[int, u8, "A SyncPointType."]
    journal_op_type: Annotated[int, i32, "A JournalOpType: SYNCPOINT."]
    sync_point_sequence_number: Annotated[int, u64, "The sequence number of the sync point itself."]
    primary_node_id: Annotated[int, i32, "The node that was primary."]
    sync_point_primary_lease_id: Annotated[int, u32, "The lease of that primary."]
    data_file_offset_dwords: Annotated[int, u32, "Size of the DATA file at this point, in units of 8 bytes."]
    qlist_file_offset_words: Annotated[int, u32, "Size of the QLIST file at this point, in words."]
    reserved2: Annotated[bytes, zeros(4), "Reserved; written as zero."]
    magic: Annotated[int, u32, 'Ends every record: 0x2A724563, "*rEc".']


Record = MessageRecord | ConfirmRecord | DeletionRecord | QueueOpRecord | JournalOpRecord

ANY_RECORD = Layout(AnyRecord, size=JOURNAL_RECORD_SIZE, upstream="mqbs::RecordHeader")
MESSAGE_RECORD = Layout(MessageRecord, size=JOURNAL_RECORD_SIZE, upstream="mqbs::MessageRecord")
CONFIRM_RECORD = Layout(ConfirmRecord, size=JOURNAL_RECORD_SIZE, upstream="mqbs::ConfirmRecord")
DELETION_RECORD = Layout(DeletionRecord, size=JOURNAL_RECORD_SIZE, upstream="mqbs::DeletionRecord")
QUEUE_OP_RECORD = Layout(QueueOpRecord, size=JOURNAL_RECORD_SIZE, upstream="mqbs::QueueOpRecord")
JOURNAL_OP_RECORD = Layout(JournalOpRecord, size=JOURNAL_RECORD_SIZE, upstream="mqbs::JournalOpRecord")

# The sequence number's bits in a record's first word; the type is above them.
SEQUENCE_NUMBER_MASK = ANY_RECORD.mask("sequence_number")
TYPE_SHIFT = ANY_RECORD.bit["type"].shift

LAYOUTS: dict[int, Layout[Any]] = {
    RecordType.MESSAGE: MESSAGE_RECORD,
    RecordType.CONFIRM: CONFIRM_RECORD,
    RecordType.DELETION: DELETION_RECORD,
    RecordType.QUEUE_OP: QUEUE_OP_RECORD,
    RecordType.JOURNAL_OP: JOURNAL_OP_RECORD,
}

_UNPACK = tuple(LAYOUTS[t].unpack if t in LAYOUTS else None for t in range(16))


def decode_record(buffer: Buffer, offset: int = 0) -> Record:
    """Decode the record at `offset`. FormatError if its type is unknown, its magic is wrong, or it is cut short.

    A lease id or sequence number of 0, at which the reference's iterator stops, is an error too
    (mqbs::JournalFileIterator).
    """
    if not 0 <= offset <= len(buffer) - JOURNAL_RECORD_SIZE:
        reason = f"needs {JOURNAL_RECORD_SIZE} bytes, {max(0, len(buffer) - offset)} left"
        raise FormatError("Record", offset, reason)
    kind = buffer[offset] >> 4
    unpack = _UNPACK[kind]
    if unpack is None:
        raise FormatError("RecordHeader.type", offset, f"{kind} is no record type")
    record: Record = unpack(buffer, offset)
    if record.magic != RECORD_MAGIC:
        raise FormatError(f"{type(record).__name__}.magic", offset + 56, f"{record.magic:#010x} is not '*rEc'")
    if not record.primary_lease_id:
        raise FormatError("RecordHeader.primary_lease_id", offset + 8, "is 0")
    if not record.sequence_number:
        raise FormatError("RecordHeader.sequence_number", offset + 2, "is 0")
    return record


def scan(buffer: Buffer, first_record_offset: int, count: int) -> NDArray[Any]:
    """View `count` records from `first_record_offset`, without copying: shape (count,), `ANY_RECORD.dtype`.

    `ANY_RECORD.column(array, name)` gives a field of all records, `select` the records of one kind. No checks are made.
    """
    import numpy as np

    if first_record_offset < 0 or first_record_offset + count * JOURNAL_RECORD_SIZE > len(buffer):
        raise FormatError("Record", first_record_offset, f"{count} records go beyond the end, {len(buffer)}")
    return np.frombuffer(buffer, ANY_RECORD.dtype, count, first_record_offset)


_WHOLE_RECORD = f"V{JOURNAL_RECORD_SIZE}"


def select(records: NDArray[Any], kind: RecordType) -> tuple[NDArray[Any], NDArray[Any]]:
    """Select the scanned records of one kind, and their indexes in `records`.

    The first array is a copy with the dtype of `LAYOUTS[kind]`, whose `column` reads it; the second is int64.
    """
    import numpy as np

    indexes = np.flatnonzero(ANY_RECORD.column(records, "type") == kind)
    # numpy's take is ten times as fast on bytes without fields.
    return records.view(_WHOLE_RECORD).take(indexes).view(LAYOUTS[kind].dtype), indexes
