"""Faults between message records and the DATA file: offsets, headers, padding, checksums.

Headers are read a chunk at a time, as columns gathered from the file; only the checksums need a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from formats.disk.check_records import Chunk
from formats.disk.data import DATA_HEADER, parse_data_record
from formats.disk.faults import Fault, fault
from formats.disk.journal import MESSAGE_RECORD
from formats.disk.padding import DWORD, WORD
from formats.errors import FormatError
from formats.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DataChecker"]


class DataChecker:
    """Follows the journal's messages through a DATA file; `end` is where the last of them ended, in bytes."""

    def __init__(self, name: str, buffer: Buffer, first_record_offset: int) -> None:
        import numpy as np

        self.name = name
        self.end = first_record_offset
        self._view = memoryview(buffer)
        self._size = len(self._view)
        self._first = first_record_offset
        self._end_before_chunk = first_record_offset
        self._positions: NDArray[Any] = np.empty(0, np.int64)
        self._ends: NDArray[Any] = np.empty(0, np.int64)
        self._bytes = np.frombuffer(self._view, np.uint8)
        self._words = np.frombuffer(self._view, ">u4", self._size // WORD)

    def check(self, chunk: Chunk, records: NDArray[Any], positions: NDArray[Any]) -> Iterator[Fault]:
        """Faults of the chunk's messages, `records` at `positions`, in the journal's order."""
        import numpy as np

        offsets = MESSAGE_RECORD.column(records, "message_offset_dwords").astype(np.int64) * DWORD
        inside = (offsets >= self._first) & (offsets + DATA_HEADER.size < self._size)
        for at in (~inside).nonzero()[0].tolist():
            reason = f"payload at {offsets[at]}, outside {self.name} ({self._first} to {self._size} bytes)"
            yield chunk.fault("data-offset", positions[at], reason)
        positions, records, offsets = positions[inside], records[inside], offsets[inside]
        starts, ends, padded_ends, sound = self._extents(offsets)
        for offset in offsets[~sound].tolist():
            yield self._unsound(offset)
        self._positions, self._ends, self._end_before_chunk = positions[sound], padded_ends[sound], self.end
        yield from self._neighbours(offsets[sound], self._ends)
        crcs = records["crc32c"][sound].tolist()
        view = self._view
        for position, start, end, expected in zip(
            positions[sound].tolist(), starts[sound].tolist(), ends[sound].tolist(), crcs, strict=True
        ):
            if crc32c(view[start:end]) != expected:
                reason = f"{crc32c(view[start:end]):#010x}, the journal's record at {chunk.offset_of(position)} says "
                yield fault("payload-checksum", self.name, start, f"{reason}{expected:#010x}")

    def end_before(self, position: int) -> int:
        """Where the file ended when the record at `position` of the last checked chunk was written."""
        before = int(self._positions.searchsorted(position))
        return int(self._ends[before - 1]) if before else self._end_before_chunk

    def _extents(self, offsets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """(start, end of the application's data, end of the record, whether these agree) per record."""
        import numpy as np

        first = self._words[offsets // WORD].astype(np.int64)
        second = self._words[offsets // WORD + 1].astype(np.int64)
        header_size = (first >> 29) * WORD
        size = (first & 0x1FFF_FFFF) * WORD
        starts = offsets + header_size + (second >> 8) * WORD
        ends = offsets + size
        sound = (header_size >= DATA_HEADER.size) & (size % DWORD == 0) & (ends <= self._size) & (starts < ends)
        padding = self._bytes[np.where(sound, ends - 1, 0)].astype(np.int64)
        sound &= (padding >= 1) & (padding <= DWORD) & (padding <= ends - starts)
        return starts, ends - padding, ends, sound

    def _unsound(self, offset: int) -> Fault:
        try:
            parse_data_record(self._view, offset)
        except FormatError as error:
            return fault("data-record", self.name, error.offset, f"{error.path}: {error.reason}")
        raise AssertionError("the columns refuse what the decoder takes")

    def _neighbours(self, offsets: NDArray[Any], ends: NDArray[Any]) -> Iterator[Fault]:
        import numpy as np

        if not len(offsets):
            return
        before = np.concatenate([[self.end], ends[:-1]])
        self.end = int(ends[-1])
        for at in (offsets != before).nonzero()[0].tolist():
            offset, last = int(offsets[at]), int(before[at])
            if offset > last:
                yield fault("data-gap", self.name, last, f"{offset - last} bytes that no message record refers to")
            else:
                yield fault("data-overlap", self.name, offset, f"the record before it ends at {last}")

    def check_tail(self) -> Iterator[Fault]:
        """What follows the last message: nothing, or a payload whose journal record was not written any more."""
        if self.end + WORD <= self._size and self._words[self.end // WORD]:
            yield fault("data-tail", self.name, self.end, "a payload without a message record")
