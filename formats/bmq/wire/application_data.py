# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A message's application data: its properties and its payload, as one span of bytes.

Source: bmqp::PutEventBuilder, bmqp::ProtocolUtil::parse, bmqp::ProtocolUtil::convertToOld. There are three forms:

- without the properties' flag: the payload, compressed as the header says;
- with a schema id: the properties in the newer encoding, never compressed, then the payload, compressed or not;
- with the flag and schema id 0: properties in the older encoding and payload, compressed together.

A producer compresses 1024 bytes or more, and only if that makes them smaller.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.bmq.codes import COMPRESSED_SIZE_MIN, DECOMPRESSED_SIZE_MAX, CompressionAlgorithm
from formats.bmq.wire.compression import compress, decompress
from formats.bmq.wire.properties import properties_size, to_older_encoding
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["ApplicationData", "build_application_data", "split_application_data", "to_older_application_data"]


class ApplicationData(NamedTuple):
    """`properties` is the encoded area with its padding, empty if there is none; neither part is compressed."""

    properties: Buffer
    payload: Buffer


def split_application_data(
    data: memoryview,
    has_properties: bool,
    schema_id: int,
    compression: int,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> ApplicationData:
    """Return the properties and payload of a message; views of `data` if uncompressed.

    FormatError if the properties do not fit, or the payload inflates to more than `size_max` bytes.
    """
    if has_properties and (schema_id or compression == CompressionAlgorithm.NONE):
        size = properties_size(data)
        properties, rest = data[:size], data[size:]
        if not compression:
            return ApplicationData(properties, rest)
        try:
            return ApplicationData(properties, decompress(rest, compression, size_max))
        except FormatError as error:
            raise error.shifted(size) from None
    if compression == CompressionAlgorithm.NONE:
        return ApplicationData(b"", data)
    whole = memoryview(decompress(data, compression, size_max))
    size = properties_size(whole) if has_properties else 0
    return ApplicationData(whole[:size], whole[size:])


def build_application_data(
    properties: bytes, payload: Buffer, schema_id: int, compression: CompressionAlgorithm
) -> tuple[bytes, CompressionAlgorithm]:
    """Return a message's data, compressed if that pays, and its compression; `properties` is the encoded area or
    empty.
    """
    head, body = (properties, payload) if schema_id else (b"", properties + payload)
    if compression == CompressionAlgorithm.ZLIB and len(body) >= COMPRESSED_SIZE_MIN:
        compressed = compress(body)
        if len(compressed) < len(body):
            return head + compressed, CompressionAlgorithm.ZLIB
    return head + body, CompressionAlgorithm.NONE


def to_older_application_data(data: memoryview, compression: int, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Convert the data of a message with a schema id for a client that knows only the older encoding: uncompressed."""
    properties, payload = split_application_data(data, True, 1, compression, size_max)
    return to_older_encoding(properties) + payload
