"""A hop when the primary of its queues changes, goes, or is not there yet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from crc32c import crc32c

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.handles import Refusal
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.queue.queue import Queue
from broker.bmq.relay.confirms import SENT_CONFIRMS_MAX, SENT_CONFIRMS_MS, LeftConfirms
from broker.bmq.relay.relay import RelayQueue
from broker.common.clock import Now
from formats.bmq.codes import AckStatus, PutFlag
from formats.bmq.control.messages import (
    ClientType,
    ControlMessage,
    OpenQueue,
    OpenQueueResponse,
    StatusCategory,
)
from formats.bmq.wire.event import EventType, build_event
from formats.bmq.wire.put import append_put
from formats.bmq.wire.rda import limited
from tests.broker.bmq.relay.hop_rig import DOMAINS, FANOUT, QUEUE, HopClient, World
from tests.broker.bmq.rig import ACK, READ, WRITE, Wanted, guid, handle


@pytest.fixture
def three() -> World:
    world = World(DOMAINS, (0, 1, 2))
    world.make_primary(0)
    return world


def test_a_new_primary_goes_on_where_the_old_one_was(three: World) -> None:
    """The clients of a hop notice nothing: what they hold they confirm, what was not handed out comes once."""
    producer, consumer = three.client(2), three.client(2)
    producer.open(0, QUEUE, WRITE | ACK)
    consumer.read(1, QUEUE, messages_max=2)
    for number in range(4):
        assert producer.post(0, guid(number), b"%d" % number) is AckStatus.SUCCESS
    assert consumer.payloads() == [b"0", b"1"]
    files = three.crash(0)
    for hop in three.nodes.values():
        hop.queues.primary_changed(0, None, 0)
    # Without a primary: posts and confirms wait.
    producer.put(0, guid(4), b"4")
    consumer.confirm(1, guid(0))
    assert producer.acks() == []
    three.make_primary(1, files)
    assert [ack.status for ack in producer.acks()] == [AckStatus.SUCCESS]
    assert consumer.payloads() == [b"2"]
    consumer.confirm(1, guid(1))
    assert consumer.payloads() == [b"3"]
    consumer.confirm(1, guid(2), guid(3))
    assert consumer.payloads() == [b"4"]
    consumer.confirm(1, guid(4))
    assert not three.nodes[1].rig.node.queues[QUEUE].messages
    assert not three.nodes[2].rig.node.queues[QUEUE].messages


def one_dies(world: World, consumers: list[HopClient]) -> None:
    """The consumer that has the message dies of it, and another may get it."""
    (victim,) = [each for each in consumers if each.payloads()]
    consumers.remove(victim)
    victim.drop()
    world.wait(4000)


@pytest.mark.parametrize("node_id", [0, 1, 2])
@pytest.mark.parametrize("deaths", [1, 2])
def test_the_attempts_at_a_held_message_count_at_the_next_primary(three: World, node_id: int, deaths: int) -> None:
    """Consumers are at a former primary, at the next one, or at a hop that gets another upstream."""
    uri = "bmq://poison/q"
    producer = three.client(2)
    producer.open(0, uri, WRITE | ACK)
    consumers = [three.client(node_id) for _ in range(5)]
    for consumer in consumers:
        consumer.read(0, uri, "foo", 1)
    producer.post(0, guid(0), b"bad")
    for _ in range(deaths):
        one_dies(three, consumers)
    three.make_primary(1, three.nodes[0].rig)
    for _ in range(3 - deaths):
        one_dies(three, consumers)
    assert [each.payloads() for each in consumers] == [[], []]
    assert three.nodes[1].rig.node.queues[uri].apps["foo"].messages == 0
    three.wait(4000)
    assert [each.payloads() for each in consumers] == [[], []]


def dies_elsewhere(world: World, producer: HopClient, uri: str) -> None:
    """Post a message that a consumer at node 1 gets. Its link is cut, and a consumer at node 2 dies of the message."""
    producer.post(0, guid(0), b"bad")
    world.part(0, 1)
    victim = world.client(2)
    victim.read(0, uri, "foo", 1)
    assert victim.payloads() == [b"bad"]
    victim.drop()
    world.wait(4000)
    world.join(0, 1)
    world.nodes[1].queues.primary_active(0, 0, True)
    world.wait(4000)


def test_a_hop_counts_the_deaths_elsewhere_for_a_message_that_its_consumer_has_kept(three: World) -> None:
    uri = "bmq://poison/q"
    producer = three.client(0)
    producer.open(0, uri, WRITE | ACK)
    consumers = [three.client(1) for _ in range(3)]
    for consumer in consumers:
        consumer.read(0, uri, "foo", 1)
    dies_elsewhere(three, producer, uri)
    for _ in range(2):
        one_dies(three, consumers)
    assert [each.payloads() for each in consumers] == [[]]
    for node_id in (0, 1):
        assert three.nodes[node_id].rig.node.queues[uri].apps["foo"].messages == 0


def test_a_hop_passes_the_deaths_elsewhere_on_to_the_proxy_that_has_the_message(three: World) -> None:
    uri = "bmq://poison/q"
    producer, proxy = three.client(0), three.client(1, ClientType.TCPBROKER)
    producer.open(0, uri, WRITE | ACK)
    proxy.read(0, uri, "foo", 1)
    dies_elsewhere(three, producer, uri)
    assert [(push.payload, push.rda_info) for push in proxy.pushes()] == [
        (b"bad", limited(3)),
        (b"bad", limited(2, poisonous=True)),
    ]


def test_the_hop_itself_becomes_the_primary(three: World) -> None:
    producer, consumer, other = three.client(1), three.client(1), three.client(2)
    producer.open(0, QUEUE, WRITE | ACK)
    consumer.read(1, QUEUE, messages_max=2)
    for number in range(4):
        producer.post(0, guid(number), b"%d" % number)
    assert consumer.payloads() == [b"0", b"1"]
    files = three.crash(0)
    for hop in three.nodes.values():
        hop.queues.primary_changed(0, None, 0)
    producer.put(0, guid(4), b"4")
    # A retransmission of what was acknowledged before.
    producer.put(0, guid(3), b"3")
    consumer.confirm(1, guid(0))
    # The next client to open it waits.
    other.world = None
    number = other._requests + 1
    other._requests = number
    opening = OpenQueue(handle_parameters=handle(5, QUEUE, READ))
    other.send(other._schema_event(ControlMessage(r_id=number, choice=opening)))
    assert other.acks() == []
    assert other.inbox == []
    three.make_primary(1, files)
    assert [(ack.guid, ack.status) for ack in producer.acks()] == [(guid(4), 0), (guid(3), 0)]
    assert consumer.payloads() == [b"2"]
    consumer.confirm(1, guid(1), guid(2), guid(3), guid(4))
    assert consumer.payloads() == [b"3", b"4"]
    assert not three.nodes[1].rig.node.queues[QUEUE].messages
    (answer,) = other._pick(ControlMessage)
    assert isinstance(answer.choice, OpenQueueResponse)
    assert producer.post(0, guid(5), b"5") is AckStatus.SUCCESS
    assert consumer.payloads() == [b"5"]


def _open_unanswered(world: World, node_id: int) -> HopClient:
    """A client at a hop, whose request to open the queue for reading is lost on the way to node 0."""
    client = world.client(node_id)
    client.world = None
    opening = OpenQueue(handle_parameters=handle(1, QUEUE, READ))
    client.send(client._schema_event(ControlMessage(r_id=1, choice=opening)))
    hop = world.nodes[node_id]
    hop.queues.flush()
    assert hop.links.sent.pop(0)
    return client


def _reads(world: World, client: HopClient) -> None:
    """The client has its answer, and gets what is posted now."""
    (answer,) = client._pick(ControlMessage)
    assert isinstance(answer.choice, OpenQueueResponse)
    client.world = world
    client._requests = 1
    client.subscribe(1, Wanted(""))
    producer = world.client(2)
    producer.open(0, QUEUE, WRITE | ACK)
    assert producer.post(0, guid(0), b"0") is AckStatus.SUCCESS
    assert client.payloads() == [b"0"]


@pytest.mark.parametrize("primaries", [(1,), (2,), (1, 2)])
def test_an_open_request_does_not_wait_for_a_former_primary(three: World, primaries: tuple[int, ...]) -> None:
    """The first primary does not answer, and its link stays up."""
    client = _open_unanswered(three, 1)
    for node_id in primaries:
        three.make_primary(node_id)
    _reads(three, client)


def test_a_hop_cannot_become_the_primary_at_once(three: World) -> None:
    """A hop that fails to become primary, as its disk is full, say: its clients wait for the next try."""
    producer, consumer = three.client(1), three.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    consumer.read(1, QUEUE)
    producer.post(0, guid(0), b"0")
    assert consumer.payloads() == [b"0"]
    files = three.crash(0)
    three.make_primary(1, files, fails=True)
    producer.put(0, guid(1), b"1")
    assert producer.acks() == []
    assert three.nodes[1].rig.node.domains["priority"].usage.messages == 0
    three.make_primary(1, files)
    assert [ack.status for ack in producer.acks()] == [AckStatus.SUCCESS]
    assert consumer.payloads() == [b"1"]


def test_a_new_primary_has_no_room_for_a_queue(three: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that was assigned, and never made at the old primary: its clients wait until there is room."""
    three.make_primary(None)
    producer = three.client(1)
    producer.world = None
    opening = OpenQueue(handle_parameters=handle(0, QUEUE, WRITE | ACK))
    producer.send(producer._schema_event(ControlMessage(r_id=1, choice=opening)))
    node = three.nodes[1].rig.node
    serve = node.serve_queue

    def no_room(name: str, domain: DomainInUse) -> Queue:
        raise Refusal(StatusCategory.NOT_READY, "no room", -1)

    monkeypatch.setattr(node, "serve_queue", no_room)
    three.make_primary(1, three.nodes[0].rig)
    three.wait(1500)
    assert producer._pick(ControlMessage) == []
    monkeypatch.setattr(node, "serve_queue", serve)
    three.wait(1500)
    (answer,) = producer._pick(ControlMessage)
    assert isinstance(answer.choice, OpenQueueResponse)
    producer.world = three
    assert producer.post(0, guid(0), b"0") is AckStatus.SUCCESS
    assert node.queues[QUEUE].is_root


def test_a_primary_becomes_a_hop(three: World) -> None:
    producer, consumer, far = three.client(0), three.client(0), three.client(2)
    producer.open(0, FANOUT, WRITE | ACK)
    consumer.read(1, FANOUT, "foo", 1, messages_max=2)
    far.read(1, FANOUT, "bar", 1)
    for number in range(3):
        producer.post(0, guid(number), b"%d" % number)
    assert consumer.payloads() == [b"0", b"1"]
    assert far.payloads() == [b"0", b"1", b"2"]
    three.make_primary(1, three.nodes[0].rig)
    consumer.confirm(1, guid(0), sub_id=1)
    assert consumer.payloads() == [b"2"]
    far.confirm(1, guid(0), guid(1), guid(2), sub_id=1)
    assert producer.post(0, guid(3), b"3") is AckStatus.SUCCESS
    consumer.confirm(1, guid(1), guid(2), sub_id=1)
    assert consumer.payloads() == [b"3"]
    assert far.payloads() == [b"3"]
    root = three.nodes[1].rig.node.queues[FANOUT]
    assert root.is_root
    assert {message.guid for message in root.messages.values()} == {guid(3)}
    assert three.nodes[0].rig.node.domains["fanout"].usage.messages == 0
    consumer.drop()
    far.drop()
    producer.drop()
    assert not three.nodes[0].rig.node.queues
    assert not root.is_open


@pytest.mark.parametrize(("uri", "app"), [(QUEUE, ""), (FANOUT, "foo")])
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("rollovers", [0, 1, 2])
def test_confirms_that_only_the_old_primary_knew_reach_the_next_one(
    three: World, uri: str, app: str, stays: bool, rollovers: int
) -> None:
    """The new primary has not got those records of the old one, which lives on."""
    three.nodes[0].rig.node.partitions[0].kept.copies_wanted = 2
    three.nodes[0].rig.node.partitions[0].kept.is_copied = True
    producer, consumer = three.client(1), three.client(0)
    producer.open(0, uri, WRITE | ACK)
    consumer.read(1, uri, app, 1) if app else consumer.read(1, uri)
    for number in range(3):
        producer.post(0, guid(number), b"%d" % number)
    assert consumer.payloads() == [b"0", b"1", b"2"]
    old = three.nodes[0].rig
    copied = replace(old, directory=old.directory.after_crash())
    consumer.confirm(1, guid(0), guid(1), sub_id=int(bool(app)))
    for _ in range(rollovers):
        old.node.partitions[0].roll_over()
    if not stays:
        consumer.drop()
    three.make_primary(1, copied)
    root = three.nodes[1].rig.node.queues[uri]
    assert root.is_root
    if not stays:
        assert set(root.messages) == {guid(number) for number in range(3)}
        consumer = three.client(0)
        consumer.read(1, uri, app, 1) if app else consumer.read(1, uri)
        assert consumer.payloads() == [b"2"]
    bit = root.apps[app or "__default"].bit
    assert {each for each, message in root.messages.items() if message.outstanding & bit} == {guid(2)}
    three.make_primary(0, copied)
    root = old.node.queues[uri]
    bit = root.apps[app or "__default"].bit
    assert {each for each, message in root.messages.items() if message.outstanding & bit} == {guid(2)}


def test_a_primary_that_becomes_a_hop_posts_anew_for_its_own_clients_alone() -> None:
    """Other members do that themselves: the next primary may have theirs, and be done with it."""
    world = World((DomainConfig("strong", Mode.PRIORITY, strong=True),), (0, 1))
    world.make_primary(0)
    primary, hop = world.nodes[0].rig.node, world.nodes[1].rig.node
    primary.partitions[0].kept.copies_wanted = 2
    primary.partitions[0].kept.is_copied = True
    uri = "bmq://strong/q"
    clients = [world.client(0), world.client(0), world.client(1)]
    for number, client in enumerate(clients):
        client.open(0, uri, WRITE | ACK)
        client.put(0, guid(number), b"payload")
    clients[1].drop()
    assert list(primary.queues[uri].awaiting) == [guid(0), guid(1), guid(2)]
    world.make_primary(None)
    (here, there) = primary.queues[uri], hop.queues[uri]
    assert isinstance(here, RelayQueue)
    assert isinstance(there, RelayQueue)
    assert list(here.unacknowledged) == [guid(0)]
    assert list(there.unacknowledged) == [guid(2)]


def test_a_primary_that_becomes_a_hop_refuses_a_post_whose_payload_has_rotted() -> None:
    """A second post would give it a checksum that fits and have it reach consumers."""
    world = World((DomainConfig("strong", Mode.PRIORITY, strong=True),), (0, 1))
    world.make_primary(0)
    primary = world.nodes[0].rig.node
    partition = primary.partitions[0]
    partition.kept.copies_wanted = 2
    client = world.client(0)
    client.open(0, "bmq://strong/q", WRITE | ACK)
    for number in range(2):
        client.put(0, guid(number), b"payload")
    rotten = primary.queues["bmq://strong/q"].messages[guid(0)]
    partition.records.read(rotten)[0] ^= 1
    world.make_primary(None)
    here = primary.queues["bmq://strong/q"]
    assert isinstance(here, RelayQueue)
    assert list(here.unacknowledged) == [guid(1)]
    assert [(ack.guid, ack.status) for ack in client.acks()] == [(guid(0), AckStatus.UNKNOWN)]


@pytest.mark.parametrize(("uri", "app"), [(QUEUE, ""), (FANOUT, ""), (FANOUT, "foo")])
@pytest.mark.parametrize("rollovers", [0, 1, 2])
def test_messages_purged_and_confirmed_at_one_primary_alone_do_not_come_again(
    three: World, uri: str, app: str, rollovers: int
) -> None:
    """A confirm after the purge has no record, and the purge goes with the lease."""
    three.nodes[0].rig.node.partitions[0].kept.copies_wanted = 2
    three.nodes[0].rig.node.partitions[0].kept.is_copied = True
    reader, sub_id = "foo" if uri == FANOUT else "", int(uri == FANOUT)
    producer, consumer = three.client(1), three.client(0)
    producer.open(0, uri, WRITE | ACK)
    consumer.read(1, uri, reader, sub_id) if reader else consumer.read(1, uri)
    for number in range(3):
        producer.post(0, guid(number), b"%d" % number)
    assert consumer.payloads() == [b"0", b"1", b"2"]
    old = three.nodes[0].rig
    copied = replace(old, directory=old.directory.after_crash())
    root = old.node.queues[uri]
    if app:
        purge_app(root, root.apps[app])
    else:
        purge(root)
    producer.post(0, guid(3), b"3")
    assert consumer.payloads() == [b"3"]
    consumer.confirm(1, guid(0), guid(1), guid(2), sub_id=sub_id)
    for _ in range(rollovers):
        old.node.partitions[0].roll_over()
    consumer.drop()
    three.make_primary(1, copied)
    consumer = three.client(0)
    consumer.read(1, uri, reader, sub_id) if reader else consumer.read(1, uri)
    assert consumer.payloads() == []
    root = three.nodes[1].rig.node.queues[uri]
    bits = {each.app_id: each.bit for each in root.apps.values()}
    wanted = {
        each: sum(bool(message.outstanding & bit) for message in root.messages.values()) for each, bit in bits.items()
    }
    # No client at the old primary reads the other app, so none could report it.
    assert wanted == ({"foo": 0, "bar": 3} if reader else {"__default": 0})


@pytest.mark.parametrize(("uri", "app"), [(QUEUE, ""), (FANOUT, "foo")])
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("waits_ms", [0, SENT_CONFIRMS_MS])
def test_confirms_of_messages_that_the_primary_lacks_reach_the_next_one(
    three: World, uri: str, app: str, stays: bool, waits_ms: int
) -> None:
    """The node that is sent the confirms takes itself for the primary, and has none of the messages."""
    old = three.nodes[0].rig
    without = replace(old, directory=old.directory.after_crash())
    three.make_primary(1)
    producer, consumer = three.client(1), three.client(0)
    producer.open(0, uri, WRITE | ACK)
    consumer.read(1, uri, app, 1) if app else consumer.read(1, uri)
    for number in range(3):
        producer.post(0, guid(number), b"%d" % number)
    assert consumer.payloads() == [b"0", b"1", b"2"]
    newer = three.nodes[1].rig
    copied = replace(newer, directory=newer.directory.after_crash())
    three.make_primary(0, without)
    assert not old.node.queues[uri].messages
    consumer.confirm(1, guid(0), guid(1), sub_id=int(bool(app)))
    if not stays:
        consumer.drop()
        consumer = three.client(0)
    three.wait(waits_ms)
    three.make_primary(1, copied)
    root = newer.node.queues[uri]
    if not stays:
        consumer.read(1, uri, app, 1) if app else consumer.read(1, uri)
    bit = root.apps[app or "__default"].bit
    held = {each for each, message in root.messages.items() if message.outstanding & bit}
    if waits_ms:
        assert held == {guid(0), guid(1), guid(2)}
    else:
        assert held == {guid(2)}
        assert consumer.payloads() == [b"2"]


def test_posts_of_a_client_that_has_left_go_with_the_primary(three: World) -> None:
    producer = three.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    reader = three.client(1)
    reader.read(0, QUEUE, messages_max=1)
    producer.world = None
    producer.put(0, guid(0), b"0")
    producer.put(0, guid(1), b"1")
    producer.drop()
    files = three.crash(0)
    three.nodes[1].queues.primary_changed(0, None, 0)
    again = three.client(1)
    again.world = None
    opening = OpenQueue(handle_parameters=handle(0, QUEUE, WRITE | ACK))
    again.send(again._schema_event(ControlMessage(r_id=1, choice=opening)))
    three.make_primary(2, files)
    again.world = three
    (answer,) = again._pick(ControlMessage)
    assert isinstance(answer.choice, OpenQueueResponse)
    again._requests = 1
    assert again.post(0, guid(1), b"1") is AckStatus.SUCCESS
    assert reader.payloads() == [b"1"]


def test_a_post_that_the_primary_is_not_ready_for_is_sent_again(three: World) -> None:
    producer = three.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    at_primary = three.nodes[0].queues._downstreams[1].handles
    ((queue_id, known),) = at_primary.items()
    del at_primary[queue_id]
    producer.put(0, guid(0), b"0")
    assert producer.acks() == []
    at_primary[queue_id] = known
    three.wait(300)
    assert [(ack.guid, ack.status) for ack in producer.acks()] == [(guid(0), 0)]


def test_posts_follow_one_that_the_primary_was_not_ready_for(three: World) -> None:
    producer = three.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    at_primary = three.nodes[0].queues._downstreams[1].handles
    ((queue_id, known),) = at_primary.items()
    del at_primary[queue_id]
    producer.put(0, guid(0), b"0")
    assert producer.acks() == []
    at_primary[queue_id] = known
    producer.put(0, guid(1), b"1")
    many = bytearray()
    for number in range(2, 12):
        append_put(many, 0, guid(number), b"x", crc32c(b"x"), PutFlag.ACK_REQUESTED)
    producer.send(build_event(EventType.PUT, many))
    assert producer.acks() == []
    three.wait(300)
    assert list(three.nodes[0].rig.node.queues[QUEUE].messages) == [guid(number) for number in range(12)]
    assert [ack.guid for ack in producer.acks()] == [guid(number) for number in range(12)]


def test_a_post_whose_refusal_is_still_on_its_way_is_sent_again_before_later_ones(three: World) -> None:
    producer = three.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    at_primary = three.nodes[0].queues._downstreams[1].handles
    ((queue_id, known),) = at_primary.items()
    del at_primary[queue_id]
    producer.put(0, guid(0), b"0")
    producer.put(0, guid(1), b"1")
    posts = three.nodes[1].rig.node.queues[QUEUE].posts  # type: ignore[attr-defined]
    posts._refused.remove(guid(1))
    at_primary[queue_id] = known
    three.wait(300)
    producer.put(0, guid(2), b"2")
    posts.on_acks((guid(1),), AckStatus.NOT_READY)
    three.wait(300)
    assert list(three.nodes[0].rig.node.queues[QUEUE].messages) == [guid(number) for number in range(3)]
    assert [ack.guid for ack in producer.acks()] == [guid(number) for number in range(3)]


def test_a_refusal_of_a_forgotten_post_holds_back_later_ones_until_all_are_sent_again(three: World) -> None:
    producer = three.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    at_primary = three.nodes[0].queues._downstreams[1].handles
    ((queue_id, known),) = at_primary.items()
    posts = three.nodes[1].rig.node.queues[QUEUE].posts  # type: ignore[attr-defined]
    del at_primary[queue_id]
    producer.put(0, guid(1), b"1")
    posts._refused.clear()  # this refusal is still on its way, that of a forgotten post arrives
    at_primary[queue_id] = known
    posts.on_acks((guid(0),), AckStatus.NOT_READY)
    producer.put(0, guid(2), b"2")
    three.wait(300)
    posts.on_acks((guid(1),), AckStatus.NOT_READY)
    three.wait(300)
    assert list(three.nodes[0].rig.node.queues[QUEUE].messages) == [guid(1), guid(2)]
    assert [ack.guid for ack in producer.acks()] == [guid(1), guid(2)]


def test_posts_expire_when_no_primary_comes(three: World) -> None:
    producer = three.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    three.crash(0)
    three.nodes[1].queues.primary_changed(0, None, 0)
    producer.put(0, guid(0), b"0")
    three.wait(200_000)
    producer.put(0, guid(1), b"1")
    assert producer.acks() == []
    three.wait(110_000)
    assert [(ack.guid, ack.status) for ack in producer.acks()] == [(guid(0), AckStatus.UNKNOWN)]


def test_posts_that_a_hop_has_handed_to_its_own_root_do_not_expire(three: World) -> None:
    client = three.client(1)
    client.open(0, QUEUE, WRITE | ACK)
    three.make_primary(None)
    client.put(0, guid(0), b"kept")
    three.make_primary(1)
    assert [(ack.guid, ack.status) for ack in client.acks()] == [(guid(0), AckStatus.SUCCESS)]
    three.wait(2 * DomainConfig("priority", Mode.PRIORITY).deduplication_time_ms)
    assert client.acks() == []


def test_a_hop_refuses_what_it_cannot_keep(three: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.bmq.relay.put_room.PUT_BYTES_MAX", 10)
    producer = three.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    three.crash(0)
    three.nodes[1].queues.primary_changed(0, None, 0)
    producer.put(0, guid(0), b"0" * 8)
    assert producer.acks() == []
    assert producer.post(0, guid(1), b"1" * 8) is AckStatus.LIMIT_BYTES


def test_clients_come_and_go_without_a_primary(three: World) -> None:
    one, two = three.client(1), three.client(1)
    one.read(1, FANOUT, "foo", 1)
    two.read(1, FANOUT, "foo", 1)
    files = three.crash(0)
    three.nodes[1].queues.primary_changed(0, None, 0)
    two.subscribe(1, Wanted("x > 1"), app="foo")
    one.close(1, FANOUT, READ, app="foo", sub_id=1)
    two.close(1, FANOUT, READ, app="foo", sub_id=1)
    assert not three.nodes[1].rig.node.queues
    three.make_primary(2, files)
    assert not three.nodes[2].rig.node.queues[FANOUT].is_open


def test_a_hop_waits_for_its_copy_of_the_partition(three: World) -> None:
    three.uncopied.add(1)
    consumer = three.client(1)
    consumer.world = None
    opening = OpenQueue(handle_parameters=handle(5, QUEUE, READ))
    consumer.send(consumer._schema_event(ControlMessage(r_id=1, choice=opening)))
    three.run()
    assert consumer._pick(ControlMessage) == []
    three.uncopied.clear()
    three.run()
    (answer,) = consumer._pick(ControlMessage)
    assert isinstance(answer.choice, OpenQueueResponse)


@pytest.mark.parametrize("primary", [1, 2])
@pytest.mark.parametrize("producer_at", [1, 2])
@pytest.mark.parametrize("uri", [QUEUE, f"{FANOUT}?id=foo"])
def test_a_consumer_that_has_left_had_confirmed(three: World, producer_at: int, primary: int, uri: str) -> None:
    """The old primary is lost with the confirm: the next reader there does not get that message again.

    With the producer elsewhere nobody has the queue open at the hop meanwhile.
    """
    queue, _, app = uri.partition("?id=")
    producer, consumer = three.client(producer_at), three.client(1)
    producer.open(0, queue, WRITE | ACK)
    consumer.read(1, queue, app, int(bool(app)))
    for number in range(2):
        assert producer.post(0, guid(number), b"%d" % number) is AckStatus.SUCCESS
    assert consumer.payloads() == [b"0", b"1"]
    consumer.world = None
    consumer.confirm(1, guid(0), sub_id=int(bool(app)))
    consumer.drop()
    assert (queue in three.nodes[1].rig.node.queues) == (producer_at == 1)
    three.make_primary(primary, three.crash(0))
    other = three.client(1)
    other.read(3, queue, app, int(bool(app)))
    assert other.payloads() == [b"1"]


def test_confirms_of_consumers_that_left_are_not_kept_for_ever(three: World) -> None:
    consumer = three.client(1)
    for number in range(3):
        producer = three.client(1)
        producer.open(0, f"{QUEUE}{number}", WRITE | ACK)
        assert producer.post(0, guid(number), b"payload") is AckStatus.SUCCESS
        consumer.read(number, f"{QUEUE}{number}")
        consumer.confirm(number, guid(number))
        producer.drop()
        three.wait(30_000)
        consumer.close(number, f"{QUEUE}{number}", READ)
    left = three.nodes[1].queues._relay_links.left
    assert left.uris == (f"{QUEUE}2",)


def test_so_many_confirms_are_kept_of_queues_that_nobody_has_open() -> None:
    left = LeftConfirms(Now(ms=1000))
    half = SENT_CONFIRMS_MAX // 2
    for number in range(3):
        left.keep(f"{QUEUE}{number}", [(1000, guid(each), "__default") for each in range(half)])
    assert left.uris == (f"{QUEUE}1", f"{QUEUE}2")
    assert len(left.take(f"{QUEUE}2")) == half
    assert left.take(f"{QUEUE}0") == left.take(f"{QUEUE}2") == []
