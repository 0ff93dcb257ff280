"""The messages that `bmqctl post` posts, from its arguments or an input."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

import trio

from bmqctl.carrying.messages.content import BadInput, Outgoing, read_message
from bmqctl.carrying.messages.posting import Source

__all__ = ["Form", "Input", "make_source"]

PAYLOAD_SIZE_MAX: Final = 64 << 20
# In base64, and with properties.
LINE_SIZE_MAX: Final = 2 * PAYLOAD_SIZE_MAX
_CHUNK_SIZE: Final = 256 << 10


async def _read(descriptor: int) -> bytes:
    # By the descriptor: a thread still waiting for input when the process ends then has no lock.
    return await trio.to_thread.run_sync(partial(os.read, descriptor, _CHUNK_SIZE), abandon_on_cancel=True)


async def read_all(descriptor: int) -> bytes:
    """Read one payload up to the end of the input. Raises `BadInput` if it is too large for a message."""
    found = bytearray()
    while chunk := await _read(descriptor):
        found += chunk
        if len(found) > PAYLOAD_SIZE_MAX:
            raise BadInput(f"the input is larger than {PAYLOAD_SIZE_MAX} bytes, the most that a message can have")
    return bytes(found)


async def read_lines(descriptor: int) -> AsyncGenerator[tuple[int, bytes]]:
    """Read lines, without their ends, with their numbers. Raises `BadInput` for one that is too long."""
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


class Form(Enum):
    PAYLOAD = "one payload"
    LINES = "each line a payload"
    JSON = "each line a message in JSON"


class Input(NamedTuple):
    form: Form
    payload: bytes | None = None
    descriptor: int = 0


def make_source(given: Input, usual: Outgoing, count_max: int | None) -> Source:
    """Make the source of at most `count_max` messages, which have all of `usual` but its payload."""
    if given.form is Form.PAYLOAD:
        return Source("message", lambda: _repeated(given, usual, 1 if count_max is None else count_max))
    return Source("line", lambda: _lines(given, usual, count_max))


async def _repeated(given: Input, usual: Outgoing, count_max: int) -> AsyncGenerator[tuple[int, Outgoing]]:
    payload = await read_all(given.descriptor) if given.payload is None else given.payload
    message = usual._replace(payload=payload)
    for number in range(1, count_max + 1):
        yield number, message


async def _lines(given: Input, usual: Outgoing, count_max: int | None) -> AsyncGenerator[tuple[int, Outgoing]]:
    found = 0
    async with aclosing(read_lines(given.descriptor)) as lines:
        async for number, line in lines:
            if given.form is Form.LINES:
                message = usual._replace(payload=line)
            elif line.isspace() or not line:
                continue
            else:
                try:
                    message = _with_usual(read_message(line), usual)
                except BadInput as fault:
                    raise BadInput(f"line {number}: {fault}") from None
            yield number, message
            found += 1
            if found == count_max:
                return


def _with_usual(message: Outgoing, usual: Outgoing) -> Outgoing:
    """Add the command line's values for all messages; a line's own take precedence."""
    if usual == Outgoing(b""):
        return message
    own = {each.name for each in message.properties}
    return message._replace(
        properties=[*message.properties, *(each for each in usual.properties if each.name not in own)],
        tag=usual.tag if message.tag is None else message.tag,
        keys=message.keys or usual.keys,
        sharding_key=usual.sharding_key if message.sharding_key is None else message.sharding_key,
        delay_s=usual.delay_s if message.delay_s is None else message.delay_s,
        priority=usual.priority if message.priority is None else message.priority,
    )
