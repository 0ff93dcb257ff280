"""Files of a RocketMQ store that are written from begin to end: commit log, consume queues and index.

They have the bytes of a broker that enters each message into its queue and the index right after the log.
"""

from __future__ import annotations

import mmap
from datetime import datetime
from pathlib import Path
from typing import IO, Final, NamedTuple

from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, FILLER, ConsumeQueueEntry
from formats.rocketmq.files.index import IndexFile
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import BLANK_BYTES_MIN, encode_blank

__all__ = ["BadPlace", "IndexWriter", "LogWriter", "QueueWriter", "StoreSizes"]

_ENTRY_BYTES: Final = CONSUME_QUEUE_ENTRY.size
# Pending entries are written at this size.
_PENDING_BYTES_MAX: Final = 1 << 24
_FILLERS: Final = 1 << 14
# A damaged record may have any time. Late in the year 9999, the local year may have five digits, which no name can.
_NAME_MS_MAX: Final = 253_402_000_000_000


class StoreSizes(NamedTuple):
    """The sizes of a store's files; the defaults are the original's."""

    commit_log_file_bytes: int = 1 << 30
    consume_queue_file_bytes: int = 300_000 * _ENTRY_BYTES
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000


class BadPlace(ValueError):
    """An impossible place of a record or entry; the text begins with the field's name."""


class LogWriter:
    """Writes records one after another, and a blank one where a file has no room for the next."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._stream: IO[bytes] | None = None
        self.begin: int | None = None
        self.end = 0

    def place(self, size: int, wanted: int | None) -> int:
        """The offset of the next record. Raises `BadPlace` if it cannot be there."""
        if size + BLANK_BYTES_MIN > self._file_bytes:
            raise BadPlace(f"payload: a record of {size} bytes does not fit into a file of {self._file_bytes}")
        left = self._file_bytes - self.end % self._file_bytes
        next_file = self.end + left
        if self.begin is None:
            return self._first(wanted)
        offset = self.end if size + BLANK_BYTES_MIN <= left else next_file
        if wanted is None or wanted == offset:
            return offset
        # Continuing in the next file loses nothing, if the other store did so.
        if wanted == next_file:
            return wanted
        raise BadPlace(
            f"offset: {wanted}, but this record goes to {offset}; omit offset and size of all lines, or give --config "
            "with the mappedFileSizeCommitLog of the store that they are from"
        )

    def _first(self, wanted: int | None) -> int:
        if wanted is not None and wanted % self._file_bytes:
            raise BadPlace(
                f"offset: {wanted}, but a log begins at the begin of a file, which has {self._file_bytes} bytes; omit "
                "offset and size of all lines, or give --config with the mappedFileSizeCommitLog of their store"
            )
        return wanted or 0

    def write(self, offset: int, record: bytes) -> None:
        if self.begin is None:
            self.begin = self.end = offset
        elif offset != self.end:
            assert self._stream is not None
            self._stream.write(encode_blank(offset - self.end))
        if offset % self._file_bytes == 0:
            self._begin_file(offset)
        assert self._stream is not None
        self._stream.write(record)
        self.end = offset + len(record)

    def _begin_file(self, offset: int) -> None:
        self.close()
        self._stream = (self._folder / offset_name(offset)).open("xb")

    def close(self) -> None:
        """Extend the last file to its full size, and close it."""
        if self._stream is not None:
            self._stream.truncate(self._file_bytes)
            self._stream.close()
            self._stream = None


class _Queue:
    """A queue: its first and next offsets, and its pending entries."""

    __slots__ = ("begin", "end", "folder", "pending")

    def __init__(self, folder: Path, begin: int) -> None:
        self.folder = folder
        self.begin = self.end = begin
        self.pending = bytearray()


class QueueWriter:
    """Writes the entries of all queues."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._pending = 0

    def __len__(self) -> int:
        return len(self._queues)

    def next_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.end

    def check(self, topic: str, queue_id: int, number: int) -> None:
        """Raise `BadPlace` for an offset that leaves a gap in its queue."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None and number > queue.end:
            raise BadPlace(
                f"queue_offset: {number}, but the next one of queue {queue_id} of {topic} is {queue.end}; "
                "omit queue_offset of all lines if some were left out"
            )

    def add(self, topic: str, queue_id: int, number: int, entry: ConsumeQueueEntry) -> None:
        """Enter a message. An offset that the queue has already restarts the queue: it was deleted before."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or number != queue.end:
            queue = self._begin(topic, queue_id, number)
        queue.pending += CONSUME_QUEUE_ENTRY.pack(entry)
        queue.end += 1
        self._pending += _ENTRY_BYTES
        if self._pending >= _PENDING_BYTES_MAX:
            self.flush()

    def _begin(self, topic: str, queue_id: int, number: int) -> _Queue:
        folder = self._folder / topic / str(queue_id)
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        queue = self._queues[topic, queue_id] = _Queue(folder, number)
        begin = number * _ENTRY_BYTES
        filled = begin % self._file_bytes // _ENTRY_BYTES
        with self._open(queue, begin - begin % self._file_bytes) as stream:
            for done in range(0, filled, _FILLERS):
                stream.write(CONSUME_QUEUE_ENTRY.pack(FILLER) * min(_FILLERS, filled - done))
        return queue

    def _open(self, queue: _Queue, begin: int) -> IO[bytes]:
        path = queue.folder / offset_name(begin)
        if not path.exists():
            with path.open("xb") as stream:
                stream.truncate(self._file_bytes)
        return path.open("r+b")

    def flush(self) -> None:
        for queue in self._queues.values():
            data, at = bytes(queue.pending), queue.end * _ENTRY_BYTES - len(queue.pending)
            queue.pending.clear()
            while data:
                place = at % self._file_bytes
                with self._open(queue, at - place) as stream:
                    stream.seek(place)
                    written = data[: self._file_bytes - place]
                    stream.write(written)
                data, at = data[len(written) :], at + len(written)
        self._pending = 0


class IndexWriter:
    """Writes the index files, named by the local time of their creation, as brokers do."""

    def __init__(self, folder: Path, slots: int, entries: int) -> None:
        self._folder = folder
        self._slots = slots
        self._entries = entries
        self._index: IndexFile | None = None
        self._mapped: mmap.mmap | None = None
        self.files = 0
        self.full_ms = 0

    def add(self, key_hash: int, offset: int, stored_ms: int) -> None:
        index = self._index
        if index is None or index.is_full:
            index = self._begin(stored_ms)
        index.put_hash(key_hash, offset, stored_ms)

    def _begin(self, ms: int) -> IndexFile:
        ended = None if self._index is None else self._index.header
        self.close()
        ms = min(max(ms, 0), _NAME_MS_MAX)
        path = self._folder / _index_name(ms)
        while path.exists():
            ms += 1
            path = self._folder / _index_name(ms)
        size = IndexFile.size_of(self._slots, self._entries)
        with path.open("x+b") as stream:
            stream.truncate(size)
            self._mapped = mmap.mmap(stream.fileno(), size)
        self._index = IndexFile(memoryview(self._mapped), self._slots, self._entries)
        self.files += 1
        if ended is not None:
            self._index.begin(ended.end_offset, ended.end_ms)
        return self._index

    def close(self) -> None:
        if self._index is not None and self._index.is_full:
            self.full_ms = self._index.header.end_ms
        self._index = None
        self._mapped = None  # unmapped with the last view of it


def _index_name(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000).strftime("%Y%m%d%H%M%S") + f"{ms % 1000:03d}"
