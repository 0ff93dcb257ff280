"""The commit log: the messages of all topics in one sequence (source: CommitLog)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple

from broker.rocketmq.store.errors import StoreFileDamaged
from broker.rocketmq.store.files.file_rows import FileRow
from broker.rocketmq.store.files.leftovers import LastEpoch
from formats.errors import FormatError
from formats.rocketmq.files.record import (
    BLANK_BYTES_MIN,
    Blank,
    Magic,
    Record,
    decode_record,
    encode_blank,
    read_head,
)
from formats.schema import Buffer

__all__ = ["CommitLog", "Found", "Message"]

log = logging.getLogger("broker.rocketmq.store")

# A disk writes a sector as a whole or not at all.
SECTOR_BYTES: Final = 512
LONG_BYTES: Final = 32 << 10


class Message(NamedTuple):
    """A message to be stored. The hosts are packed: 8 or 20 bytes each, by the system flags."""

    topic: str
    queue_id: int
    flag: int
    system_flags: int
    born_ms: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: Buffer
    properties: bytes


class Found(NamedTuple):
    """A record of the log."""

    offset: int
    size: int
    record: Record


class CommitLog:
    """The log's files, and the end of the log, where the next record goes."""

    def __init__(self, files: FileRow) -> None:
        self.files = files
        self.end = files.begin

    @property
    def begin(self) -> int:
        return self.files.begin

    def append(self, offset: int, data: memoryview) -> None:
        """Write records, all in one file, at `offset`: the end of the log, or the start of its next file.

        In that case a blank record fills the last file. A log without files may begin with any. Raises `DiskFull`;
        nothing is written then.
        """
        files, size = self.files, len(data)
        left = offset - self.end if files.files else 0
        if left or size < LONG_BYTES:
            buffer, place = files.spot(offset, size)
        if left:
            # After the records' room: on a full disk, a blank without them would remain.
            files.room(self.end, BLANK_BYTES_MIN)[:] = encode_blank(left)
        if size >= LONG_BYTES:
            # If the process is killed, the written part ends with a page, as after a loss of power.
            files.write(offset, data)
        else:
            buffer[place + 4 : place + size] = data[4:]
            # The size comes last: a record whose writing was cut short has none, and is no record.
            buffer[place : place + 4] = data[:4]
        self.end = offset + size

    def cut(self, end: int) -> None:
        self.files.cut(end)
        self.end = end

    def check_begin(self, offset: int) -> None:
        """Raise `ValueError` unless a record, blank ones included, begins at `offset`, or the log ends there."""
        if offset == self.end:
            return
        if not self.begin <= offset < self.end:
            raise ValueError(f"offset {offset} is not between {self.begin} and {self.end}")
        file, place = self.files.place(offset)
        record = decode_record(file.buffer, place)
        if record is None or (isinstance(record, Record) and record.physical_offset != offset):
            raise FormatError("Record", place, "no record begins here")

    def data(self, offset: int, size: int) -> memoryview:
        """Return the bytes of a record as consumers get them. Raises `IndexError` if the log lacks some."""
        if offset + size > self.end:
            raise IndexError(offset)
        file, place = self.files.place(offset)
        return file.buffer[place : place + size]

    def read(self, offset: int) -> Found:
        """Return the record at `offset`. Raises `IndexError` after the end, `FormatError` if no record begins there."""
        if offset >= self.end:
            raise IndexError(offset)
        file, place = self.files.place(offset)
        record = decode_record(file.buffer, place)
        if not isinstance(record, Record) or record.physical_offset != offset:
            raise FormatError("Record", place, "no record begins here")
        return Found(offset, int.from_bytes(file.buffer[place : place + 4], "big"), record)

    def records(self, begin: int) -> Iterator[Found]:
        """Yield all records from `begin` on: the start of one, or the log's end."""
        offset = begin
        while offset < self.end:
            file, place = self.files.place(offset)
            record = decode_record(file.buffer, place)
            if isinstance(record, Blank):
                offset += record.size
                continue
            found = self.read(offset)
            yield found
            offset += found.size

    def recover(
        self,
        begin: int,
        flushed_end: int = 0,
        was_flushed: Callable[[Record], bool] = lambda record: True,
        epoch: LastEpoch | None = None,
    ) -> Iterator[Found]:
        """Find the end of the log, yielding the sound records from `begin`, the start of one, on.

        Remains of an interrupted write or a loss of power after the end are cut off; the latter may take a page
        and leave later ones. Raises `StoreFileDamaged` if a missing part had been on the disk, as is everything before
        `flushed_end`, and before a sound record that `was_flushed`. Where the original has cut the log, its remains
        after the last record of `epoch` are cut off.
        """
        self.end, is_cut = yield from self._sound_records(begin, flushed_end, was_flushed, epoch)
        self.files.cut(self.end)
        if is_cut:
            # Before any other write: bytes that come back must not follow a new record as if they belonged there.
            for file in self.files.unflushed(self.end, self.end + 1):
                file.flush()

    def _sound_records(
        self, begin: int, flushed_end: int, was_flushed: Callable[[Record], bool], epoch: LastEpoch | None
    ) -> Generator[Found, None, tuple[int, bool]]:
        """Yield the sound records from `begin` on; return the offset after them, and whether sound ones follow it."""
        offset = begin
        held: Found | None = None
        is_cut = False
        stored_ms = -1
        while offset < self.files.end:
            file, place = self.files.place(offset)
            try:
                record = decode_record(file.buffer, place)
                if isinstance(record, Record):
                    _check_record(record, place, offset)
            except FormatError as error:
                is_cut = self._may_end(offset, error, flushed_end, was_flushed, epoch, stored_ms)
                break
            if record is None:
                nothing = FormatError("Record", place, "nothing is written here")
                is_cut = self._may_end(offset, nothing, flushed_end, was_flushed, epoch, stored_ms)
                break
            # A start after a crash takes these for messages, as the original does.
            is_clean = epoch is not None and epoch.dispatched_ms is not None
            if epoch is not None and is_clean and self._is_rest(offset - 1, offset, epoch, stored_ms):
                # The records of the two logs have the same lengths.
                is_cut = True
                break
            if held is not None:
                yield held
                held = None
            if isinstance(record, Blank):
                offset += record.size
                continue
            found = Found(offset, int.from_bytes(file.buffer[place : place + 4], "big"), record)
            stored_ms = record.stored_ms
            if _ends_in_zeros(found, place) and offset + found.size > flushed_end:
                # Whole, or cut short by a loss of power: the bytes that were written after it decide.
                held = found
            else:
                yield found
            offset += found.size
        return (offset if held is None else held.offset), is_cut

    def _may_end(
        self,
        offset: int,
        error: FormatError,
        flushed_end: int,
        was_flushed: Callable[[Record], bool],
        epoch: LastEpoch | None,
        stored_ms: int,
    ) -> bool:
        """Return whether sound records follow `offset`. Raises `StoreFileDamaged` if the flushed log was longer."""
        found = self._sound_behind(offset)
        if offset < flushed_end:
            raise self.damaged(offset, f"{error.reason}, but everything before {flushed_end} had been flushed")
        if found is None:
            return False
        at, record = found
        if epoch is not None and self._is_rest(offset, offset, epoch, stored_ms):
            log.warning("the log ends at %d, behind which another broker has left the rest of a longer one", offset)
            return True
        if was_flushed(record):
            raise self.damaged(offset, f"{error.reason}, but a sound record is at {at}")
        log.warning(
            "the log ends at %d: %s; a sound record at %d, which was not flushed before the crash, is cut off with "
            "what follows",
            offset,
            error.reason,
            at,
        )
        return True

    def _is_rest(self, before: int, end: int, epoch: LastEpoch, stored_ms: int) -> bool:
        """Return whether sound records follow `before`, of an older log than the one that ends at `end`.

        All are in one file, as the cut removes later files. `stored_ms` is the time of the record before `end`.
        """
        file_end = end - end % self.files.file_size + self.files.file_size
        found = self._sound_behind(before) if epoch.may_end(end, stored_ms) else None
        is_rest = found is not None
        while found is not None and is_rest:
            at, record = found
            is_rest = epoch.is_older(record) and at < file_end
            file, place = self.files.place(at)
            found = self._next_sound(at + int.from_bytes(file.buffer[place : place + 4], "big"))
        return is_rest

    def _next_sound(self, offset: int) -> tuple[int, Record] | None:
        if offset < self.files.end:
            file, place = self.files.place(offset)
            try:
                record = decode_record(file.buffer, place)
                if isinstance(record, Record):
                    _check_record(record, place, offset)
                    return offset, record
            except FormatError:
                pass
        return self._sound_behind(offset - 1)

    def damaged(self, offset: int, reason: str) -> StoreFileDamaged:
        file, place = self.files.place(offset)
        return StoreFileDamaged(
            self.files.directory.path_of(file.name), place, reason, "bring the file back from a replica or a backup"
        )

    def _sound_behind(self, offset: int) -> tuple[int, Record] | None:
        """Return the first sound record anywhere after `offset`, with its offset; None if there is none."""
        at = offset + 1
        while at < self.files.end:
            file, place = self.files.place(at)
            found = _sound_record(file.buffer, place, file.data_end, at - place)
            if found is not None:
                return found
            at += self.files.file_size - place
        return None


def _check_record(record: Record, place: int, offset: int) -> None:
    """Raise `FormatError` unless a record at a place of its file, and at an offset of the log, is sound."""
    if not record.is_body_sound or record.physical_offset != offset:
        raise FormatError("Record", place, "its checksum or its own offset is wrong")


def _ends_in_zeros(found: Found, place: int) -> bool:
    """Return whether a record has properties in its last sector, all of them zeros.

    The checksum covers the body only. Zeros are properties that a loss of power has taken, but records of the original
    may have such properties.
    """
    properties = found.record.properties
    return bool(properties) and not any(properties[-((place + found.size - 1) % SECTOR_BYTES + 1) :])


_MAGICS = (Magic.V1.to_bytes(4, "big"), Magic.V2.to_bytes(4, "big"))


def _sound_record(buffer: memoryview, begin: int, end: int, file_offset: int) -> tuple[int, Record] | None:
    """Return the first sound record between two places of a file, with its offset; None if there is none."""
    data = bytes(buffer[begin:end])
    for magic in _MAGICS:
        at = data.find(magic)
        while at >= 0:
            place = begin + at - 4
            if place >= begin:
                try:
                    head = read_head(buffer, place, end)
                    record = decode_record(buffer, place, end) if head is not None else None
                except FormatError:
                    record = None
                if (
                    isinstance(record, Record)
                    and record.physical_offset == file_offset + place
                    and record.is_body_sound
                ):
                    return file_offset + place, record
            at = data.find(magic, at + 1)
    return None
