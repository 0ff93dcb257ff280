# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""ACK: results of posts (source: bmqp::AckHeader, bmqp::AckMessage).

An event is an `AckHeader` and then an `Ack` for every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from formats.bmq.codes import AckStatus, EventType
from formats.bmq.wire.batch import message_offsets
from formats.bmq.wire.event import build_event
from formats.bmq.wire.layouts.ack_layout import ACK_HEADER, ACK_MESSAGE, Ack, AckHeader
from formats.schema import Buffer

__all__ = [
    "ACK_HEADER",
    "ACK_HEADER_BYTES",
    "ACK_MESSAGE",
    "Ack",
    "AckHeader",
    "AckRun",
    "AckStatus",
    "ack_runs",
    "build_ack_event",
    "iter_acks",
    "pack_ack",
    "pack_acks",
]


ACK_HEADER_BYTES: Final = ACK_HEADER.pack(AckHeader(ACK_HEADER.size // 4, ACK_MESSAGE.size // 4, 0, b"\0\0"))

_pack: Final = ACK_MESSAGE.words.pack
_WORD: Final = Struct(">I")
_QUEUE_ID: Final = Struct(">i")
_new: Final = tuple.__new__
_words: Final = ACK_MESSAGE.words.unpack_from


class AckRun(NamedTuple):
    """The GUIDs of consecutive messages with one queue id and one status."""

    queue_id: int
    status: int
    guids: list[bytes]


def pack_ack(status: int, correlation_id: int, guid: bytes, queue_id: int) -> bytes:
    """Encode a message; an event's body is `ACK_HEADER_BYTES` and messages."""
    return _pack(status << 24 | correlation_id, guid, queue_id)


def pack_acks(status: int, correlation_id: int, guids: Sequence[bytes], queue_id: int) -> bytes:
    """Encode a message for each GUID."""
    word, number = _WORD.pack(status << 24 | correlation_id), _QUEUE_ID.pack(queue_id)
    return word + (number + word).join(guids) + number if guids else b""


def build_ack_event(acks: Iterable[tuple[int, int, bytes, int]]) -> bytes:
    """Build an event from tuples of (status, correlation id, GUID, queue id)."""
    return build_event(EventType.ACK, ACK_HEADER_BYTES + b"".join([pack_ack(*ack) for ack in acks]))


def iter_acks(buffer: Buffer, start: int, end: int) -> Iterator[Ack]:
    """Iterate over the messages of the body `buffer[start:end]`. FormatError at once if they do not fill it."""
    offsets = message_offsets(buffer, start, end, ACK_MESSAGE.size, "AckHeader")
    return map(partial(ACK_MESSAGE.unpack, buffer), offsets)


def ack_runs(buffer: memoryview, start: int, end: int) -> list[AckRun]:
    """Divide the body `buffer[start:end]` into runs. FormatError if the messages do not fill it."""
    offsets = message_offsets(buffer, start, end, ACK_MESSAGE.size, "AckHeader")
    if offsets.step == ACK_MESSAGE.size:
        rows = ACK_MESSAGE.words.iter_unpack(buffer[offsets.start : end])
    else:
        rows = iter([_words(buffer, at) for at in offsets])
    runs: list[AckRun] = []
    guids: list[bytes] = []
    last_id = last_status = -1
    for word, guid, queue_id in rows:
        status = word >> 24 & 0xF
        if queue_id != last_id or status != last_status or not runs:
            guids = []
            runs.append(_new(AckRun, (queue_id, status, guids)))
            last_id, last_status = queue_id, status
        guids.append(guid)
    return runs
