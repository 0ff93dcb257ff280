"""Clients of lite topics: a producer, and a group for each lite topic, which consumes it in order.

A lite topic is judged as a topic of its own, under the name of its queue.
"""

from __future__ import annotations

from typing import Any

from formats.rocketmq.lite import LITE_TOPIC, queue_name, split_queue_name
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies import lite as bodies
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from formats.rocketmq.remoting.receipts import ORDERED, Receipt
from tests.broker.rocketmq.answers import records_of
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.ordered import OrderedGroup
from tests.simulator.rocketmq.pops import Popped, RemotingPops, Taken
from tests.simulator.rocketmq.process import BROKER
from tests.simulator.rocketmq.producers import WAITING_MAX, Producer, Surroundings
from tests.simulator.rocketmq.promises import Sent
from tests.simulator.rocketmq.wire import name_of

__all__ = ["LITE_TOPICS", "PARENT", "LiteGroup", "LiteProducer"]

PARENT = "l0"
LITE_TOPICS = ("a", "b")


class LiteProducer(Producer):
    """A producer of messages to all lite topics."""

    def act(self) -> None:
        random = self.world.random
        if self.link.waiting >= WAITING_MAX:
            return
        if self._again and random.random() < 0.7:
            self._send(*self._again.pop())
            return
        self._count += 1
        lite_topic = random.choice(LITE_TOPICS)
        sent = Sent(f"{self.name}.{self._count}", queue_name(PARENT, lite_topic), "A", self.world.wall_ms)
        self.world.promises.messages[sent.name] = sent
        self._send(sent, {LITE_TOPIC: lite_topic}, 0)

    def _fields(self, topic: str, properties: dict[str, str], flags: int) -> dict[str, Any]:
        return {**super()._fields("t1", properties, flags), "b": PARENT}


class _LitePops(RemotingPops):
    """The requests of a group about one lite topic."""

    def __init__(self, *terms: Any, lite_topic: str) -> None:
        super().__init__(*terms, is_ordered=True)
        self._lite_topic = lite_topic

    def pop(self, most: int, hidden_ms: int, poll_ms: int, taken: Taken, *, init_mode: int = 0) -> None:
        fields = {
            "clientId": self._group,
            "consumerGroup": self._group,
            "topic": self._topic,
            "maxMsgNum": most,
            "invisibleTime": hidden_ms,
            "pollTime": poll_ms,
            "bornTime": self._wall_ms(),
        }
        self._connection.ask(RequestCode.POP_LITE_MESSAGE, fields, lambda answer: taken(self._read(answer)))

    def _read(self, answer: Frame | None) -> list[Popped] | None:
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return super()._read(answer)
        found, told = [], answer.ext_fields or {}
        for record in records_of(answer):
            properties = decode_properties(record.properties)
            offset = int(properties["INNER_MULTI_QUEUE_OFFSET"])
            if properties[LITE_TOPIC] != self._lite_topic:
                raise Violation(f"{self._group} gets {name_of(record.body)} of lite topic {properties[LITE_TOPIC]}")
            receipt = Receipt(offset, int(told["popTime"]), int(told["invisibleTime"]), ORDERED, "0", BROKER, 0, offset)
            found.append(Popped(name_of(record.body), str(receipt), 0, offset, record.stored_ms, 0))
        return found

    def _fields(self, receipt: Receipt, handle: str) -> dict[str, Any]:
        return {**super()._fields(receipt, handle), "liteTopic": self._lite_topic}


class LiteGroup(OrderedGroup):
    """A group of one client, which is subscribed to one lite topic."""

    def __init__(self, world: Surroundings, name: str, lite_topic: str) -> None:
        super().__init__(world, name, queue_name(PARENT, lite_topic), is_grpc=False)

    def connect(self) -> None:
        """Connect, and go on after the last message that is known to be consumed."""
        self._handles.clear()
        # A broker that starts knows of none, and an offset that is set frees the lite topic.
        self._under_way.clear()
        self._is_popping = False
        self.link = self._connection = connection = self.world.connect(
            self.name, lambda frame: None, HeaderEncoding.JSON
        )
        parent, lite_topic = split_queue_name(self.topic) or ("", "")
        self.pops = _LitePops(connection, self.name, parent, lambda: self.world.wall_ms, lite_topic=lite_topic)
        self._subscribe(bodies.PARTIAL_ADD, bodies.OffsetOption("OFFSET", self.low))

    def heartbeat(self) -> None:
        """Repeat the subscription, as clients do."""
        self._subscribe(bodies.COMPLETE_ADD, None)

    def _subscribe(self, action: str, option: bodies.OffsetOption | None) -> None:
        _, lite_topic = split_queue_name(self.topic) or ("", "")
        change = bodies.LiteSubscription(action, self.name, self.name, PARENT, [lite_topic], option)
        body = bodies.SUBSCRIPTIONS.write(bodies.LiteSubscriptions([change]))
        self._connection.ask(RequestCode.LITE_SUBSCRIPTION_CTL, {}, self._subscribed, body)

    def _subscribed(self, answer: Frame | None) -> None:
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{self.name} subscribes to {self.topic}, and is told {answer.code}: {answer.remark}")
