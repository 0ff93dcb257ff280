# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""CONFIRM: a consumer is done with messages (source: bmqp::ConfirmHeader, bmqp::ConfirmMessage).

A `ConfirmHeader` once, then a `Confirm` for every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from formats.bmq.codes import EventType
from formats.bmq.wire.batch import message_offsets
from formats.bmq.wire.event import build_event
from formats.bmq.wire.layouts.confirm_layout import CONFIRM_HEADER, CONFIRM_MESSAGE, Confirm, ConfirmHeader

__all__ = [
    "CONFIRM_HEADER",
    "CONFIRM_HEADER_BYTES",
    "CONFIRM_MESSAGE",
    "Confirm",
    "ConfirmHeader",
    "build_confirm_event",
    "iter_confirms",
    "pack_confirm",
    "pack_confirms",
]


CONFIRM_HEADER_BYTES: Final = CONFIRM_HEADER.pack(ConfirmHeader(1, CONFIRM_MESSAGE.size // 4, bytes(3)))

pack_confirm: Final = CONFIRM_MESSAGE.words.pack
"""Encode a message: queue id, GUID and sub-queue id. A body is `CONFIRM_HEADER_BYTES` and these."""

_words: Final = CONFIRM_MESSAGE.words.unpack_from
_ID: Final = Struct(">i")

_HEADER_SIZE: Final = CONFIRM_HEADER.size
_ONE_SIZE: Final = _HEADER_SIZE + CONFIRM_MESSAGE.size
_PLAIN: Final = CONFIRM_HEADER_BYTES[0]  # the sizes in current senders' headers


def pack_confirms(queue_id: int, guids: Sequence[bytes], sub_queue_id: int) -> bytes:
    """Encode a message for each GUID."""
    number, sub_number = _ID.pack(queue_id), _ID.pack(sub_queue_id)
    return number + (sub_number + number).join(guids) + sub_number if guids else b""


def build_confirm_event(confirms: Iterable[tuple[int, bytes, int]]) -> bytes:
    """Build an event from tuples of (queue id, GUID, sub-queue id)."""
    return build_event(EventType.CONFIRM, CONFIRM_HEADER_BYTES + b"".join([pack_confirm(*each) for each in confirms]))


def iter_confirms(buffer: memoryview, start: int, end: int) -> Iterable[tuple[int, bytes, int]]:
    """Iterate over the messages of a body as (queue id, GUID, sub-queue id).

    FormatError, before the first, if they do not fill `buffer[start:end]`.
    """
    if end - start == _ONE_SIZE and buffer[start] == _PLAIN:
        # One message of the current size: the most frequent body.
        return (_words(buffer, start + _HEADER_SIZE),)
    offsets = message_offsets(buffer, start, end, CONFIRM_MESSAGE.size, "ConfirmHeader")
    if offsets.step == CONFIRM_MESSAGE.size:
        return CONFIRM_MESSAGE.words.iter_unpack(buffer[offsets.start : end])
    return [_words(buffer, at) for at in offsets]
