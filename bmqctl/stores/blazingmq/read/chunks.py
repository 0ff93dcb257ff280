"""Chunks of journal records as numpy arrays, including slots without a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats.bmq.disk.columns import sound_kinds
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, LAYOUTS, RecordType, decode_record
from formats.errors import FormatError
from formats.schema import Layout

__all__ = ["FAULT", "Chunk", "ChunkScanner", "Part"]

FAULT = int(RecordType.UNDEFINED)
"""The kind of a slot without a record."""


class Part(NamedTuple):
    """Records of one kind in a chunk; `rows` are their indexes in it."""

    kind: int
    rows: NDArray[np.int64]
    layout: Layout[Any]
    records: NDArray[Any]
    places: dict[str, NDArray[Any]]

    def column(self, field: str) -> NDArray[Any]:
        """A field of the record, or `index`, `offset` (bytes), `partition_id`, and for faults `fault`."""
        return self.places[field] if field in self.places else self.layout.column(self.records, field)


class Chunk:
    """Records of a journal, in its order.

    `kinds` has each row's RecordType, or FAULT where there is no record; `records` are `ANY_RECORD.dtype`, `index`
    counts slots in the file. `faults` are the texts of the FAULT rows, in order.
    """

    def __init__(
        self,
        partition_id: int,
        first_record_offset: int,
        index: NDArray[np.int64],
        records: NDArray[Any],
        kinds: NDArray[np.uint8],
        faults: list[str],
    ) -> None:
        self.partition_id = partition_id
        self.first_record_offset = first_record_offset
        self.index = index
        self.records = records
        self.kinds = kinds
        self.faults = faults

    def __len__(self) -> int:
        return len(self.index)

    @property
    def offset(self) -> NDArray[np.int64]:
        """Offset of each row's slot, in bytes."""
        return self.first_record_offset + self.index * JOURNAL_RECORD_SIZE

    @property
    def end_offset(self) -> int:
        """The offset after the last row's slot, in bytes."""
        return self.first_record_offset + (int(self.index[-1]) + 1) * JOURNAL_RECORD_SIZE

    def of_kind(self, kind: int) -> Part:
        return self._part(kind, np.flatnonzero(self.kinds == kind))

    def parts(self) -> Iterator[Part]:
        for kind in np.flatnonzero(np.bincount(self.kinds, minlength=1)).tolist():
            yield self.of_kind(kind)

    def _part(self, kind: int, rows: NDArray[np.int64]) -> Part:
        layout = LAYOUTS.get(kind, ANY_RECORD)
        index = self.index[rows]
        places: dict[str, NDArray[Any]] = {
            "index": index,
            "offset": self.first_record_offset + index * JOURNAL_RECORD_SIZE,
            "partition_id": np.full(len(rows), self.partition_id),
        }
        if kind == FAULT:
            places["fault"] = np.array(self.faults, object)
        return Part(kind, rows, layout, self.records[rows].view(layout.dtype), places)

    def where(self, wanted: NDArray[np.bool_]) -> Chunk:
        rows = np.flatnonzero(wanted | (self.kinds == FAULT))
        return self if len(rows) == len(self) else self._take(rows, self.faults)

    def between(self, start: int, end: int) -> Chunk:
        if start == 0 and end >= len(self):
            return self
        is_fault = self.kinds == FAULT
        before, within = int(is_fault[:start].sum()), int(is_fault[start:end].sum())
        return self._take(np.arange(start, min(end, len(self))), self.faults[before : before + within])

    def without_faults(self) -> Chunk:
        return self._take(np.flatnonzero(self.kinds != FAULT), []) if self.faults else self

    def _take(self, rows: NDArray[np.int64], faults: list[str]) -> Chunk:
        return Chunk(
            self.partition_id, self.first_record_offset, self.index[rows], self.records[rows], self.kinds[rows], faults
        )


class ChunkScanner:
    """Makes chunks of a journal's consecutive blocks, from slot `start` on.

    In the end, `damaged` is True if a record followed a slot without one. Otherwise such a slot is the unfinished last
    record of a running or killed broker.
    """

    def __init__(self, partition_id: int, first_record_offset: int, start: int = 0) -> None:
        self._partition_id = partition_id
        self._first = first_record_offset
        self._next = start
        self._unreadable = False
        self.damaged = False

    def chunk(self, place: int, records: NDArray[Any]) -> Chunk:
        """Make rows of the records at `place` and after it, without a copy if all of them are sound."""
        index = np.arange(place, place + len(records), dtype=np.int64)
        kinds = sound_kinds(records)
        if place == self._next and len(records) and kinds.all():
            self._next, self._unreadable = place + len(records), False
            return Chunk(self._partition_id, self._first, index, records, kinds, [])
        return self._with_faults(index, records, kinds)

    def torn(self, place: int, rest: bytes) -> Chunk:
        """Make the row of `rest`, an incomplete record at the file's end; none if it is zeros."""
        self._unreadable |= any(rest)
        records = np.frombuffer(rest.ljust(JOURNAL_RECORD_SIZE, b"\0"), ANY_RECORD.dtype)
        faults = [_fault(rest)] if any(rest) else []
        index, kinds = np.full(len(faults), place, np.int64), np.full(len(faults), FAULT, np.uint8)
        return Chunk(self._partition_id, self._first, index, records[: len(faults)], kinds, faults)

    def _with_faults(self, index: NDArray[np.int64], records: NDArray[Any], kinds: NDArray[np.uint8]) -> Chunk:
        """Keep sound records; add a fault for each damaged record, and for zeros before a record."""
        rows: list[int] = []
        places: list[int] = []
        faults: list[str] = []
        octets = records.view(np.uint8).reshape(len(records), JOURNAL_RECORD_SIZE)
        blank: NDArray[np.bool_] = (octets == 0).all(axis=1)
        # Only slots without a record, or after one without, differ from the plain case.
        for row, (place, kind, is_blank) in enumerate(zip(index.tolist(), kinds.tolist(), blank.tolist(), strict=True)):
            if is_blank:
                continue
            if kind == FAULT:
                self._unreadable = True
                faults.append(_fault(records[row].tobytes()))
                rows.append(row)
                places.append(place)
                continue
            missing = place - self._next
            if missing:
                self.damaged = True
                if not self._unreadable:
                    faults.append(f"zeros in place of {missing} records")
                    rows.append(row)
                    places.append(self._next)
            self._next, self._unreadable = place + 1, False
            rows.append(row)
            places.append(place)
        taken = np.array(rows, np.int64)
        at = np.array(places, np.int64)
        kinds = np.where(at == index[taken], kinds[taken], np.uint8(FAULT))
        return Chunk(self._partition_id, self._first, at, records[taken], kinds, faults)


def _fault(record: bytes) -> str:
    try:
        decode_record(record)
    except FormatError as error:
        return f"{error.path}: {error.reason}"
    raise AssertionError("a sound record")
