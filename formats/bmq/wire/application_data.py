# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A message's application data: its properties and its payload, as one span of bytes.

Source: bmqp::PutEventBuilder, bmqp::ProtocolUtil::parse, bmqp::ProtocolUtil::convertToOld. There are three forms:

- without the properties' flag: the payload, compressed as the header says;
- with a schema id: the properties in the newer encoding, never compressed, then the payload, compressed or not;
- with the flag and schema id 0: properties in the older encoding and payload, compressed together.

A producer compresses 1024 bytes or more, and only if that makes them smaller.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from formats.bmq.codes import COMPRESSED_SIZE_MIN, DECOMPRESSED_SIZE_MAX, CompressionAlgorithm
from formats.bmq.wire.properties import properties_size, to_older_encoding
from formats.errors import FormatError, check_memory
from formats.schema import Buffer

__all__ = [
    "ApplicationData",
    "build_application_data",
    "compress",
    "decompress",
    "split_application_data",
    "to_older_application_data",
]

# The reference's settings of zlib (source: bmqp::Compression).
_WINDOW_BITS = 15
_MEMORY_LEVEL = 8


class ApplicationData(NamedTuple):
    """`properties` is the encoded area with its padding, or empty; neither part is compressed."""

    properties: Buffer
    payload: Buffer


def split_application_data(
    data: memoryview,
    has_properties: bool,
    schema_id: int,
    compression: int,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> ApplicationData:
    """Return a message's properties and payload; views of `data` if uncompressed.

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
    """Return a message's data, compressed if that pays, and its compression; `properties` is the encoded area."""
    head, body = (properties, payload) if schema_id else (b"", properties + payload)
    if compression == CompressionAlgorithm.ZLIB and len(body) >= COMPRESSED_SIZE_MIN:
        compressed = compress(body)
        if len(compressed) < len(body):
            return head + compressed, CompressionAlgorithm.ZLIB
    return head + body, CompressionAlgorithm.NONE


def to_older_application_data(data: memoryview, compression: int, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Convert the data of a message with a schema id to the older encoding, uncompressed."""
    properties, payload = split_application_data(data, True, 1, compression, size_max)
    return to_older_encoding(properties) + payload


def compress(data: Buffer) -> bytes:
    """Compress `data` byte for byte like the reference's zlib."""
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zlib.Z_FILTERED)
    return stream.compress(data) + stream.flush()


def decompress(data: Buffer, algorithm: int, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Decompress `data`. FormatError if it is not such a stream, or inflates to more than `size_max` bytes."""
    if algorithm == CompressionAlgorithm.NONE:
        return bytes(data)
    if algorithm != CompressionAlgorithm.ZLIB:
        raise FormatError("compression", 0, f"{algorithm} is no algorithm")
    stream = zlib.decompressobj(_WINDOW_BITS)
    try:
        # One byte more distinguishes a stream that is too long from one that just fits.
        out = stream.decompress(data, size_max + 1)
    except zlib.error as error:
        check_memory(error)
        raise FormatError("zlib", 0, str(error)) from None
    if len(out) > size_max:
        raise FormatError("zlib", 0, f"inflates to more than {size_max} bytes")
    if not stream.eof:
        raise FormatError("zlib", len(data), "the stream is truncated")
    if stream.unused_data:
        raise FormatError("zlib", len(data) - len(stream.unused_data), "something follows the stream")
    return out
