# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Posts and confirms of one client or broker: checked, and gathered to runs for their queues.

A run consists of consecutive messages to one queue. It ends before a message that is refused here, that has options, or
whose result is wanted while those of the others are not. A client that makes no GUIDs has runs of one, each with its
own correlation id. Consecutive confirms of one consumer are a run, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from crc32c import crc32c

from broker.bmq.core.messages import DUPLICATE, KEPT, Buffer, Full, Message, MessagePoster
from broker.bmq.queue.handles import Handle
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.routing import Stream
from formats.bmq.codes import AckStatus, PutFlag
from formats.bmq.wire.confirm import iter_confirms
from formats.bmq.wire.event import Frame
from formats.bmq.wire.put import PUT_HEADER, correlation_id, iter_put_fields
from formats.errors import FormatError

__all__ = ["RUN_BYTES_MAX", "Confirming", "Posting", "take_confirms", "take_posts"]

# Maximum size of the messages posted, or pushed, at once.
RUN_BYTES_MAX: Final = 1 << 18

UNSET_GUID: Final = bytes(16)

_PUT_SIZE: Final = PUT_HEADER.size
_QUEUE_ID_AT: Final = PUT_HEADER.offset("queue_id")
_ACK_REQUESTED: Final = int(PutFlag.ACK_REQUESTED)
_MESSAGE_PROPERTIES: Final = int(PutFlag.MESSAGE_PROPERTIES)

_queue_id: Final = PUT_HEADER.word("queue_id").unpack_from


class Posting(MessagePoster, Protocol):
    """A poster whose posts are checked here."""

    def refuse(self, status: AckStatus, correlation_id: int, guid: bytes, queue_id: int, reason: str) -> None:
        """Report that a message is not taken; `reason` is for the log."""
        ...

    def note_duplicate(self, queue: Queue, guid: bytes) -> None: ...


class Confirming(Protocol):
    """A sender of confirms."""

    def log_improper(self, what: str) -> None:
        """Log a confirm that no consumer may send; `what` describes it."""
        ...


def take_posts(
    poster: Posting,
    number: int,
    handles: Mapping[int, Handle],
    data: memoryview,
    frames: Sequence[Frame],
    next_guid: Callable[[], bytes] | None = None,
) -> None:
    """Take the posts of events. Raises FormatError at the first that is malformed, after those before it.

    `number` is the poster's, for the schemas of its properties; `next_guid` makes GUIDs, if the poster makes none.
    """
    if next_guid is None and _forward(poster, number, handles, data, frames):
        return
    queue: Queue | None = None
    run_id = acks = correlation = size = all_apps = now_ms = 0
    messages: list[Message] = []
    payloads: list[Buffer] = []
    malformed: FormatError | None = None
    try:
        for _, _, body, end in frames:
            for flags, queue_id, guid, checksum, compression, schema_id, options, content in iter_put_fields(
                data, body, end
            ):
                if (
                    queue is None
                    or queue_id != run_id
                    or flags & _ACK_REQUESTED != acks
                    or size > RUN_BYTES_MAX
                    or options
                    or next_guid is not None
                ):
                    if messages and queue is not None:
                        _post(poster, queue, run_id, correlation, acks, messages, payloads)
                        messages, payloads, size = [], [], 0
                    run_id, acks = queue_id, flags & _ACK_REQUESTED
                    if next_guid is not None:
                        correlation, guid = correlation_id(guid), next_guid()
                    handle = handles.get(queue_id)
                    if handle is None or not handle.writes:
                        queue = None
                        what = "for a queue that is not open" if handle is None else "without the write flag"
                        poster.refuse(AckStatus.UNKNOWN, correlation, guid, queue_id, what)
                        continue
                    queue = handle.queue
                    all_apps, now_ms = queue.all_apps, queue.now.ms
                if guid == UNSET_GUID or crc32c(content) != checksum:
                    if messages:
                        _post(poster, queue, run_id, correlation, acks, messages, payloads)
                        messages, payloads, size = [], [], 0
                    what = "without a GUID" if guid == UNSET_GUID else "whose checksum is not its payload's"
                    poster.refuse(AckStatus.UNKNOWN, correlation, guid, queue_id, what)
                    continue
                if schema_id > 1:
                    schema_id = queue.schemas.translate(number, schema_id)
                length = len(content)
                has_properties = flags & _MESSAGE_PROPERTIES != 0
                message = Message(guid, length, checksum, compression, has_properties, schema_id, all_apps, now_ms)
                if options:
                    _post(poster, queue, run_id, correlation, acks, (message,), (content,), options)
                    continue
                messages.append(message)
                payloads.append(content)
                size += length
    except FormatError as error:
        malformed = error
    if messages and queue is not None:
        _post(poster, queue, run_id, correlation, acks, messages, payloads)
    if malformed is not None:
        raise malformed


def _forward(
    poster: Posting, number: int, handles: Mapping[int, Handle], data: memoryview, frames: Sequence[Frame]
) -> bool:
    """Have the queue of the first post forward the events; return False, without effect, if it does not."""
    start: int = frames[0].body
    if frames[-1].end - start <= _PUT_SIZE:
        return False
    queue_id: int
    (queue_id,) = _queue_id(data, start + _QUEUE_ID_AT)
    handle = handles.get(queue_id)
    if handle is None or not handle.writes or handle.queue.is_root:
        return False
    return handle.queue.forward(poster, number, queue_id, data, frames)


def _post(
    poster: Posting,
    queue: Queue,
    queue_id: int,
    correlation: int,
    acks: int,
    messages: Sequence[Message],
    payloads: Sequence[Buffer],
    options: Buffer = b"",
) -> None:
    try:
        posted = queue.post(messages, payloads, options, (poster, queue_id, correlation) if acks else None)
    except Full as full:
        poster.refuse(AckStatus[full.status], correlation, messages[0].guid, queue_id, str(full))
        return
    if posted is None:
        for message, payload in zip(messages, payloads, strict=True):
            _post(poster, queue, queue_id, correlation, acks, (message,), (payload,))
    elif posted is DUPLICATE:
        poster.note_duplicate(queue, messages[0].guid)
        queue.statistics.acks += 1
        poster.acknowledge(queue_id, correlation, messages[0].guid, 0)
    elif acks and posted is KEPT:
        count = len(messages)
        queue.statistics.acks += count
        if count == 1:
            poster.acknowledge(queue_id, correlation, messages[0].guid, 0)
        else:
            poster.acknowledge_kept(queue_id, correlation, [message.guid for message in messages])


def take_confirms(
    confirmer: Confirming, handles: Mapping[int, Handle], data: memoryview, frames: Sequence[Frame]
) -> None:
    """Take the confirms of events. Raises FormatError like `take_posts`."""
    queue: Queue | None = None
    stream: Stream | None = None
    run_id = run_sub_id = 0
    guids: list[bytes] = []
    malformed: FormatError | None = None
    try:
        for _, _, body, end in frames:
            for queue_id, guid, sub_queue_id in iter_confirms(data, body, end):
                if stream is None or queue_id != run_id or sub_queue_id != run_sub_id:
                    if queue is not None and stream is not None:
                        queue.confirm(stream, guids)
                        guids = []
                    run_id, run_sub_id = queue_id, sub_queue_id
                    handle = handles.get(queue_id)
                    stream = None if handle is None else handle.streams.get(sub_queue_id)
                    if handle is None or stream is None:
                        confirmer.log_improper(f"CONFIRM for queue id {queue_id}.{sub_queue_id}, which is not open")
                        continue
                    queue = handle.queue
                    if queue.broadcast:
                        confirmer.log_improper(f"CONFIRM for {queue.uri}, which broadcasts")
                        stream = None
                        continue
                guids.append(guid)
    except FormatError as error:
        malformed = error
    if queue is not None and stream is not None:
        queue.confirm(stream, guids)
    if malformed is not None:
        raise malformed
