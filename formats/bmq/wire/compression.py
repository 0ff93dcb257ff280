# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Compression of a message's payload: zlib with the reference's settings (source: bmqp::Compression)."""

from __future__ import annotations

import zlib

from formats.bmq.codes import DECOMPRESSED_SIZE_MAX, CompressionAlgorithm
from formats.errors import FormatError, check_memory
from formats.schema import Buffer

__all__ = ["compress", "decompress"]

_WINDOW_BITS = 15
_MEMORY_LEVEL = 8


def compress(data: Buffer) -> bytes:
    """Compress `data` with default level and strategy `Z_FILTERED`, byte for byte like the reference's zlib."""
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
        # One byte more than allowed distinguishes a stream that is too long from one that just fits.
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
