"""A check of HTTP/2 frame heads before `h2`, which would buffer a frame of any length until it is complete.

Source: RFC 9113, 4.1 and 6.10.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["HEAD_BYTES", "FrameFronts"]

# The length of the payload (24 bits), type, flags, and the stream.
HEAD_BYTES: Final = 9
_HEAD: Final = struct.Struct(">IB")
_PREFACE_BYTES: Final = 24
_END_HEADERS: Final = 0x4
_OF_HEADERS: Final = (0x1, 0x9)


class FrameFronts:
    """The frames of a connection. `block_bytes` is the size so far of an incomplete block of headers."""

    __slots__ = ("_block_bytes_max", "_preface_left", "block_bytes")

    def __init__(self, block_bytes_max: int) -> None:
        self._block_bytes_max = block_bytes_max
        self._preface_left = _PREFACE_BYTES
        self.block_bytes = 0

    def take(self, data: memoryview, longest: int) -> tuple[int, str]:
        """Return the position of the first incomplete frame, and why the connection must end, or "".

        `longest` is the maximum length that a frame may state.
        """
        end = len(data)
        at = min(self._preface_left, end)
        self._preface_left -= at
        while end - at >= HEAD_BYTES:
            length, flags = _HEAD.unpack_from(data, at)
            kind, length = length & 0xFF, length >> 8
            if length > longest:
                return at, f"a frame has {length} bytes, more than {longest}"
            if end - at < HEAD_BYTES + length:
                break
            at += HEAD_BYTES + length
            if kind in _OF_HEADERS:
                self.block_bytes = 0 if flags & _END_HEADERS else self.block_bytes + length
                if self.block_bytes > self._block_bytes_max:
                    return at, f"a block of headers goes on after {self.block_bytes} bytes"
        return at, ""
