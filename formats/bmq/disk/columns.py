"""Columns of scanned journal records, read without unpacking whole words: types, and keys and GUIDs as numbers.

`Layout.column` gives any other field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import RECORD_MAGIC, SEQUENCE_NUMBER_MASK, RecordType
from formats.bmq.disk.keys import KEY_SIZE
from formats.schema import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["count_kinds", "guid_numbers", "key_bytes", "key_numbers", "kinds_of", "sound_kinds"]

_KEY_MASK = (1 << KEY_SIZE * 8) - 1


def kinds_of(records: NDArray[Any]) -> NDArray[Any]:
    """The unchecked type of each record: uint8 of shape (n,), 0 to 15."""
    return _bytes_at(records, 0) >> 4


def sound_kinds(records: NDArray[Any]) -> NDArray[Any]:
    """The RecordType of each record that `decode_record` accepts, 0 for others: uint8 of shape (n,)."""
    kinds = kinds_of(records)
    sound = (records["magic"] == RECORD_MAGIC) & (records["primary_lease_id"] != 0)
    sound &= (_words_at(records, 0) & SEQUENCE_NUMBER_MASK) != 0
    sound &= kinds <= RecordType.JOURNAL_OP
    kinds *= sound
    return kinds


def count_kinds(records: NDArray[Any]) -> NDArray[Any]:
    """Count the records of each type, 0 to 15: int64 of shape (16,)."""
    import numpy as np

    return np.bincount(kinds_of(records), minlength=16)


def key_numbers(records: NDArray[Any], layout: Layout[Any], name: str) -> NDArray[Any]:
    """A storage key of records of one kind, as numbers for `key_bytes`: uint64 of shape (n,)."""
    return _words_at(records, layout.offset(name) + KEY_SIZE - 8) & _KEY_MASK


def key_bytes(number: int) -> bytes:
    return number.to_bytes(KEY_SIZE, "big")


def guid_numbers(records: NDArray[Any], layout: Layout[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The high and low halves, big-endian, of the GUIDs of records of one kind: uint64 of shape (n,)."""
    at = layout.offset("guid")
    return _words_at(records, at), _words_at(records, at + 8)


def _bytes_at(records: NDArray[Any], at: int) -> NDArray[Any]:
    import numpy as np

    assert records.dtype.itemsize == JOURNAL_RECORD_SIZE
    if not len(records):
        return np.zeros(0, np.uint8)
    return np.ndarray(records.shape, np.uint8, records, at, records.strides)


def _words_at(records: NDArray[Any], at: int) -> NDArray[Any]:
    """Eight bytes of each record, in native order."""
    import numpy as np

    if not len(records):
        return np.zeros(0, np.uint64)
    return np.ndarray(records.shape, ">u8", records, at, records.strides).astype(np.uint64)
