# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Posts of whole events at a relay, forwarded to the upstream, and their acknowledgments.

Successive messages of one client differ in little: the bytes before the GUID are compared with those of the previous
message, and parsed only where they differ. The event is copied once, since bytes are cheaper to compare and to slice
than views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.bmq.core.messages import MessagePoster
from broker.bmq.relay.posts import Unacknowledged
from broker.bmq.relay.relay import RelayQueue
from broker.common.faults import Inconsistent
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.padding import WORD
from formats.bmq.wire.ack import ACK_MESSAGE
from formats.bmq.wire.batch import message_offsets
from formats.bmq.wire.event import Frame
from formats.bmq.wire.put import PUT_HEADER, PutFlag

__all__ = ["Run", "acknowledge", "read_posts"]

_WORDS_MASK: Final = PUT_HEADER.mask("message_words")
_ZLIB: Final = int(CompressionAlgorithm.ZLIB) << 5
_SIZE: Final = PUT_HEADER.size
_PLAIN: Final = PUT_HEADER.size // WORD
_ACK_REQUESTED: Final = int(PutFlag.ACK_REQUESTED)
_PROPERTIES: Final = int(PutFlag.MESSAGE_PROPERTIES)
_QUEUE_ID_AT: Final = PUT_HEADER.offset("queue_id")
_GUID_AT: Final = PUT_HEADER.offset("guid")
_CRC_AT: Final = PUT_HEADER.offset("crc32c")
_SCHEMA_ID_AT: Final = PUT_HEADER.offset("schema_id")
_RESERVED_AT: Final = PUT_HEADER.offset("reserved")
_NO_SCHEMA: Final = bytes(PUT_HEADER.size - PUT_HEADER.offset("schema_id"))
_UNSET_GUID: Final = bytes(16)

_word: Final = PUT_HEADER.word("message_words").unpack_from
_crc: Final = PUT_HEADER.word("crc32c").unpack_from
_schema_id: Final = PUT_HEADER.word("schema_id").unpack_from
_pack_schema_id: Final = PUT_HEADER.word("schema_id").pack
_pack_queue_id: Final = PUT_HEADER.word("queue_id").pack

_ACK_SIZE: Final = ACK_MESSAGE.size
_ACK_GUID_AT: Final = ACK_MESSAGE.offset("guid")
_ACK_QUEUE_ID_AT: Final = ACK_MESSAGE.offset("queue_id")
_ack_queue_id: Final = ACK_MESSAGE.word("queue_id").unpack_from


class Run(NamedTuple):
    """Posts by their GUIDs, in order, and the size of their data together.

    `schemas` are the posts whose properties have a schema, with its id as the poster gave it.
    """

    posts: dict[bytes, Unacknowledged]
    size: int
    schemas: list[tuple[Unacknowledged, int]]

    def translate(self, relay: RelayQueue, number: int) -> None:
        """Give the schemas the numbers that go up; `number` is the poster's. Each is to be done once, in order."""
        for post, schema_id in self.schemas:
            message = post.message
            schema: bytes = _pack_schema_id(relay.schemas.translate(number, schema_id))
            post.message = message[:_SCHEMA_ID_AT] + schema + message[_RESERVED_AT:]


def read_posts(
    relay: RelayQueue, poster: MessagePoster, queue_id: int, data: memoryview, frames: Sequence[Frame]
) -> Run | None:
    """Read posts to the poster's queue `queue_id`, with the queue id that they have upstream.

    Returns None if one of them is malformed, more than plain, of another queue, or known.
    """
    start: int = frames[0].body
    raw = bytes(data[start : frames[-1].end])
    known, now_ms = relay.posts.unacknowledged, relay.now.ms
    up_id: bytes = _pack_queue_id(relay.queue_id)
    down_id: bytes = _pack_queue_id(queue_id)
    posters = ((poster, queue_id, 0),)
    found: dict[bytes, Unacknowledged] = {}
    schemas: list[tuple[Unacknowledged, int]] = []
    usual = head = b""
    size = message_size = 0
    has_properties = False
    for _, _, frame_body, frame_end in frames:
        at: int = frame_body - start
        end: int = frame_end - start
        while at < end:
            body = at + _SIZE
            if body >= end:
                return None
            if raw[at : at + _GUID_AT] != usual:
                words: int
                (words,) = _word(raw, at)
                flags = words >> 28
                message_size = (words & _WORDS_MASK) * WORD
                if not _is_plain(raw, at, flags, down_id) or message_size <= _SIZE:
                    return None
                usual = raw[at : at + _GUID_AT]
                head = raw[at : at + _QUEUE_ID_AT] + up_id
                has_properties = flags & _PROPERTIES != 0
            message_end = at + message_size
            if message_end > end:
                return None
            padding = raw[message_end - 1]
            body_end = message_end - padding
            guid = raw[at + _GUID_AT : at + _CRC_AT]
            checksum: int
            (checksum,) = _crc(raw, at + _CRC_AT)
            if (
                not 1 <= padding <= WORD
                or body_end <= body
                or guid in known
                or guid in found
                or guid == _UNSET_GUID
                or crc32c(raw[body:body_end]) != checksum
            ):
                return None
            message = head + raw[at + _GUID_AT : message_end]
            post = found[guid] = Unacknowledged(message, body_end - body, now_ms, posters)
            if raw[at + _SCHEMA_ID_AT : body] != _NO_SCHEMA:
                schema_id = _schema(raw, at) if has_properties else 0
                if not schema_id:
                    return None
                if schema_id > 1:
                    schemas.append((post, schema_id))
            size += body_end - body
            at = message_end
    return Run(found, size, schemas) if found else None


def _is_plain(raw: bytes, at: int, flags: int, down_id: bytes) -> bool:
    """Return True if the part of the header before the GUID is a common one, of the queue with this id."""
    sizes: int
    (sizes,) = _word(raw, at + WORD)
    return (
        sizes & ~_ZLIB == _PLAIN
        and flags & ~_PROPERTIES == _ACK_REQUESTED
        and raw[at + _QUEUE_ID_AT : at + _GUID_AT] == down_id
    )


def _schema(raw: bytes, at: int) -> int:
    """Return the schema id of a post's properties; 0 if there is none, or the header is not a common one."""
    schema_id: int
    (schema_id,) = _schema_id(raw, at + _SCHEMA_ID_AT)
    return schema_id if raw[at + _RESERVED_AT : at + _SIZE] == b"\0\0" else 0


def acknowledge(data: memoryview, start: int, end: int, relay_of: Callable[[int], RelayQueue | None]) -> None:
    """Forward the acknowledgments of an event's body, `data[start:end]`, to posters. FormatError if it is malformed."""
    offsets = message_offsets(data, start, end, _ACK_SIZE, "AckHeader")
    step: int = offsets.step
    raw = bytes(data[offsets.start : end])
    relay: RelayQueue | None = None
    last = b""
    run = AckRun()
    try:
        for at in range(0, len(raw), step):
            number = raw[at + _ACK_QUEUE_ID_AT : at + _ACK_SIZE]
            if number != last:
                run.end()
                last = number
                queue_id: int
                (queue_id,) = _ack_queue_id(number)
                relay = run.relay = relay_of(queue_id)
            if relay is None:
                continue
            guid = raw[at + _ACK_GUID_AT : at + _ACK_QUEUE_ID_AT]
            # The status is in the first byte, with bits that are reserved.
            status = raw[at] & 0xF
            if status:
                run.end()
                relay.posts.on_ack(guid, status)
                continue
            put = relay.posts.unacknowledged.pop(guid, None)
            if put is None:
                continue
            if put.posters is not run.posters and put.posters != run.posters:
                run.end()
                run.posters = put.posters
            run.guids.append(guid)
            run.size += put.size
        run.end()
    except Exception as error:
        raise Inconsistent("acknowledging posts", error) from error


class AckRun:
    """Consecutive successful posts of a queue by one poster."""

    __slots__ = ("guids", "posters", "relay", "size")

    def __init__(self) -> None:
        self.relay: RelayQueue | None = None
        self.posters: tuple[tuple[MessagePoster, int, int], ...] = ()
        self.guids: list[bytes] = []
        self.size = 0

    def end(self) -> None:
        """Acknowledge the posts of the run."""
        if self.guids and self.relay is not None:
            self.relay.posts.room.give(self.size, len(self.guids))
            self.relay.statistics.acks += len(self.guids)
            for poster, queue_id, correlation_id in self.posters:
                try:
                    poster.acknowledge_kept(queue_id, correlation_id, self.guids)
                except Exception as error:
                    poster.fail(error)
            self.guids = []
            self.size = 0
