"""Properties of many records: finds the values that a store needs in one pass over all records.

As with `properties.decode_properties`, the last property of a name counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from formats.rocketmq.java import MASK, PartHashes, string_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PropertyColumns", "Values"]

_NAME_END: Final = 1
_VALUE_END: Final = 2
_SPACE: Final = 0x20
_ASCII_MAX: Final = 0x7F
# Room for the longest name that is searched for, and its separator: two words.
_NAME_BYTES: Final = 16
_WORD_BYTES: Final = 8


class Values(NamedTuple):
    """Non-empty values of properties: each one's record number, start and end, in the order of the records."""

    records: NDArray[np.intp]
    begins: NDArray[np.intp]
    ends: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.records)


class PropertyColumns:
    """The properties of consecutive records; `texts` has one text for each record."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        import numpy as np

        # A separator surrounds each property; zeros at the end let a name be read at any place.
        self._text = b"".join((b"\2", b"\2".join(texts), b"\2", bytes(_NAME_BYTES)))
        self._units = np.frombuffer(self._text, np.uint8, len(self._text) - _NAME_BYTES)
        lengths = np.fromiter(map(len, texts), np.intp, len(texts))
        self._record_ends = np.cumsum(lengths + 1)
        marks = np.flatnonzero(self._units == _VALUE_END)
        self._begins, self._ends = marks[:-1] + 1, marks[1:]
        names = np.ndarray(len(self._units), f"V{_NAME_BYTES}", self._text, 0, (1,))[self._begins]
        self._names = names.view("<u8").reshape(-1, 2)
        self._hashes: PartHashes | None = None

    def values(self, name: bytes) -> Values:
        found = self._find(name)
        if not len(found):
            return Values(found, found, found)
        records = self._records(found)
        begins, ends = self._begins[found] + len(name) + 1, self._ends[found]
        kept = begins < ends
        kept[:-1] &= records[1:] != records[:-1]
        return Values(records, begins, ends) if kept.all() else Values(records[kept], begins[kept], ends[kept])

    def first_with(self, name: bytes) -> int | None:
        """Return the number of the first record with a property, even an empty one; None if none has it."""
        found = self._find(name)
        return int(self._records(found[:1])[0]) if len(found) else None

    def _find(self, name: bytes) -> NDArray[np.intp]:
        """Find all properties of a name, including overridden ones."""
        import numpy as np

        mark = name + bytes([_NAME_END])
        assert len(mark) <= _NAME_BYTES
        found = np.flatnonzero(_begins_with(self._names[:, 0], mark[:_WORD_BYTES]))
        if len(mark) > _WORD_BYTES and len(found):
            found = found[_begins_with(self._names[found, 1], mark[_WORD_BYTES:])]
        return found

    def _records(self, found: NDArray[np.intp]) -> NDArray[np.intp]:
        import numpy as np

        return np.searchsorted(self._record_ends, self._begins[found], "right")

    def split(self, values: Values) -> Values:
        import numpy as np

        if not len(values):
            return values
        spaces = np.flatnonzero(self._units == _SPACE)
        within = np.searchsorted(values.begins, spaces, "right") - 1
        inside = (within >= 0) & (spaces < values.ends[within])
        if not inside.any():
            return values
        spaces, within = spaces[inside], within[inside]
        begins = np.concatenate((values.begins, spaces + 1))
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order], np.sort(np.concatenate((values.ends, spaces)))
        records = np.concatenate((values.records, values.records[within]))[order]
        kept = begins < ends
        return Values(records[kept], begins[kept], ends[kept])

    def hashes(
        self, values: Values, fronts: Sequence[bytes] = (b"",), front_of: NDArray[np.intp] | None = None
    ) -> NDArray[np.uint32]:
        """`java.string_hash` of each value after a front, as an unsigned number.

        `fronts` are whole UTF-8 texts; `front_of` has the number of the front for each record.
        """
        import numpy as np

        hashes = self._part_hashes
        begun = np.array([string_hash(front.decode()) & MASK for front in fronts], np.uint32)
        chosen = np.zeros_like(values.records) if front_of is None else front_of[values.records]
        found = begun[chosen] * hashes.powers(values.ends - values.begins) + hashes.find(values.begins, values.ends)
        if not self._text.isascii():
            others = np.flatnonzero(self._units > _ASCII_MAX)
            first, behind = (np.searchsorted(others, places) for places in (values.begins, values.ends))
            for at in np.flatnonzero(first < behind).tolist():
                text = fronts[chosen[at]] + self._text[values.begins[at] : values.ends[at]]
                found[at] = string_hash(text.decode(errors="replace")) & MASK
        return found

    @property
    def _part_hashes(self) -> PartHashes:
        if self._hashes is None:
            self._hashes = PartHashes(self._units)
        return self._hashes


def _begins_with(words: NDArray[np.uint64], begin: bytes) -> NDArray[np.bool_]:
    import numpy as np

    wanted = np.uint64(int.from_bytes(begin, "little"))
    shift = np.uint64(8 * (_WORD_BYTES - len(begin)))
    found: NDArray[np.bool_] = (words if not shift else words << shift) == wanted << shift
    return found
