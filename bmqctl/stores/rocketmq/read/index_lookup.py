"""Look-up of messages through a RocketMQ store's index files, as far as these are intact.

An index file covers only the messages from its first entry to its last, and is believed only if a key's whole chain is
consistent and its records exist. The rest of the log must be read. Files are not mapped: a broker may delete them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bmqctl.stores.rocketmq.read.files import LogFile
from bmqctl.stores.rocketmq.read.index_files import IndexLayout, OpenIndexFile, find_layout, opened
from bmqctl.stores.rocketmq.read.queues import record_of
from bmqctl.stores.rocketmq.read.records import LogRecords
from formats.rocketmq.files.index import IndexHeader
from formats.rocketmq.java import index_hash

__all__ = ["Found", "look_up", "record_at"]

_CHAIN_MAX: Final = 1 << 20
SIZE_BYTES: Final = 4


class Found(NamedTuple):
    """Parts of the log, as offset pairs, in which only `places` need to be read."""

    parts: list[tuple[int, int]]
    places: list[int]


def look_up(index_files: Sequence[Path], log: Sequence[LogFile], keys: Iterable[str]) -> Found:
    """Look for messages by their `index_key`s. Raises `OSError`."""
    hashes = {index_hash(key) for key in keys}
    found = Found([], [])
    layout = find_layout(index_files)
    for path in index_files if layout is not None else ():
        with opened(path) as file:
            # A broker deletes its oldest files.
            part = None if file is None or layout is None else _look_in(file, layout, log, hashes)
        # Files are consecutive: one that is not belongs to something else.
        if part is not None and (not found.parts or part[0][0] >= found.parts[-1][1]):
            found.parts.append(part[0])
            found.places.extend(part[1])
    return Found(found.parts, sorted(set(found.places)))


def record_at(log: Sequence[LogFile], offset: int) -> LogRecords | None:
    """The record that begins at an offset, or None. Raises `OSError`."""
    for file in log:
        if file.begin <= offset < file.end:
            try:
                with file.path.open("rb", buffering=0) as stream:
                    head = os.pread(stream.fileno(), SIZE_BYTES, offset - file.begin)
            except FileNotFoundError:
                return None
            return record_of(log, offset, int.from_bytes(head, "big"))
    return None


def _look_in(
    file: OpenIndexFile, layout: IndexLayout, log: Sequence[LogFile], hashes: set[int]
) -> tuple[tuple[int, int], list[int]] | None:
    """The part of the log that a file covers, and the messages' places in it; None if it is not credible."""
    header = file.header
    begin, end = header.begin_offset, header.end_offset
    if file.size != layout.size or not 2 <= header.index_count <= layout.entries:
        return None
    if not log or not log[0].begin <= begin <= end < log[-1].end:
        return None
    if (file.entry(layout, 1).physical_offset, file.entry(layout, header.index_count - 1).physical_offset) != (
        begin,
        end,
    ):
        return None
    places: list[int] = []
    for key_hash in hashes:
        chain = _chain(file, layout, header, key_hash)
        if chain is None:
            return None
        places += chain
    # Only some keys of the last message may be indexed: read the log from there on.
    places = [place for place in places if place < end]
    if any(record_at(log, place) is None for place in {begin, *places}):
        return None
    return (begin, end), places


def _chain(file: OpenIndexFile, layout: IndexLayout, header: IndexHeader, key_hash: int) -> list[int] | None:
    """Offsets of messages whose key has this hash; None if the chain of its slot is inconsistent."""
    number = file.slot(layout, key_hash)
    found: list[int] = []
    for _ in range(_CHAIN_MAX):
        if number == 0:
            return found
        if not 0 < number < header.index_count:
            return None
        entry = file.entry(layout, number)
        place = entry.physical_offset
        # Chains lead backwards, and all their entries have this slot.
        if entry.previous >= number or (entry.key_hash - key_hash) % layout.slots:
            return None
        if not header.begin_offset <= place <= header.end_offset:
            return None
        if entry.key_hash == key_hash:
            found.append(place)
        number = entry.previous
    return None
