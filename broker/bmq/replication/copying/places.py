# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A replica's index of its messages: their places, and the counts of each queue.

There may be a million, so an entry is one number of 60 bits: the size of the payload, the set of files, the place in
DATA, and the compression.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import islice
from typing import Final, NamedTuple

from broker.bmq.core.cluster_view import CopiedMessage
from broker.bmq.core.work import Task, Work
from broker.bmq.replication.positions import JOURNAL_START
from broker.bmq.store.chunked import Chunked
from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.recovery import RecoveredMessage, data_headers, record_keys
from broker.bmq.store.sliced_recovery import SlicedRecovery
from formats.bmq.disk.data import DATA_HEADER, HEADER_WORDS_SHIFT, MESSAGE_WORDS_MASK, OPTIONS_WORDS_SHIFT, unpack_sizes
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import MESSAGE_RECORD, RecordType, scan, select
from formats.bmq.disk.keys import KEY_SIZE
from formats.bmq.disk.padding import WORD
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["MessagePlaces", "Place"]

ROWS_PER_UNIT: Final = 3

# From the lowest bit: compression, in the bits that are zero in a multiple of a DWORD; the offset of the DATA record;
# the number of the set of files; the size of the payload.
_COMPRESSION_BITS: Final = 3
_OFFSET_BITS: Final = 35
_SET_BITS: Final = 2
_COMPRESSION_MASK: Final = (1 << _COMPRESSION_BITS) - 1
_SIZE_SHIFT: Final = _OFFSET_BITS + _SET_BITS
_WHERE_MASK: Final = (1 << _SIZE_SHIFT) - 1 - _COMPRESSION_MASK
_SETS: Final = 1 << _SET_BITS
# Larger sizes are read from the DATA record: numbers of more bits would take more memory.
SIZE_KNOWN_MAX: Final = (1 << 60 - _SIZE_SHIFT) - 2
_SIZE_ASKED: Final = SIZE_KNOWN_MAX + 1


class Place(NamedTuple):
    """The files that have a message, the offset of its DATA record there, and its compression."""

    files: PartitionFiles
    offset: int
    compression: int


class _StoredQueue:
    """The stored messages of one queue: the place of each by GUID, and the bytes of all."""

    __slots__ = ("bytes", "places")

    def __init__(self) -> None:
        self.places: Chunked[int] = Chunked()
        self.bytes = 0


class MessagePlaces:
    """The messages of one partition, which are in `files` and, during a rollover, also in others.

    `current` is the number of the files written to. `is_finding` is True while the index is being built.
    """

    def __init__(self, files: PartitionFiles) -> None:
        self._queues: dict[bytes, _StoredQueue] = {}
        self._sets: dict[int, PartitionFiles] = {0: files}
        self.current = 0
        self.is_finding = False
        self.is_given_up = False

    def go_on_in(self, files: PartitionFiles) -> None:
        self.current = (self.current + 1) % _SETS
        assert self.current not in self._sets, "those have been let go of"
        self._sets[self.current] = files

    def go_back(self) -> None:
        """Return to the previous files: no message is in the newest ones."""
        del self._sets[self.current]
        self.current = (self.current - 1) % _SETS

    @staticmethod
    def before(number: int) -> int:
        return (number - 1) % _SETS

    def let_go(self, number: int) -> None:
        self._sets.pop(number, None)

    def _queue(self, key: bytes) -> _StoredQueue:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _StoredQueue()
        return queue

    def add(self, key: bytes, guid: bytes, offset: int, compression: int, size: int) -> None:
        queue = self._queue(key)
        places = queue.places
        if guid in places.newest:
            self.take(key, guid)
        known = size if 0 <= size <= SIZE_KNOWN_MAX else _SIZE_ASKED
        places.add(guid, known << _SIZE_SHIFT | self.current << _OFFSET_BITS | offset | compression)
        queue.bytes += size

    def add_recovered(self, messages: Iterable[RecoveredMessage]) -> None:
        for found in messages:
            self.add(found.queue_key, found.guid, found.offset, found.compression, found.size)

    def take(self, key: bytes, guid: bytes) -> None:
        queue = self._queues.get(key)
        if queue is None:
            return
        number = queue.places.take(guid)
        if number is not None:
            size = number >> _SIZE_SHIFT
            queue.bytes -= size if size != _SIZE_ASKED else self._size_of(number)

    def take_all(self, key: bytes) -> list[dict[bytes, int]]:
        """Remove a queue's messages; return the memory to be freed."""
        queue = self._queues.pop(key, None)
        return queue.places.chunks if queue is not None else []

    def _size_of(self, number: int) -> int:
        offset = number & (1 << _OFFSET_BITS) - 1 - _COMPRESSION_MASK
        return _payload_size(self._sets[number >> _OFFSET_BITS & _SETS - 1].data.buffer, offset)

    def find(self, key: bytes, guid: bytes) -> Place | None:
        queue = self._queues.get(key)
        number = queue.places.get(guid) if queue is not None else None
        if number is None:
            return None
        offset = number & (1 << _OFFSET_BITS) - 1 - _COMPRESSION_MASK
        return Place(self._sets[number >> _OFFSET_BITS & _SETS - 1], offset, number & _COMPRESSION_MASK)

    def move(self, key: bytes, source: tuple[int, int], target: tuple[int, int]) -> None:
        queue = self._queues.get(key[:KEY_SIZE])
        number = queue.places.get(key[KEY_SIZE:]) if queue is not None else None
        # It may have been removed and posted again in the meantime.
        if queue is not None and number is not None and number & _WHERE_MASK == source[0] << _OFFSET_BITS | source[1]:
            queue.places[key[KEY_SIZE:]] = number & ~_WHERE_MASK | target[0] << _OFFSET_BITS | target[1]

    def stored(self) -> dict[bytes, tuple[int, int]]:
        """Return the number of messages and their bytes, by queue key."""
        return {key: (len(queue.places), queue.bytes) for key, queue in self._queues.items()}

    def listed(self, key: bytes, first: int, count: int) -> list[CopiedMessage]:
        """List `count` messages of a queue from number `first` on, oldest first."""
        queue = self._queues.get(key)
        if queue is None:
            return []
        chosen = dict(islice(queue.places.items(), first, first + count))
        arrived: dict[bytes, int] = {}
        # In a rollover the newest files do not have all messages yet.
        for number in sorted(self._sets, key=lambda each: (each - self.current - 1) % _SETS):
            arrived |= _arrivals(self._sets[number], key, chosen)
        return [
            CopiedMessage(guid, size if size != _SIZE_ASKED else self._size_of(place), arrived.get(guid, 0))
            for guid, place in chosen.items()
            for size in (place >> _SIZE_SHIFT,)
        ]

    def find_all(self, work: Work, rotten: Callable[[FormatError], None]) -> Task:
        """Build the index in slices; nothing is added to the files meanwhile."""
        self.is_finding = True
        return self._find_slowly(work, rotten)

    def _find_slowly(self, work: Work, rotten: Callable[[FormatError], None]) -> Task:
        files = self._sets[self.current]
        recovery = SlicedRecovery(files)
        while not recovery.is_told:
            while not work.may_go_on():
                yield
            if self.is_given_up:
                break
            rows = max(1, work.left) * ROWS_PER_UNIT
            work.left = 0
            try:
                if not recovery.is_read:
                    recovery.advance(rows)
                    continue
                found, keys, _, offsets = recovery.alive(rows)
                sizes, *_ = data_headers(files, offsets)
            except FormatError as error:
                rotten(error)
                break
            compressions = MESSAGE_RECORD.column(found, "compression").tolist()
            for key, *place in zip(keys, offsets.tolist(), compressions, sizes, strict=True):
                self.add(key[:KEY_SIZE], key[KEY_SIZE:], *place)
        self.is_finding = False

    def give_up(self) -> list[dict[bytes, int]]:
        self.is_given_up = True
        self.is_finding = False
        queues, self._queues = self._queues, {}
        return [chunk for queue in queues.values() for chunk in queue.places.chunks]


def _arrivals(files: PartitionFiles, key: bytes, wanted: Container[bytes]) -> dict[bytes, int]:
    """Return the times, in seconds since the epoch, of a queue's messages in the journal, by GUID."""
    journal = files.journal.buffer
    found, _ = select(
        scan(journal, JOURNAL_START, (files.journal_end - JOURNAL_START) // JOURNAL_RECORD_SIZE), RecordType.MESSAGE
    )
    guids = [guid[KEY_SIZE:] if guid.startswith(key) else b"" for guid in record_keys(found)]
    times = MESSAGE_RECORD.column(found, "timestamp").tolist()
    return {guid: time for guid, time in zip(guids, times, strict=True) if guid in wanted}


def _payload_size(data: Buffer, offset: int) -> int:
    """Return the size of the payload of a DATA record; 0 if it is invalid."""
    if offset + DATA_HEADER.size > len(data):
        return 0
    lengths, options = unpack_sizes(data, offset)
    end = offset + (lengths & MESSAGE_WORDS_MASK) * WORD
    if not offset < end <= len(data):
        return 0
    front = ((lengths >> HEADER_WORDS_SHIFT) + (options >> OPTIONS_WORDS_SHIFT)) * WORD
    size: int = end - offset - front - data[end - 1]
    return size
