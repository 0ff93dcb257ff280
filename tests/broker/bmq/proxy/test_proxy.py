"""Clients of a proxy: they notice nothing of it."""

from __future__ import annotations

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.proxy.cluster import ProxyQueue
from formats.bmq.codes import AckStatus, EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import ControlMessage, OpenQueue, Status, StatusCategory, SubQueueIdInfo
from formats.bmq.wire.event import build_event, iter_frames, schema_message
from formats.bmq.wire.options import sub_queue_infos
from formats.bmq.wire.push import iter_pushes
from formats.bmq.wire.put import PutFlag
from formats.errors import FormatError
from tests.broker.bmq.proxy.tree import Below, Tree
from tests.broker.bmq.rig import ACK, READ, WRITE, Rig, guid, put_event

APPS = ("foo", "bar")
DOMAINS = {
    each.name: each
    for each in (
        DomainConfig("priority", Mode.PRIORITY, deduplication_time_ms=120_000),
        DomainConfig("fanout", Mode.FANOUT, APPS),
        DomainConfig("broadcast", Mode.BROADCAST, persistent=False),
        DomainConfig("poison", Mode.FANOUT, APPS, delivery_attempts_max=3),
        DomainConfig("full", Mode.PRIORITY, queue_messages_max=1),
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


def pushes_on(wire: bytearray) -> list[tuple[bytes, set[int]]]:
    """The messages that came down a link, each with the subscriptions that it is for."""
    view = memoryview(bytes(wire))
    return [
        (push.guid, {info.sub_queue_id for info in sub_queue_infos(push.options)})
        for frame in iter_frames(view, 0, len(view), 1 << 30)
        if frame.type == EventType.PUSH
        for push in iter_pushes(view, frame.body, frame.end)
    ]


def requests_on(wire: bytearray) -> list[object]:
    """The requests that went up a link."""
    view = memoryview(bytes(wire))
    found: list[object] = []
    for frame in iter_frames(view, 0, len(view), 1 << 30):
        if frame.type == EventType.CONTROL:
            try:
                message = ber.decode(ControlMessage, schema_message(view, frame.body, frame.end))
            except FormatError:
                continue  # how they said who they are
            found.append(message.choice)
    return found


def test_a_message_for_several_apps_crosses_each_link_once(tree: Tree, root: Rig) -> None:
    _, proxy = chain(tree, root, 2)
    producer = tree.client(root.node)
    producer.open(0, FANOUT, WRITE | ACK)
    consumers = [tree.client(proxy.node) for _ in range(6)]
    for number, consumer in enumerate(consumers):
        consumer.read(0, FANOUT, APPS[number % 2], 1)
    for number in range(6):
        assert producer.post(0, guid(number), b"%d" % number) is AckStatus.SUCCESS
    for link in tree.links:
        assert [(each, len(to)) for each, to in pushes_on(link.down)] == [(guid(number), 2) for number in range(6)]
    taken = [(number % 2, push) for number, consumer in enumerate(consumers) for push in consumer.pushes()]
    for app in range(2):
        assert sorted(push.guid for to, push in taken if to == app) == sorted(guid(number) for number in range(6))
    for number, consumer in enumerate(consumers):
        # Each took its turn.
        mine = [push.guid for to, push in taken[number * 2 : number * 2 + 2] if to == number % 2]
        assert len(mine) == 2
        consumer.confirm(0, *mine, sub_id=1)
    assert not root.node.queues[FANOUT].messages
    assert not proxy.node.queues[FANOUT].messages


def test_a_broadcast_crosses_each_link_once(tree: Tree, root: Rig) -> None:
    _, proxy = chain(tree, root, 2)
    consumers = [tree.client(proxy.node) for _ in range(100)]
    for consumer in consumers:
        consumer.read(0, BROADCAST)
    producer = tree.client(proxy.node)
    producer.open(0, BROADCAST, WRITE | ACK)
    assert producer.post(0, guid(1), b"x" * 1000) is AckStatus.SUCCESS
    assert all(consumer.payloads() == [b"x" * 1000] for consumer in consumers)
    for link in tree.links:
        assert len(pushes_on(link.down)) == 1
        assert bytes(link.down).count(b"x" * 1000) == 1
    assert not proxy.node.queues[BROADCAST].messages


def test_a_proxy_opens_and_configures_as_clients_come_and_go(tree: Tree, root: Rig) -> None:
    (proxy,) = chain(tree, root, 1)
    (link,) = tree.links
    one, two = tree.client(proxy.node), tree.client(proxy.node)
    one.read(1, FANOUT, "foo", 1, messages_max=10, bytes_max=100, priority=2)
    two.read(2, FANOUT, "foo", 5, messages_max=7, bytes_max=70, priority=2)
    two.read(2, FANOUT, "bar", 6, messages_max=1, bytes_max=10)
    stream = root.node.queues[FANOUT].apps["foo"].streams[0]
    (handle,) = link.upper.handles.values()
    assert {app: stream.readers for app, stream in handle.by_app.items()} == {"foo": 2, "bar": 1}
    (subscription,) = stream.subscriptions
    assert (subscription.messages_max, subscription.bytes_max) == (17, 170)
    assert (subscription.priority, subscription.count) == (2, 2)
    one.drop()
    (subscription,) = stream.subscriptions
    assert (subscription.messages_max, subscription.count) == (7, 1)
    assert {app: stream.readers for app, stream in handle.by_app.items()} == {"foo": 1, "bar": 1}
    two.drop()
    assert not link.upper.handles
    assert not proxy.node.queues
    opens = [each.handle_parameters for each in requests_on(link.up) if isinstance(each, OpenQueue)]
    # One queue id for all, and one sub-queue id for each app.
    assert len({each.q_id for each in opens}) == 1
    assert [(each.sub_id_info.app_id, each.read_count) for each in opens if each.sub_id_info] == [
        ("foo", 1),
        ("foo", 1),
        ("bar", 1),
    ]


def test_subscriptions_choose_behind_the_proxy(tree: Tree, root: Rig) -> None:
    _, proxy = chain(tree, root, 2)
    low, high = tree.client(proxy.node), tree.client(proxy.node)
    elsewhere = tree.client(root.node)
    for client, priority in ((low, 1), (high, 9), (elsewhere, 5)):
        client.read(0, QUEUE, priority=priority)
    producer = tree.client(proxy.node)
    producer.open(0, QUEUE, WRITE | ACK)
    producer.post(0, guid(0), b"0")
    assert [client.payloads() for client in (low, high, elsewhere)] == [[], [b"0"], []]
    high.drop()
    # Its unconfirmed messages stay at the proxy while a consumer is there; new ones go to the next.
    producer.post(0, guid(1), b"1")
    assert [client.payloads() for client in (low, elsewhere)] == [[b"0"], [b"1"]]
    low.drop()
    assert elsewhere.payloads() == [b"0"]


def test_messages_beyond_the_consumers_limit_wait_at_the_root(tree: Tree, root: Rig) -> None:
    (proxy,) = chain(tree, root, 1)
    consumer = tree.client(proxy.node)
    consumer.read(0, QUEUE, messages_max=3)
    producer = tree.client(root.node)
    producer.open(0, QUEUE, WRITE | ACK)
    for number in range(10):
        producer.post(0, guid(number), b"%d" % number)
    assert len(proxy.node.queues[QUEUE].messages) == 3
    found = consumer.pushes()
    assert len(found) == 3
    while found:
        consumer.confirm(0, found[-1].guid)
        found += consumer.pushes()
        found.remove(next(each for each in found if each.guid not in proxy.node.queues[QUEUE].messages))
    assert not root.node.queues[QUEUE].messages


def test_poison_is_counted_across_proxies(tree: Tree, root: Rig) -> None:
    uri = "bmq://poison/q"
    _, proxy = chain(tree, root, 2)
    producer = tree.client(root.node)
    producer.open(0, uri, WRITE | ACK)
    producer.post(0, guid(1), b"poison")
    for attempt in range(3):
        consumer = tree.client(proxy.node)
        consumer.read(0, uri, "foo", 1)
        tree.wait(4000)
        assert consumer.payloads() == [b"poison"], attempt
        consumer.drop()
    assert not root.node.queues[uri].apps["foo"].messages
    assert root.node.queues[uri].apps["bar"].messages == 1
    assert not proxy.node.queues


@pytest.mark.parametrize(
    ("uri", "flags", "app", "category"),
    [
        ("bmq://unknown/q", READ, "", StatusCategory.UNKNOWN),
        (FANOUT, READ, "", StatusCategory.UNKNOWN),
        (QUEUE, READ, "foo", StatusCategory.UNKNOWN),
    ],
)
def test_refusal_of_the_root_is_passed_on(
    tree: Tree, root: Rig, uri: str, flags: int, app: str, category: StatusCategory
) -> None:
    _, proxy = chain(tree, root, 2)
    client = tree.client(proxy.node)
    info = SubQueueIdInfo(sub_id=1, app_id=app) if app else None
    answer = client.try_open(0, f"{uri}?id={app}" if app else uri, flags, sub_id_info=info)
    direct = tree.client(root.node).try_open(0, f"{uri}?id={app}" if app else uri, flags, sub_id_info=info)
    assert isinstance(answer, Status)
    assert answer == direct
    assert answer.category is category
    # Nothing of it is kept.
    assert not any(each.node.queues or each.node.domains for each in tree.proxies)


def test_a_cluster_that_the_proxy_does_not_know(tree: Tree, root: Rig) -> None:
    (proxy,) = chain(tree, root, 1)
    proxy.node.resolve_domain = lambda name: DomainConfig(name, Mode.PRIORITY, cluster="elsewhere")
    answer = tree.client(proxy.node).try_open(0, QUEUE, READ)
    assert isinstance(answer, Status)
    assert "elsewhere" in answer.message


def test_a_post_without_an_ack_and_one_that_is_refused(tree: Tree, root: Rig) -> None:
    _, proxy = chain(tree, root, 2)
    producer = tree.client(proxy.node)
    producer.open(0, "bmq://full/q", WRITE | ACK)
    producer.put(0, guid(1), b"1", flags=0)
    assert producer.acks() == []
    assert len(root.node.queues["bmq://full/q"].messages) == 1
    while (status := producer.post(0, guid(len(root.node.queues["bmq://full/q"].messages) + 1), b"2")) == 0:
        pass
    assert status is AckStatus.LIMIT_MESSAGES
    assert producer.post(0, guid(1), b"1") is AckStatus.SUCCESS
    assert proxy.proxy.room.messages == proxy.proxy.room.bytes == 0


def test_a_peer_that_sends_garbage(tree: Tree, root: Rig) -> None:
    (proxy,) = chain(tree, root, 1)
    (link,) = tree.links
    link.upper.send_event(build_event(EventType.STORAGE, bytes(16)))
    link.carry()
    assert link.lower.finished
    assert not proxy.cluster.links.peers
    assert proxy.cluster.active_id is None
    other = tree.join(proxy, root.node)
    other.lower.send_event(build_event(EventType.PUSH, bytes(16)))
    other.carry()
    assert other.upper.finished


def test_a_node_that_stops_lets_proxies_go_first(tree: Tree, root: Rig) -> None:
    _, proxy = chain(tree, root, 2)
    producer, consumer = tree.client(root.node), tree.client(proxy.node)
    producer.open(0, QUEUE, WRITE | ACK)
    consumer.read(0, QUEUE)
    producer.post(0, guid(0), b"0")
    assert len(consumer.pushes()) == 1
    assert not root.node.retire()
    tree.run()
    assert not root.node.retire()
    consumer.confirm(0, guid(0))
    tree.run()
    assert root.node.retire()
    assert not root.node.queues[QUEUE].messages
    assert proxy.node.queues[QUEUE].opens.upstream is not None  # type: ignore[attr-defined]


def test_a_proxy_asks_for_no_more_than_it_can_keep(tree: Tree, root: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProxyQueue, "asked_bytes_max", 1000)
    (proxy,) = chain(tree, root, 1)
    consumer = tree.client(proxy.node)
    consumer.read(0, QUEUE)
    producer = tree.client(root.node)
    producer.open(0, QUEUE, WRITE | ACK)
    for number in range(20):
        producer.post(0, guid(number), b"x" * 300)
    found = consumer.pushes()
    assert len(found) == 4
    while found:
        consumer.confirm(0, found.pop(0).guid)
        found += consumer.pushes()
        assert proxy.node.queues[QUEUE].bytes <= 1200
    assert not root.node.queues[QUEUE].messages


def test_schemas_of_another_root_are_new_to_every_reader_below_two_hops(tree: Tree, root: Rig) -> None:
    """The other root uses the number for another shape, and only one reader gets the message that announces it."""
    (upper,), lower = chain(tree, root, 1), tree.proxy("lower")
    (link,) = tree.links
    tree.join(lower, upper.node)
    readers = [tree.client(lower.node) for _ in range(2)]
    for reader in readers:
        reader.read(7, QUEUE)
    known = set()
    for other in (root, tree.root()):
        if other is not root:
            tree.cut(link)
            tree.join(upper, other.node)
            tree.run()
        producer = tree.client(other.node)
        producer.open(1, QUEUE, WRITE | ACK)
        for number, schema_id in enumerate((3, 2)):
            flags = PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES
            post = guid(number + 10 * (other is root))
            producer.send(put_event(1, post, b"properties", flags=flags, schema_id=schema_id))
        tree.run()
        for reader in readers:
            (push,) = reader.pushes()
            assert push.schema_id & 1
            known.add(push.schema_id)
            reader.confirm(7, push.guid)
        tree.run()
    assert len(known) == 2
