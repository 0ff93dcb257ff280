"""The index of a store: a row of index files, each started when the previous one is full (source: IndexService)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.common.files import Directory, StoreFile
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.files.file_rows import open_file
from formats.rocketmq.files.index import INDEX_ENTRY, IndexFile, IndexKeys, index_key
from formats.rocketmq.numbers import read_digits

__all__ = ["IndexFiles", "is_index_name"]

NAME_DIGITS: Final = 17
# Maximum of messages with one hash that a search with `is_wanted` examines.
LOOK_AT_MAX: Final = 1_000

IsWanted = Callable[[int], bool]


def is_index_name(name: str) -> bool:
    """Return whether a file of the folder is one of the index: times name them."""
    return len(name) == NAME_DIGITS and read_digits(name) is not None


class IndexFiles:
    """The files of the index. `name_of` makes a file's name from its creation time in milliseconds."""

    def __init__(self, directory: Directory, slots: int, entries: int, name_of: Callable[[int], str]) -> None:
        self._directory = directory
        self._slots = slots
        self._entries = entries
        self._name_of = name_of
        self._files: list[tuple[StoreFile, IndexFile]] = []
        # The file written to, allocated on the disk for entries before `_room_end`.
        self._last: IndexFile | None = None
        self._room_end = 0
        # Files with entries that may not be on the disk yet.
        self._unflushed: list[StoreFile] = []
        for name in sorted(directory.names()):
            if is_index_name(name):
                self._open(name)

    def _open(self, name: str) -> None:
        file = open_file(self._directory, name, IndexFile.size_of(self._slots, self._entries))
        index = IndexFile(file.buffer, self._slots, self._entries)
        self._files.append((file, index))
        self._unflushed.append(file)
        self._make_room(file, index.header.index_count)

    def _make_room(self, file: StoreFile, entry: int) -> None:
        end = IndexFile.size_of(self._slots, min(entry + 1, self._entries))
        if not file.reserve(end):
            raise DiskFull(f"{self._directory.path}/{file.name}: no disk space for {end} bytes")
        granted = file.granted - IndexFile.size_of(self._slots, 0)
        self._room_end = min(self._entries, granted // INDEX_ENTRY.size)

    @property
    def end_offset(self) -> int:
        """The offset of the last message in the index; -1 for none."""
        return self._files[-1][1].header.end_offset if self._files else -1

    @property
    def last(self) -> tuple[int, int]:
        """The storing time and offset of the last message in the index; 0 and 0 for none."""
        if not self._files:
            return 0, 0
        header = self._files[-1][1].header
        return header.end_ms, header.end_offset

    @property
    def full_ms(self) -> int:
        """The storing time of the last message in the full files; 0 for none.

        The checkpoint keeps it: after a crash the last file is not trusted.
        """
        full = [index for _, index in self._files if index.is_full]
        return full[-1].header.end_ms if full else 0

    def put(self, keys: Sequence[tuple[int, int, int]] | IndexKeys) -> None:
        """Add messages: for each key its `index_hash`, and the message's offset and storing time.

        Raises `DiskFull`; some are added then.
        """
        if isinstance(keys, IndexKeys):
            self._put_columns(keys)
            return
        at = 0
        while at < len(keys):
            index = self._last
            if index is None or index.next_entry >= self._room_end:
                index = self._extend(keys[at][2])
            end = at + self._room_end - index.next_entry
            index.add_all(keys[at:end])
            at = end

    def _put_columns(self, keys: IndexKeys) -> None:
        at, end = 0, len(keys.hashes)
        while at < end:
            index = self._last
            room = 0 if index is None else self._room_end - index.next_entry
            if index is None or room <= 0 or index.next_entry == 1:
                self.put([(int(keys.hashes[at]), int(keys.offsets[at]), int(keys.times[at]))])
                at += 1
            else:
                index.put_hashes(keys.part(at, at + room))
                at += room

    def _extend(self, ms: int) -> IndexFile:
        """Return the file for the next entry, allocated on the disk."""
        if not self._files or self._files[-1][1].is_full:
            self._begin(ms)
        file, index = self._files[-1]
        self._make_room(file, index.next_entry)
        self._last = index
        return index

    def _begin(self, ms: int) -> None:
        ended = self._files[-1][1].header if self._files else None
        name = self._name_of(ms)
        taken = set(self._directory.names())
        while name in taken:
            ms += 1
            name = self._name_of(ms)
        self._open(name)
        if ended is not None:
            self._files[-1][1].begin(ended.end_offset, ended.end_ms)

    def find(
        self, topic: str, key: str, begin_ms: int, end_ms: int, most: int, is_wanted: IsWanted | None = None
    ) -> list[int]:
        """Return the offsets of up to `most` messages whose key has this hash, newest first.

        With `is_wanted`, only messages for which it is true count, among the newest `LOOK_AT_MAX`: messages of other
        topics may have the same hash.
        """
        return self.find_text(index_key(topic, key), begin_ms, end_ms, most, is_wanted)

    def find_text(
        self, text: str, begin_ms: int, end_ms: int, most: int, is_wanted: IsWanted | None = None
    ) -> list[int]:
        offsets: list[int] = []
        seen: set[int] = set()
        for _, index in reversed(self._files):
            for offset in index.find(text, begin_ms, end_ms):
                if len(offsets) == most or (is_wanted is not None and len(seen) == LOOK_AT_MAX):
                    return offsets
                # A crash may leave a message in the index twice.
                if offset not in seen:
                    seen.add(offset)
                    if is_wanted is None or is_wanted(offset):
                        offsets.append(offset)
            if index.header.begin_ms < begin_ms:
                break
        return offsets

    def drop_after(self, ms: int) -> None:
        """Remove the files that may be incomplete after a crash; `ms` is the `full_ms` noted before it.

        The first files whose ends increase up to `ms` are kept. A file whose header did not reach the disk seems to end
        earlier than those before it, and one begun afterwards may end at `ms` too.
        """
        ends = [index.header.end_ms for _, index in self._files]
        kept = 0
        while kept < len(ends) and 0 < ends[kept] <= ms and (kept == 0 or ends[kept - 1] < ends[kept]):
            kept += 1
        while len(self._files) > kept:
            self._remove(-1)

    def cut_log(self, offset: int, stored_ms: Callable[[int], int], *, keeps_last: bool = True) -> None:
        """Remove the entries of messages from `offset` of the log on.

        `stored_ms` returns the storing time of the message at an offset, or raises `IndexError` if the log no longer
        has it. Without `keeps_last`, the last message before `offset` loses its entries, too: after a crash, a
        half-written entry may look like one of any earlier message. Raises `DiskFull`.
        """
        while self._files:
            file, index = self._files[-1]
            there = index.entries_before(file.data_end)
            # Later entries are overwritten.
            self._make_room(file, there)
            if index.cut_log(offset, there, stored_ms, keeps_last=keeps_last):
                break
            self._remove(-1)
        self._last = None

    def drop_log(self, begin: int) -> None:
        """Remove the files whose messages are all before `begin` of the log."""
        while self._files and self._files[0][1].header.end_offset < begin:
            self._remove(0)

    def _remove(self, number: int) -> None:
        self._last = None
        file, _ = self._files.pop(number)
        if file in self._unflushed:
            self._unflushed.remove(file)
        file.close()
        self._directory.remove(file.name)

    def unflushed(self) -> list[StoreFile | Directory]:
        """Return the files to flush; they count as flushed from now on, except the last one.

        The directory is included even if no file is left: removed files must not come back.
        """
        found, self._unflushed = self._unflushed, [file for file, _ in self._files[-1:]]
        return [*found, self._directory]

    def close(self) -> None:
        for file, _ in self._files:
            file.close()
