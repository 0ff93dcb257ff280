"""Checksums of rows, independent of their order and their division into batches and files.

A table's checksum is the sum of its rows' hashes modulo 2**64. The checksum of two parts is therefore the sum of
theirs, and a duplicate row shows. Checksums find mistakes and damage, not forgery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["add_checksums", "checksum", "row_hashes"]

_WORD = 8
_MASK = (1 << 64) - 1
_NULL = np.uint64(0x9E37_79B9_7F4A_7C15)
_SEED = np.uint64(0x2545_F491_4F6C_DD1D)
_LENGTHS_MAX = 32  # strings of more lengths are hashed with a dictionary, which is slower for each length


def add_checksums(*parts: int) -> int:
    return sum(parts) & _MASK


def checksum(hashes: NDArray[Any]) -> int:
    return int(hashes.sum(dtype=np.uint64))


def row_hashes(rows: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> NDArray[Any]:
    """Hash the named columns, in their order, for each row: uint64 of shape (n,)."""
    hashes = np.full(rows.num_rows, _SEED)
    for name in columns:
        hashes = _mix(hashes ^ _hashes(_one_array(rows.column(name))))
    return hashes


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _mix(values: NDArray[Any]) -> NDArray[Any]:
    """The finalizer of splitmix64."""
    mixed: NDArray[Any] = values >> np.uint64(30)
    mixed ^= values
    mixed *= np.uint64(0xBF58_476D_1CE4_E5B9)
    shifted = mixed >> np.uint64(27)
    mixed ^= shifted
    mixed *= np.uint64(0x94D0_49BB_1331_11EB)
    np.right_shift(mixed, np.uint64(31), out=shifted)
    mixed ^= shifted
    return mixed


def _hashes(array: pa.Array) -> NDArray[Any]:
    if not array.null_count:
        return _of_valid(array)
    hashes = np.full(len(array), _NULL)
    hashes[pc.is_valid(array).to_numpy(zero_copy_only=False)] = _of_valid(array.drop_null())
    return hashes


def _of_valid(array: pa.Array) -> NDArray[Any]:
    kind = array.type
    if not len(array):
        return np.zeros(0, np.uint64)
    if pa.types.is_dictionary(kind):
        values: NDArray[Any] = _of_valid(array.dictionary)[array.indices.to_numpy()]
        return values
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_strings(array)
    if pa.types.is_map(kind):
        items = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        return _of_lists(pa.ListArray.from_arrays(array.offsets, items))
    if pa.types.is_list(kind):
        return _of_lists(array)
    if pa.types.is_struct(kind):
        hashes = np.full(len(array), _SEED)
        for child in array.flatten():
            hashes = _mix(hashes ^ _hashes(child))
        return hashes
    if not pa.types.is_integer(kind):
        array = array.cast(pa.int32()) if pa.types.is_date32(kind) else array
    numbers: NDArray[Any] = array.cast(pa.int64()).to_numpy().view(np.uint64)
    return _mix(numbers)


def _of_lists(array: pa.Array) -> NDArray[Any]:
    """Hash lists by their elements and the elements' places."""
    ends = np.cumsum(pc.list_value_length(array).to_numpy())
    starts = np.concatenate([[0], ends[:-1]])
    elements = _hashes(array.flatten())
    place = np.arange(len(elements)) - np.repeat(starts, ends - starts)
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mix(elements + place.astype(np.uint64)))])
    sums: NDArray[Any] = total[ends] - total[starts]
    return _mix(sums ^ (ends - starts).astype(np.uint64))


def _of_strings(array: pa.Array) -> NDArray[Any]:
    _, offsets_buffer, values = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    content = np.zeros(0, np.uint8) if values is None else np.frombuffer(values, np.uint8)
    lengths = np.diff(offsets)
    found = _distinct(lengths)
    if len(found) > _LENGTHS_MAX:
        encoded = array.dictionary_encode()
        if len(encoded.dictionary) < len(array):
            hashes: NDArray[Any] = _of_strings(encoded.dictionary)[encoded.indices.to_numpy()]
            return hashes
    return _of_bytes(content, offsets.astype(np.int64), lengths, found)


def _distinct(lengths: NDArray[Any]) -> NDArray[Any]:
    first, last = int(lengths.min()), int(lengths.max())
    if first == last:
        return lengths[:1]
    if last > len(lengths):
        return np.unique(lengths)
    return np.flatnonzero(np.bincount(lengths))


def _of_bytes(
    content: NDArray[np.uint8], offsets: NDArray[Any], lengths: NDArray[Any], found: NDArray[Any]
) -> NDArray[Any]:
    """Hash strings by words, the last padded with zeros, all strings of one length at a time."""
    if len(found) == 1:
        rows = content[offsets[0] : offsets[-1]].reshape(len(lengths), int(found[0]))
        return _of_rows(rows)
    hashes = np.empty(len(lengths), np.uint64)
    for length in found.tolist():
        at = np.flatnonzero(lengths == length)
        hashes[at] = _of_rows(_gathered(content, offsets[at], length))
    return hashes


def _gathered(content: NDArray[np.uint8], at: NDArray[Any], length: int) -> NDArray[np.uint8]:
    if not length:
        return np.zeros((len(at), 0), np.uint8)
    windows = np.ndarray((len(content) - length + 1,), f"V{length}", content, strides=(1,))
    rows: NDArray[np.uint8] = windows[at].view(np.uint8).reshape(len(at), length)
    return rows


def _of_rows(rows: NDArray[np.uint8]) -> NDArray[Any]:
    count, length = rows.shape
    if length % _WORD:
        padded = np.zeros((count, -(-length // _WORD) * _WORD), np.uint8)
        padded[:, :length] = rows
        rows = padded
    words = np.ascontiguousarray(rows).view("<u8") if length else np.zeros((count, 0), "<u8")
    hashes = np.full(count, np.uint64(length))
    for place in range(words.shape[1]):
        hashes = _mix(hashes ^ words[:, place])
    return hashes
