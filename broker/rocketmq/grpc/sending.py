"""Calls to store messages (source: SendMessageActivity, ProducerProcessor)."""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.rocketmq.consuming.lite.sharding import consistent_hash
from broker.rocketmq.delays.timers import broker_of_handle
from broker.rocketmq.grpc.brokers.backend import Topic
from broker.rocketmq.grpc.calling import Answer, Asked, Handlers
from broker.rocketmq.grpc.conversion import born_ms_of, properties_of, system_flags_of
from broker.rocketmq.grpc.statuses import NO_BROKER, OK, CallRejected, joint, rejection, status
from broker.rocketmq.grpc.transactions import GrpcTransactions
from broker.rocketmq.grpc.validation import check_count, check_topic
from broker.rocketmq.tables import names
from formats.rocketmq.grpc.codes import Code, MessageType
from formats.rocketmq.grpc.messages import Message, make
from formats.rocketmq.java import string_hash
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.message_types import message_type
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.sending import (
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequestV2,
    SendMessageResponse,
)

__all__ = ["Sending", "consistent_hash"]

_REQUEST = codec_of(SendMessageRequestV2)
_RESPONSE = codec_of(SendMessageResponse)
_RECALL = codec_of(RecallMessageRequest)
_RECALLED = codec_of(RecallMessageResponse)
_DEFAULT_QUEUES: Final = 4
_INT_MAX: Final = (1 << 31) - 1

# With these outcomes the message is stored nevertheless.
_DOUBTFUL: Final[dict[int, Code]] = {
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}


class Sending:
    """Stores messages in queues of its choice."""

    def __init__(self, transactions: GrpcTransactions) -> None:
        self._transactions = transactions
        self._turn = 0
        self.handlers: Handlers = {"SendMessage": self._send, "RecallMessage": self._recall}

    def _send(self, asked: Asked, answer: Answer) -> None:
        check_count(len(asked.request.messages), "messages")
        messages = list(asked.request.messages)
        if not messages:
            raise CallRejected(Code.MESSAGE_CORRUPTED, "no message to send")
        topic = check_topic(messages[0].topic)
        if any(message.topic != messages[0].topic for message in messages[1:]):
            raise CallRejected(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        # Producers have no groups: the topic's name is the group's, for checks of transactions.
        host, now_ms = asked.client.host, asked.now_ms
        properties = [properties_of(message, topic, host, now_ms) for message in messages]
        asked.client.find_topic(topic, lambda found: self._store(asked, found, messages, properties, answer))

    def _store(
        self, asked: Asked, topic: Topic, messages: list[Message], properties: list[dict[str, str]], answer: Answer
    ) -> None:
        pairs = zip(messages, properties, strict=True)
        frames = [self._frame(topic, message, each, asked) for message, each in pairs]
        response = make("SendMessageResponse")
        for _ in frames:
            response.entries.add()
        left = set(range(len(frames)))
        for number, (broker, frame) in enumerate(frames):
            done = partial(self._stored, asked, broker, response, number, left, answer)
            asked.client.ask(broker, frame, done)

    def _frame(self, topic: Topic, message: Message, properties: dict[str, str], asked: Asked) -> tuple[str, Frame]:
        """Make the request that stores a message, and choose its broker. Raises `CallRejected`."""
        _check_type(topic, message_type(properties))
        broker, queue_id = self._place(topic, message)
        header = SendMessageRequestV2(
            topic.name,
            topic.name,
            names.AUTO_CREATE_TOPIC,
            _DEFAULT_QUEUES,
            queue_id,
            system_flags_of(message),
            born_ms_of(message, asked.now_ms),
            0,
            encode_properties(properties).decode(),
            0,
        )
        frame = Frame(RequestCode.SEND_MESSAGE_V2, 0, ext_fields=_REQUEST.write(header), body=message.body)
        return broker, frame

    def _place(self, topic: Topic, message: Message) -> tuple[str, int]:
        """Return the broker and the queue for a message. Raises `CallRejected`."""
        count = sum(each for _, each in topic.writes)
        if count < 1:
            raise CallRejected(Code.FORBIDDEN, "no writable queue")
        group = message.system_properties.message_group or message.system_properties.lite_topic
        if group:
            number = consistent_hash(string_hash(group), count)
        else:
            self._turn = self._turn + 1 & _INT_MAX
            number = self._turn % count
        at = 0
        while number >= topic.writes[at][1]:
            number -= topic.writes[at][1]
            at += 1
        return topic.writes[at][0], number

    def _stored(
        self, asked: Asked, broker: str, response: Message, number: int, left: set[int], answer: Answer, frame: Frame
    ) -> None:
        entry, message = response.entries[number], asked.request.messages[number]
        if frame.code == ResponseCode.SUCCESS:
            header = _RESPONSE.read(frame.ext_fields or {})
            entry.status.CopyFrom(OK)
            entry.message_id = message.system_properties.message_id
            entry.transaction_id = header.transaction_id or ""
            entry.offset = header.queue_offset
            entry.recall_handle = header.recall_handle or ""
            if message.system_properties.message_type == MessageType.TRANSACTION:
                place = OffsetId.parse(header.message_id).physical_offset
                topic, key = message.topic.name, entry.transaction_id
                self._transactions.begun(topic, key, broker, header.queue_offset, place, asked.now_ms)
        elif frame.code in _DOUBTFUL:
            name = ResponseCode(frame.code).name
            entry.status.CopyFrom(status(_DOUBTFUL[frame.code], f"send message failed, sendStatus={name}"))
        else:
            rejected = rejection(frame)
            entry.status.CopyFrom(status(rejected.code, rejected.text))
        left.discard(number)
        if left:
            return
        if len(response.entries) == 1 and frame.code != ResponseCode.SUCCESS and frame.code not in _DOUBTFUL:
            # A refused message has no results.
            answer(make("SendMessageResponse", status=entry.status))
            return
        response.status.CopyFrom(joint({each.status.code for each in response.entries}, ""))
        answer(response)

    def _recall(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        topic = check_topic(request.topic)
        header = RecallMessageRequest(topic, request.recall_handle)

        def found(topic: Topic) -> None:
            _check_type(topic, MessageType.DELAY)
            # Any broker refuses an invalid handle.
            broker = broker_of_handle(request.recall_handle) or next((name for name, _ in topic.writes), "")
            asked.client.ask(broker, Frame(RequestCode.RECALL_MESSAGE, 0, ext_fields=_RECALL.write(header)), done)

        def done(frame: Frame) -> None:
            if frame.code == NO_BROKER:
                raise CallRejected(Code.BAD_REQUEST, frame.remark or "")
            if frame.code != ResponseCode.SUCCESS:
                raise rejection(frame)
            message_id = _RECALLED.read(frame.ext_fields or {}).message_id
            answer(make("RecallMessageResponse", status=OK, message_id=message_id))

        asked.client.find_topic(topic, found)


def _check_type(topic: Topic, kind: MessageType) -> None:
    """Check that a topic accepts a type of messages. Raises `CallRejected`."""
    if topic.name.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
        return
    expected = topic.types
    if kind not in expected:
        name = expected[0].name if expected[0] else "UNSPECIFIED"
        text = f"TopicMessageType validate failed, the expected type is {name}, but actual type is {kind.name}"
        raise CallRejected(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
