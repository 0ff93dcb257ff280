"""Whole events and single messages at a proxy: the same bytes to all sides, and the same state, from the same input."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.messages import Message
from broker.bmq.core.statistics import Kept
from broker.bmq.proxy.proxy import BridgeLimits
from broker.bmq.queue.routing import Stream
from broker.bmq.relay import relay_links
from broker.bmq.relay.posts import Posts
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.store.partition_files import PartitionLimits
from tests.broker.bmq.proxy.tree import Tree, TreeClient
from tests.broker.bmq.random_events import RandomEvents, Row
from tests.broker.bmq.rig import ACK, WRITE, Wanted

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
    """Bytes received by clients and sent up and down, and the state of queues."""

    outputs: list[bytes]
    up: bytes
    down: bytes
    states: list[Any]


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
        *(
            relay.uri,
            posts,
            (room.messages, room.bytes),
            (usage.messages, usage.bytes),
            relay.arrivals.pushed,
            messages,
            apps,
        ),
        *([getattr(relay.statistics, name) for name in Kept._fields], list(relay.confirms._sent)),
    )


class Play:
    """A root, a proxy, and clients of both whose events follow from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tree = Tree({config.name: config for config in DOMAINS})
        self.root = self.tree.root(limits=LIMITS)
        limits = BridgeLimits(messages_max=self.random.choice((7, 1000, 1000)))
        self.proxy = self.tree.proxy("proxy", limits=limits)
        self.link = self.tree.join(self.proxy, self.root.node)
        self.outputs: list[bytes] = []
        self.events = RandomEvents(self.random, range(3, 3 + len(NAMES)), (9, 4))
        self.producers = [self._producer(each) for each in (self.proxy.node, self.proxy.node, self.root.node)]
        self.consumers: list[TreeClient] = []
        self.got: dict[int, list[Row]] = {}

    def _producer(self, node: Any) -> TreeClient:
        client = self.tree.client(node)
        for queue_id, name in enumerate(NAMES):
            client.open(queue_id + 3, f"bmq://{name}/q", WRITE | ACK)
        return client

    def put(self) -> None:
        events = self.events.posts()
        self.random.choice(self.producers).send(events)

    def confirm(self) -> None:
        index = self.random.randrange(max(1, len(self.consumers)))
        got = self.got.get(index)
        if got:
            events = self.events.confirms(got)
            if self.consumers[index].session.is_client:
                self.consumers[index].send(events)

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
        return Result(self.outputs, bytes(self.link.up), bytes(self.link.down), states)


@pytest.mark.parametrize("seeds", range(2))
def test_whole_events_do_and_send_the_same(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    puts: list[bool] = []
    confirms: list[int] = []
    forward, confirm = Posts.forward, RelayQueue.confirm

    def counted(posts: Posts, *given: Any) -> bool:
        puts.append(forward(posts, *given))
        return puts[-1]

    def noted(relay: RelayQueue, stream: Stream, guids: Sequence[bytes]) -> int:
        confirms.append(len(guids))
        return confirm(relay, stream, guids)

    for seed in range(seeds * 10, seeds * 10 + 10):
        with monkeypatch.context() as patch:
            patch.setattr(Posts, "forward", counted)
            patch.setattr(RelayQueue, "confirm", noted)
            whole = Play(seed).run(60)
        with monkeypatch.context() as patch:
            # Each post, confirm and push by itself.
            patch.setattr(Posts, "forward", lambda *_: False)
            patch.setattr(
                RelayQueue,
                "confirm",
                lambda relay, stream, guids: sum(confirm(relay, stream, (guid,)) for guid in guids),
            )
            patch.setattr(relay_links, "hand_out", lambda relay, raw, at, end: at)
            single = Play(seed).run(60)
        assert whole.outputs == single.outputs, seed
        assert whole.up == single.up, seed
        assert whole.down == single.down, seed
        assert whole.states == single.states, seed
    assert sum(puts) > 20
    assert sum(count > 1 for count in confirms) > 10
