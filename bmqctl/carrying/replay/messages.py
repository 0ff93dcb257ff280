"""The messages of a store as they were posted: located by their record, checked, decompressed."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

from bmqctl.stores.blazingmq.read.data_file import DataFile
from bmqctl.stores.blazingmq.read.files import NotAStoreFile, companions
from bmqctl.stores.blazingmq.read.payload import parse_payload
from bmqctl.stores.blazingmq.read.reader import JournalReader
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX, CompressionAlgorithm
from formats.bmq.disk.data import DataRecord
from formats.bmq.disk.journal import MessageRecord, decode_record
from formats.bmq.disk.padding import DWORD
from formats.bmq.wire.properties import Property
from formats.errors import FormatError
from formats.rocketmq.files.record import Record

__all__ = ["MessageSource", "Source", "Stored", "StoredMessage", "StoredRecord"]


class StoredMessage(NamedTuple):
    """A message as posted. `timestamp` is in seconds; `compressed` is True if the store has the payload compressed."""

    guid: bytes
    timestamp: int
    properties: list[Property]
    payload: bytes
    compressed: bool


class StoredRecord(NamedTuple):
    """A message of RocketMQ with a decompressed body; `compressed` is True if the store has it compressed.

    `topic` and `queue_id` are its original ones; `delay_level` is 0 unless it is still delayed.
    """

    record: Record
    topic: str
    queue_id: int
    compressed: bool
    delay_level: int = 0


Stored = StoredMessage | StoredRecord


class Source(Protocol):
    """Files from which messages are read."""

    path: Path

    def read(self, place: int) -> Stored:
        """Read a message. Raises FormatError if a part of it is damaged, OSError if the file cannot be read."""

    def where(self, place: int) -> str:
        """Describe the place of a message for people."""


class MessageSource:
    """A journal and its DATA file; a context manager. Raises NotAStoreFile without the latter."""

    def __init__(self, journal: Path) -> None:
        files = companions(journal)
        if files is None or files.data is None:
            raise NotAStoreFile(f"{journal} has no DATA file next to it, which would hold the messages")
        self.path = journal
        self.reader = JournalReader(journal)
        try:
            self._data = DataFile(journal.with_name(files.data))
        except BaseException:
            self.reader.__exit__(None, None, None)
            raise

    def __enter__(self) -> MessageSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reader.__exit__(kind, error, trace)
        self._data.close()

    def read(self, place: int) -> StoredMessage:
        """Read the message whose record is in slot `place`. Raises FormatError if a part of it is damaged."""
        record = decode_record(self.reader.read(place, 1))
        if not isinstance(record, MessageRecord):
            raise FormatError("RecordHeader.type", self.reader.offset_of(place), "no message's record any more")
        offset = record.message_offset_dwords * DWORD
        try:
            return self._parse(record, *self._data.record(offset))
        except FormatError as error:
            raise error.shifted(offset) from None

    def where(self, place: int) -> str:
        return f"{self.path.name}: the message at place {place}"

    def _parse(self, record: MessageRecord, buffer: bytes, found: DataRecord) -> StoredMessage:
        if found.crc32c(buffer) != record.crc32c:
            raise FormatError("DataRecord", 0, "its checksum does not match the journal")
        parsed = parse_payload(found.app_data(buffer), found.header, record.compression, DECOMPRESSED_SIZE_MAX)
        is_compressed = record.compression != CompressionAlgorithm.NONE
        return StoredMessage(record.guid, record.timestamp, parsed.properties, parsed.head, is_compressed)
