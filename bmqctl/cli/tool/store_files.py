"""Cursors over a store's files: one record at a time, forwards and backwards.

A cursor is before the first record until it is moved; `index` is then -1. Only the headers of
records passed over are read, so that a file of gigabytes costs no memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Generic, TypeVar

from bmqctl.stores.blazingmq.read.source import FileSource
from formats.bmq.disk.data import DATA_HEADER, DataRecord, parse_data_record
from formats.bmq.disk.files import HEADERS_SIZE_MAX, JOURNAL_RECORD_SIZE, FileType, OpenedFile, open_file
from formats.bmq.disk.journal import Record, decode_record
from formats.bmq.disk.padding import WORD
from formats.bmq.disk.qlist import QUEUE_RECORD_HEADER, QueueRecord, parse_queue_record
from formats.bmq.stores.recover import find_journal_extent

__all__ = ["Cursor", "DataCursor", "JournalCursor", "QlistCursor"]

R = TypeVar("R")


class Cursor(ABC, Generic[R]):
    """A file and a position in it. Damaged files raise `FormatError` or `OSError`."""

    file_type: FileType

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = FileSource(path)
        try:
            self.opened: OpenedFile = open_file(self.source.read(0, HEADERS_SIZE_MAX), self.file_type)
        except Exception:
            self.source.close()
            raise
        self.index = -1

    def close(self) -> None:
        self.source.close()

    @property
    @abstractmethod
    def offset(self) -> int:
        """Offset of the current record."""

    @abstractmethod
    def forward(self) -> bool:
        """Move to the next record; return False if there is none."""

    def backward(self) -> bool:
        """Move to the previous record; return False if there is none."""
        if self.index <= 0:
            return False
        self.index -= 1
        return True

    @abstractmethod
    def record(self) -> R:
        """Read the current record."""

    def rewind(self) -> None:
        self.index = -1


class JournalCursor(Cursor[Record]):
    """Records of equal size: no others need be read."""

    file_type = FileType.JOURNAL

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.extent = find_journal_extent(self.source.read, self.source.size)

    @property
    def offset(self) -> int:
        return self.extent.first_record_offset + self.index * JOURNAL_RECORD_SIZE

    def forward(self) -> bool:
        if self.index + 1 >= self.extent.record_count:
            return False
        self.index += 1
        return True

    def record(self) -> Record:
        return self.record_at(self.offset)

    def record_at(self, offset: int) -> Record:
        """Read the record at `offset`, without moving the cursor."""
        return decode_record(self.source.read(offset, JOURNAL_RECORD_SIZE))


class _Walked(Cursor[R]):
    """Records of varying size: an offset is known once the earlier records have been passed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._offsets = [self.opened.first_record_offset]

    @property
    def offset(self) -> int:
        return self._offsets[max(self.index, 0)]

    def forward(self) -> bool:
        if self.index >= 0 and self.index + 1 == len(self._offsets):
            self._offsets.append(self.offset + self._size(self.offset))
        if not self._is_written(self._offsets[self.index + 1]):
            return False
        self.index += 1
        return True

    def seek(self, offset: int) -> bool:
        """Move to the record that begins at `offset`; return False if there is none."""
        while self.index < 0 or self.offset < offset:
            if not self.forward():
                return False
        while self.offset > offset:
            if not self.backward():
                return False
        return self.offset == offset

    @abstractmethod
    def _size(self, offset: int) -> int:
        """Return the size of the record at `offset`, in bytes."""

    def _is_written(self, offset: int) -> bool:
        return any(self.source.read(offset, 2 * WORD))


class DataCursor(_Walked[DataRecord]):
    """Messages. The record's offsets are within `content`."""

    file_type = FileType.DATA

    def record(self) -> DataRecord:
        return parse_data_record(self.content(), 0)

    def content(self) -> memoryview:
        return self.source.read(self.offset, self._size(self.offset))

    def _size(self, offset: int) -> int:
        header = DATA_HEADER.unpack(self.source.read(offset, DATA_HEADER.size))
        return max(int(header.message_words) * WORD, DATA_HEADER.size)


class QlistCursor(_Walked[QueueRecord]):
    """Queues and their apps."""

    file_type = FileType.QLIST

    def record(self) -> QueueRecord:
        return parse_queue_record(self.source.read(self.offset, self._size(self.offset)), 0)

    def _size(self, offset: int) -> int:
        header = QUEUE_RECORD_HEADER.unpack(self.source.read(offset, QUEUE_RECORD_HEADER.size))
        return max(int(header.queue_record_words) * WORD, QUEUE_RECORD_HEADER.size)
