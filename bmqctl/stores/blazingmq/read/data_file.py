"""A DATA file read a record at a time: not mapped, since a stopping broker truncates it (see `read.files`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from bmqctl.common.regular import open_unbuffered
from formats.bmq.codes import PUT_EVENT_SIZE_MAX
from formats.bmq.disk.data import DATA_HEADER, DataHeader, DataRecord, parse_data_record
from formats.bmq.disk.files import HEADERS_SIZE_MAX, FileType, open_file
from formats.bmq.disk.padding import WORD
from formats.errors import FormatError

__all__ = ["DataFile"]


class DataFile:
    """The open DATA file at `path`; a context manager."""

    def __init__(self, path: Path) -> None:
        self._file = open_unbuffered(path)

    def __enter__(self) -> DataFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    @property
    def size(self) -> int:
        """The file's current size in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def record(self, offset: int) -> tuple[bytes, DataRecord]:
        """The bytes of the record at `offset`, and the places of its parts in them.

        Raises FormatError, with offsets in these bytes, if there is none or it is larger than any message.
        """
        descriptor = self._file.fileno()
        header: DataHeader = DATA_HEADER.unpack(os.pread(descriptor, DATA_HEADER.size, offset))
        size = header.message_words * WORD
        if size > PUT_EVENT_SIZE_MAX:
            raise FormatError(
                "DataHeader.message_words", 0, f"{header.message_words} words, which exceeds the limit of a message"
            )
        buffer = os.pread(descriptor, size, offset)
        return buffer, parse_data_record(buffer, 0)

    def records(self) -> Iterator[tuple[int, bytes, DataRecord]]:
        """(offset, bytes, parts) of all records, up to zeros or the file's end. Raises FormatError at a damaged one."""
        descriptor = self._file.fileno()
        offset = open_file(os.pread(descriptor, HEADERS_SIZE_MAX, 0), FileType.DATA).first_record_offset
        while any(os.pread(descriptor, WORD, offset)):
            try:
                buffer, record = self.record(offset)
            except FormatError as error:
                raise error.shifted(offset) from None
            yield offset, buffer, record
            offset += record.end
