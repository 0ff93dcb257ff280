"""Damaged messages between brokers: a link may end, and nothing else may happen to the broker that reads it."""

from __future__ import annotations

from random import Random

import pytest

from broker.bmq.session.session_table import SessionState
from formats.bmq.wire.event import iter_frames
from tests.broker.bmq.proxy.test_proxy import BROADCAST, DOMAINS, FANOUT, QUEUE, chain
from tests.broker.bmq.proxy.tree import Link, Tree
from tests.broker.bmq.rig import ACK, READ, WRITE, Rig, guid

ROUNDS = 60


def talk() -> tuple[Tree, Rig, Link]:
    """A proxy and its root that have had much to say, and their link."""
    tree = Tree(DOMAINS)
    root = tree.root()
    (proxy,) = chain(tree, root, 1)
    (link,) = tree.links
    client = tree.client(proxy.node)
    for number, uri in enumerate((QUEUE, FANOUT, BROADCAST, "bmq://poison/q", "bmq://full/q", "bmq://unknown/q")):
        client.try_open(number, uri, WRITE | ACK)
    client.read(0, QUEUE)
    client.read(1, FANOUT, "foo", 1)
    client.read(1, FANOUT, "bar", 2)
    client.read(2, BROADCAST)
    client.read(3, "bmq://poison/q", "foo", 1)
    for number in range(10):
        for queue_id in range(5):
            client.put(queue_id, guid(number * 10 + queue_id), b"%d" % number * 10)
    client.confirm(0, *(guid(number * 10) for number in range(5)))
    client.confirm(1, *(guid(number * 10 + 1) for number in range(5)), sub_id=1)
    client.close(1, FANOUT, READ, app="bar", sub_id=2)
    client.drop()
    return tree, root, link


def damaged(data: bytes, random: Random) -> bytes:
    """The events after the negotiation, with some bits, bytes or whole parts changed."""
    view = memoryview(data)
    first = next(iter(iter_frames(view, 0, len(view), 1 << 30)))
    out = bytearray(data[first.end :])
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(out))
        match random.randrange(4):
            case 0:
                out[at] ^= 1 << random.randrange(8)
            case 1:
                out[at] = random.choice((0, 0xFF, 0x80, 0x7F))
            case 2:
                del out[at : at + random.randrange(1, 9)]
            case _:
                out[at:at] = random.randbytes(random.randrange(1, 9))
    return bytes(out)


@pytest.mark.parametrize("part", range(2))
def test_from_a_proxy(part: int) -> None:
    tree, root, link = talk()
    said = bytes(link.up)
    ended = 0
    witness = tree.client(root.node)
    witness.open(0, QUEUE, WRITE | ACK)
    for seed in range(part * ROUNDS, (part + 1) * ROUNDS):
        proxy = tree.proxy(f"proxy{seed}")
        bad = tree.join(proxy, root.node)
        bad.upper.receive(memoryview(bytearray(damaged(said, Random(seed)))))
        ended += bad.upper.state is SessionState.CLOSED
        tree.links.remove(bad)
        root.node.disconnect(bad.upper, "cut")
        tree.proxies.remove(proxy)
    assert 0 < ended < ROUNDS
    assert witness.session.state is SessionState.RUNNING
    # Nothing of any of them is left.
    assert {handle.queue.uri for session in root.node.sessions.values() for handle in session.handles.values()} == {
        QUEUE
    }


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_from_a_node(part: int) -> None:
    _, _, link = talk()
    said = bytes(link.down)
    ended = 0
    for seed in range(part * ROUNDS, (part + 1) * ROUNDS):
        tree = Tree(DOMAINS)
        root = tree.root()
        (proxy,) = chain(tree, root, 1)
        (bad,) = tree.links
        client = tree.client(proxy.node)
        client.read(0, QUEUE)
        client.read(1, FANOUT, "foo", 1)
        client.open(2, BROADCAST, WRITE | ACK)
        bad.lower.receive(memoryview(bytearray(damaged(said, Random(seed)))))
        proxy.node.role.settle()
        ended += bad.lower.state is SessionState.CLOSED
        assert client.session.state is SessionState.RUNNING
        bad.cut()
        tree.links.clear()
        tree.wait(300)
        tree.join(proxy, root.node)
        # It goes on with the next, as if nothing had been.
        other = tree.client(proxy.node)
        other.open(0, QUEUE, WRITE | ACK)
        assert other.post(0, guid(seed), b"on") == 0
    assert 0 < ended < ROUNDS
