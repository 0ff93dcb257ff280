# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A consume queue: the places in the commit log of one queue's messages (source: ConsumeQueue)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from broker.common.files import Directory, StoreFile
from broker.rocketmq.store.files.file_rows import FileRow
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, FILLER, ConsumeQueueEntry

__all__ = ["ConsumeQueue", "last_entry", "pack_entry", "read_entries"]

_SIZE: Final = CONSUME_QUEUE_ENTRY.size
_write: Final = CONSUME_QUEUE_ENTRY.words.pack_into
pack_entry: Final = CONSUME_QUEUE_ENTRY.words.pack
read_entries: Final = CONSUME_QUEUE_ENTRY.words.iter_unpack


def last_entry(read: Callable[[int, int], bytes], size: int) -> ConsumeQueueEntry | None:
    """Return the last entry of a queue's file of `size` bytes; None if it has none."""
    low, high = 0, size // _SIZE
    found: ConsumeQueueEntry | None = None
    while low < high:
        middle = (low + high) // 2
        entry = CONSUME_QUEUE_ENTRY.unpack(read(middle * _SIZE, _SIZE))
        if entry.size > 0:
            low, found = middle + 1, entry
        else:
            high = middle
    return None if found == FILLER else found


class ConsumeQueue:
    """The queue's files. `begin` is the offset of the first message kept, `end` that of the next one."""

    def __init__(self, files: FileRow) -> None:
        self._files = files
        self.begin = 0
        self.end = 0
        self._flushed = 0
        self._recover()
        self._flushed = self.end

    def _recover(self) -> None:
        """Find the first and the last entry by binary search: entries have no gaps between them."""
        low, high = self._files.begin // _SIZE, self._files.end // _SIZE
        first = low
        while low < high:
            middle = (low + high) // 2
            if self._at(middle).size > 0:
                low = middle + 1
            else:
                high = middle
        self.end = low
        self._files.cut(low * _SIZE)
        self.begin = first
        while self.begin < self.end and self._at(self.begin) == FILLER:
            self.begin += 1

    def _at(self, number: int) -> ConsumeQueueEntry:
        file, place = self._files.place(number * _SIZE)
        return CONSUME_QUEUE_ENTRY.unpack(file.buffer, place)

    @property
    def physical_end(self) -> int:
        """The offset in the commit log after the last message; 0 for none."""
        if self.end == self.begin:
            return 0
        last = self._at(self.end - 1)
        return last.physical_offset + last.size

    @property
    def begins_later(self) -> bool:
        """True if there is room for later entries only."""
        return self.end * _SIZE < self._files.begin

    def make_later_room(self, number: int, count: int = 1) -> None:
        """Allocate entries on the disk, all in one file, from queue offset `number`, which is not before `end`.

        Raises `DiskFull`.
        """
        files = self._files
        if number * _SIZE < files.begin and self.end == self.begin:
            # The existing files were for later entries.
            files.cut(0)
        if files.files:
            # Files have no gaps between them.
            while number * _SIZE >= files.end + files.file_size:
                files.spot(files.end, _SIZE)
        files.spot(number * _SIZE, count * _SIZE)

    def add_packed(self, data: bytes) -> None:
        """Enter the next messages, all in one file, by the bytes of their entries.

        Raises `DiskFull`, but not after `make_later_room`.
        """
        buffer, place = self._files.spot(self.end * _SIZE, len(data))
        buffer[place : place + len(data)] = data
        self.end += len(data) // _SIZE

    def add(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Enter the next message. Raises `DiskFull`, but not after `make_later_room`."""
        buffer, place = self._files.spot(self.end * _SIZE, _SIZE)
        _write(buffer, place, physical_offset, size, tags_code)
        self.end += 1

    def append(self, number: int, entry: ConsumeQueueEntry) -> None:
        """Enter the message with queue offset `number`, unless the queue has later messages of the log.

        In that case it has the message already, or the message is of a removed queue. A queue without entries may begin
        at any offset. One with entries restarts at an offset that it already has: it was removed in between. Raises
        `DiskFull`, and `ValueError` for a gap.
        """
        if entry.physical_offset < self.physical_end:
            return
        if number != self.end:
            if number > self.end and self.end != self.begin:
                raise ValueError(f"queue offset {number} leaves a gap behind {self.end}")
            self.begin_at(number)
        CONSUME_QUEUE_ENTRY.pack_into(self._files.room(number * _SIZE, _SIZE), 0, entry)
        self.end = number + 1

    def begin_at(self, number: int) -> None:
        """Drop all entries, and fill the first file up to `number`, where entries will begin.

        Raises `DiskFull`; the queue is empty then.
        """
        self._files.cut(0)
        self._flushed = self.begin = self.end = 0
        start = number * _SIZE - number * _SIZE % self._files.file_size
        room = self._files.room(start, max(_SIZE, number * _SIZE - start))
        if number * _SIZE > start:
            room[:] = CONSUME_QUEUE_ENTRY.pack(FILLER) * (number - start // _SIZE)
        self.begin = self.end = number

    def get(self, number: int) -> ConsumeQueueEntry:
        """Return the entry of queue offset `number`. Raises `IndexError` unless it is between `begin` and `end`."""
        if not self.begin <= number < self.end:
            raise IndexError(number)
        return self._at(number)

    def entries(self, number: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the fields of the entries from `number` on, before `end` and in the same file."""
        file, place = self._files.place(number * _SIZE)
        return read_entries(file.buffer[place : min(self._files.file_size, place + (end - number) * _SIZE)])

    def file_end(self, number: int) -> int:
        entries = self._files.file_size // _SIZE
        return number - number % entries + entries

    def cut_log(self, end: int, is_whole: Callable[[int], bool] | None = None) -> bool:
        """Drop the entries of messages from `end` of the commit log on; return whether there were any.

        Entries at offsets for which `is_whole` is false are dropped, too.
        """
        number = self.end
        while number > self.begin:
            last = self._at(number - 1)
            # A crash may leave entries that were never written between others.
            if last.physical_offset < end and last.size > 0 and (is_whole is None or is_whole(number - 1)):
                break
            number -= 1
        if number == self.end:
            return False
        self.end = number
        self._flushed = min(self._flushed, number)
        self._files.cut(number * _SIZE)
        return True

    def truncate(self, end: int) -> list[StoreFile | Directory]:
        """Drop entries as `cut_log` does; return what has to be flushed after that."""
        if not self.cut_log(end):
            return []
        return [*self._files.unflushed(self.end * _SIZE, self.end * _SIZE + 1), self._files.directory]

    def drop_log(self, begin: int) -> None:
        """Drop the entries of messages before `begin` of the commit log, and the files without others."""
        low, high = self.begin, self.end
        while low < high:
            middle = (low + high) // 2
            if self._at(middle).physical_offset < begin:
                low = middle + 1
            else:
                high = middle
        self.begin = low
        # The last file keeps the queue's offset.
        while len(self._files.files) > 1 and (self._files.begin + self._files.file_size) // _SIZE <= self.begin:
            self._files.drop_first()

    def find_time(self, ms: int, stored_ms: Callable[[ConsumeQueueEntry], int]) -> int:
        """Return the offset of the first message stored at `ms` or later; `end` if there is none."""
        low, high = self.begin, self.end
        while low < high:
            middle = (low + high) // 2
            if stored_ms(self._at(middle)) < ms:
                low = middle + 1
            else:
                high = middle
        return low

    def unflushed(self) -> list[StoreFile | Directory]:
        """Return what to flush for all entries to be on the disk; it counts as flushed from now on."""
        begin, self._flushed = min(self._flushed, self.end), self.end
        found = self._files.unflushed(begin * _SIZE, self.end * _SIZE)
        self._files.flushed(self._files.changes)
        return found

    def close(self) -> None:
        self._files.close()
