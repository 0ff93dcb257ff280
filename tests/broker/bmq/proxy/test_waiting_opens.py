"""Opens that a broker keeps waiting, since nobody serves the queue: each is made once, however long that takes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.proxy.proxy import UpstreamNode
from formats.bmq.control.messages import ControlMessage, OpenQueue, OpenQueueResponse, Status, StatusCategory
from tests.broker.bmq.proxy.tree import Below, Link, Tree, TreeClient
from tests.broker.bmq.relay.hop_rig import World
from tests.broker.bmq.rig import ACK, READ, WRITE, guid, handle

QUEUE = "bmq://one/q"
# Beyond the time limit of other requests, twice.
LONG_MS = 130_000
# Beyond the time for which a broker keeps an open waiting.
TOO_LONG_MS = 310_000


@dataclass
class Chain:
    """A proxy below a replica; the queue's primary is node 0, which has a producer for it."""

    consumers_max: int
    tree: Tree = field(init=False)
    world: World = field(init=False)
    proxy: Below = field(init=False)
    link: Link = field(init=False)

    def __post_init__(self) -> None:
        domain = DomainConfig("one", Mode.PRIORITY, persistent=False, consumers_max=self.consumers_max)
        self.tree = Tree({"one": domain})
        self.world = self.tree.cluster((0, 1))
        self.proxy = self.tree.proxy("proxy", (UpstreamNode(1, "node1"),))
        self.join()
        self.tree.client(self.world.nodes[0].rig.node).open(0, QUEUE, WRITE | ACK)

    def join(self) -> None:
        self.link = self.tree.join(self.proxy, self.world.nodes[1].rig.node, 1)

    def make_primary(self, node_id: int | None) -> None:
        self.world.make_primary(node_id)
        self.tree.run()
        self.tree.wait(6000)

    def ask(self) -> TreeClient:
        """Return a client of the proxy that has asked for the queue."""
        client = self.tree.client(self.proxy.node)
        client.send(
            client._schema_event(ControlMessage(r_id=77, choice=OpenQueue(handle_parameters=handle(0, QUEUE, READ))))
        )
        return client

    @property
    def readers(self) -> list[int]:
        """The numbers of readers at the primary and at the replica."""
        queues = [hop.rig.node.queues.get(QUEUE) for hop in self.world.nodes.values()]
        return [
            sum(stream.readers for queue in (each,) if queue for app in queue.apps.values() for stream in app.streams)
            for each in queues
        ]


@pytest.mark.parametrize("consumers_max", [0, 1])
def test_a_queue_reopened_at_a_broker_without_an_upstream_is_opened_once(consumers_max: int) -> None:
    chain = Chain(consumers_max)
    consumer = chain.tree.client(chain.proxy.node)
    consumer.read(0, QUEUE)
    chain.make_primary(None)
    chain.tree.cut(chain.link)
    chain.join()
    chain.tree.wait(LONG_MS)
    chain.make_primary(0)
    assert chain.readers == [1, 1]
    producer = chain.tree.client(chain.proxy.node)
    producer.open(0, QUEUE, WRITE | ACK)
    producer.post(0, guid(1), b"x")
    assert len(consumer.pushes()) == 1
    consumer.close(0, QUEUE, READ)
    assert chain.readers == [0, 0]


def test_a_client_that_waits_for_an_open_has_it_once() -> None:
    chain = Chain(1)
    chain.make_primary(None)
    client = chain.ask()
    chain.tree.wait(LONG_MS)
    assert client.taken() == []
    chain.make_primary(0)
    assert [type(each) for each in client.taken()] == [OpenQueueResponse]
    assert chain.readers == [1, 1]
    client.close(0, QUEUE, READ)
    assert chain.readers == [0, 0]


def test_an_open_granted_after_its_client_was_refused_is_given_back() -> None:
    chain = Chain(1)
    # The answer to the proxy's request comes late.
    chain.link.blocked = True
    client = chain.ask()
    chain.tree.wait(TOO_LONG_MS)
    (status,) = client.taken()
    assert isinstance(status, Status)
    assert status.category is StatusCategory.TIMEOUT
    assert chain.readers == [1, 1]
    chain.link.blocked = False
    chain.tree.run()
    assert chain.readers == [0, 0]
    assert not chain.proxy.node.queues


def test_an_open_is_not_asked_for_when_its_client_was_refused() -> None:
    chain = Chain(1)
    chain.make_primary(None)
    gone = chain.ask()
    chain.tree.wait(TOO_LONG_MS)
    (status,) = gone.taken()
    assert isinstance(status, Status)
    assert not chain.proxy.node.queues
    assert QUEUE not in chain.world.nodes[1].rig.node.queues
    other = chain.ask()
    chain.make_primary(0)
    # There is room for one consumer.
    assert [type(each) for each in other.taken()] == [OpenQueueResponse]
    assert chain.readers == [1, 1]
