"""Scan of a commit log of any size in constant memory, a chunk at a time, even while a broker writes it.

Everything between sound records is a fault: damage costs only the records that it touches.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from bmqctl.common.regular import next_data, read_into
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.rocketmq.read.files import LogFile
from bmqctl.stores.rocketmq.read.records import FRONT_BYTES, RECORD_BYTES_MAX, LogRecords, Scratch, Search, search
from formats.rocketmq.files.record import BLANK_BYTES_MIN, FRONTS, HEAD_BYTES, RECORD_FRONT, Magic

__all__ = ["CHUNK_BYTES", "LogChunk", "LogFault", "LogScan", "Loss", "end_of_log", "fault_chunk"]

# Small enough to stay in the processor's cache until the fields are read.
CHUNK_BYTES: Final = 1 << 20
_V6_MASK: Final = max(FRONTS)
_FRONT_BYTES_MAX: Final = max(layout.size for layout in FRONTS.values())
_head = struct.Struct(">II").unpack_from
_BLANK: Final = int(Magic.BLANK)


class Loss(StrEnum):
    """The kinds of faults.

    An unfinished end, the beginning of one record, results from a crash during a write, and is no loss.
    """

    DAMAGED = "damaged"
    MISSING = "missing"
    UNFINISHED = "unfinished"


class LogFault(NamedTuple):
    """Bytes of the log without a record: their offset, their number, and the cause."""

    offset: int
    size: int
    text: str
    loss: Loss = Loss.DAMAGED

    @property
    def is_loss(self) -> bool:
        return self.loss is not Loss.UNFINISHED


class LogChunk(NamedTuple):
    """Records in log order, and the faults before and between them.

    The records are valid until the next chunk is requested. The log has been read up to `end`.
    """

    records: LogRecords
    faults: list[LogFault]
    end: int


@dataclass
class _Gap:
    """Bytes after a record: where they begin, and up to where they are written.

    `size` is that of a record that may begin there.
    """

    begin: int
    is_told: bool = True
    cause: str | None = None
    written: int = 0
    size: int = 0

    @property
    def is_begun(self) -> bool:
        """Return whether the bytes may be an unfinished record, whose beginning may have been written last."""
        return self.written - self.begin <= max(FRONT_BYTES, self.size)

    def fault(self, end: int) -> list[LogFault]:
        if not self.is_told or end <= self.begin:
            return []
        text = self.cause or ("holds no record" if self.written else "was never written")
        return [LogFault(self.begin, end - self.begin, text)]

    def add(self, data: memoryview, offset: int, end: int) -> None:
        if offset == self.begin:
            self.cause = _cause(data, offset, end)
            if self.cause is not None:
                self.size = min(int.from_bytes(data[:4], "big"), RECORD_BYTES_MAX)
            elif not any(data[:HEAD_BYTES]):
                self.size = RECORD_BYTES_MAX
        written = np.flatnonzero(np.frombuffer(data, np.bool_))
        if len(written):
            self.written = offset + int(written[-1]) + 1


class LogScan:
    """The records of a row of files from the offset `begin` on.

    A record that contains `begin` is left out, unless `exact`. `end` is the end of the records read so far. With
    `tail`, bytes written after the last record are a fault; without it, a broker may be about to complete them.
    `account` covers all chunks so far.
    """

    def __init__(
        self, files: Sequence[LogFile], begin: int | None = None, *, exact: bool = False, tail: bool = True
    ) -> None:
        first = files[0].begin if files else 0
        self.begin = first if begin is None else max(first, begin)
        self.end = self.begin
        self.account = Account()
        self._files = [file for file in files if file.end > self.begin]
        self._exact = exact
        self._tail = tail
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._scratch = Scratch(CHUNK_BYTES)
        # A broker creates the next file in advance.
        while len(self._files) > 1 and not self._is_written(self._files[-1]):
            self._files.pop()

    def _is_written(self, file: LogFile) -> bool:
        """Return whether a file contains anything; reads only its first chunk, for callers that poll."""
        try:
            with file.path.open("rb", buffering=0) as opened:
                place = next_data(opened.fileno(), 0)
                while place is not None:
                    read = read_into(opened.fileno(), self._buffer, place)
                    if np.frombuffer(self._buffer[:read], np.bool_).any():
                        return True
                    if not self._tail or not read:
                        return False
                    place = next_data(opened.fileno(), place + read)
        except FileNotFoundError:
            pass
        return False

    def chunks(self) -> Iterator[LogChunk]:
        """Yield all records. Raises `OSError`."""
        for chunk in self._chunks():
            self.account.read(len(chunk.records), int(chunk.records.sizes.sum()))
            for fault in chunk.faults:
                if fault.is_loss:
                    where = f"offset {fault.offset} of the commit log: {fault.text}"
                    self.account.lose(where, fault.size, is_missing=fault.loss is Loss.MISSING)
            yield chunk

    def _chunks(self) -> Iterator[LogChunk]:
        for file, after in zip(self._files, [*self._files, None][1:], strict=True):
            if after is not None and after.begin < file.end:
                # Surplus bytes of a file are not part of the log.
                file = file._replace(end=after.begin)
            try:
                descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                # A broker deletes its oldest files.
                yield fault_chunk(LogFault(file.begin, file.end - file.begin, "the file has vanished", Loss.MISSING))
                continue
            try:
                yield from self._file(descriptor, file, max(file.begin, self.begin), after is None)
            finally:
                os.close(descriptor)
            if after is not None and after.begin > file.end:
                missing = LogFault(file.end, after.begin - file.end, "the file is missing", Loss.MISSING)
                yield fault_chunk(missing)

    def _file(self, descriptor: int, file: LogFile, at: int, is_last: bool) -> Iterator[LogChunk]:
        gap = _Gap(at, is_told=self._exact or at == file.begin)
        wanted, may_read_again, doubted = 0, is_last, -1
        while at < file.end:
            before, end_before = gap, self.end
            if at > gap.begin:
                written = next_data(descriptor, at - file.begin)
                if written is None:
                    break
                at = max(at, file.begin + written)
            asked = min(max(CHUNK_BYTES, wanted), file.end - at)
            data = self._read(descriptor, at - file.begin, asked)
            found = search(data, at, file.end, self._scratch if len(data) <= CHUNK_BYTES else None)
            cut = _first_cut(descriptor, file, found)
            records = found.records
            if cut is not None and len(records) and records.starts[-1] + at > cut:
                records = records.where(records.offsets < cut)
            faults: list[LogFault] = []
            if len(records):
                faults = _faults_in_front(records, gap, file.end)
                if is_last and _first_of(faults, doubted) != doubted:
                    # A broker may have written these bytes after they were read, and before later ones.
                    doubted, wanted = faults[0].offset, 0
                    at, gap, self.end = before.begin, _Gap(before.begin, before.is_told), end_before
                    continue
                self.end = at + int(records.ends[-1])
                gap = _Gap(self.end)
            rest = data[max(gap.begin - at, 0) :]
            if gap.begin >= at and _is_blank(rest, file.end - gap.begin):
                self.end = file.end
                yield LogChunk(records, faults, file.end)
                return
            is_rest = len(data) < asked or at + asked == file.end
            told = file.end if is_rest else max(gap.begin, at + len(data) - FRONT_BYTES + 1)
            if cut is not None:
                told = cut
            if len(records):
                yield LogChunk(records, faults, told)
            begin = max(gap.begin, at)
            gap.add(rest[: told - begin], begin, file.end)
            wanted = 0 if cut is None else int.from_bytes(data[cut - at : cut - at + 4], "big")
            at = told
            if at == file.end and gap.written and may_read_again:
                # A broker may have been writing this record.
                at, gap, may_read_again = gap.begin, _Gap(gap.begin, gap.is_told), False
        yield from map(fault_chunk, self._rest(gap, None if is_last else file.end))

    def _rest(self, gap: _Gap, file_end: int | None) -> list[LogFault]:
        """The faults after the last record of a file; `file_end` is None for the last file."""
        if file_end is not None:
            return gap.fault(file_end)
        loss = Loss.UNFINISHED if gap.is_begun else Loss.DAMAGED
        return [fault._replace(loss=loss) for fault in gap.fault(gap.written)] if gap.written and self._tail else []

    def _read(self, descriptor: int, at: int, size: int) -> memoryview:
        view = self._buffer[:size] if size <= len(self._buffer) else memoryview(bytearray(size))
        return view[: read_into(descriptor, view, at)]


def end_of_log(files: Sequence[LogFile]) -> int:
    """The offset after the last record, or the first file's offset if there is none. Raises `OSError`."""
    for file in reversed(files):
        scan = LogScan([file], tail=False)
        for _ in scan.chunks():
            pass
        if scan.end > file.begin:
            return scan.end
    return files[0].begin if files else 0


def _first_of(faults: list[LogFault], default: int) -> int:
    return faults[0].offset if faults else default


def _faults_in_front(records: LogRecords, gap: _Gap, file_end: int) -> list[LogFault]:
    """The fault before the records, which may have begun in an earlier chunk, and those between them."""
    data, offset = records.data, records.offset
    starts, ends = records.offsets, records.ends + offset
    first = int(starts[0])
    begin = max(gap.begin, offset)
    gap.add(data[begin - offset : first - offset], begin, file_end)
    faults = gap.fault(first)
    for index in np.flatnonzero(starts[1:] != ends[:-1]).tolist():
        begin, end = int(ends[index]), int(starts[index + 1])
        between = _Gap(begin)
        between.add(data[begin - offset : end - offset], begin, file_end)
        faults += between.fault(end)
    return faults


def _first_cut(descriptor: int, file: LogFile, found: Search) -> int | None:
    """The offset of the first record that appears sound without reading all of it."""
    if not found.cut:
        return None
    records = found.records
    starts, ends = records.starts, records.ends
    for place in found.cut:
        before = int(np.searchsorted(starts, place)) - 1
        if before >= 0 and ends[before] > place:
            continue
        offset = records.offset + place
        if _fills(descriptor, offset - file.begin, int.from_bytes(records.data[place : place + 4], "big")):
            return offset
    return None


def _fills(descriptor: int, at: int, size: int) -> bool:
    """Return whether the parts of a record fill its size, by reading only the size fields."""
    front = os.pread(descriptor, _FRONT_BYTES_MAX, at)
    if len(front) < FRONT_BYTES:
        return False
    layout = FRONTS[RECORD_FRONT.unpack(front).system_flags & _V6_MASK]
    if len(front) < layout.size:
        return False
    fields = layout.unpack(front)
    width = 2 if fields.magic == Magic.V2 else 1
    field_at = layout.size + fields.body_size
    if fields.body_size < 0 or field_at + width + 2 > size:
        return False
    properties_at = field_at + width + int.from_bytes(os.pread(descriptor, width, at + field_at), "big") + 2
    if properties_at > size:
        return False
    return properties_at + int.from_bytes(os.pread(descriptor, 2, at + properties_at - 2), "big") == size


def _is_blank(data: memoryview, left: int) -> bool:
    """Return whether the rest of a file is blank. A file that was cut has less than the blank record states."""
    if len(data) < HEAD_BYTES:
        return False
    size, magic = _head(data)
    return bool(magic == _BLANK and size >= max(left, BLANK_BYTES_MIN))


def _cause(data: memoryview, offset: int, end: int) -> str | None:
    """The cause of the fault where no sound record begins; None if the place does not show one."""
    if len(data) < HEAD_BYTES:
        return None
    size, magic = _head(data)
    if magic not in (Magic.V1, Magic.V2):
        return None
    if len(data) >= FRONT_BYTES and (said := RECORD_FRONT.unpack(data[:FRONT_BYTES]).physical_offset) != offset:
        return f"a record that says to be at {said}"
    if size > min(end - offset, RECORD_BYTES_MAX):
        return f"a record of {size} bytes, of which {end - offset} are left in the file"
    return f"a record of {size} bytes, whose parts fill another number"


def fault_chunk(fault: LogFault) -> LogChunk:
    data = memoryview(b"")
    return LogChunk(search(data, fault.offset, fault.offset).records, [fault], fault.offset + fault.size)
