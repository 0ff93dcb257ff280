"""Requests to store messages (source: SendMessageProcessor, HookUtils).

The broker adds its own properties to the sender's. Until they are due, messages with a delay level wait in a topic of
the broker's own, with their real topic in a property; so do the first halves of transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.rocketmq.consuming.lite.placing import LitePlaces, drop_places
from broker.rocketmq.delays.levels import integer
from broker.rocketmq.delays.timers import LATE, place_late, recall_handle
from broker.rocketmq.remoting.requests import Refused
from broker.rocketmq.sending.arrivals import Arrivals
from broker.rocketmq.sending.sending_back import SendingBack
from broker.rocketmq.sending.transactions import place_prepared
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull, Unstorable
from broker.rocketmq.store.message_store import Stored
from broker.rocketmq.store.writing import Common, plain_message
from broker.rocketmq.tables import names
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.properties import encode
from broker.rocketmq.tables.topics import Topics
from formats.errors import FormatError
from formats.rocketmq import lite
from formats.rocketmq.fast.plain_records import LITE_MARK, PROPERTY_END
from formats.rocketmq.fast.send_frames import offset_id_front
from formats.rocketmq.files.index import index_key
from formats.rocketmq.flags import TRANSACTION_MASK, SystemFlag, Transaction
from formats.rocketmq.grpc.codes import MessageType
from formats.rocketmq.hosts import Host
from formats.rocketmq.java import HashedFront, hash_map_order
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.message_types import PRIORITY, message_type, priority_of
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.batch import iter_batch
from formats.rocketmq.remoting.bodies.routes import Permission, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.sending import SendMessageRequest, SendMessageRequestV2, SendMessageResponse
from formats.schema import Buffer

__all__ = ["SPECIAL", "SendRequest", "Sender", "read_header"]

_FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_UNIT, _UNIT_SUBSCRIPTION = 1, 2
# Plain integers: a flag's complement has only the bits that its class names, and each operation makes a member.
_V6_MASK: Final = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)
_BORN_V6, _STORE_V6, _MULTI_TAGS = (
    int(SystemFlag.BORN_HOST_V6),
    int(SystemFlag.STORE_HOST_V6),
    int(SystemFlag.MULTI_TAGS),
)
_PLACED_LATE: Final = (int(Transaction.NONE), int(Transaction.COMMIT))
_TRANSACTED: Final = (int(Transaction.PREPARED), int(Transaction.ROLLBACK))
_WRITE: Final = int(Permission.WRITE)

# A message with one of these is stored elsewhere, or with other properties than its sender's.
SPECIAL: Final = LATE | {"TRAN_MSG", lite.LITE_TOPIC, PRIORITY}

REQUEST = codec_of(SendMessageRequest)
REQUEST_V2 = codec_of(SendMessageRequestV2)
RESPONSE = codec_of(SendMessageResponse)


class SendRequest(NamedTuple):
    """A request to store messages, with a header of either version."""

    header: SendMessageRequest
    topic: TopicConfig
    queue_id: int


class Sender:
    """Stores producers' messages. `choose(n)` returns a number from 0 to n - 1."""

    def __init__(
        self,
        options: BrokerOptions,
        topics: Topics,
        store: Arrivals,
        sending_back: SendingBack,
        choose: Callable[[int], int],
        make_unique_id: Callable[[], str],
        lite_places: LitePlaces,
    ) -> None:
        self._options = options
        self._topics = topics
        self._store = store
        self._sending_back = sending_back
        self._choose = choose
        self._make_unique_id = make_unique_id
        self._lite_places = lite_places
        self._store_host = options.address.pack()

    def send(self, request: Frame, born_host: Host, now_ms: int) -> Frame:
        """Carry out SEND_MESSAGE, SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE, and answer."""
        fields = self.fields()
        try:
            sent = self.check(request, now_ms)
            response = self._store_batch if sent.header.is_batch else self._store_one
            answer = response(sent, request, born_host, now_ms)
        except Refused as refused:
            return Frame(refused.code, 0, remark=refused.text or None, ext_fields=fields)
        return Frame(ResponseCode.SUCCESS, 0, ext_fields={**fields, **RESPONSE.write(answer)})

    def fields(self) -> dict[str, str]:
        """Return the fields of every answer to a request to store messages."""
        return {"MSG_REGION": self._options.region, "TRACE_ON": "true" if self._options.trace_on else "false"}

    def check(self, request: Frame, now_ms: int) -> SendRequest:
        """Read a request, and create its topic if allowed. Raises `Refused` and `FormatError`."""
        header = read_header(request)
        fault = names.fault_of_topic(header.topic)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        if names.is_own(header.topic):
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")
        topic = self._topics.get_for_sender(header.topic) or self._make_topic(header, now_ms)
        if topic is None:
            text = f"topic[{header.topic}] not exist, apply first please!{_FAQ}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, text)
        if not (self._options.permission & topic.perm & _WRITE):
            text = f"the broker[{self._options.address.address}] sending message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, text)
        queues = max(topic.write_queue_nums, topic.read_queue_nums)
        if header.queue_id >= queues:
            text = f"request queueId[{header.queue_id}] is illegal, topic {header.topic} has {queues} queues"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        queue_id = header.queue_id if header.queue_id >= 0 else self._choose(max(1, topic.write_queue_nums))
        return SendRequest(header, topic, queue_id)

    def _make_topic(self, header: SendMessageRequest, now_ms: int) -> TopicConfig | None:
        is_retry = header.topic.startswith(names.RETRY_PREFIX)
        flags = (_UNIT_SUBSCRIPTION if is_retry else _UNIT) if header.unit_mode else 0
        made = self._topics.make_for_sender(
            header.topic, header.default_topic, header.default_topic_queues, flags, now_ms
        )
        if made is None and is_retry:
            return self._topics.make_for_group(header.topic, 1, flags, now_ms)
        return made

    def _store_one(self, sent: SendRequest, request: Frame, born_host: Host, now_ms: int) -> SendMessageResponse:
        header = sent.header
        properties = self.complete(header.properties or "")
        dead = None
        if header.topic.startswith(names.RETRY_PREFIX):
            dead = self._sending_back.check_retry(header, request.version, now_ms)
        if dead is not None:
            properties["DELAY"] = "-1"
        sent = sent._replace(queue_id=_queue_of(sent, properties))
        is_prepared = _is_prepared(properties, header)
        if is_prepared:
            topic, queue_id = place_prepared(header.topic, sent.queue_id, properties)
        else:
            topic, queue_id = dead or self._place(header, sent.queue_id, properties, now_ms)
        is_immediate = topic == header.topic and header.system_flags & TRANSACTION_MASK not in _TRANSACTED
        self._lite_places.place(sent.topic, properties, is_immediate=is_immediate)
        message = self.message(sent, topic, queue_id, born_host, request.body, encode(properties))
        if is_prepared:
            message = message._replace(system_flags=message.system_flags & ~TRANSACTION_MASK)
        stored = self._put(message, now_ms, properties)
        waits = topic == names.TIMER_TOPIC != header.topic
        return SendMessageResponse(
            str(OffsetId(self._options.address, stored.offset)),
            sent.queue_id,
            stored.queue_offset,
            transaction_id=properties["UNIQ_KEY"],
            recall_handle=recall_handle(self._options.name, properties) if waits else None,
        )

    def complete(self, text: str) -> dict[str, str]:
        """Return the properties of a message as stored, without the effects of those in `SPECIAL`."""
        properties = self._properties(text)
        properties["UNIQ_KEY"] = properties.setdefault("UNIQ_KEY", "") or self._make_unique_id()
        properties["CLUSTER"] = self._options.cluster
        return properties

    def _place(
        self, header: SendMessageRequest, queue_id: int, properties: dict[str, str], now_ms: int
    ) -> tuple[str, int]:
        """Return the topic and queue where a message waits: its own, unless it is consumed later."""
        if header.system_flags & TRANSACTION_MASK not in _PLACED_LATE:
            return header.topic, queue_id
        return place_late(self._options, header.topic, queue_id, properties, now_ms)

    def store_reply(
        self, sent: SendRequest, request: Frame, born_host: Host, now_ms: int
    ) -> tuple[SendMessageResponse, dict[str, str]]:
        """Store a reply to a message; return its place and its properties. Raises `Refused`."""
        properties = self._properties(sent.header.properties or "")
        message = self.message(sent, sent.header.topic, sent.queue_id, born_host, request.body, encode(properties))
        stored = self._put(message._replace(system_flags=message.system_flags & _V6_MASK), now_ms)
        offset_id = str(OffsetId(self._options.address, stored.offset))
        return SendMessageResponse(offset_id, sent.queue_id, stored.queue_offset), properties

    def _store_batch(self, sent: SendRequest, request: Frame, born_host: Host, now_ms: int) -> SendMessageResponse:
        header = sent.header
        if header.topic.startswith(names.RETRY_PREFIX):
            text = f"batch request does not support retry group {header.topic}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, text)
        limit = self._options.message_bytes_max
        if len(request.body) > limit:
            text = f"message body size exceeded: the batch has {len(request.body)} bytes, more than {limit}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, text)
        try:
            batch = list(iter_batch(request.body))
        except FormatError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        if not batch:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch has no message")
        if not all(self._is_legal(header.topic, body, properties) for _, body, properties in batch):
            raise _illegal(limit)
        if any(LITE_MARK in PROPERTY_END + properties for _, _, properties in batch):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch has no messages of lite topics")
        front = self.message(sent, header.topic, sent.queue_id, born_host, b"", b"")
        commons = {flag: Common(front._replace(flag=flag)) for flag in {each.flag for each in batch}}
        unique_keys = HashedFront(index_key(header.topic, "").encode())
        try:
            run = [
                plain_message(commons[flag], unique_keys, sent.queue_id, header.born_ms, body, properties)
                for flag, body, properties in batch
            ]
            places = self._store.put_together(run, now_ms)
        except (DiskFull, Unstorable) as error:
            raise self._refusal(error) from None
        id_front = offset_id_front(self._options.address)
        ids = ",".join([f"{id_front}{offset:016X}" for offset, _, _ in places])
        unique_id = decode_properties((header.properties or "").encode()).get("UNIQ_KEY")
        return SendMessageResponse(ids, sent.queue_id, places[0][2], transaction_id=unique_id)

    def message(
        self,
        sent: SendRequest,
        topic: str,
        queue_id: int,
        born_host: Host,
        body: Buffer,
        properties: bytes,
    ) -> Message:
        header = sent.header
        flags = header.system_flags & ~_V6_MASK
        if sent.topic.topic_filter_type == "MULTI_TAG":
            flags |= _MULTI_TAGS
        if born_host.is_v6:
            flags |= _BORN_V6
        if self._options.address.is_v6:
            flags |= _STORE_V6
        return Message(
            topic,
            queue_id,
            header.flag,
            flags,
            header.born_ms,
            born_host.pack(),
            self._store_host,
            header.reconsume_times or 0,
            0,
            body,
            properties,
        )

    def _put(self, message: Message, now_ms: int, properties: dict[str, str] | None = None) -> Stored:
        if not self._is_legal(message.topic, message.body, message.properties):
            raise _illegal(self._options.message_bytes_max)
        try:
            return self._store.put(message, now_ms, properties)
        except (DiskFull, Unstorable) as error:
            raise self._refusal(error) from None

    def _refusal(self, error: DiskFull | Unstorable) -> Refused:
        if isinstance(error, DiskFull):
            return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")
        return _illegal(self._options.message_bytes_max)

    def _is_legal(self, topic: str, body: Buffer, properties: bytes) -> bool:
        """Return whether the parts of a message are within their limits."""
        is_short = len(body) <= self._options.message_bytes_max and len(properties) <= 0x7FFF
        return is_short and len(topic.encode()) <= 255

    def _properties(self, text: str) -> dict[str, str]:
        """Return the sender's properties with the broker's own, in the original's order."""
        properties = hash_map_order(_sound(decode_properties(text.encode())))
        properties["MSG_REGION"] = self._options.region
        properties["TRACE_ON"] = "true" if self._options.trace_on else "false"
        properties.pop("POP_CK", None)
        drop_places(properties)
        return hash_map_order(properties)


def _queue_of(sent: SendRequest, properties: dict[str, str]) -> int:
    """Return the queue for a message: that of its priority, if it has one.

    Removes the priority of a message of another type, which has no effect.
    """
    priority = priority_of(properties)
    if priority is None:
        return sent.queue_id
    if message_type(properties) != MessageType.PRIORITY:
        del properties[PRIORITY]
        return sent.queue_id
    return min(priority, max(1, sent.topic.write_queue_nums) - 1)


def _is_prepared(properties: dict[str, str], header: SendMessageRequest) -> bool:
    """Return whether a message is the first half of a transaction; a retried one never is."""
    if properties.get("TRAN_MSG", "").lower() != "true":
        return False
    return not ((header.reconsume_times or 0) > 0 and integer(properties.get("DELAY")) > 0)


def read_header(request: Frame) -> SendMessageRequest:
    """Return the header of a request to store messages, as of version 1. Raises `FormatError`."""
    if request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        return REQUEST.read(request.ext_fields)
    short = REQUEST_V2.read(request.ext_fields)
    return SendMessageRequest(
        short.producer_group,
        short.topic,
        short.default_topic,
        short.default_topic_queues,
        short.queue_id,
        short.system_flags,
        short.born_ms,
        short.flag,
        short.properties,
        short.reconsume_times,
        short.unit_mode,
        short.is_batch,
        short.max_reconsume_times,
    )


def _sound(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties that have a name and a value: the original drops the others."""
    return {name: value for name, value in properties.items() if name and value}


def _illegal(limit: int) -> Refused:
    text = (
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {limit}B, msg properties length limit 32KB."
    )
    return Refused(ResponseCode.MESSAGE_ILLEGAL, text)
