"""Records in a piece of a commit log, found by their magic numbers and checked in bulk.

A record counts if it states its own offset and its parts fill its size exactly. The search therefore needs neither the
preceding record nor a Python step for each. Bodies are not compared with their checksums.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from formats.rocketmq.files.record import RECORD_FRONT, Magic
from formats.rocketmq.flags import SystemFlag

__all__ = [
    "FRONT_BYTES",
    "RECORD_BYTES_MAX",
    "RECORD_BYTES_MIN",
    "LogRecords",
    "Numbers",
    "Scratch",
    "Search",
    "search",
]

FRONT_BYTES: Final = RECORD_FRONT.size
RECORD_BYTES_MIN: Final = FRONT_BYTES + 3
# Brokers take messages of up to 4 MiB unless configured for more.
RECORD_BYTES_MAX: Final = 1 << 28

_MAGIC_AT: Final = RECORD_FRONT.offset("magic")
_V1: Final = int(Magic.V1)
_V2: Final = int(Magic.V2)
# Both numbers begin with the same two bytes. These differ, so of two adjacent places at most one has them.
_MAGIC_HIGH: Final = _V1 >> 16
# Comparing words in native byte order is several times as fast on most machines.
_MAGIC_HIGH_SWAPPED: Final = np.uint16(int.from_bytes(_MAGIC_HIGH.to_bytes(2, "big"), "little"))
_BORN_V6: Final = int(SystemFlag.BORN_HOST_V6)
_STORE_V6: Final = int(SystemFlag.STORE_HOST_V6)
_V6_BYTES_MORE: Final = 12

_head = struct.Struct(">II").unpack_from
_FEW: Final = 8
# Strings are gathered by size if at least this number share one, and none is longer than the next limit.
_PER_SIZE_MIN: Final = 16
_STRING_BYTES_MAX: Final = 1 << 14

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class LogRecords:
    """Records in log order: `data` has them at `starts`, and begins at log offset `offset`.

    `fronts` are their fixed parts; with an IPv6 host the fields from `born_host` on are only in `data`. Places count
    from the begin of `data`, which is valid until the next records are requested.
    """

    offset: int
    data: memoryview
    starts: Numbers
    fronts: NDArray[Any]
    sizes: Numbers
    body_at: Numbers
    body_sizes: Numbers
    topic_at: Numbers
    topic_sizes: Numbers
    properties_at: Numbers
    property_sizes: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    def where(self, wanted: NDArray[Any] | slice) -> LogRecords:
        rest = (getattr(self, field.name)[wanted] for field in fields(self)[2:])
        return LogRecords(self.offset, self.data, *rest)

    @property
    def offsets(self) -> Numbers:
        return self.starts + self.offset

    @property
    def ends(self) -> Numbers:
        return self.starts + self.sizes

    @cached_property
    def flags(self) -> Numbers:
        return self.front("system_flags")

    def front(self, name: str) -> Numbers:
        """A number of the fronts before the first host."""
        return self.fronts[name].astype(np.int64)

    @cached_property
    def stored_ms(self) -> Numbers:
        """Storing times of the records, in milliseconds since the epoch."""
        return self._behind("stored_ms", self._born_more, ">i8")

    @cached_property
    def reconsume_times(self) -> Numbers:
        return self._behind("reconsume_times", self._more, ">i4")

    @cached_property
    def prepared_transaction_offsets(self) -> Numbers:
        return self._behind("prepared_transaction_offset", self._more, ">i8")

    @cached_property
    def born_hosts(self) -> list[bytes]:
        """The packed addresses of the producers: see `Host`."""
        return self._hosts("born_host", 0, _BORN_V6)

    @cached_property
    def store_hosts(self) -> list[bytes]:
        """The packed addresses of the brokers: see `Host`."""
        return self._hosts("store_host", self._born_more, _STORE_V6)

    def topics(self) -> list[bytes]:
        return self.strings(self.topic_at, self.topic_sizes)

    def properties(self) -> list[bytes]:
        return self.strings(self.properties_at, self.property_sizes)

    def bodies(self) -> list[bytes]:
        """Bodies as stored, perhaps compressed."""
        return self.strings(self.body_at, self.body_sizes)

    def strings(self, at: Numbers, sizes: Numbers) -> list[bytes]:
        kinds = np.bincount(np.minimum(sizes, _STRING_BYTES_MAX)) if len(sizes) else sizes
        if np.count_nonzero(kinds) * _PER_SIZE_MIN > len(sizes) or len(kinds) > _STRING_BYTES_MAX:
            whole, ends = self.data, at + sizes
            return [bytes(whole[begin:end]) for begin, end in zip(at.tolist(), ends.tolist(), strict=True)]
        # Several times as fast as slicing each.
        found = np.empty(len(sizes), np.object_)
        for size in np.flatnonzero(kinds).tolist():
            rows = np.flatnonzero(sizes == size)
            found[rows] = _equal_strings(self.data, at[rows], size)
        strings: list[bytes] = found.tolist()
        return strings

    @property
    def _born_more(self) -> Numbers | int:
        return (self.flags & _BORN_V6 != 0) * _V6_BYTES_MORE if self._has_v6 else 0

    @property
    def _more(self) -> Numbers | int:
        return _more(self.flags) if self._has_v6 else 0

    @cached_property
    def _has_v6(self) -> bool:
        return bool((self.flags & (_BORN_V6 | _STORE_V6)).any())

    def _behind(self, name: str, more: Numbers | int, code: str) -> Numbers:
        if isinstance(more, int):
            return self.front(name)
        return _words(self.data, self.starts + RECORD_FRONT.offset(name) + more, code)

    def _hosts(self, name: str, more: Numbers | int, flag: int) -> list[bytes]:
        if not self._has_v6:
            found: list[bytes] = self.fronts[name].tolist()
            return found
        at = self.starts + RECORD_FRONT.offset(name) + more
        return self.strings(at, 8 + (self.flags & flag != 0) * _V6_BYTES_MORE)


@dataclass(frozen=True)
class Search:
    """The sound records of a piece, and places where records that end after it may begin."""

    records: LogRecords
    cut: list[int]


class Scratch:
    """Memory for searches in pieces of at most `size` bytes; reuse is faster than allocation."""

    def __init__(self, size: int) -> None:
        self.even, self.odd = np.empty((2, size // 2 + 1), np.bool_)


def search(data: memoryview, offset: int, end: int, scratch: Scratch | None = None) -> Search:
    """Find the records in `data`, which begins at `offset` of a log whose file ends at `end`.

    Of two overlapping records the first counts.
    """
    starts = _equal_steps(data)
    if starts is not None:
        found = _search(data, offset, end, starts)
        if len(found.records) + len(found.cut) == len(starts):
            return found
    return _search(data, offset, end, _places(data, scratch or Scratch(len(data))))


def _search(data: memoryview, offset: int, end: int, starts: Numbers) -> Search:
    fronts = _rows(data, starts)
    sizes = fronts["size"].astype(np.int64)
    placed = fronts["physical_offset"] == starts + offset
    placed &= (sizes >= RECORD_BYTES_MIN) & (sizes <= np.minimum(RECORD_BYTES_MAX, end - offset - starts))
    whole = placed & (starts + sizes <= len(data))
    count = np.count_nonzero(whole)
    cut: list[int] = []
    if count < len(whole):
        cut = starts[placed & ~whole].tolist()
        chosen: Any = slice(count) if whole[:count].all() else whole
        starts, fronts, sizes = starts[chosen], fronts[chosen], sizes[chosen]
    return Search(_apart(_parts(data, offset, starts, fronts, sizes)), cut)


def _equal_steps(data: memoryview) -> Numbers | None:
    """Places of records if all have the first one's size; None if some begin elsewhere."""
    if len(data) < FRONT_BYTES:
        return None
    size, magic = _head(data)
    if magic not in (_V1, _V2) or size < RECORD_BYTES_MIN:
        return None
    count = (len(data) - FRONT_BYTES) // size + 1
    heads = np.ndarray((count, 2), ">u4", data, 0, (size, 4))
    for some in (heads[:_FEW], heads):
        if (some[:, 0] != size).any() or (some[:, 1] != magic).any():
            return None
    return np.arange(0, count * size, size, dtype=np.int64)


def _places(data: memoryview, scratch: Scratch) -> Numbers:
    """The places before magic numbers at which a whole front fits."""
    count = len(data) - FRONT_BYTES + 1
    if count <= 0:
        return np.empty(0, np.int64)
    # The magic number's first half is searched in byte pairs, which begin at even and at odd places.
    pairs = (count + 1) // 2
    marks, odd = scratch.even[:pairs], scratch.odd[:pairs]
    np.equal(np.ndarray((pairs,), "<u2", data, _MAGIC_AT), _MAGIC_HIGH_SWAPPED, out=marks)
    np.equal(np.ndarray((pairs,), "<u2", data, _MAGIC_AT + 1), _MAGIC_HIGH_SWAPPED, out=odd)
    np.logical_or(marks, odd, out=marks)
    places = np.flatnonzero(marks)
    is_odd = odd[places]
    places *= 2
    places += is_odd
    places = places[: np.searchsorted(places, count)]
    magics = _words(data, places + _MAGIC_AT, ">u4")
    found: Numbers = places[(magics == _V1) | (magics == _V2)]
    return found


def _rows(data: memoryview, starts: Numbers) -> NDArray[Any]:
    if not len(starts):
        return np.empty(0, RECORD_FRONT.dtype)
    rows = np.ndarray((len(data) - FRONT_BYTES + 1,), f"V{FRONT_BYTES}", data, strides=(1,))
    return rows[starts].view(RECORD_FRONT.dtype)


def _equal_strings(data: memoryview, at: Numbers, size: int) -> list[bytes]:
    if not size:
        return [b""] * len(at)
    every = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
    found: list[bytes] = every[at].tolist()
    return found


def _words(data: memoryview, at: Numbers, code: str) -> Numbers:
    """Numbers at places of any alignment."""
    if not len(at):
        return np.empty(0, np.int64)
    kind = np.dtype(code)
    every = np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))
    found: Numbers = every[at].astype(np.int64)
    return found


def _more(flags: Numbers) -> Numbers:
    """Bytes by which fronts are longer than those with two IPv4 hosts."""
    count: Numbers = (flags & _BORN_V6 != 0).astype(np.int64) + (flags & _STORE_V6 != 0)
    return count * _V6_BYTES_MORE


def _parts(data: memoryview, offset: int, starts: Numbers, fronts: NDArray[Any], sizes: Numbers) -> LogRecords:
    flags = fronts["system_flags"]
    ends = starts + sizes
    body_at = starts + FRONT_BYTES
    if (flags & (_BORN_V6 | _STORE_V6)).any():
        body_at += _more(flags.astype(np.int64))
        # Where the front does not fit, this reads no body size, but stays in the record.
        body_sizes = _words(data, np.minimum(body_at, ends) - 4, ">i4")
    else:
        body_sizes = fronts["body_size"].astype(np.int64)
    field_at = body_at + body_sizes
    is_v2 = fronts["magic"] == _V2
    topic_at = field_at + 1 + is_v2
    sound = (body_sizes >= 0) & (topic_at + 2 <= ends)
    field_at = np.where(sound, field_at, starts)
    topic_sizes = np.frombuffer(data, np.uint8)[field_at].astype(np.int64)
    if is_v2.any():
        topic_sizes = np.where(is_v2, _words(data, field_at, ">u2"), topic_sizes)
    properties_at = topic_at + topic_sizes + 2
    sound &= properties_at <= ends
    property_sizes = _words(data, np.where(sound, properties_at - 2, starts), ">u2")
    sound &= properties_at + property_sizes == ends
    found = LogRecords(
        offset,
        data,
        starts,
        fronts,
        sizes,
        body_at,
        body_sizes,
        topic_at,
        topic_sizes,
        properties_at,
        property_sizes,
    )
    return found if sound.all() else found.where(sound)


def _apart(records: LogRecords) -> LogRecords:
    ends = records.ends
    if not (records.starts[1:] < ends[:-1]).any():
        return records
    kept, free = [], 0
    for index, (start, end) in enumerate(zip(records.starts.tolist(), ends.tolist(), strict=True)):
        if start >= free:
            kept.append(index)
            free = end
    return records.where(np.array(kept, np.int64))
