"""The standard input or a file, read by a thread while tasks run.

The thread reads the descriptor itself: one that still waits for input when the process ends holds no lock.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

import trio

from bmqctl.carrying.messages.content import BadInput

__all__ = ["LINE_SIZE_MAX", "PAYLOAD_SIZE_MAX", "read_all", "read_lines"]

PAYLOAD_SIZE_MAX: Final = 64 << 20
# In base64, and with properties.
LINE_SIZE_MAX: Final = 2 * PAYLOAD_SIZE_MAX
_CHUNK_SIZE: Final = 256 << 10


async def _read(descriptor: int) -> bytes:
    return await trio.to_thread.run_sync(partial(os.read, descriptor, _CHUNK_SIZE), abandon_on_cancel=True)


async def read_all(descriptor: int) -> bytes:
    """Read one payload up to the end of the input. Raises `BadInput` if it is larger than a message can be."""
    found = bytearray()
    while chunk := await _read(descriptor):
        found += chunk
        if len(found) > PAYLOAD_SIZE_MAX:
            raise BadInput(f"the input is larger than {PAYLOAD_SIZE_MAX} bytes, the most that a message can have")
    return bytes(found)


async def read_lines(descriptor: int) -> AsyncGenerator[tuple[int, bytes]]:
    """Read lines with their numbers, without what ends them. Raises `BadInput` for one that is too long."""
    number = 1
    parts: list[bytes] = []
    size = 0
    while chunk := await _read(descriptor):
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*parts, lines[0]])
            parts, size = [], 0
        for line in lines:
            yield number, line
            number += 1
        parts.append(rest)
        size += len(rest)
        if size > LINE_SIZE_MAX:
            raise BadInput(f"line {number}: is longer than {LINE_SIZE_MAX} bytes")
    if size:
        yield number, b"".join(parts)
