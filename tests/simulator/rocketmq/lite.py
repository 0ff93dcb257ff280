"""Clients of lite topics: a producer, and a group for each lite topic, which consumes it in order.

A lite topic is judged as a topic of its own, under the name of its queue.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from formats.rocketmq.lite import LITE_TOPIC, queue_name
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
from tests.simulator.rocketmq.wire import Connection, name_of

__all__ = ["LITE_TOPICS", "PARENT", "LiteGroup", "LiteProducer"]

PARENT = "l0"
LITE_TOPICS = ("a", "b")
# Groups of two clients, the chance that the other one takes the lite topic over, and that the one without it acts.
PAIR_LUCK = 0.5
TAKING_LUCK, IDLE_LUCK = 0.03, 0.1


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

    def __init__(self, *terms: Any, client_id: str, lite_topic: str) -> None:
        super().__init__(*terms, is_ordered=True)
        self._client_id = client_id
        self._lite_topic = lite_topic

    def pop(self, most: int, hidden_ms: int, poll_ms: int, taken: Taken, *, init_mode: int = 0) -> None:
        fields = {
            "clientId": self._client_id,
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
    """A group that consumes one lite topic, with one client, or with two of which one at a time is subscribed."""

    def __init__(self, world: Surroundings, name: str, lite_topic: str, own: Random) -> None:
        super().__init__(world, name, queue_name(PARENT, lite_topic), own, is_grpc=False)
        self._lite_topic = lite_topic
        self.is_pair = own.random() < PAIR_LUCK
        # The client that is subscribed, and the other one.
        self._ids = [name, f"{name}-other"]
        self._idle: Connection | None = None
        # The number of subscriptions so far, and whether the last one was answered.
        self._turn = 0
        self._is_subscribed = False

    def connect(self) -> None:
        """Connect, and go on after the last message that is known to be consumed."""
        self._connection = self._open()
        if self.is_pair:
            self._idle = self._open()
        self._begin()

    def _open(self) -> Connection:
        return self.world.connect(self.name, lambda frame: None, HeaderEncoding.JSON)

    def _begin(self) -> None:
        """Subscribe the client whose turn it is."""
        self._forget_handles()
        # A broker that starts knows no messages under way, and an offset that is set frees the lite topic.
        self._under_way.clear()
        self.link = self._connection
        self.pops = self._pops_of(self._connection, self._ids[0])
        self._turn += 1
        self._is_subscribed = False
        option = bodies.OffsetOption("OFFSET", self.low)
        self._subscribe(self._connection, self._ids[0], bodies.PARTIAL_ADD, option)

    def _pops_of(self, connection: Connection, client_id: str) -> RemotingPops:
        terms = connection, self.name, PARENT, lambda: self.world.wall_ms
        return _LitePops(*terms, client_id=client_id, lite_topic=self._lite_topic)

    def check_counts(self, found: list[Popped]) -> None:
        """Check nothing: answers to pops of lite topics have no counts of single messages."""

    def heartbeat(self) -> None:
        """Repeat the subscription, as clients do."""
        self._subscribe(self._connection, self._ids[0], bodies.COMPLETE_ADD, None)

    def act(self) -> None:
        """Act as the client that is subscribed. At times, the other one takes over, or goes on in vain."""
        luck = self.own.random() if self.is_pair and self._is_subscribed else 1.0
        if luck < TAKING_LUCK and not self._connection.waiting and self._idle is not None:
            self._ids.reverse()
            self._connection, self._idle = self._idle, self._connection
            self._begin()
        elif luck < IDLE_LUCK:
            self._act_in_vain()
        else:
            super().act()

    def _act_in_vain(self) -> None:
        """Repeat the subscription that the other client has taken over, and pop, as a client that ignores notices."""
        assert self._idle is not None
        self._subscribe(self._idle, self._ids[1], bodies.COMPLETE_ADD, None)
        self._pops_of(self._idle, self._ids[1]).pop(1, 2_000, 0, partial(self._popped_in_vain, self._turn))

    def _popped_in_vain(self, turn: int, found: list[Popped] | None) -> None:
        if found and turn == self._turn:
            raise Violation(
                f"a client of {self.name} gets {found[0].name}, and another one has taken {self.topic} over"
            )

    def _subscribe(
        self, connection: Connection, client_id: str, action: str, option: bodies.OffsetOption | None
    ) -> None:
        change = bodies.LiteSubscription(action, client_id, self.name, PARENT, [self._lite_topic], option)
        body = bodies.SUBSCRIPTIONS.write(bodies.LiteSubscriptions([change]))
        answered = partial(self._subscribed, self._turn)
        connection.ask(RequestCode.LITE_SUBSCRIPTION_CTL, {}, answered, body)

    def _subscribed(self, turn: int, answer: Frame | None) -> None:
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            raise Violation(f"{self.name} subscribes to {self.topic}, and is told {answer.code}: {answer.remark}")
        self._is_subscribed |= answer is not None and turn == self._turn
