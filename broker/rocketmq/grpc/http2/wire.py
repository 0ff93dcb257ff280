"""The parts of gRPC above HTTP/2: messages within a stream, time-outs, and the status in the trailers.

Source: the PROTOCOL-HTTP2 document of gRPC.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Final
from urllib.parse import quote

from formats.errors import check_memory
from formats.rocketmq.numbers import read_digits

__all__ = ["GrpcError", "GrpcStatus", "MessageReader", "frame_message", "status_text", "timeout_ms"]

_PREFIX: Final = struct.Struct(">BI")
# The ms of each unit of a time-out.
_UNITS: Final = {"H": 3_600_000.0, "M": 60_000.0, "S": 1_000.0, "m": 1.0, "u": 0.001, "n": 0.000_001}
_DIGITS_MAX: Final = 8
_GZIP_WINDOW: Final = 31
# The characters of a status text that need no encoding.
_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class GrpcStatus(IntEnum):
    """The outcome of a call for gRPC itself; the answer has the broker's."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class GrpcError(Exception):
    """The status and text of a call that ends without an answer."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def timeout_ms(text: str) -> int:
    """Return a `grpc-timeout` in ms. Raises `GrpcError`."""
    number, unit = read_digits(text[:-1]), text[-1:]
    if unit not in _UNITS or number is None or len(text) > _DIGITS_MAX + 1:
        raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"{text[:20]!r} is no time-out")
    return int(number * _UNITS[unit])


def frame_message(data: bytes) -> bytes:
    """Add the prefix of an uncompressed message."""
    return _PREFIX.pack(0, len(data)) + data


def status_text(text: str) -> str:
    return quote(text[:1000], safe=_PLAIN)


class MessageReader:
    """Extracts messages from a stream's data, in pieces of any size; none may exceed `bytes_max`."""

    __slots__ = ("_data", "_is_gzip", "bytes_max")

    def __init__(self, encoding: str, bytes_max: int) -> None:
        if encoding not in ("", "identity", "gzip"):
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, f"messages compressed by {encoding[:20]!r} cannot be read")
        self._is_gzip = encoding == "gzip"
        self.bytes_max = bytes_max
        self._data = bytearray()

    @property
    def size(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        self._data += data

    def clear(self) -> None:
        self._data = bytearray()

    def next(self) -> bytes | None:
        """Remove and return a message; None if none is complete. Raises `GrpcError`."""
        if len(self._data) < _PREFIX.size:
            return None
        flag, size = _PREFIX.unpack_from(self._data)
        if size > self.bytes_max:
            text = f"a message of {size} bytes is larger than the {self.bytes_max} that it may have"
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, text)
        if flag > 1:
            raise GrpcError(GrpcStatus.INTERNAL, f"a message has the flag {flag}")
        end = _PREFIX.size + size
        if len(self._data) < end:
            return None
        message = bytes(memoryview(self._data)[_PREFIX.size : end])
        del self._data[:end]
        return self._inflate(message) if flag else message

    def _inflate(self, message: bytes) -> bytes:
        if not self._is_gzip:
            raise GrpcError(GrpcStatus.INTERNAL, "a message is compressed, and its stream names no compression")
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        try:
            plain = inflater.decompress(message, self.bytes_max)
        except zlib.error as error:
            check_memory(error)
            raise GrpcError(GrpcStatus.INTERNAL, f"a message cannot be decompressed: {error}") from None
        if inflater.unconsumed_tail:
            text = f"a message has more than {self.bytes_max} bytes when it is decompressed"
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, text)
        if not inflater.eof:
            raise GrpcError(GrpcStatus.INTERNAL, "a compressed message is not whole")
        return plain
