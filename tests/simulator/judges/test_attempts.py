"""Deaths that count for the judge of attempts: those of which the brokers up to the primary will have heard."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from formats.bmq.codes import DEFAULT_APP_ID
from tests.broker.bmq.relay.hop_rig import HopClient, World
from tests.broker.bmq.rig import WRITE, Client, Wanted, guid
from tests.simulator.judges.attempts import Attempts
from tests.simulator.judges.invariants import Post, Promise, Records, Violation
from tests.simulator.worlds.features import Feature

URI = "bmq://priority/p"
NODES = (0, 1, 2, 3)


class Deaths:
    """Consumers of one message at a primary, node 0, and at hops; and their judge, who allows it two deaths."""

    def __init__(self) -> None:
        domain = DomainConfig("priority", Mode.PRIORITY, delivery_attempts_max=2)
        self.nodes = World((domain,), NODES)
        self.nodes.make_primary(0)
        self.hosts = [self._host(node_id) for node_id in NODES]
        found = Records({URI: (DEFAULT_APP_ID,)}, {URI: Promise.KEPT})
        found.posted(Post(guid(1), URI, "p0", 1, 10))
        world: Any = SimpleNamespace(features=frozenset({Feature.ATTEMPTS}), seed=0, records=found, hosts=self.hosts)
        world.domains, world.promises = {"priority": domain, "fanout": domain}, {}
        self.judge = Attempts(world)
        self.judge._limits[URI] = 2
        producers = [self.nodes.client(node_id) for node_id in NODES]
        for producer in producers:
            producer.open(0, URI, WRITE)  # its broker has the queue open, whether or not there are consumers
        producers[0].put(0, guid(1), b"payload")

    def _host(self, node_id: int) -> Any:
        node = self.nodes.nodes[node_id].rig.node
        return SimpleNamespace(name=f"n{node_id}", node_id=node_id, node=node, peer=lambda each: self.hosts[each])

    def consumer(self, node_id: int) -> HopClient:
        """Make a consumer, and check that it gets the message, as the judge sees it."""
        client = self.nodes.client(node_id)
        client.read(1, URI)
        assert [push.guid for push in client.pushes()] == [guid(1)]
        self.look()
        self.judge.pushed(self.link(client), self.hosts[node_id], URI, DEFAULT_APP_ID, guid(1))
        return client

    def link(self, client: HopClient) -> Any:
        return client.session

    def die(self, node_id: int, client: HopClient) -> None:
        """Let a consumer die; other nodes hear of it when the judge has."""
        Client.drop(client)
        self.judge.died(self.link(client), self.hosts[node_id])
        self.nodes.run()
        self.look()

    def look(self) -> None:
        for host in self.hosts:
            self.judge.look(host)


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_death_does_not_count_where_the_upstream_takes_the_message_back(is_heard: bool) -> None:
    """The upstream gives a message to others, and ignores its rejection, once no consumer there wants it any longer."""
    deaths = Deaths()
    first = deaths.consumer(1)
    if is_heard:
        first.subscribe(1, Wanted("x >= 2"))
        second = deaths.consumer(2)
        deaths.die(1, first)
    else:
        first.world = None
        with suppress(ValueError):
            first.subscribe(1, Wanted("x >= 2"))  # which is answered when the upstream has heard of it
        deaths.look()
        deaths.die(1, first)
        second = deaths.consumer(2)
    deaths.die(2, second)
    deaths.consumer(3)
    assert list(deaths.judge._deaths[URI].values()) == [1]


def test_each_other_death_at_a_hop_counts() -> None:
    deaths = Deaths()
    for node_id in (1, 2):
        deaths.die(node_id, deaths.consumer(node_id))
    assert list(deaths.judge._deaths[URI].values()) == [2]
    assert not deaths.hosts[0].node.queues[URI].messages
    with pytest.raises(Violation, match="after 2 consumers have died of it, and 2 may"):
        deaths.judge.pushed(object(), deaths.hosts[0], URI, DEFAULT_APP_ID, guid(1))  # type: ignore[arg-type]
