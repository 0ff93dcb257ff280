"""Faults between message records and the DATA file: offsets, headers, padding, checksums.

Reads windows of the file, and headers as columns of a window; only checksums take a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from crc32c import crc32c

from formats.bmq.disk.data import (
    DATA_HEADER,
    HEADER_WORDS_SHIFT,
    MESSAGE_WORDS_MASK,
    OPTIONS_WORDS_SHIFT,
    DataHeaderFlags,
    DataRecord,
    data_extent,
)
from formats.bmq.disk.journal import MESSAGE_RECORD
from formats.bmq.disk.padding import DWORD, WORD, unpadded_size
from formats.bmq.stores.check_records import Chunk
from formats.bmq.stores.faults import Fault, fault
from formats.bmq.stores.source import Source
from formats.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DataChecker", "read_data_record", "walk_data"]

WINDOW_SIZE = 4 << 20
WINDOW_SIZE_MIN = 64 << 10
"""Bytes read at once where messages are not contiguous."""


class _Extents(NamedTuple):
    """Columns by message: start and end of the application's data, end of the record, and whether these agree.

    `odd` marks bytes in the header or the padding that no current writer writes.
    """

    starts: NDArray[Any]
    ends: NDArray[Any]
    padded_ends: NDArray[Any]
    sound: NDArray[Any]
    odd: NDArray[Any]


class DataChecker:
    """Follows the journal's messages through a DATA file; `end` is where the last of them ended, in bytes."""

    def __init__(self, data: Source, first_record_offset: int) -> None:
        import numpy as np

        self.name = data.name
        self.end = first_record_offset
        self._data = data
        self._size = data.size
        self._first = first_record_offset
        self._end_before_chunk = first_record_offset
        self._unsound: set[int] = set()  # where records with a damaged header begin
        self._positions: NDArray[Any] = np.empty(0, np.int64)
        self._ends: NDArray[Any] = np.empty(0, np.int64)

    def check(self, chunk: Chunk, records: NDArray[Any], positions: NDArray[Any]) -> Iterator[Fault]:
        """Yield the faults of messages, `records` at `positions` of the chunk, in the journal's order."""
        import numpy as np

        offsets = MESSAGE_RECORD.column(records, "message_offset_dwords").astype(np.int64) * DWORD
        inside = (offsets >= self._first) & (offsets + DATA_HEADER.size < self._size)
        for at in (~inside).nonzero()[0].tolist():
            reason = f"payload at {offsets[at]}, outside {self.name} ({self._first} to {self._size} bytes)"
            yield chunk.fault("data-offset", positions[at], reason)
        positions, offsets = positions[inside], offsets[inside]
        crcs = records["crc32c"][inside].tolist()
        places = positions.tolist()
        sound = np.zeros(len(offsets), bool)
        ends = np.zeros(len(offsets), np.int64)
        at = 0
        while at < len(offsets):
            window, group = self._window(offsets, at)
            behind = at + len(group.sound)
            sound[at:behind], ends[at:behind] = group.sound, group.padded_ends
            yield from self._check_group(chunk, window, offsets[at:behind], group, places[at:behind], crcs[at:behind])
            at = behind
        # Their ends are unknown: any later bytes may be part of them.
        self._unsound.update(offsets[~sound].tolist())
        self._positions, self._ends, self._end_before_chunk = positions[sound], ends[sound], self.end
        yield from self._neighbours(offsets[sound], self._ends)

    def end_before(self, position: int) -> int | None:
        """The end of the file, in bytes, when the record at `position` of the last checked chunk was written.

        None if the record before it is damaged.
        """
        before = int(self._positions.searchsorted(position))
        end = int(self._ends[before - 1]) if before else self._end_before_chunk
        return None if end in self._unsound else end

    def _window(self, offsets: NDArray[Any], at: int) -> tuple[memoryview, _Extents]:
        """Read a window that starts at message `at`; return it and the extents of the messages it holds whole.

        For a message longer than a window only the extents are returned.
        """

        start = int(offsets[at])
        ahead = offsets[at : at + WINDOW_SIZE // DWORD]
        near = len(ahead) > 1 and 0 <= int(ahead[1]) - start < WINDOW_SIZE
        window = self._data.read(start, WINDOW_SIZE if near else WINDOW_SIZE_MIN)
        outside = (ahead < start) | (ahead + DATA_HEADER.size >= start + len(window))
        if outside.any():
            ahead = ahead[: max(1, int(outside.argmax()))]
        extents = self._extents(window, ahead, start)
        beyond = extents.sound & (extents.padded_ends > start + len(window))
        if not beyond.any():
            return window, extents
        count = max(1, int(beyond.argmax()))
        return window, _Extents(*(column[:count] for column in extents))

    def _extents(self, window: memoryview, offsets: NDArray[Any], start: int) -> _Extents:
        import numpy as np

        words = np.frombuffer(window, ">u4", len(window) // WORD)
        at = (offsets - start) // WORD
        first = words[at].astype(np.int64)
        second = words[at + 1].astype(np.int64)
        header_size = (first >> HEADER_WORDS_SHIFT) * WORD
        size = (first & MESSAGE_WORDS_MASK) * WORD
        starts = offsets + header_size + (second >> OPTIONS_WORDS_SHIFT) * WORD
        ends = offsets + size
        sound = (header_size >= DATA_HEADER.size) & (size % DWORD == 0) & (ends <= self._size) & (starts < ends)
        last = ends - 1 - start
        within = sound & (last < len(window))
        content = np.frombuffer(window, np.uint8)
        padding = content[np.where(within, last, 0)].astype(np.int64)
        long = b""
        if sound[0] and not within[0]:
            # The first message exceeds the window: check its padding separately.
            long = bytes(self._data.read(int(ends[0]) - DWORD, DWORD))
            padding[0], within[0] = long[-1], True
        sound &= ~within | ((padding >= 1) & (padding <= DWORD) & (padding <= ends - starts))
        third, flags = words[at + 2].astype(np.int64), second & 0xFF
        odd = (flags > DataHeaderFlags.MESSAGE_PROPERTIES) | (third & 0xFFFF != 0) | ((flags == 0) & (third != 0))
        if long and sound[0]:
            odd[0] |= len(set(long[-long[-1] :])) > 1
        for back in range(2, DWORD + 1):
            # All bytes of a padding are equal.
            inside = np.flatnonzero(sound & within & (padding >= back) & (last < len(window)))
            odd[inside] |= content[last[inside] + 1 - back] != padding[inside]
        return _Extents(starts, ends - padding, ends, sound, odd)

    def _check_group(
        self,
        chunk: Chunk,
        window: memoryview,
        offsets: NDArray[Any],
        group: _Extents,
        positions: list[int],
        crcs: list[int],
    ) -> Iterator[Fault]:
        import numpy as np

        start = int(offsets[0])
        size = len(window)
        rows = zip(
            group.sound.tolist(),
            (group.starts - start).tolist(),
            (group.ends - start).tolist(),
            crcs,
            strict=True,
        )
        for row in np.flatnonzero(group.odd & group.sound).tolist():
            reason = "DataHeader.flags, schema_id, reserved, or padding"
            yield fault("reserved-not-zero", self.name, int(offsets[row]), reason)
        for row, (sound, begin, end, expected) in enumerate(rows):
            if not sound:
                yield self._header_fault(int(offsets[row]))
                continue
            computed = crc32c(window[begin:end]) if end <= size else self._crc32c(start + begin, start + end)
            if computed != expected:
                reason = f"{computed:#010x}, the journal's record at {chunk.offset_of(positions[row])} says "
                yield fault("payload-checksum", self.name, start + begin, f"{reason}{expected:#010x}")

    def _header_fault(self, offset: int) -> Fault:
        try:
            read_data_record(self._data, offset)
        except FormatError as error:
            return _data_fault(self.name, error)
        raise AssertionError("the columns refuse what the decoder takes")

    def _crc32c(self, start: int, end: int) -> int:
        crc = 0
        for at in range(start, end, WINDOW_SIZE):
            crc = crc32c(self._data.read(at, min(WINDOW_SIZE, end - at)), crc)
        return crc

    def _neighbours(self, offsets: NDArray[Any], ends: NDArray[Any]) -> Iterator[Fault]:
        import numpy as np

        if not len(offsets):
            return
        before = np.concatenate([[self.end], ends[:-1]])
        self.end = int(ends[-1])
        for at in (offsets != before).nonzero()[0].tolist():
            offset, last = int(offsets[at]), int(before[at])
            if offset > last and last not in self._unsound:
                yield fault("data-gap", self.name, last, f"{offset - last} bytes that no message record refers to")
            elif offset < last:
                yield fault("data-overlap", self.name, offset, f"the record before it ends at {last}")

    def check_tail(self) -> Iterator[Fault]:
        """Yield the fault after the last message: a payload whose journal record was never written."""
        if self.end not in self._unsound and any(self._data.read(self.end, WORD)):
            yield fault("data-tail", self.name, self.end, "a payload without a message record")


def walk_data(data: Source, first_record_offset: int) -> Iterator[Fault]:
    """Yield the first fault of a DATA file by itself, up to a header of zeros or the file's end."""
    offset = first_record_offset
    try:
        while any(data.read(offset, WORD)):
            offset = read_data_record(data, offset).end
    except FormatError as error:
        yield _data_fault(data.name, error)


def read_data_record(data: Source, offset: int) -> DataRecord:
    """Parse a record like `parse_data_record`, reading only its header and its padding."""
    try:
        header = DATA_HEADER.unpack(data.read(offset, DATA_HEADER.size))
    except FormatError as error:
        raise error.shifted(offset) from None
    start, end = data_extent(header, offset, data.size)
    last = max(start, end - DWORD)
    try:
        size = unpadded_size(data.read(last, end - last), 0, end - last, DWORD, "DataHeader.padding")
    except FormatError as error:
        raise error.shifted(last) from None
    return DataRecord(offset, header, offset + header.header_words * WORD, start, last - start + size, end)


def _data_fault(name: str, error: FormatError) -> Fault:
    code = "data-unaligned" if "is odd" in error.reason else "data-record"
    return fault(code, name, error.offset, f"{error.path}: {error.reason}")
