"""Whole events and single messages at a proxy: the same bytes to all sides, and the same state, from the same input."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.messages import Message
from broker.bmq.core.statistics import Kept
from broker.bmq.proxy.proxy import BridgeLimits
from broker.bmq.relay.bulk import WholeEvents
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import EventType, PutFlag
from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.event import build_event
from formats.bmq.wire.put import append_put
from tests.broker.bmq.proxy.tree import Tree, TreeClient
from tests.broker.bmq.rig import ACK, WRITE, Wanted, guid

DOMAINS = (
    DomainConfig("priority", Mode.PRIORITY),
    DomainConfig("other", Mode.PRIORITY),
    DomainConfig("fanout", Mode.FANOUT, ("foo", "bar")),
    DomainConfig("poison", Mode.PRIORITY, delivery_attempts_max=3),
    DomainConfig("broadcast", Mode.BROADCAST, persistent=False),
)
NAMES = tuple(config.name for config in DOMAINS)
LIMITS = PartitionLimits(journal=1 << 20, data=4 << 20, qlist=16 << 10)


class Result(NamedTuple):
    """The bytes that clients got, those that went up and down, the state of queues, and how much was taken whole."""

    outputs: list[bytes]
    up: bytes
    down: bytes
    states: list[Any]
    whole_puts: int
    whole_confirms: int


def state_of(relay: RelayQueue) -> Any:
    """All that a relay remembers."""
    posts = [
        (each, put.message, put.size, put.posted_ms, len(put.posters)) for each, put in relay.unacknowledged.items()
    ]
    messages = [
        (
            *(each, message.size, message.compression, message.has_properties, message.schema_id, message.offset),
            *(message.outstanding, message.payload, message.arrived_ms, message.sent_ms),
        )
        for each, message in relay.messages.items()
    ]
    apps = [
        (
            *(app.app_id, app.messages, app.bytes, [each.guid for each in app.pending if isinstance(each, Message)]),
            [
                (list(stream.unconfirmed), [(each.messages_left, each.bytes_left) for each in stream.subscriptions])
                for stream in app.streams
            ],
            [getattr(app.statistics, name) for name in Kept._fields],
        )
        for app in relay.apps.values()
    ]
    room, usage = relay.posts.room, relay.usage
    return (
        *(relay.uri, posts, (room.messages, room.bytes), (usage.messages, usage.bytes), relay.pushed, messages, apps),
        *([getattr(relay.statistics, name) for name in Kept._fields], list(relay.confirms._sent)),
    )


class Play:
    """A root, a proxy, and clients of both whose events follow from a seed."""

    def __init__(self, seed: int, *, whole: bool) -> None:
        self.random = random.Random(seed)
        self.tree = Tree({config.name: config for config in DOMAINS})
        self.root = self.tree.root(limits=LIMITS)
        limits = BridgeLimits(messages_max=self.random.choice((7, 1000, 1000)))
        self.proxy = self.tree.proxy("proxy", limits=limits, bulk=whole)
        self.link = self.tree.join(self.proxy, self.root.node)
        self.proxy.cluster._relay_links.takes_events = whole
        self.counts = [0, 0]
        if whole:
            self._count(self.proxy.node.bulk)
        self.outputs: list[bytes] = []
        self.used: list[bytes] = []
        self.numbers = iter(range(1, 1 << 20))
        self.producers = [self._producer(each) for each in (self.proxy.node, self.proxy.node, self.root.node)]
        self.consumers: list[TreeClient] = []
        self.got: dict[int, list[tuple[int, bytes, int]]] = {}

    def _count(self, bulk: Any) -> None:
        counts = self.counts

        class Counting:
            def puts(self, *given: object) -> bool:
                counts[0] += (done := bulk.puts(*given))
                return bool(done)

            def confirms(self, *given: object) -> bool:
                counts[1] += (done := bulk.confirms(*given))
                return bool(done)

        assert isinstance(bulk, WholeEvents)
        self.proxy.node.bulk = Counting()

    def _producer(self, node: Any) -> TreeClient:
        client = self.tree.client(node)
        for queue_id, name in enumerate(NAMES):
            client.open(queue_id + 3, f"bmq://{name}/q", WRITE | ACK)
        return client

    def put(self) -> None:
        """Post one event, or some in one go."""
        events = b"".join([self._posts() for _ in range(self.random.choice((1, 1, 2, 5)))])
        self.random.choice(self.producers).send(events)

    def _posts(self) -> bytes:
        rng, body = self.random, bytearray()
        home = rng.randrange(len(NAMES)) + 3
        odd = rng.random() < 0.3
        for _ in range(rng.choice((1, 2, 3, 10, 20))):
            each = guid(next(self.numbers))
            if odd and rng.random() < 0.1:
                each = rng.choice([*self.used[-30:], bytes(16)])
            self.used.append(each)
            data = rng.randbytes(rng.choice((1, 3, 7, 60, 60, 300)))
            flags, schema_id = int(PutFlag.ACK_REQUESTED), 0
            if odd and rng.random() < 0.1:
                flags = 0
            if rng.random() < 0.2:
                flags, schema_id = flags | PutFlag.MESSAGE_PROPERTIES, rng.choice((0, 1, 3, 4, 5))
            queue_id = rng.choice((home, home, 9, 4)) if odd and rng.random() < 0.2 else home
            checksum = crc32c(data) ^ (odd and rng.random() < 0.05)
            append_put(body, queue_id, each, data, checksum, flags, rng.choice((0, 0, 0, 1)), schema_id)
        return build_event(EventType.PUT, bytes(body))

    def confirm(self) -> None:
        rng = self.random
        index = rng.randrange(max(1, len(self.consumers)))
        rows = self.got.get(index, [])
        if not rows:
            return
        chosen = list(rows)
        if rng.random() < 0.9:
            stream = rng.choice(rows)[::2]
            chosen = [row for row in rows if row[::2] == stream]
        chosen = chosen[: rng.choice((2, 5, 10, 50))]
        if rng.random() < 0.2:
            rng.shuffle(chosen)
        self.got[index] = [row for row in rows if row not in chosen]
        if rng.random() < 0.2:
            odd = [rng.choice(chosen), (chosen[0][0], rng.choice(self.used), chosen[0][2])]
            chosen[rng.randrange(len(chosen)) : 0] = odd[: rng.choice((1, 2))]
        if self.consumers[index].session.is_client:
            size = rng.choice((1, 7, 100))
            parts = [chosen[at : at + size] for at in range(0, len(chosen), size)]
            self.consumers[index].send(b"".join(map(build_confirm_event, parts)))

    def join(self) -> None:
        rng = self.random
        if len(self.consumers) >= 5:
            return
        self._let_through()
        client = self.tree.client(self.proxy.node)
        for queue_id, name in enumerate(NAMES):
            app = rng.choice(("foo", "bar")) if name == "fanout" else ""
            client.open(queue_id, f"bmq://{name}/q", 2, app, 1 if app else 0)
            # Of a larger limit, a fifth must be free again, and it matters when confirms are counted.
            wanted = Wanted(messages_max=rng.choice((5, 1000, 1000)), bytes_max=1 << 20)
            client.subscribe(queue_id, wanted, app=app or "__default")
        self.consumers.append(client)

    def leave(self) -> None:
        if self.consumers and self.random.random() < 0.3:
            self.random.choice(self.consumers).drop()

    def hold(self) -> None:
        """Have bytes wait on their way, up or down."""
        self.link.blocked, self.link.up_blocked = (self.random.random() < 0.4 for _ in range(2))
        self.tree.run()

    def _let_through(self) -> None:
        self.link.blocked = self.link.up_blocked = False
        self.tree.run()

    def read(self) -> None:
        for number, client in enumerate([*self.producers, *self.consumers]):
            if self.random.random() < 0.7:
                self.outputs.append(client.take())
                at = number - len(self.producers)
                if at >= 0:
                    rows = self.got.setdefault(at, [])
                    pushed = [push for push in client.pushes() if NAMES[push.queue_id] != "broadcast"]
                    rows += [(push.queue_id, push.guid, 1 if push.queue_id == 2 else 0) for push in pushed]

    def pass_time(self) -> None:
        self.tree.wait(self.random.choice((100, 1000)))

    def run(self, steps: int) -> Result:
        acts: list[Callable[[], None]] = [self.put, self.confirm, self.read, self.hold, self.pass_time, self.leave]
        self.join()
        for _ in range(steps):
            self.random.choices([*acts, self.join], (10, 10, 10, 3, 1, 1, 1))[0]()
        relays = [queue for queue in self.proxy.node.queues.values() if isinstance(queue, RelayQueue)]
        states = [state_of(relay) for relay in relays]
        return Result(self.outputs, bytes(self.link.up), bytes(self.link.down), states, *self.counts)


@pytest.mark.parametrize("seeds", range(4))
def test_whole_events_do_and_send_the_same(seeds: int) -> None:
    puts = confirms = 0
    for seed in range(seeds * 10, seeds * 10 + 10):
        whole, single = (Play(seed, whole=each).run(60) for each in (True, False))
        assert whole.outputs == single.outputs, seed
        assert whole.up == single.up, seed
        assert whole.down == single.down, seed
        assert whole.states == single.states, seed
        puts += whole.whole_puts
        confirms += whole.whole_confirms
    assert puts > 20
    assert confirms > 10
