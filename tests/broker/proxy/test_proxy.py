"""Clients of a proxy: they notice nothing of it."""

from __future__ import annotations

import pytest

from broker.core.config import DomainConfig, Mode
from formats.codes import AckStatus
from tests.broker.proxy.tree import Below, Tree
from tests.broker.rig import ACK, READ, WRITE, Rig, guid

APPS = ("foo", "bar")
DOMAINS = {
    each.name: each
    for each in (
        DomainConfig("priority", Mode.PRIORITY, deduplication_time_ms=120_000),
        DomainConfig("fanout", Mode.FANOUT, APPS),
        DomainConfig("broadcast", Mode.BROADCAST, persistent=False),
        DomainConfig("poison", Mode.FANOUT, APPS, delivery_attempts_max=3),
    )
}
QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"
BROADCAST = "bmq://broadcast/q"


@pytest.fixture
def tree() -> Tree:
    return Tree(DOMAINS)


@pytest.fixture
def root(tree: Tree) -> Rig:
    return tree.root()


def chain(tree: Tree, root: Rig, length: int) -> list[Below]:
    """Proxies, each below the one before."""
    above = root.node
    found = []
    for number in range(length):
        proxy = tree.proxy(f"proxy{number}")
        tree.join(proxy, above)
        above = proxy.node
        found.append(proxy)
    return found


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_post_and_confirm(tree: Tree, root: Rig, hops: int) -> None:
    *_, proxy = chain(tree, root, hops)
    producer, consumer = tree.client(proxy.node), tree.client(proxy.node)
    response = producer.open(1, QUEUE, WRITE | ACK)
    assert response.deduplication_time_ms == 120_000
    consumer.read(7, QUEUE)
    assert [producer.post(1, guid(n), b"%d" % n) for n in range(3)] == [AckStatus.SUCCESS] * 3
    pushes = consumer.pushes()
    assert [(push.queue_id, push.guid, push.payload) for push in pushes] == [(7, guid(n), b"%d" % n) for n in range(3)]
    assert len(root.node.queues[QUEUE].messages) == 3
    consumer.confirm(7, *(guid(n) for n in range(3)))
    assert not root.node.queues[QUEUE].messages
    assert not any(each.node.queues[QUEUE].messages for each in tree.proxies)
    producer.close(1, QUEUE, WRITE)
    consumer.close(7, QUEUE, READ)
    assert not any(each.node.queues or each.node.domains for each in tree.proxies)
    assert not root.node.queues[QUEUE].is_open
