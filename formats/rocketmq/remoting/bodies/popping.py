"""Bodies about popped messages: records of the revive log, requests of clients, and files.

Source: PopCheckPoint, AckMsg, BatchAckMsg, BatchAckMessageRequestBody, QueryAssignmentRequestBody,
SetMessageRequestModeRequestBody, MessageRequestModeManager, QueueLevelConsumerManager.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import MessageQueue
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.schema import Buffer

__all__ = [
    "ACK_TAG",
    "ASSIGNMENTS",
    "ASSIGNMENT_REQUEST",
    "BATCH_ACK_REQUEST",
    "BATCH_ACK_TAG",
    "CHECKPOINT_TAG",
    "MESSAGES_MAX",
    "ORDER_FILE",
    "REQUEST_MODE",
    "REQUEST_MODES",
    "AckNote",
    "Assignment",
    "AssignmentRequest",
    "Assignments",
    "BatchAck",
    "BatchAckNote",
    "BatchAckRequest",
    "CheckPoint",
    "OrderFile",
    "OrderRecord",
    "RequestMode",
    "RequestModes",
    "bits_of",
    "read_note",
    "write_note",
]

# The tags of the messages of a revive log.
CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"

# A checkpoint has a bit for each message, so a POP returns at most this number.
MESSAGES_MAX: Final = 32
# Far more than the span of offsets in a checkpoint needs.
_BITS_CHARACTERS_MAX: Final = 1 << 16


class CheckPoint(NamedTuple):
    """Messages of a queue that one POP returned. `differences` are their offsets, less the first one."""

    start_offset: Annotated[int, "so"]
    popped_ms: Annotated[int, "pt"]
    invisible_ms: Annotated[int, "it"]
    message_count: Annotated[int, "n"]
    queue_id: Annotated[int, "q"]
    topic: Annotated[str, "t"]
    group: Annotated[str, "c"]
    broker: Annotated[str | None, "bn"] = None
    differences: Annotated[list[int], "d"] = []
    bit_map: Annotated[int, "bm"] = 0
    revive_offset: Annotated[int, "ro"] = 0
    revive_ms: Annotated[int | None, "reviveTime"] = None
    put_again: Annotated[str | None, "rp"] = None

    @property
    def visible_ms(self) -> int:
        return self.popped_ms + self.invisible_ms

    @property
    def offsets(self) -> list[int]:
        """The offsets of the messages. Old brokers write no differences: their messages are consecutive."""
        return [self.start_offset + each for each in self.differences or range(self.message_count)]


class AckNote(NamedTuple):
    """An acknowledgement of one message of a checkpoint."""

    ack_offset: Annotated[int, "ao"]
    start_offset: Annotated[int, "so"]
    group: Annotated[str, "c"]
    topic: Annotated[str, "t"]
    queue_id: Annotated[int, "q"]
    popped_ms: Annotated[int, "pt"]
    broker: Annotated[str | None, "bn"] = None


class BatchAckNote(NamedTuple):
    """An acknowledgement of several messages of a checkpoint. `ack_offset` is -1."""

    ack_offset: Annotated[int, "ao"]
    start_offset: Annotated[int, "so"]
    group: Annotated[str, "c"]
    topic: Annotated[str, "t"]
    queue_id: Annotated[int, "q"]
    popped_ms: Annotated[int, "pt"]
    broker: Annotated[str | None, "bn"] = None
    ack_offsets: Annotated[list[int], "aol"] = []


class BatchAck(NamedTuple):
    """A client's acknowledgement of messages of a checkpoint. `bits` is base64, a bit for each offset from the
    first.
    """

    group: Annotated[str, "c"]
    topic: Annotated[str, "t"]
    kind: Annotated[str, "r"]
    start_offset: Annotated[int, "so"]
    queue_id: Annotated[int, "q"]
    revive_queue: Annotated[int, "rq"]
    popped_ms: Annotated[int, "pt"]
    invisible_ms: Annotated[int, "it"]
    bits: Annotated[str, "b"] = ""


class BatchAckRequest(NamedTuple):
    """The body of BATCH_ACK_MESSAGE."""

    broker_name: str | None = None
    acks: list[BatchAck] = []


class AssignmentRequest(NamedTuple):
    """The body of QUERY_ASSIGNMENT."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: str = "CLUSTERING"


class Assignment(NamedTuple):
    """A queue assigned to a client; queue id -1 stands for all queues of a broker."""

    message_queue: MessageQueue
    mode: str = "PULL"


class Assignments(NamedTuple):
    """The queues assigned to a client; None if the broker does not know."""

    message_queue_assignments: list[Assignment] | None = None


class RequestMode(NamedTuple):
    """A group's mode of consuming a topic. `pop_share_queues` is the number of other clients whose queues it pops."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queues: Annotated[int, "popShareQueueNum"] = 0


class RequestModes(NamedTuple):
    """`config/messageRequestMode.json`: by topic and group."""

    table: Annotated[dict[str, dict[str, RequestMode]], "messageRequestModeMap"] = {}


class OrderRecord(NamedTuple):
    """Messages of a queue that a group is consuming in order.

    `offsets` has the first offset, then the others' distances from it. `visible_ms` has the messages whose time was
    changed, `counts` the number of earlier pops; `acked` has a bit for each message.
    """

    popped_ms: Annotated[int, "popTime"]
    invisible_ms: Annotated[int | None, "i"]
    offsets: Annotated[list[int], "o"]
    visible_ms: Annotated[dict[int, int] | None, "ot"] = None
    counts: Annotated[dict[int, int] | None, "oc"] = None
    consumed_ms: Annotated[int, "l"] = 0
    acked: Annotated[int, "cm"] = 0
    attempt_id: Annotated[str | None, "a"] = None


class OrderFile(NamedTuple):
    """`config/consumerOrderInfo.json`: by `topic@group` and queue id."""

    table: dict[str, dict[int, OrderRecord]] = {}
    level: Annotated[str, "orderedConsumptionLevel"] = "QUEUE"


BATCH_ACK_REQUEST = BodyCodec(BatchAckRequest)
ASSIGNMENT_REQUEST = BodyCodec(AssignmentRequest)
ASSIGNMENTS = BodyCodec(Assignments)
REQUEST_MODE = BodyCodec(RequestMode)
REQUEST_MODES = BodyCodec(RequestModes, fastjson.FILE)
ORDER_FILE = BodyCodec(OrderFile, fastjson.FILE)

Note = CheckPoint | AckNote | BatchAckNote

_NOTES: Final[dict[str, BodyCodec[Any]]] = {
    CHECKPOINT_TAG: BodyCodec(CheckPoint),
    ACK_TAG: BodyCodec(AckNote),
    BATCH_ACK_TAG: BodyCodec(BatchAckNote),
}
_TAGS: Final = {CheckPoint: CHECKPOINT_TAG, AckNote: ACK_TAG, BatchAckNote: BATCH_ACK_TAG}


def write_note(note: Note) -> tuple[str, bytes]:
    """Encode a message of the revive log: its tag and body."""
    if isinstance(note, CheckPoint):
        note = note._replace(revive_ms=note.visible_ms)
    tag = _TAGS[type(note)]
    # This encoder writes the same text, faster: there is a note for each popped message.
    return tag, json.dumps(_NOTES[tag].write_value(note), ensure_ascii=False, separators=(",", ":")).encode()


def read_note(tag: str, body: Buffer) -> Note:
    codec = _NOTES.get(tag)
    if codec is None:
        raise FormatError("Note", 0, f"{tag[:40]!r} is no tag of a revive log")
    try:
        text = str(body, "utf-8")
        value = json.loads(text)
        if "\\u" in text:
            # Slower; refuses texts that could not be written again.
            value = fastjson.loads(text)
    except (ValueError, RecursionError):
        raise FormatError("Note", 0, "is no JSON") from None
    note: Note = codec.read_value(value)
    if isinstance(note, CheckPoint):
        _check(note)
    return note


def _check(point: CheckPoint) -> None:
    if not 0 <= point.message_count <= MESSAGES_MAX:
        raise FormatError("CheckPoint.n", 0, f"{point.message_count} messages, and there are 0 to {MESSAGES_MAX}")
    if point.differences and len(point.differences) != point.message_count:
        raise FormatError("CheckPoint.d", 0, f"{len(point.differences)} offsets for {point.message_count} messages")


def bits_of(text: str) -> list[int]:
    """The numbers of the set bits, from the first byte's lowest on. Raises `FormatError`."""
    if len(text) > _BITS_CHARACTERS_MAX:
        raise FormatError("BatchAck.b", 0, f"has {len(text)} characters, more than {_BITS_CHARACTERS_MAX}")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FormatError("BatchAck.b", 0, "is no base64") from None
    if (count := sum(byte.bit_count() for byte in data)) > MESSAGES_MAX:
        raise FormatError("BatchAck.b", 0, f"has {count} bits, and no checkpoint has more than {MESSAGES_MAX} messages")
    return [8 * place + bit for place, byte in enumerate(data) for bit in range(8) if byte >> bit & 1]
