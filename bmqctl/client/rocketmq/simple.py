"""Consumers of a RocketMQ topic that ask for messages on demand, and have no queues of their own.

The broker hides the messages that it hands out from the rest of the group for a time (POP). A message not confirmed by
then is delivered again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self

import anyio
from anyio.lowlevel import checkpoint

from bmqctl.client.arguments import check_seconds, check_whole
from bmqctl.client.errors import ClientError
from bmqctl.client.remoting.faults import FAULTS, check_answer, words_of
from bmqctl.client.rocketmq.arguments import check_hidden_s
from bmqctl.client.rocketmq.cluster import Cluster
from bmqctl.client.rocketmq.errors import ConsumerClosed, RequestRefused
from bmqctl.client.rocketmq.message import Content
from bmqctl.client.spans import Spans
from formats.rocketmq.remoting.bodies.clients import SQL92, ConsumerData, Subscription, make_subscription
from formats.rocketmq.remoting.bodies.popping import MESSAGES_MAX
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.consuming import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    ConsumerSendMessageBackRequest,
    PopMessageRequest,
    UnregisterClientRequest,
)
from formats.rocketmq.remoting.popped import Popped, read_popped
from formats.rocketmq.remoting.receipts import Receipt, real_topic

__all__ = ["HiddenMessage", "SimpleConsumer", "SimpleConsumerOptions"]

# How long a broker without messages is asked before the topic's next one, which may have some.
TURN_S: Final = 1.0
POLL_S_MAX: Final = 15.0
PAUSE_S: Final = 0.1
CLOSE_S: Final = 5.0
_FROM_FIRST, _FROM_LAST = 0, 1
_DEAD: Final = -1
_NOTHING: Final = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND})
_POP: Final = codec_of(PopMessageRequest)
_ACK: Final = codec_of(AckMessageRequest)
_CHANGE: Final = codec_of(ChangeInvisibleTimeRequest)
_CHANGED: Final = codec_of(ChangeInvisibleTimeResponse)
_BACK: Final = codec_of(ConsumerSendMessageBackRequest)
_UNREGISTER: Final = codec_of(UnregisterClientRequest)


class SimpleConsumerOptions(NamedTuple):
    """Options of a simple consumer; `Session.simple_consumer` explains them."""

    topic: str
    group: str
    tags: str
    sql: str | None
    from_start: bool
    hidden_s: float
    attempts_max: int

    @property
    def subscription(self) -> Subscription:
        version = time.time_ns() // 1_000_000
        if self.sql is not None:
            return Subscription(self.topic, self.sql, SQL92, version)
        return make_subscription(self.topic, self.tags, version)


class HiddenMessage(Content):
    """A message that is hidden from the rest of its group for a time.

    `async with message` confirms it at the end of the block, or has it delivered again if that raises.
    """

    __slots__ = ("_attempts", "_consumer", "_receipt", "_until")

    def __init__(self, consumer: SimpleConsumer, popped: Popped, topic: str, broker: str, hidden_at: float) -> None:
        super().__init__(popped.record, topic, broker)
        self._consumer = consumer
        self._receipt = popped.receipt
        self._attempts = popped.attempts
        self._until = hidden_at + popped.receipt.invisible_ms / 1000

    def __repr__(self) -> str:
        return f"<HiddenMessage {self.message_id} of {self.topic}>"

    @property
    def attempt(self) -> int:
        return self._attempts + 1

    @property
    def left_s(self) -> float:
        """Seconds until the group may get it again; negative after that."""
        return self._until - anyio.current_time()

    @property
    def receipt(self) -> Receipt:
        """The broker's receipt handle; internal."""
        return self._receipt

    async def confirm(self) -> None:
        """Confirm the message: the group does not get it again.

        Raises `RequestRefused` if its time is over, or the broker does not confirm it.
        """
        await self._consumer.acknowledge(self)

    async def hide(self, seconds: float) -> None:
        """Hide the message for this time from now on, instead of the former one; 0 has it delivered again soon.

        Raises `RequestRefused` like `confirm`, and `ValueError` for a time outside 0 to three days.
        """
        check_hidden_s("seconds", seconds)
        await self._consumer.hide(self, _milliseconds(seconds))

    def hidden_again(self, terms: ChangeInvisibleTimeResponse, asked_at: float) -> None:
        """Note the broker's new terms; internal."""
        self._receipt = self._receipt._replace(
            start_offset=self._receipt.queue_offset,
            popped_ms=terms.popped_ms,
            invisible_ms=terms.invisible_ms,
            revive_queue=terms.revive_queue_id,
        )
        self._until = asked_at + terms.invisible_ms / 1000

    async def __aenter__(self) -> Self:
        self.begin_processing(self._consumer.spans, self._consumer.group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.end_processing(fault)
        if fault is None:
            await self.confirm()
            return
        with anyio.move_on_after(CLOSE_S, shield=True):
            try:
                await self.hide(0)
            except ClientError as refused:
                # It is delivered again in any case, only later.
                fault.add_note(str(refused))


class SimpleConsumer:
    """A consumer that gets messages of its group when it asks for them, made by `Session.simple_consumer`."""

    def __init__(self, cluster: Cluster, options: SimpleConsumerOptions) -> None:
        self.topic = options.topic
        self.group = options.group
        self._cluster = cluster
        self._options = options
        self._subscription = options.subscription
        self._turn = 0
        self._is_stale = False
        self._is_closed = False

    def __str__(self) -> str:
        return f"group {self.group} of topic {self.topic} at {self._cluster}"

    def __repr__(self) -> str:
        return f"<SimpleConsumer in {self}>"

    @property
    def spans(self) -> Spans | None:
        """The maker of the spans of messages; internal."""
        return self._cluster.spans

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def receive(self, count_max: int = 16, *, wait_s: float = 15.0) -> list[HiddenMessage]:
        """Wait up to `wait_s` for messages and return them, at most `count_max`, which is at most 32.

        If the call is cancelled with messages in flight, they stay hidden for their time, and come again then. Raises
        `RequestRefused` if no broker of the topic answers.
        """
        check_whole("count_max", count_max, 1, MESSAGES_MAX)
        check_seconds("wait_s", wait_s, is_zero_allowed=True)
        if self._is_closed:
            raise ConsumerClosed(f"the consumer in {self} is closed")
        await checkpoint()
        deadline = anyio.current_time() + wait_s
        # First ask each broker without waiting.
        poll_s = 0.0
        while True:
            began = anyio.current_time()
            brokers = await self._brokers()
            found = await self._ask(brokers, count_max, poll_s, deadline)
            left_s = deadline - anyio.current_time()
            if found or left_s <= 0:
                return found
            if poll_s and anyio.current_time() - began < PAUSE_S:
                # A broker with too many waiting requests answers immediately.
                await anyio.sleep(min(PAUSE_S, left_s))
            poll_s = POLL_S_MAX if len(brokers) == 1 else TURN_S

    async def _ask(
        self, brokers: list[tuple[str, str]], count_max: int, poll_s: float, deadline: float
    ) -> list[HiddenMessage]:
        """Ask brokers in turn until one has messages. Raises `RequestRefused` if none of them answers."""
        faults: list[Exception] = []
        self._turn += 1
        for number in range(len(brokers)):
            broker, address = brokers[(self._turn + number) % len(brokers)]
            try:
                found = await self._pop(broker, address, count_max, min(poll_s, deadline - anyio.current_time()))
            except FAULTS as fault:
                faults.append(fault)
                self._is_stale = True
                continue
            if found:
                return found
        if len(faults) == len(brokers):
            raise RequestRefused(f"{self}: {words_of(faults[-1])}")
        return []

    async def _brokers(self) -> list[tuple[str, str]]:
        """The brokers that have queues of the topic, and their addresses. Raises `RequestRefused`."""
        route = self._cluster.known_route(self.topic)
        if self._is_stale or not route.readable:
            try:
                route = await self._cluster.route(self.topic)
            except FAULTS as fault:
                raise RequestRefused(f"{self}: {words_of(fault)}") from None
            self._is_stale = False
        brokers = sorted({(queue.broker_name, queue.address) for queue in route.readable})
        if not brokers:
            raise RequestRefused(f"{self}: no broker has queues of the topic from which may be read")
        return brokers

    async def _pop(self, broker: str, address: str, count_max: int, poll_s: float) -> list[HiddenMessage]:
        """Ask a broker for messages. Raises one of `FAULTS`."""
        options, subscription = self._options, self._subscription
        poll_ms = max(0, round(1000 * poll_s))
        header = PopMessageRequest(
            self.group,
            self.topic,
            -1,
            count_max,
            _milliseconds(options.hidden_s),
            poll_ms,
            time.time_ns() // 1_000_000,
            _FROM_FIRST if options.from_start else _FROM_LAST,
            subscription.expression_type,
            subscription.sub_string,
        )
        link = await self._cluster.link_to(address)
        answer = await link.call(RequestCode.POP_MESSAGE, _POP.write(header), poll_ms / 1000 + self._cluster.timeout_s)
        if answer.code in _NOTHING:
            return []
        check_answer(f"no messages of topic {self.topic} from the broker at {address}", answer)
        answered_at = anyio.current_time()
        found = []
        for popped in read_popped(broker, answer.ext_fields, answer.body):
            message = HiddenMessage(self, popped, self.topic, broker, answered_at)
            if await self._is_wanted(message):
                found.append(message)
        return found

    async def _is_wanted(self, message: HiddenMessage) -> bool:
        """Return False for a message that is not for the program, and settle it. Raises one of `FAULTS`."""
        tags = self._subscription.tags_set
        if tags and message.tag not in tags:
            # The broker compares only hashes.
            await self._acknowledge(message)
            return False
        if message.attempt > self._options.attempts_max:
            await self._bury(message)
            return False
        return True

    # The fate of messages

    async def acknowledge(self, message: HiddenMessage) -> None:
        """Confirm a message; called by it."""
        self._check(message)
        try:
            await self._acknowledge(message)
        except FAULTS as fault:
            raise RequestRefused(f"{self}: {words_of(fault)}") from None

    async def hide(self, message: HiddenMessage, milliseconds: int) -> None:
        """Hide a message for another time; called by it."""
        self._check(message)
        receipt = message.receipt
        asked_at = anyio.current_time()
        try:
            header = ChangeInvisibleTimeRequest(
                self.group, *self._place(receipt), str(receipt), receipt.queue_offset, milliseconds
            )
            answer = await self._call(
                receipt, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, _CHANGE.write(header), "is not hidden again"
            )
            message.hidden_again(_CHANGED.read(answer.ext_fields or {}), asked_at)
        except FAULTS as fault:
            raise RequestRefused(f"{self}: {words_of(fault)}") from None

    def _check(self, message: HiddenMessage) -> None:
        if self._is_closed:
            raise ConsumerClosed(f"the consumer in {self} is closed")
        if message.left_s <= 0:
            raise RequestRefused(
                f"{self}: the time of message {message.message_id} is over, and the group gets it again: hide messages "
                "for longer (hidden_s, or hide) or take fewer at a time"
            )

    async def _acknowledge(self, message: HiddenMessage) -> None:
        receipt = message.receipt
        header = AckMessageRequest(self.group, *self._place(receipt), str(receipt), receipt.queue_offset)
        await self._call(receipt, RequestCode.ACK_MESSAGE, _ACK.write(header), "is not confirmed")

    async def _bury(self, message: HiddenMessage) -> None:
        """Have a message stored with the group's dead letters, then confirm it."""
        topic, _ = self._place(message.receipt)
        header = ConsumerSendMessageBackRequest(
            message.record.physical_offset, self.group, _DEAD, message.message_id, topic, max_reconsume_times=0
        )
        await self._call(
            message.receipt, RequestCode.CONSUMER_SEND_MSG_BACK, _BACK.write(header), "does not go to the dead letters"
        )
        await self._acknowledge(message)

    def _place(self, receipt: Receipt) -> tuple[str, int]:
        """The topic and the queue of a message, which may be the group's retry topic."""
        return real_topic(self.topic, self.group, receipt.kind), receipt.queue_id

    async def _call(self, receipt: Receipt, code: int, fields: Mapping[str, str], what: str) -> Frame:
        address = self._cluster.address_of(self.topic, receipt.broker)
        text = f"the message at {receipt.queue_offset} of queue {receipt.queue_id} of topic {self.topic} {what}"
        return await self._cluster.call(address, code, fields, text)

    # The life of the consumer

    async def begin(self) -> None:
        """Join the group. Raises `RequestRefused` or `OSError` if the topic is not known."""
        await self._cluster.route(self.topic)
        self._cluster.consumers[self.group] = ConsumerData(
            self.group,
            "CONSUME_ACTIVELY",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET" if self._options.from_start else "CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[self._subscription],
        )
        try:
            refusal = await self._cluster.beat()
            if refusal is not None:
                raise refusal
        except BaseException:
            await self.close()
            raise

    def look_again(self) -> None:
        self._is_stale = True

    async def close(self) -> None:
        """Leave the group, within five seconds. A second call has no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        self._cluster.consumers.pop(self.group, None)
        with anyio.move_on_after(CLOSE_S, shield=True):
            fields = _UNREGISTER.write(UnregisterClientRequest(self._cluster.client_id, consumer_group=self.group))
            await self._cluster.unregister(fields)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
