"""Many records of a stream at once: how they go into an event, and what an event's say, in columns.

Healing a replica is a matter of a million records, while everybody else's share the same processors: one by one they
cost several times as much. Messages, confirms and deletions are handled here; what is rare, or not as it should be, is
left to those who look at each record.
"""

from __future__ import annotations

import struct
from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from broker.cluster.positions import Position
from broker.store.partition_files import PartitionFiles
from formats.codes import StorageFlag, StorageMessageType
from formats.disk.data import DATA_HEADER
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.journal import RECORD_MAGIC, RecordType
from formats.disk.padding import DWORD, WORD
from formats.wire.storage import STORAGE_HEADER, STORAGE_PROTOCOL_VERSION

__all__ = ["RECORDS_MIN", "Batch", "pack_batch", "parse_batch"]

# Fewer are done sooner one by one; more at once would keep others waiting.
RECORDS_MIN = 16
RECORDS_MAX = 512

_HEADER_SIZE = STORAGE_HEADER.size
_HEAD_SIZE = _HEADER_SIZE + JOURNAL_RECORD_SIZE
_FORM = STORAGE_PROTOCOL_VERSION << 4 | _HEADER_SIZE // WORD
_MESSAGE, _CONFIRM, _DELETION = int(RecordType.MESSAGE), int(RecordType.CONFIRM), int(RecordType.DELETION)
_JOURNAL_OP = int(RecordType.JOURNAL_OP)
# The type of the storage message by that of the record; 0 for those that are not handled here.
_PACKED_TYPES = np.zeros(16, np.uint8)
_PACKED_TYPES[[_MESSAGE, _CONFIRM, _DELETION, _JOURNAL_OP]] = (
    StorageMessageType.DATA,
    StorageMessageType.CONFIRM,
    StorageMessageType.DELETION,
    StorageMessageType.JOURNAL_OP,
)
# A sync point may begin a rollover: it is looked at by itself.
_PARSED_TYPES = _PACKED_TYPES.copy()
_PARSED_TYPES[_JOURNAL_OP] = 0

_RECEIPT_REQUESTED = int(StorageFlag.RECEIPT_REQUESTED)
_FLAGS_SHIFT = 27
_WORDS_MASK = (1 << _FLAGS_SHIFT) - 1
_NUMBER_MASK = np.uint64((1 << 48) - 1)
_SIZE_BITS = 29
_SIZE_MASK = (1 << _SIZE_BITS) - 1
_u32 = struct.Struct(">I").unpack_from
_HEAD_COLUMNS = np.arange(_HEAD_SIZE)

# A storage header and the journal's record behind it; `place` is a message's in DATA.
_HEAD = np.dtype(
    {
        "names": [
            "words",
            "form",
            "type",
            "partition_id",
            "offset_words",
            "record",
            "kind",
            "number",
            "lease_id",
            "place",
            "checksum",
            "magic",
        ],
        "formats": [
            ">u4",
            "u1",
            "u1",
            ">u2",
            ">u4",
            f"V{JOURNAL_RECORD_SIZE}",
            "u1",
            ">u8",
            ">u4",
            ">u4",
            ">u4",
            ">u4",
        ],
        "offsets": [0, 4, 5, 6, 8, 12, 12, 12, 20, 44, 64, 68],
        "itemsize": _HEAD_SIZE,
    }
)
assert _HEAD_SIZE == 72, "the offsets above"


def pack_batch(
    out: bytearray, files: PartitionFiles, partition_id: int, start: int, end: int, awaited: Container[int], room: int
) -> int:
    """Add the journal's records from `start` on to an event's body, up to `end`, to a queue operation, or until `room`
    bytes are filled; where the next one is.

    Messages whose sequence number is in `awaited` ask for a receipt.
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
    sizes[is_message] = (words[places[is_message] // WORD] & _SIZE_MASK).astype(np.int64) * WORD
    # The last is the one that fills the room.
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
    """Records of an event that go on where a shard ends, in columns of one row each.

    `records` are all of them, as they go into the journal. The DATA records begin in the event at `starts`, and have
    `sizes` in bytes, 0 for a record without one. `asking` is the last that wants a receipt. The event goes on at `end`.
    """

    kinds: list[int]
    records: bytes
    starts: list[int]
    sizes: list[int]
    last: Position
    asking: Position | None
    end: int


class Standing(NamedTuple):
    """Where a copy of a shard ends: what comes must go on there. With `gaps`, numbers may be left out, and leases grow,
    up to `lease_id_max`.
    """

    position: Position
    journal_end: int
    data_end: int
    gaps: bool
    lease_id_max: int


def parse_batch(data: memoryview, start: int, end: int, standing: Standing) -> Batch | None:
    """The messages from `start` on that are sound, go on where the shard ends, and are of the kinds handled here.

    None when they are too few; whoever looks at each then finds out whether something is wrong.
    """
    starts = _walk(data, start, end)
    if len(starts) < RECORDS_MIN:
        return None
    event = np.frombuffer(data, np.uint8)
    heads = event[np.array(starts)[:, None] + _HEAD_COLUMNS].view(_HEAD).reshape(-1)
    count = min(_front(_are_plain(heads)), _front(_go_on(heads, standing)))
    heads = heads[:count]
    sizes = (heads["words"] & _WORDS_MASK).astype(np.int64) * WORD - _HEAD_SIZE
    is_message = (heads["kind"] >> 4) == _MESSAGE
    ends = standing.data_end + np.cumsum(sizes)
    in_place = np.where(is_message, heads["place"].astype(np.int64) * DWORD == ends - sizes, sizes == 0)
    count = _front(in_place)
    rows = np.flatnonzero(is_message[:count])
    payloads = _payloads(event, np.array(starts)[rows] + _HEAD_SIZE, sizes[rows])
    checksums = heads["checksum"][rows].tolist()
    for row, (from_, until), checksum in zip(rows.tolist(), payloads, checksums, strict=True):
        if until <= from_ or crc32c(data[from_:until]) != checksum:
            count = row
            break
    if count < RECORDS_MIN:
        return None
    heads, found = heads[:count], sizes[:count].tolist()
    asking = np.flatnonzero(heads["words"] >> _FLAGS_SHIFT & _RECEIPT_REQUESTED)
    return Batch(
        (heads["kind"] >> 4).tolist(),
        heads["record"].tobytes(),
        [at + _HEAD_SIZE for at in starts[:count]],
        found,
        _position(heads, -1),
        _position(heads, int(asking[-1])) if asking.size else None,
        starts[count - 1] + _HEAD_SIZE + found[-1],
    )


def _position(heads: NDArray[Any], row: int) -> Position:
    return Position(int(heads["lease_id"][row]), int(heads["number"][row] & _NUMBER_MASK))


def _walk(data: memoryview, start: int, end: int) -> list[int]:
    """Where messages begin that lie wholly before `end`, by what their heads say."""
    starts: list[int] = []
    while end - start >= _HEAD_SIZE and len(starts) < RECORDS_MAX:
        size = (_u32(data, start)[0] & _WORDS_MASK) * WORD
        if size < _HEAD_SIZE or size > end - start:
            break
        starts.append(start)
        start += size
    return starts


def _are_plain(heads: NDArray[Any]) -> NDArray[np.bool_]:
    types = _PARSED_TYPES[heads["kind"] >> 4]
    plain: NDArray[np.bool_] = (types != 0) & (types == heads["type"])
    plain &= (heads["form"] == _FORM) & (heads["magic"] == RECORD_MAGIC)
    return plain


def _go_on(heads: NDArray[Any], standing: Standing) -> NDArray[np.bool_]:
    """Whether each record is the next in its shard's history, and at its place in the journal."""
    (lease_id, number), count = standing.position, len(heads)
    places = (standing.journal_end + np.arange(count) * JOURNAL_RECORD_SIZE) // WORD
    numbers = (heads["number"] & _NUMBER_MASK).astype(np.int64)
    leases = heads["lease_id"].astype(np.int64)
    numbers_before = np.concatenate(([number], numbers[:-1]))
    leases_before = np.concatenate(([lease_id], leases[:-1]))
    goes_on: NDArray[np.bool_] = (leases == leases_before) & (numbers == numbers_before + 1)
    if standing.gaps:
        goes_on |= (leases == leases_before) & (numbers > numbers_before)
        goes_on |= (leases > leases_before) & (leases <= standing.lease_id_max)
    goes_on &= heads["offset_words"] == places
    return goes_on


def _payloads(event: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Where the payloads of DATA records lie, from and until; (0, 0) for what is no such record."""
    ends = starts + sizes
    is_long = sizes > DATA_HEADER.size
    # Too short a one lies before other bytes of the event, or at its end: look at its head instead.
    at = np.where(is_long, starts, starts - DATA_HEADER.size)
    first = event[at[:, None] + np.arange(2 * WORD)].view(">u4")
    lengths, options = first[:, 0].astype(np.int64), first[:, 1].astype(np.int64)
    pads = event[ends - 1].astype(np.int64)
    begins = starts + ((lengths >> _SIZE_BITS) + (options >> 8)) * WORD
    until = ends - pads
    is_sound = is_long & ((lengths & _SIZE_MASK) * WORD == sizes)
    is_sound &= (lengths >> _SIZE_BITS) * WORD >= DATA_HEADER.size
    is_sound &= (pads >= 1) & (pads <= DWORD) & (begins < until)
    begins[~is_sound] = until[~is_sound] = 0
    return list(zip(begins.tolist(), until.tolist(), strict=True))


def _front(holds: NDArray[np.bool_]) -> int:
    """How many hold before the first that does not."""
    return len(holds) if holds.all() else int(holds.argmin())
