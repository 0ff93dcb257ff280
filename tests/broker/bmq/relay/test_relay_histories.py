"""Histories at random: clients post, consume and come and go at all nodes of a cluster, links break, primaries change.

In the end every message that was acknowledged, and whose app did not confirm it, is there for a consumer, and nothing
that was confirmed while there was a primary comes again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from formats.bmq.codes import AckStatus
from tests.broker.bmq.relay.hop_rig import HopClient, World
from tests.broker.bmq.rig import ACK, READ, WRITE, Rig, Wanted, guid
from tests.families import sweep

APPS = ("foo", "bar")
DOMAINS = (DomainConfig("priority", Mode.PRIORITY), DomainConfig("fanout", Mode.FANOUT, APPS))
STEPS = 150


@dataclass
class Consumer:
    client: HopClient
    node_id: int
    app: str
    held: list[bytes] = field(default_factory=list)
    is_open: bool = True


@dataclass
class History:
    """The history of one queue by a seed, and its invariants."""

    seed: int
    fanout: bool
    amount: int | None = None  # of a slice
    world: World = field(init=False)
    producers: dict[int, HopClient] = field(default_factory=dict)
    consumers: list[Consumer] = field(default_factory=list)
    posted: set[bytes] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)
    confirmed: set[tuple[str, bytes]] = field(default_factory=set)
    doubtful: set[tuple[str, bytes]] = field(default_factory=set)
    # Confirms since there is no primary.
    waiting: list[tuple[Consumer, bytes]] = field(default_factory=list)
    count: int = 0
    changed: bool = False
    last_primary: int = 0
    files: Rig | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.uri = "bmq://fanout/q" if self.fanout else "bmq://priority/q"
        self.world = World(DOMAINS, (0, 1, 2))
        if self.amount is not None:
            self.world.slice(self.amount)
        self.world.make_primary(0)

    @property
    def apps(self) -> tuple[str, ...]:
        return APPS if self.fanout else ("",)

    def run(self) -> None:
        actions = (
            [self.post] * 8 + [self.confirm] * 8 + [self.come] * 3 + [self.go] * 2 + [self.change, self.reconfigure]
        )
        for _ in range(STEPS):
            self.random.choice(actions)()
            self.look()
        self.finish()

    def come(self) -> None:
        if len(self.consumers) >= 6 or self.world.primary is None:
            return
        node_id = self.random.randrange(3)
        client = self.world.client(node_id)
        app = self.random.choice(self.apps)
        client.open(1, self.uri, READ, app, 7 if app else 0)
        consumer = Consumer(client, node_id, app)
        self.consumers.append(consumer)
        self.subscribe(consumer)

    def subscribe(self, consumer: Consumer) -> None:
        wanted = Wanted(priority=self.random.randrange(2), messages_max=self.random.choice((1, 3, 1000)))
        consumer.client.subscribe(1, wanted, app=consumer.app or "__default")

    def reconfigure(self) -> None:
        if self.consumers:
            self.subscribe(self.random.choice(self.consumers))

    def go(self) -> None:
        if self.consumers:
            consumer = self.consumers.pop(self.random.randrange(len(self.consumers)))
            if self.random.random() < 0.5:
                consumer.client.drop()
            else:
                app, sub_id = consumer.app, 7 if consumer.app else 0
                final = self.random.random() < 0.5
                consumer.client.begin_to_close(1, self.uri, READ, app=app, sub_id=sub_id, final=final)

    def post(self) -> None:
        node_id = self.random.randrange(3)
        producer = self.producers.get(node_id)
        if producer is None:
            if self.world.primary is None:
                return
            producer = self.producers[node_id] = self.world.client(node_id)
            producer.open(1, self.uri, WRITE | ACK)
        self.count += 1
        self.posted.add(guid(self.count))
        producer.put(1, guid(self.count), b"%d" % self.count)

    def confirm(self) -> None:
        holders = [consumer for consumer in self.consumers if consumer.held]
        if holders:
            consumer = self.random.choice(holders)
            found = consumer.held.pop(self.random.randrange(len(consumer.held)))
            consumer.client.confirm(1, found, sub_id=7 if consumer.app else 0)
            self.confirmed.add((consumer.app, found))
            if self.world.primary is None:
                self.waiting.append((consumer, found))

    def change(self) -> None:
        """The primary hands over to another, or rests for a while."""
        world = self.world
        old = world.primary
        for consumer, found in self.waiting:
            # A new primary may hand it out before it hears of that.
            self.confirmed.discard((consumer.app, found))
            self.doubtful.add((consumer.app, found))
        self.waiting.clear()
        self.changed = True
        if old is None:
            world.make_primary(
                self.last_primary if self.random.random() < 0.3 else self.random.randrange(3), self.files
            )
            return
        self.last_primary = old
        self.files = world.nodes[old].rig
        # All that is on its way arrives: what is lost otherwise is the simulator's to show.
        world.make_primary(None)
        if self.random.random() < 0.7:
            world.make_primary(self.random.choice([each for each in range(3) if each != old]), self.files)

    def look(self) -> None:
        for producer in self.producers.values():
            for ack in producer.acks():
                assert ack.status == AckStatus.SUCCESS
                assert ack.guid in self.posted
                self.acked.add(ack.guid)
        for consumer in self.consumers:
            for push in consumer.client.pushes():
                assert push.guid not in consumer.held, "delivered twice to one who has it"
                # Of several apps, a hop does not know which has confirmed.
                known = not (self.changed and self.fanout)
                assert not known or (consumer.app, push.guid) not in self.confirmed, "delivered though confirmed"
                assert push.payload == b"%d" % self.number(push.guid)
                consumer.held.append(push.guid)
        held = [(consumer.app, each) for consumer in self.consumers for each in consumer.held]
        # A new primary does not know who has what.
        assert self.changed or len(held) == len(set(held)), "two consumers of an app have the same message"

    def number(self, wanted: bytes) -> int:
        return next(number for number in range(1, self.count + 1) if guid(number) == wanted)

    def finish(self) -> None:
        if self.world.primary is None:
            self.change()
        self.world.wait(1000)
        self.look()
        assert self.acked == self.posted
        for app in self.apps:
            client = self.world.client(self.random.randrange(3))
            client.read(1, self.uri, app, 7 if app else 0, priority=5)
            last = Consumer(client, 0, app)
            self.consumers.append(last)
        for consumer in self.consumers[: -len(self.apps)]:
            consumer.client.drop()
        self.consumers = self.consumers[-len(self.apps) :]
        self.look()
        for consumer in self.consumers:
            confirmed = {each for app, each in self.confirmed | self.doubtful if app == consumer.app}
            assert set(consumer.held) >= self.posted - confirmed
            assert self.changed or set(consumer.held) == self.posted - confirmed
        for consumer in self.consumers:
            consumer.client.drop()
        for producer in self.producers.values():
            producer.drop()
        for node_id, hop in self.world.nodes.items():
            queue = hop.rig.node.queues.get(self.uri)
            assert queue is None or (node_id == self.world.primary and not queue.is_open)


@pytest.mark.parametrize("fanout", [False, True])
@pytest.mark.parametrize("seed", sweep(range(20), 3))
@pytest.mark.parametrize("amount", [None, 2])
def test_history(seed: int, fanout: bool, amount: int | None) -> None:
    History(seed, fanout, amount).run()
