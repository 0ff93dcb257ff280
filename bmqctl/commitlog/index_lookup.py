"""Look-up of messages by the index files of a RocketMQ store, as far as these are intact.

An index file says nothing about the messages in front of its first entry and behind its last one, and what it says is
believed only if the whole chain of a key makes sense and its records are there. All other parts of the log are to be
read. Files are not mapped: a broker may delete them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from bmqctl.commitlog.files import LogFile
from bmqctl.commitlog.queues import record_of
from bmqctl.commitlog.records import LogRecords
from bmqctl.journal.read.positional import read_into
from formats.rocketmq.index import INDEX_ENTRY, INDEX_HEADER, SLOT_BYTES, IndexFile, IndexHeader
from formats.rocketmq.java import index_hash

__all__ = ["Found", "look_up", "record_at"]

# The sizes that the original makes unless it is told otherwise.
_SLOTS: Final = 5_000_000
_ENTRIES: Final = 20_000_000
# Of others the number of slots is found out, which takes reading all of the file.
_FILE_BYTES_MAX: Final = 1 << 26
_CHAIN_MAX: Final = 1 << 20
SIZE_BYTES: Final = 4
_slot = struct.Struct(">i").unpack
_ENTRY_BYTES: Final = INDEX_ENTRY.size
_OFFSET_AT: Final = INDEX_ENTRY.offset("physical_offset")


class Found(NamedTuple):
    """The result of a look-up: parts of the log, from an offset to another, that need not be read but at `places`."""

    parts: list[tuple[int, int]]
    places: list[int]


def look_up(index_files: Sequence[Path], log: Sequence[LogFile], keys: Iterable[str]) -> Found:
    """Look for messages by their `index_key`s. Raises `OSError`."""
    hashes = {index_hash(key) for key in keys}
    found = Found([], [])
    for path in index_files:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # A broker deletes its oldest files.
            continue
        try:
            part = _look_in(descriptor, log, hashes)
        finally:
            os.close(descriptor)
        # Files follow each other: one that does not is of something else.
        if part is not None and (not found.parts or part[0][0] >= found.parts[-1][1]):
            found.parts.append(part[0])
            found.places.extend(part[1])
    return Found(found.parts, sorted(set(found.places)))


def record_at(log: Sequence[LogFile], offset: int) -> LogRecords | None:
    """The record that begins at an offset; None if there is none. Raises `OSError`."""
    for file in log:
        if file.begin <= offset < file.end:
            try:
                with file.path.open("rb", buffering=0) as stream:
                    head = os.pread(stream.fileno(), SIZE_BYTES, offset - file.begin)
            except FileNotFoundError:
                return None
            return record_of(log, offset, int.from_bytes(head, "big"))
    return None


def _look_in(descriptor: int, log: Sequence[LogFile], hashes: set[int]) -> tuple[tuple[int, int], list[int]] | None:
    """The part of the log that a file is about, and the places of messages in it; None if it is not to be believed."""
    data = os.pread(descriptor, INDEX_HEADER.size, 0)
    if len(data) < INDEX_HEADER.size:
        return None
    header = INDEX_HEADER.unpack(data)
    begin, end = header.begin_offset, header.end_offset
    if not log or header.index_count < 2 or not log[0].begin <= begin <= end < log[-1].end:
        return None
    slots = _slots_of(descriptor, header)
    if slots is None:
        return None
    places: list[int] = []
    for key_hash in hashes:
        chain = _chain(descriptor, header, slots, key_hash)
        if chain is None:
            return None
        places += chain
    # The last message may be there with some of its keys only: the log is read from there on.
    places = [place for place in places if place < end]
    if any(record_at(log, place) is None for place in {begin, *places}):
        return None
    return (begin, end), places


def _slots_of(descriptor: int, header: IndexHeader) -> int | None:
    """The number of a file's slots, which it does not say; None if it cannot be told."""
    size = os.fstat(descriptor).st_size
    if size == IndexFile.size_of(_SLOTS, _ENTRIES):
        return _SLOTS
    if size > _FILE_BYTES_MAX or size < INDEX_HEADER.size:
        return None
    data = memoryview(bytearray(size))
    data = data[: read_into(descriptor, data, 0)]
    # All numbers of slots that leave room for whole entries: their first and last entries are these bytes apart.
    least = -(-(size - INDEX_HEADER.size) // SLOT_BYTES) % (_ENTRY_BYTES // SLOT_BYTES)
    entries_at = INDEX_HEADER.size + least * SLOT_BYTES
    last_at = entries_at + (header.index_count - 1) * _ENTRY_BYTES + _OFFSET_AT
    count = (len(data) - last_at - 8) // _ENTRY_BYTES + 1
    if (size - INDEX_HEADER.size) % SLOT_BYTES or count <= 0:
        return None
    firsts = np.ndarray((count,), ">i8", data, entries_at + _ENTRY_BYTES + _OFFSET_AT, (_ENTRY_BYTES,))
    lasts = np.ndarray((count,), ">i8", data, last_at, (_ENTRY_BYTES,))
    fits = []
    for number in np.flatnonzero((firsts == header.begin_offset) & (lasts == header.end_offset)).tolist():
        slots = least + number * (_ENTRY_BYTES // SLOT_BYTES)
        first = INDEX_ENTRY.unpack(data, entries_at + (number + 1) * _ENTRY_BYTES)
        if slots and 0 < _slot_value(data, first.key_hash % slots) < header.index_count and first.previous == 0:
            fits.append(slots)
    return fits[0] if len(fits) == 1 else None


def _slot_value(data: memoryview, number: int) -> int:
    at = INDEX_HEADER.size + number * SLOT_BYTES
    return int(_slot(data[at : at + SLOT_BYTES])[0])


def _chain(descriptor: int, header: IndexHeader, slots: int, key_hash: int) -> list[int] | None:
    """The offsets of messages with a key of this hash; None if the chain of its slot makes no sense."""
    slot = key_hash % slots
    data = os.pread(descriptor, SLOT_BYTES, INDEX_HEADER.size + slot * SLOT_BYTES)
    number = int(_slot(data)[0]) if len(data) == SLOT_BYTES else -1
    entries_at = INDEX_HEADER.size + slots * SLOT_BYTES
    found: list[int] = []
    for _ in range(_CHAIN_MAX):
        if number == 0:
            return found
        if not 0 < number < header.index_count:
            return None
        data = os.pread(descriptor, _ENTRY_BYTES, entries_at + number * _ENTRY_BYTES)
        if len(data) < _ENTRY_BYTES:
            return None
        entry = INDEX_ENTRY.unpack(data)
        place = entry.physical_offset
        # Chains lead back, and all that is in them has this slot.
        if entry.previous >= number or entry.key_hash % slots != slot:
            return None
        if not header.begin_offset <= place <= header.end_offset:
            return None
        if entry.key_hash == key_hash:
            found.append(place)
        number = entry.previous
    return None
