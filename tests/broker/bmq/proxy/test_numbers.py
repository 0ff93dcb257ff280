"""Numbers that clients of proxies choose: their sums stop at what a request can carry, hop by hop."""

from __future__ import annotations

import pytest

from broker.bmq.relay.handles.handle_counts import COUNT_MAX
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import ClientType, OpenQueueResponse
from tests.broker.bmq.proxy.test_proxy import DOMAINS, QUEUE, chain
from tests.broker.bmq.proxy.tree import Tree
from tests.broker.bmq.rig import ACK, READ, WRITE, Client, Wanted, guid, identity


@pytest.mark.parametrize("client_type", [ClientType.TCPCLIENT, ClientType.TCPBROKER])
def test_a_message_without_a_guid_is_refused(client_type: ClientType) -> None:
    """The message would be damage in a journal, and the node would not start again."""
    rig = Tree(DOMAINS).root()
    peer = Client(rig.node)
    peer.negotiate(identity(client_type))
    # The node sends its status to a broker.
    peer.take()
    peer.inbox.clear()
    peer.open(1, QUEUE, WRITE | ACK)
    assert peer.post(1, bytes(16), b"payload") is AckStatus.UNKNOWN
    assert peer.post(1, guid(1), b"payload") is AckStatus.SUCCESS
    assert not rig.faults()
    assert list(rig.restart().node.queues[QUEUE].messages) == [guid(1)]


@pytest.mark.parametrize("hops", [1, 2])
def test_many_who_open_with_the_highest_numbers(hops: int) -> None:
    tree = Tree(DOMAINS)
    root = tree.root()
    *_, proxy = chain(tree, root, hops)
    clients = [tree.client(proxy.node) for _ in range(3)]
    for client in clients:
        answer = client.try_open(0x8000_0001, QUEUE, READ | WRITE, read_count=COUNT_MAX, write_count=COUNT_MAX)
        assert isinstance(answer, OpenQueueResponse)
        client.subscribe(0x8000_0001, Wanted(messages_max=(1 << 63) - 1, bytes_max=(1 << 63) - 1, count=COUNT_MAX))
    assert root.node.queues[QUEUE].writers == COUNT_MAX
    honest = tree.client(proxy.node)
    honest.open(1, QUEUE, WRITE | ACK)
    assert honest.post(1, guid(1), b"payload") is AckStatus.SUCCESS
    assert [push.payload for client in clients for push in client.pushes()] == [b"payload"]
    for client in clients:
        client.drop()
    assert root.node.queues[QUEUE].writers == 1
    honest.drop()
    assert not root.node.queues[QUEUE].is_open
