"""CONFIRM and REJECT: a consumer is done with messages, or gives them up.

Source: bmqp::ConfirmHeader, bmqp::ConfirmMessage, bmqp::RejectHeader, bmqp::RejectMessage; both look the same.

    | HW 4 | PMW 4 | Reserved 24 |        once, then for every message:

    |             QueueId            |
    |     MessageGUID, 16 bytes      |
    |           SubQueueId           |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from formats.errors import FormatError
from formats.schema import Annotated, Layout, bits, i32, raw, zeros

__all__ = [
    "CONFIRM_HEADER",
    "CONFIRM_HEADER_BYTES",
    "CONFIRM_MESSAGE",
    "Confirm",
    "ConfirmHeader",
    "iter_confirms",
    "pack_confirm",
]


class ConfirmHeader(NamedTuple):
    """First in the event; words of this header and of each message."""

    header_words: Annotated[int, bits(4)]
    per_message_words: Annotated[int, bits(4)]
    reserved: Annotated[bytes, zeros(3)]


class Confirm(NamedTuple):
    """One message; `sub_queue_id` is what the consumer announced when it opened the app, 0 without fan-out."""

    queue_id: Annotated[int, i32]
    guid: Annotated[bytes, raw(16)]
    sub_queue_id: Annotated[int, i32]


CONFIRM_HEADER = Layout(ConfirmHeader, size=4, upstream="bmqp::ConfirmHeader")
CONFIRM_MESSAGE = Layout(Confirm, size=24, upstream="bmqp::ConfirmMessage")
CONFIRM_HEADER_BYTES = CONFIRM_HEADER.pack(ConfirmHeader(1, CONFIRM_MESSAGE.size // 4, bytes(3)))

pack_confirm = CONFIRM_MESSAGE.words.pack
_words = CONFIRM_MESSAGE.words.unpack_from


def iter_confirms(buffer: memoryview, start: int, end: int) -> Iterator[tuple[int, bytes, int]]:
    """The messages of an event's body as (queue id, GUID, sub-queue id); FormatError if they do not fill it."""
    if end - start < CONFIRM_HEADER.size:
        raise FormatError("ConfirmHeader", start, f"needs {CONFIRM_HEADER.size} bytes, {end - start} left")
    words = buffer[start]
    step = (words & 0xF) * 4
    first = start + (words >> 4) * 4
    if first == start or step < CONFIRM_MESSAGE.size or first > end or (end - first) % step:
        raise FormatError("ConfirmHeader", start, f"{end - first} bytes are no whole number of {step}-byte messages")
    for at in range(first, end, step):
        yield _words(buffer, at)
