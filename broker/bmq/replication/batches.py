"""Batches of records: packing into an event, and parsing of an event's records, in columns.

Healing a replica may take a million records, while other work shares the same processors: one by one they
cost several times as much. Messages, confirms and deletions are handled here; rare or irregular records are
left to the code for single records.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.codes import StorageFlag, StorageMessageType
from formats.bmq.disk.data import DATA_HEADER, HEADER_WORDS_SHIFT, MESSAGE_WORDS_MASK, OPTIONS_WORDS_SHIFT
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import MESSAGE_RECORD, RECORD_MAGIC, SEQUENCE_NUMBER_MASK, RecordType
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.wire.storage import STORAGE_HEADER, STORAGE_PROTOCOL_VERSION
from formats.schema import columns_dtype

__all__ = ["RECORDS_MIN", "Batch", "pack_batch", "parse_batch"]

# Fewer are packed faster one by one; more at once would delay other work.
RECORDS_MIN: Final = 64
RECORDS_MAX: Final = 512

_HEADER_SIZE: Final = STORAGE_HEADER.size
_HEAD_SIZE: Final = _HEADER_SIZE + JOURNAL_RECORD_SIZE
_FORM: Final = STORAGE_PROTOCOL_VERSION << 4 | _HEADER_SIZE // WORD
_MESSAGE, _CONFIRM, _DELETION = int(RecordType.MESSAGE), int(RecordType.CONFIRM), int(RecordType.DELETION)
_JOURNAL_OP: Final = int(RecordType.JOURNAL_OP)
# The type of the storage message by that of the record; 0 for those not handled here.
_PACKED_TYPES: Final = np.zeros(16, np.uint8)
_PACKED_TYPES[[_MESSAGE, _CONFIRM, _DELETION, _JOURNAL_OP]] = (
    StorageMessageType.DATA,
    StorageMessageType.CONFIRM,
    StorageMessageType.DELETION,
    StorageMessageType.JOURNAL_OP,
)
# A sync point may begin a rollover: it is processed singly.
_PARSED_TYPES: Final = _PACKED_TYPES.copy()
_PARSED_TYPES[_JOURNAL_OP] = 0

_RECEIPT_REQUESTED: Final = int(StorageFlag.RECEIPT_REQUESTED)
_FLAGS_SHIFT: Final = STORAGE_HEADER.bit["flags"].shift
_WORDS_MASK: Final = STORAGE_HEADER.mask("message_words")
_storage_size: Final = STORAGE_HEADER.partial("message_words").unpack_from
_NUMBER_MASK: Final = np.uint64(SEQUENCE_NUMBER_MASK)
_FRONT_SIZE: Final = _HEAD_SIZE + 2 * WORD
_NO_DATA: Final = bytes(2 * WORD)
_COMPRESSION_MASK: Final = MESSAGE_RECORD.mask("compression")


# A storage header and the journal's record after it: the first byte of a record has its type; `place` is a message's in
# DATA.
_HEAD_FIELDS: Final = {
    **STORAGE_HEADER.places(
        words="message_words",
        form="header_words",
        type="message_type",
        partition_id="partition_id",
        offset_words="journal_offset_words",
    ),
    "record": (f"V{JOURNAL_RECORD_SIZE}", _HEADER_SIZE),
    "kind": ("u1", _HEADER_SIZE + MESSAGE_RECORD.offset("type")),
    **MESSAGE_RECORD.places(
        _HEADER_SIZE,
        number="sequence_number",
        lease_id="primary_lease_id",
        place="message_offset_dwords",
        checksum="crc32c",
        magic="magic",
    ),
}
_HEAD: Final = columns_dtype(_HEAD_FIELDS, _HEAD_SIZE)
# On arrival also a message's compression, queue key and GUID, and the front of its DATA record.
_ARRIVED: Final = columns_dtype(
    _HEAD_FIELDS
    | MESSAGE_RECORD.places(_HEADER_SIZE, compression="compression", key="queue_key", guid="guid")
    | DATA_HEADER.places(_HEAD_SIZE, length="message_words", options="options_words"),
    _FRONT_SIZE,
)


def pack_batch(
    out: bytearray, files: PartitionFiles, partition_id: int, start: int, end: int, awaited: Container[int], room: int
) -> int:
    """Append the journal's records from `start` to an event's body; return the offset of the next record.

    Stops at `end`, before a queue operation, or when `room` bytes are filled. Messages whose sequence number is in
    `awaited` request a receipt.
    """
    count = min((end - start) // JOURNAL_RECORD_SIZE, RECORDS_MAX)
    heads = np.zeros(count, _HEAD)
    heads["record"] = np.frombuffer(files.journal.buffer, f"V{JOURNAL_RECORD_SIZE}", count, start)
    kinds = heads["kind"] >> 4
    types = _PACKED_TYPES[kinds]
    count = _front(types != 0)
    heads, kinds = heads[:count], kinds[:count]
    is_message = kinds == _MESSAGE
    places = heads["place"].astype(np.int64) * DWORD
    sizes = np.zeros(count, np.int64)
    data = files.data.buffer
    words = np.frombuffer(data, ">u4", len(data) // WORD)
    sizes[is_message] = (words[places[is_message] // WORD] & MESSAGE_WORDS_MASK).astype(np.int64) * WORD
    # The last record fills the room, or exceeds it.
    count = min(count, int(np.searchsorted(np.cumsum(sizes + _HEAD_SIZE), room)) + 1)
    heads, kinds, sizes = heads[:count], kinds[:count], sizes[:count]
    flags = np.zeros(count, np.int64)
    if awaited:
        numbers = (heads["number"] & _NUMBER_MASK).tolist()
        flags[:] = [_RECEIPT_REQUESTED if number in awaited else 0 for number in numbers]
        flags[kinds != _MESSAGE] = 0
    heads["words"] = flags << _FLAGS_SHIFT | (sizes + _HEAD_SIZE) // WORD
    heads["form"] = _FORM
    heads["type"] = types[:count]
    heads["partition_id"] = partition_id
    heads["offset_words"] = start // WORD + np.arange(count) * (JOURNAL_RECORD_SIZE // WORD)
    packed = memoryview(heads.tobytes())
    pieces: list[memoryview] = []
    at = 0
    for place, size in zip(places.tolist(), sizes.tolist(), strict=False):
        pieces.append(packed[at : at + _HEAD_SIZE])
        if size:
            pieces.append(data[place : place + size])
        at += _HEAD_SIZE
    out += b"".join(pieces)
    return start + count * JOURNAL_RECORD_SIZE


class Batch(NamedTuple):
    """Records of an event that continue a partition, in columns of one row each.

    `records` are written to the journal and `data` to DATA, where the part of each record has its entry of `sizes`;
    `payloads` are the sizes of messages' payloads. If all are messages of one queue, `queue_key` is its key, and their
    GUIDs, offsets in DATA and compression are set too. `asking` is the last record that requests a receipt. The rest of
    the event begins at `end`.
    """

    kinds: list[int]
    records: bytes
    data: bytes
    sizes: list[int]
    payloads: list[int]
    queue_key: bytes | None
    guids: list[bytes]
    offsets: NDArray[np.int64]
    compressions: NDArray[np.uint8]
    last: RecordNumber
    asking: RecordNumber | None
    end: int


class AppendPoint(NamedTuple):
    """The end of a replica, which new records must continue.

    With `gaps`, sequence numbers may be skipped, and lease ids may grow up to `lease_id_max`.
    """

    position: RecordNumber
    journal_end: int
    data_end: int
    gaps: bool
    lease_id_max: int


def parse_batch(data: memoryview, start: int, end: int, append_point: AppendPoint) -> Batch | None:
    """Parse the messages from `start` on that are sound, continue the partition, and are of the kinds handled here.

    None if they are too few; the code for single records then finds any faults.
    """
    starts = _starts(data, start, end)
    if len(starts) < RECORDS_MIN:
        return None
    heads = np.frombuffer(_fronts(data, starts), _ARRIVED)
    count = min(_front(_are_plain(heads)), _front(_go_on(heads, append_point)))
    heads = heads[:count]
    sizes = (heads["words"] & _WORDS_MASK).astype(np.int64) * WORD - _HEAD_SIZE
    is_message = (heads["kind"] >> 4) == _MESSAGE
    ends = append_point.data_end + np.cumsum(sizes)
    offsets = heads["place"].astype(np.int64) * DWORD
    count = _front(np.where(is_message, offsets == ends - sizes, sizes == 0))
    rows = np.flatnonzero(is_message[:count])
    found, checksums = sizes[:count].tolist(), heads["checksum"][rows].tolist()
    begins = _payload_offsets(heads[rows], sizes[rows]).tolist()
    payloads: list[int] = []
    for row, begin, checksum in zip(rows.tolist(), begins, checksums, strict=True):
        at = starts[row] + _HEAD_SIZE
        until = at + found[row]
        pad = data[until - 1]
        if (
            not 1 <= pad <= DWORD
            or not 0 < begin < found[row] - pad
            or crc32c(data[at + begin : until - pad]) != checksum
        ):
            count = row
            break
        payloads.append(until - pad - at - begin)
    if count < RECORDS_MIN:
        return None
    heads, found = heads[:count], found[:count]
    asking = np.flatnonzero(heads["words"] >> _FLAGS_SHIFT & _RECEIPT_REQUESTED)
    keys = set(heads["key"].tolist()) if is_message[:count].all() else set()
    starts = [at + _HEAD_SIZE for at in starts[:count]]
    return Batch(
        (heads["kind"] >> 4).tolist(),
        heads["record"].tobytes(),
        b"".join([data[at : at + size] for at, size in zip(starts, found, strict=True) if size]),
        found,
        payloads,
        keys.pop() if len(keys) == 1 else None,
        heads["guid"].tolist(),
        offsets[:count],
        heads["compression"] & np.uint8(_COMPRESSION_MASK),
        _position(heads, -1),
        _position(heads, int(asking[-1])) if asking.size else None,
        starts[-1] + found[-1],
    )


def _position(heads: NDArray[Any], row: int) -> RecordNumber:
    return RecordNumber(int(heads["lease_id"][row]), int(heads["number"][row] & _NUMBER_MASK))


def _starts(data: memoryview, start: int, end: int) -> list[int]:
    """Return the offsets of messages that are wholly before `end`, by their heads."""
    starts: list[int] = []
    while end - start >= _HEAD_SIZE and len(starts) < RECORDS_MAX:
        size = (_storage_size(data, start)[0] & _WORDS_MASK) * WORD
        if size < _HEAD_SIZE or size > end - start:
            break
        starts.append(start)
        start += size
    return starts


def _fronts(data: memoryview, starts: list[int]) -> bytes:
    """Return the first bytes of each message, with zeros for those that one without data lacks."""
    fronts: list[memoryview | bytes] = []
    for start in starts:
        size = (_storage_size(data, start)[0] & _WORDS_MASK) * WORD
        if size >= _FRONT_SIZE:
            fronts.append(data[start : start + _FRONT_SIZE])
        else:
            fronts += data[start : start + _HEAD_SIZE], _NO_DATA
    return b"".join(fronts)


def _are_plain(heads: NDArray[Any]) -> NDArray[np.bool_]:
    types = _PARSED_TYPES[heads["kind"] >> 4]
    plain: NDArray[np.bool_] = (types != 0) & (types == heads["type"])
    plain &= (heads["form"] == _FORM) & (heads["magic"] == RECORD_MAGIC)
    return plain


def _go_on(heads: NDArray[Any], append_point: AppendPoint) -> NDArray[np.bool_]:
    """Mark records that are the next in their partition's history, and at their place in the journal."""
    (lease_id, number), count = append_point.position, len(heads)
    places = (append_point.journal_end + np.arange(count) * JOURNAL_RECORD_SIZE) // WORD
    numbers = (heads["number"] & _NUMBER_MASK).astype(np.int64)
    leases = heads["lease_id"].astype(np.int64)
    numbers_before = np.concatenate(([number], numbers[:-1]))
    leases_before = np.concatenate(([lease_id], leases[:-1]))
    goes_on: NDArray[np.bool_] = (leases == leases_before) & (numbers == numbers_before + 1)
    if append_point.gaps:
        goes_on |= (leases == leases_before) & (numbers > numbers_before)
        goes_on |= (leases > leases_before) & (leases <= append_point.lease_id_max)
    goes_on &= heads["offset_words"] == places
    return goes_on


def _payload_offsets(heads: NDArray[Any], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offsets of payloads in DATA records; 0 for an invalid record."""
    lengths, options = heads["length"].astype(np.int64), heads["options"].astype(np.int64)
    header_bytes = (lengths >> HEADER_WORDS_SHIFT) * WORD
    is_sound = (sizes > DATA_HEADER.size) & (sizes % DWORD == 0) & ((lengths & MESSAGE_WORDS_MASK) * WORD == sizes)
    is_sound &= header_bytes >= DATA_HEADER.size
    begins: NDArray[np.int64] = np.where(is_sound, header_bytes + (options >> OPTIONS_WORDS_SHIFT) * WORD, 0)
    return begins


def _front(holds: NDArray[np.bool_]) -> int:
    """Return the number of leading True values."""
    return len(holds) if holds.all() else int(holds.argmin())
