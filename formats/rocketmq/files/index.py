# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Index files: messages by the hash of a key (source: IndexFile, IndexHeader, IndexService).

A file is a header of 40 bytes, a table of slots of 4 bytes each, and entries of 20. A slot holds the number of the last
entry whose key hash falls into it, or 0; each entry names the previous one of its slot. Entries are numbered from 1:
the space of entry 0 is never used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from formats.errors import FormatError
from formats.rocketmq.files.index_layout import INDEX_ENTRY, INDEX_HEADER, IndexEntry, IndexHeader, IndexKeys
from formats.rocketmq.flags import TRANSACTION_MASK, Transaction
from formats.rocketmq.java import index_hash

__all__ = [
    "INDEX_ENTRY",
    "INDEX_HEADER",
    "SLOT_BYTES",
    "IndexEntry",
    "IndexFile",
    "IndexHeader",
    "IndexKeys",
    "index_key",
    "message_index_keys",
    "record_hashes",
    "tag_index_key",
]

SLOT_BYTES: Final = 4
_SECONDS_MAX: Final = 0x7FFFFFFF
_ROLLBACK: Final = int(Transaction.ROLLBACK)


# Write all fields of a header, or of an entry, into a buffer.
_write_header: Final = INDEX_HEADER.words.pack_into
_write_entry: Final = INDEX_ENTRY.words.pack_into
_ENTRY_BYTES: Final = INDEX_ENTRY.size
_SLOTS_AT: Final = INDEX_HEADER.size
_SLOT: Final = struct.Struct(">i")
_read_slot: Final = _SLOT.unpack_from
_write_slot: Final = _SLOT.pack_into


def index_key(topic: str, key: str) -> str:
    return f"{topic}#{key}"


def tag_index_key(topic: str, tag: str) -> str:
    """The text that is hashed for a message's tag (since version 5.4)."""
    return f"{topic}#T#{tag}"


def message_index_keys(topic: str, properties: Mapping[str, str]) -> list[str]:
    """List the keys that a message is indexed by, in the order of its entries: unique id, keys, tag."""
    keys = [
        index_key(topic, key) for key in (properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")) if key
    ]
    if tag := properties.get("TAGS"):
        keys.append(tag_index_key(topic, tag))
    return keys


def record_hashes(topic: str, system_flags: int, properties: Mapping[str, str]) -> list[int]:
    """List the hashes of a record's keys, in the order of its entries; none if it rolls back a transaction."""
    if system_flags & TRANSACTION_MASK == _ROLLBACK:
        return []
    return [index_hash(key) for key in message_index_keys(topic, properties)]


class IndexFile:
    """An index file over a buffer: `slots` slots and room for `entries` entries, entry 0 included."""

    def __init__(self, buffer: bytearray | memoryview, slots: int, entries: int) -> None:
        wanted = self.size_of(slots, entries)
        if len(buffer) != wanted:
            raise FormatError(
                "IndexFile", 0, f"has {len(buffer)} bytes; {slots} slots and {entries} entries take {wanted}"
            )
        self._buffer = buffer
        self.slots = slots
        self.entries = entries
        self._entries_at = INDEX_HEADER.size + slots * SLOT_BYTES
        self._set(self.header)

    def _set(self, header: IndexHeader) -> None:
        self._begin_ms, self._begin_offset = header.begin_ms, header.begin_offset
        self._end_ms, self._end_offset = header.end_ms, header.end_offset
        self._slots_used, self.next_entry = header.slot_count, header.index_count

    @staticmethod
    def size_of(slots: int, entries: int) -> int:
        """Size of a file with `slots` and `entries`, in bytes."""
        return INDEX_HEADER.size + slots * SLOT_BYTES + entries * INDEX_ENTRY.size

    @property
    def header(self) -> IndexHeader:
        """The header in the file; in a file without entries the next entry is number 1."""
        header = INDEX_HEADER.unpack(self._buffer)
        return header if header.index_count > 0 else header._replace(index_count=1)

    @property
    def is_full(self) -> bool:
        return self.next_entry >= self.entries

    def slot(self, number: int) -> int:
        """The number of the slot's last entry, or 0."""
        at = INDEX_HEADER.size + number * SLOT_BYTES
        return int.from_bytes(self._buffer[at : at + SLOT_BYTES], "big", signed=True)

    def entry(self, number: int) -> IndexEntry:
        if not 0 < number < self.entries:
            raise FormatError("IndexFile.entry", 0, f"{number} is not between 1 and {self.entries - 1}")
        return INDEX_ENTRY.unpack(self._buffer, self._entries_at + number * INDEX_ENTRY.size)

    def begin(self, offset: int, ms: int) -> None:
        """Set the span to the end of the previous file, until this one has entries."""
        INDEX_HEADER.pack_into(self._buffer, 0, IndexHeader(ms, ms, offset, offset, 0, 0))
        self._set(self.header)

    def put(self, key: str, offset: int, stored_ms: int) -> bool:
        """Add the message at `offset` under `key`, an `index_key`; return False if the file is full."""
        if self.is_full:
            return False
        self.put_hash(index_hash(key), offset, stored_ms)
        return True

    def put_hash(self, key_hash: int, offset: int, stored_ms: int) -> None:
        """Add the message at `offset` by its key's `index_hash`. The file must not be full."""
        self.add_all([(key_hash, offset, stored_ms)])

    def add_all(self, keys: Sequence[tuple[int, int, int]]) -> None:
        """Add messages like `put_hash`: hash, offset and storing time of each. The file must have room for all."""
        buffer, slots, number, begin_ms = self._buffer, self.slots, self.next_entry, self._begin_ms
        at = self._entries_at + number * _ENTRY_BYTES
        for key_hash, offset, stored_ms in keys:
            slot_at = _SLOTS_AT + key_hash % slots * SLOT_BYTES
            (previous,) = _read_slot(buffer, slot_at)
            if not 0 < previous <= number:
                previous = 0
                self._slots_used += 1
            # Before the first entry the header has the end of the previous file, if any, from which entries count.
            seconds = (stored_ms - begin_ms) // 1000 if 0 < begin_ms < stored_ms else 0
            _write_entry(buffer, at, key_hash, offset, min(_SECONDS_MAX, seconds), previous)
            _write_slot(buffer, slot_at, number)
            if number == 1:
                self._begin_ms = begin_ms = stored_ms
                self._begin_offset = offset
            number += 1
            at += _ENTRY_BYTES
        if keys:
            _, self._end_offset, self._end_ms = keys[-1]
        self.next_entry = number
        self._write_header()

    def _write_header(self) -> None:
        _write_header(
            self._buffer,
            0,
            self._begin_ms,
            self._end_ms,
            self._begin_offset,
            self._end_offset,
            self._slots_used,
            self.next_entry,
        )

    def put_hashes(self, keys: IndexKeys) -> None:
        """Add many messages like `put_hash`. The file must have entries, and room for all."""
        import numpy as np

        hashes, offsets, times = keys
        first, count = self.next_entry, len(hashes)
        numbers = np.arange(first, first + count, dtype=np.int32)
        slots = hashes % np.uint32(self.slots)
        # Group entries by slot, in order: the first links to the slot's last entry, the others to each other.
        order = np.argsort(slots, kind="stable")
        slots = slots[order]
        is_first = np.append(True, slots[1:] != slots[:-1])
        is_last = np.append(is_first[1:], True)
        table = np.frombuffer(self._buffer, ">i4", self.slots, _SLOTS_AT)
        before = np.append(0, numbers[order[:-1]])
        before[is_first] = table[slots[is_first]]
        is_new = (before <= 0) | (before > numbers[order])
        before[is_new] = 0
        table[slots[is_last]] = numbers[order[is_last]]
        begin_ms = self._begin_ms
        seconds = np.where((times > begin_ms) & (begin_ms > 0), (times - begin_ms) // 1000, 0)
        entries = np.empty(count, INDEX_ENTRY.dtype)
        entries["key_hash"], entries["physical_offset"] = hashes, offsets
        entries["seconds"] = np.minimum(seconds, _SECONDS_MAX)
        entries["previous"][order] = before
        at = self._entries_at + first * _ENTRY_BYTES
        self._buffer[at : at + count * _ENTRY_BYTES] = entries.tobytes()
        self.next_entry = first + count
        self._slots_used += int(np.count_nonzero(is_new))
        self._end_ms, self._end_offset = int(times[-1]), int(offsets[-1])
        self._write_header()

    def entries_before(self, data_end: int) -> int:
        """Return the greatest possible number of entries if all bytes from `data_end` on are zero."""
        return max(0, min(self.entries - 1, -((self._entries_at - data_end) // _ENTRY_BYTES) - 1))

    def cut_log(self, offset: int, there: int, stored_ms: Callable[[int], int], *, keeps_last: bool = True) -> bool:
        """Keep only entries of messages before `offset` of the log, all of which are sound; return False if none are
        left.

        At most `there` entries were written. All others, the slots and the header may hold anything. `stored_ms`
        returns the storing time of the message at an offset; it raises `IndexError` for one that the log no longer has,
        and then none is left. Without `keeps_last`, the last of these messages is removed, too: the disk may have half
        of the entry after the sound ones, which may look like one of any earlier message.
        """
        import numpy as np

        data = np.frombuffer(self._buffer, np.uint8, there * _ENTRY_BYTES, self._entries_at + _ENTRY_BYTES)
        entries = data.view(INDEX_ENTRY.dtype)
        offsets, hashes = (INDEX_ENTRY.column(entries, name) for name in ("physical_offset", "key_hash"))
        unwritten = (offsets == 0) & (hashes == 0)
        others = np.flatnonzero((offsets < 0) | (offsets >= offset) | unwritten)
        kept = int(others[0]) if len(others) else there
        if kept and not keeps_last:
            last = int(offsets[kept - 1])
            while kept and offsets[kept - 1] == last:
                kept -= 1
        if not kept:
            return False
        last = int(offsets[kept - 1])
        try:
            end_ms = stored_ms(last)
        except IndexError:
            return False
        data[kept * _ENTRY_BYTES :] = 0
        slots = np.zeros(self.slots, np.int32)
        np.maximum.at(slots, hashes[:kept] % self.slots, np.arange(1, kept + 1, dtype=np.int32))
        written = np.frombuffer(self._buffer, ">i4", self.slots, _SLOTS_AT)
        if not np.array_equal(written, slots):
            written[:] = slots
        header = self.header._replace(
            end_ms=end_ms, end_offset=last, slot_count=int(np.count_nonzero(slots)), index_count=kept + 1
        )
        INDEX_HEADER.pack_into(self._buffer, 0, header)
        self._set(header)
        return True

    def find(self, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the offsets of messages whose key has the hash of `key`, stored between the two times, newest first.

        Includes other keys with the same hash: the caller compares the messages' keys. Times are rounded to seconds. A
        damaged chain ends the search without an error.
        """
        header = self.header
        key_hash = index_hash(key)
        number = self.slot(key_hash % self.slots)
        while 0 < number < min(header.index_count, self.entries):
            entry = self.entry(number)
            if entry.seconds < 0:
                return
            stored_ms = header.begin_ms + entry.seconds * 1000
            if entry.key_hash == key_hash and begin_ms <= stored_ms <= end_ms:
                yield entry.physical_offset
            # Chains lead back in time. A damaged one that leads forward might not end.
            if entry.previous >= number or stored_ms < begin_ms:
                return
            number = entry.previous
