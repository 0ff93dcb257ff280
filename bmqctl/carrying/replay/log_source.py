"""The messages of a RocketMQ commit log as they were sent: located by their offset, checked, decompressed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from bmqctl.carrying.replay.messages import StoredRecord
from bmqctl.stores.rocketmq.read.files import LOG_FOLDER, LogFile, StoreFiles
from bmqctl.stores.rocketmq.read.payload import decompressed
from bmqctl.stores.rocketmq.read.records import RECORD_BYTES_MAX
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX
from formats.errors import FormatError
from formats.rocketmq.files.record import HEAD_BYTES, Record, decode_record, read_head
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.properties import decode_properties

__all__ = ["REAL_QUEUE", "REAL_TOPIC", "LogSource", "delayed_place"]

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
_PIECE_BYTES: Final = 1 << 20
_COMPRESSED: Final = int(SystemFlag.COMPRESSED)
_QUEUE_DIGITS_MAX: Final = 9


def delayed_place(properties: bytes) -> tuple[str, int]:
    """The topic and the queue to which a message goes whose time has not come. FormatError if it does not say so."""
    found = decode_properties(properties)
    topic, queue_id = found.get(REAL_TOPIC, ""), found.get(REAL_QUEUE, "")
    if not topic or not (queue_id.isascii() and queue_id.isdecimal()) or len(queue_id) > _QUEUE_DIGITS_MAX:
        raise FormatError("Record.properties", 0, f"a delayed message without {REAL_TOPIC} and {REAL_QUEUE}")
    return topic, int(queue_id)


class LogSource:
    """A commit log; a context manager. Records that are asked for in their order are read in pieces of 1 MiB."""

    def __init__(self, store: StoreFiles) -> None:
        self.path = store.root / LOG_FOLDER
        self._files: Sequence[LogFile] = store.log
        self._open: tuple[Path, int] | None = None
        self._piece_at = 0
        self._piece = b""

    def __enter__(self) -> LogSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def read(self, place: int) -> StoredRecord:
        """Read the message whose record begins at offset `place`. FormatError if a part of it is damaged."""
        try:
            record = self._record(place)
            if not record.is_body_sound:
                raise FormatError("Record.body", 0, "the checksum of the body differs")
            topic, queue_id, level = record.topic, record.queue_id, 0
            if topic == DELAY_TOPIC:
                level = queue_id + 1
                topic, queue_id = delayed_place(record.properties)
            flags = record.system_flags
            body, size = decompressed(memoryview(record.body), flags, DECOMPRESSED_SIZE_MAX)
            if size != len(body):
                raise FormatError("Record.body", 0, f"{size} bytes, more than {DECOMPRESSED_SIZE_MAX}")
        except FormatError as error:
            raise error.shifted(place) from None
        plain = record._replace(body=body, system_flags=flags & ~_COMPRESSED)
        return StoredRecord(plain, topic, queue_id, bool(flags & _COMPRESSED), level)

    def where(self, place: int) -> str:
        """Say where a message's record is, for people."""
        return f"{self.path.name}: the message at offset {place}"

    def _record(self, place: int) -> Record:
        file = next((each for each in self._files if each.begin <= place < each.end), None)
        if file is None:
            raise FormatError("Record", 0, "no file has this offset any more")
        at = place - self._piece_at
        if not 0 <= at <= len(self._piece) - HEAD_BYTES:
            at = self._load(file, place, _PIECE_BYTES)
        size = self._size(at, file.end - place)
        if at + size > len(self._piece):
            at = self._load(file, place, max(size, _PIECE_BYTES))
        record = decode_record(self._piece, at)
        if not isinstance(record, Record):
            raise FormatError("Record", 0, "no message's record any more")
        return record

    def _size(self, at: int, left: int) -> int:
        head = read_head(self._piece[at : at + HEAD_BYTES], 0, max(left, HEAD_BYTES)) if self._piece else None
        if head is None or head[0] > RECORD_BYTES_MAX:
            raise FormatError("Record", 0, "no message's record any more")
        return head[0]

    def _load(self, file: LogFile, place: int, size: int) -> int:
        """Read a piece that begins at `place`; return where in it that is."""
        if self._open is None or self._open[0] != file.path:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            self.__exit__(None, None, None)
            self._open = file.path, descriptor
        self._piece = os.pread(self._open[1], size, place - file.begin)
        self._piece_at = place
        return 0
