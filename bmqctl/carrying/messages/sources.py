"""The messages that `bmqctl post` posts, from its arguments or from an input."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import Enum
from typing import NamedTuple

from bmqctl.carrying.messages.content import BadInput, Outgoing, read_message
from bmqctl.carrying.messages.posting import Source
from bmqctl.carrying.messages.reading import read_all, read_lines

__all__ = ["Form", "Input", "make_source"]


class Form(Enum):
    PAYLOAD = "one payload"
    LINES = "each line a payload"
    JSON = "each line a message in JSON"


class Input(NamedTuple):
    form: Form
    payload: bytes | None = None
    descriptor: int = 0


def make_source(given: Input, usual: Outgoing, count_max: int | None) -> Source:
    """Make the source of at most `count_max` messages, with what `usual` has beside its payload."""
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
    """Add what the command line gives to all messages; what a line says itself goes before that."""
    if usual == Outgoing(b""):
        return message
    own = {each.name for each in message.properties}
    return message._replace(
        properties=[*message.properties, *(each for each in usual.properties if each.name not in own)],
        tag=usual.tag if message.tag is None else message.tag,
        keys=message.keys or usual.keys,
        sharding_key=usual.sharding_key if message.sharding_key is None else message.sharding_key,
        delay_s=usual.delay_s if message.delay_s is None else message.delay_s,
    )
