"""Arrow arrays out of numpy columns, many rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = [
    "TIMESTAMP",
    "TIMESTAMP_MAX_S",
    "Labels",
    "code_labels",
    "hex_array",
    "integers",
    "micros_of_ms",
    "scattered",
    "times",
]

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_MAX_S = 253_402_300_799  # the end of year 9999: Spark's maximum

_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)


def hex_array(values: NDArray[Any], rows: NDArray[Any] | None = None, count: int = 0) -> pa.Array:
    """Raw bytes of one width as upper-case hex; with `rows`, at these of `count` rows, null elsewhere."""
    width = 2 * values.dtype.itemsize
    octets = np.ascontiguousarray(values).view(np.uint8)
    text = pa.py_buffer(_HEX.take(octets))
    if rows is None:
        offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
        return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), text)
    valid = np.zeros(count, np.bool_)
    valid[rows] = True
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(valid * np.int32(width), out=offsets[1:])
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), text, validity)


def scattered(
    values: NDArray[Any], rows: NDArray[Any] | None, count: int, dtype: type = np.int64
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """`values` at `rows` of `count` rows, and a mask of the rows without one (None: no such row)."""
    if rows is None:
        return values, None
    column: NDArray[Any] = np.zeros(count, dtype)
    column[rows] = values
    null = np.ones(count, np.bool_)
    null[rows] = False
    return column, null


def integers(values: NDArray[Any], kind: pa.DataType, rows: NDArray[Any] | None = None, count: int = 0) -> pa.Array:
    """Integers that fit `kind`; with `rows`, at these of `count` rows, null elsewhere."""
    column, null = scattered(values, rows, count, kind.to_pandas_dtype())
    return pa.array(column.astype(kind.to_pandas_dtype(), copy=False), kind, mask=null)


def times(seconds: NDArray[Any], rows: NDArray[Any] | None = None, count: int = 0) -> pa.Array:
    """Convert seconds since the epoch to timestamps; null beyond Spark's range."""
    column, null = scattered(seconds.astype(np.int64), rows, count)
    wild = (column < 0) | (column > TIMESTAMP_MAX_S)
    null = wild if null is None else null | wild
    return pa.array(np.where(wild, 0, column) * 1_000_000, pa.int64(), mask=null).view(TIMESTAMP)


def micros_of_ms(milliseconds: int | None) -> int | None:
    """Convert milliseconds since the epoch to microseconds; None beyond Spark's range."""
    if milliseconds is None or not 0 <= milliseconds <= TIMESTAMP_MAX_S * 1000:
        return None
    return milliseconds * 1000


class Labels:
    """Texts by number, each looked up once."""

    def __init__(self, label: Callable[[int], str | None]) -> None:
        self._label = label
        self._known = np.zeros(0, np.uint64)
        self._texts: list[str | None] = []
        self._array = pa.array([], pa.string())

    def take(self, numbers: NDArray[Any], rows: NDArray[Any] | None = None, count: int = 0) -> pa.Array:
        """The texts of `numbers` (uint64); with `rows`, at these of `count` rows, null elsewhere."""
        if rows is None and len(numbers) and (numbers == numbers[0]).all():
            (index,) = self._index(numbers[:1])
            return pa.repeat(self._array[index], len(numbers))
        index = self._index(numbers)
        column, null = scattered(index, rows, count)
        return self._array.take(pa.array(column, mask=null))

    def _index(self, numbers: NDArray[Any]) -> NDArray[Any]:
        if len(self._known):
            at = np.minimum(np.searchsorted(self._known, numbers), len(self._known) - 1)
            if (self._known[at] == numbers).all():
                return at
        merged = np.union1d(self._known, numbers)
        before = dict(zip(self._known.tolist(), self._texts, strict=True))
        self._texts = [before[number] if number in before else self._label(number) for number in merged.tolist()]
        self._known = merged
        self._array = pa.array(self._texts, pa.string())
        return np.searchsorted(merged, numbers)


def code_labels(kind: type[IntEnum | IntFlag]) -> Labels:
    """The names of codes; a code without a name is shown as a number."""

    def label(code: int) -> str:
        try:
            return kind(code).name or str(code)
        except ValueError:
            return str(code)

    return Labels(label)
