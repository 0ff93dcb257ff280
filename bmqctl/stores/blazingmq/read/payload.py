"""Messages of the DATA file for people: payloads decompressed and truncated, properties typed."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from bmqctl.stores.blazingmq.read.columns import Column, Derived, Kind, Value
from bmqctl.stores.blazingmq.read.data_file import DataFile
from bmqctl.stores.blazingmq.read.wanted import PayloadForm
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX, CompressionAlgorithm, PropertyType
from formats.bmq.disk.data import DataHeader, DataHeaderFlags
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.wire.properties import PROPERTIES_HEADER, Property, decode_properties, properties_size
from formats.errors import FormatError, check_memory

__all__ = [
    "INFLATE_STEP",
    "PAYLOAD_COLUMNS",
    "Payload",
    "PayloadReader",
    "inflate",
    "parse_payload",
    "payload_text",
]

INFLATE_STEP = 1 << 20
PAYLOAD_COLUMNS = (
    Column("properties", Kind.JSON),
    Column("schema_id", Kind.NUMBER),
    Column("payload_size", Kind.NUMBER),
    Column("payload"),
    Column("payload_hex"),
    Column("payload_omitted", Kind.NUMBER),
    Column("payload_fault"),
)


class Payload(NamedTuple):
    """A posted message: `head` is the requested part of the `size` bytes of its payload."""

    properties: list[Property]
    schema_id: int
    head: bytes
    size: int


class PayloadReader:
    """Reads messages in the DATA file at `path`; `limit` is in bytes of each payload, 0 for all of it.

    `faults` counts messages that could not be read.
    """

    def __init__(self, path: Path, form: PayloadForm, limit: int) -> None:
        self._form = form
        self._limit = limit or DECOMPRESSED_SIZE_MAX
        self._file = DataFile(path)
        self.faults = 0

    def __enter__(self) -> PayloadReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def columns(self) -> Derived:
        return Derived(PAYLOAD_COLUMNS, ("message_offset_dwords", "compression"), self._values, shared=False)

    def hex_column(self, name: str) -> Derived:
        return Derived((Column(name),), ("message_offset_dwords", "compression"), self._hex, shared=False)

    def read(self, offset_dwords: int, compression: int) -> Payload:
        """Read the message at this offset. Raises FormatError, with offsets in the DATA file, if it is not sound."""
        offset = offset_dwords * DWORD
        try:
            buffer, record = self._file.record(offset)
            return parse_payload(record.app_data(buffer), record.header, compression, self._limit)
        except FormatError as error:
            raise error.shifted(offset) from None

    def _values(self, offset_dwords: int, compression: int) -> tuple[Value, ...]:
        try:
            found = self.read(offset_dwords, compression)
        except FormatError as error:
            self.faults += 1
            return (*(None,) * (len(PAYLOAD_COLUMNS) - 1), str(error))
        cut = found.size - len(found.head)
        text = payload_text(self._form, found.head, is_cut=bool(cut))
        return (
            {item.name: _json_value(item) for item in found.properties} if found.properties else None,
            found.schema_id or None,
            found.size,
            text,
            found.head.hex().upper() if text is None else None,
            cut or None,
            None,
        )

    def _hex(self, offset_dwords: int, compression: int) -> tuple[Value, ...]:
        try:
            return (self.read(offset_dwords, compression).head.hex().upper(),)
        except FormatError:
            self.faults += 1
            return (None,)


def payload_text(form: PayloadForm, head: bytes, *, is_cut: bool) -> str | None:
    """Decode a payload, or the beginning of one that is cut, as text; None if it must be printed in hex."""
    if form is PayloadForm.HEX:
        return None
    if form is PayloadForm.TEXT:
        return head.decode("utf-8", "backslashreplace")
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        # A cut may split the last character.
        if not (is_cut and error.reason == "unexpected end of data"):
            return None
        return head[: error.start].decode()


def parse_payload(data: memoryview, header: DataHeader, compression: int, limit: int) -> Payload:
    """Parse the message with application data `data`. Raises FormatError, with offsets in it, if it is not sound.

    `limit` is in bytes of the payload.
    """
    schema_id = header.schema_id
    if compression not in (CompressionAlgorithm.NONE, CompressionAlgorithm.ZLIB):
        raise FormatError("MessageRecord.compression", 0, f"{compression} is not a known algorithm")
    if not header.flags & DataHeaderFlags.MESSAGE_PROPERTIES:
        head, size = _head(data, compression, 0, limit)
        return Payload([], schema_id, head, size)
    if schema_id or compression == CompressionAlgorithm.NONE:
        skip = properties_size(data)
        head, size = _head(data[skip:], compression, 0, limit)
        return Payload(decode_properties(data[:skip], schema_id), schema_id, head, size)
    # The older encoding compresses properties and payload together.
    start, _ = inflate(data, PROPERTIES_HEADER.size, stop=True)
    skip = PROPERTIES_HEADER.unpack(start).area_words * WORD
    head, size = _head(data, compression, skip, limit)
    return Payload(decode_properties(head[:skip], schema_id), schema_id, head[skip:], size - skip)


def _head(data: memoryview, compression: int, skip: int, limit: int) -> tuple[bytes, int]:
    if compression == CompressionAlgorithm.NONE:
        return bytes(data[:limit]), len(data)
    return inflate(data, skip + limit)


def inflate(data: memoryview, keep: int, *, stop: bool = False) -> tuple[bytes, int]:
    """Decompress the first `keep` bytes of `data`; return them and the full size (with `stop`: the size seen)."""
    stream = zlib.decompressobj()
    head = bytearray()
    total = 0
    pending: Any = data
    while not stream.eof and not (stop and len(head) == keep):
        try:
            out = stream.decompress(pending, INFLATE_STEP)
        except zlib.error as error:
            check_memory(error)
            raise FormatError("zlib", 0, str(error)) from None
        pending = stream.unconsumed_tail
        if not out and not pending and not stream.eof:
            raise FormatError("zlib", 0, "the stream is truncated")
        total += len(out)
        if total > DECOMPRESSED_SIZE_MAX:
            raise FormatError("zlib", 0, f"inflates to more than {DECOMPRESSED_SIZE_MAX} bytes")
        head += out[: keep - len(head)]
    return bytes(head), total


def _json_value(item: Property) -> bool | int | str | dict[str, Any]:
    """Convert a property for `bmqctl journal build`: to a plain value if that implies the type."""
    if item.type in (PropertyType.BOOL, PropertyType.INT64, PropertyType.STRING):
        assert not isinstance(item.value, bytes)
        return item.value
    value = item.value.hex().upper() if isinstance(item.value, bytes) else item.value
    return {"type": item.type.name, "value": value}
