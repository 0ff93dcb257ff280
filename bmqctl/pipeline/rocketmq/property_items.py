"""Properties of many records, split into names and values at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bmqctl.stores.rocketmq.read.records import LogRecords, Numbers
from formats.rocketmq.properties import decode_properties

__all__ = ["PropertyItems", "joined_bytes", "key_lists"]

_NAME_END = 1
_VALUE_END = 2
_VALUE_END_BYTE = b"\x02"


def joined_bytes(data: memoryview, at: Numbers, sizes: Numbers) -> tuple[bytes, NDArray[np.int32]]:
    size = int(sizes[0]) if len(sizes) else 0
    if size and (sizes == size).all():
        rows = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
        return rows[at].tobytes(), _offsets(sizes)
    pieces = [data[begin:end] for begin, end in zip(at.tolist(), (at + sizes).tolist(), strict=True)]
    return b"".join(pieces), _offsets(sizes)


def _offsets(sizes: NDArray[Any]) -> NDArray[np.int32]:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


class PropertyItems:
    """The properties of records: `offsets` has each record's part of `names` and `values`."""

    def __init__(self, records: LogRecords) -> None:
        found = _at_once(records)
        if found is None:
            found = _one_by_one(records)
        self.offsets, self.names, self.values = found
        self._known = self.names.dictionary.to_pylist()
        self._owners = np.repeat(np.arange(len(records), dtype=np.int64), np.diff(self.offsets))

    def map(self, kind: pa.DataType) -> pa.Array:
        names = self.names.cast(pa.string())
        return pa.MapArray.from_arrays(pa.array(self.offsets, pa.int32()), names, self.values).cast(kind)

    def column(self, name: str) -> pa.Array:
        count = len(self.offsets) - 1
        if name not in self._known:
            return pa.nulls(count, pa.string())
        at = np.flatnonzero(self.names.indices.to_numpy() == self._known.index(name))
        places = np.zeros(count, np.int64)
        lacking = np.ones(count, np.bool_)
        places[self._owners[at]] = at
        lacking[self._owners[at]] = False
        return self.values.take(pa.array(places, mask=lacking))


Items = tuple[NDArray[np.int32], pa.Array, pa.Array]


def _at_once(records: LogRecords) -> Items | None:
    """Split the properties by their separators; None if they are unusual."""
    sizes = records.property_sizes
    content, ends = _terminated(records)
    try:
        content.decode()
    except UnicodeDecodeError:
        return None
    flat = np.frombuffer(content, np.uint8)
    is_separator = (flat == _NAME_END) | (flat == _VALUE_END)
    places = np.flatnonzero(is_separator)
    kinds = flat[places]
    if len(places) % 2 or (kinds[0::2] != _NAME_END).any() or (kinds[1::2] != _VALUE_END).any():
        return None
    lengths = np.diff(places, prepend=-1)
    is_name = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
    names = _texts(flat[is_name & ~is_separator], lengths[0::2] - 1).dictionary_encode()
    values = _texts(flat[~(is_name | is_separator)], lengths[1::2] - 1)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    offsets[1:] = np.searchsorted(places[1::2], ends)
    # Of a repeated name, the last value counts.
    owners = np.repeat(np.arange(len(sizes), dtype=np.int64), np.diff(offsets))
    pairs = np.sort(owners * max(1, len(names.dictionary)) + names.indices.to_numpy())
    if (pairs[1:] == pairs[:-1]).any():
        return None
    return offsets, names, values


def _texts(content: NDArray[np.uint8], lengths: NDArray[Any]) -> pa.Array:
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(_offsets(lengths)), pa.py_buffer(content))


def _terminated(records: LogRecords) -> tuple[bytes, NDArray[Any]]:
    at, sizes = records.properties_at, records.property_sizes
    source = np.frombuffer(records.data, np.uint8)
    last = source[np.maximum(at + sizes - 1, 0)] if len(source) else np.zeros(len(at), np.uint8)
    open_ended = (sizes > 0) & (last != _VALUE_END)
    if not open_ended.any():
        return joined_bytes(records.data, at, sizes)[0], np.cumsum(sizes)
    pieces = records.properties()
    for index in np.flatnonzero(open_ended).tolist():
        pieces[index] += _VALUE_END_BYTE
    return b"".join(pieces), np.cumsum(sizes + open_ended)


def _one_by_one(records: LogRecords) -> Items:
    decoded = [decode_properties(properties) for properties in records.properties()]
    offsets = _offsets(np.array([len(each) for each in decoded], np.int64))
    names = pa.array([name for each in decoded for name in each], pa.string()).dictionary_encode()
    return offsets, names, pa.array([value for each in decoded for value in each.values()], pa.string())


def key_lists(keys: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(keys, "^ |  | $")).as_py():
        keys = pc.utf8_trim(pc.replace_substring_regex(keys, " +", " "), " ")
    return pc.split_pattern(keys, " ")
