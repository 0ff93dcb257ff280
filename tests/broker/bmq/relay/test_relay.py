"""A hop between clients and a primary: what clients notice of it is nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.member.queues import NO_ROOM_MS
from broker.bmq.queue.handles import Refusal
from broker.bmq.relay.relay import RelayQueue
from formats.bmq.codes import AckStatus, PropertyType, PutFlag
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    CloseQueue,
    CloseQueueResponse,
    ConfigureStream,
    ConsumerInfo,
    ControlMessage,
    Expression,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    Status,
    StatusCategory,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)
from formats.bmq.wire.event import EventType, build_schema_event, iter_frames, schema_message
from formats.bmq.wire.options import sub_queue_infos
from formats.bmq.wire.properties import Property, encode_properties
from formats.bmq.wire.push import Push, PushFlag, iter_pushes
from formats.bmq.wire.rda import UNLIMITED, limited
from tests.broker.bmq.relay.hop_rig import APPS, DOMAINS, FANOUT, QUEUE, World
from tests.broker.bmq.rig import ACK, READ, WRITE, Wanted, guid, handle


@pytest.fixture
def world() -> World:
    world = World(DOMAINS)
    world.make_primary(0)
    return world


@pytest.mark.parametrize("uri", [QUEUE, "bmq://memory/q"])
@pytest.mark.parametrize("producer_at", [0, 1])
@pytest.mark.parametrize("consumer_at", [0, 1])
def test_post_and_confirm(world: World, uri: str, producer_at: int, consumer_at: int) -> None:
    producer, consumer = world.client(producer_at), world.client(consumer_at)
    producer.open(1, uri, WRITE | ACK)
    consumer.read(7, uri)
    assert [producer.post(1, guid(n), b"%d" % n) for n in range(3)] == [AckStatus.SUCCESS] * 3
    pushes = consumer.pushes()
    assert [(push.queue_id, push.guid, push.payload) for push in pushes] == [(7, guid(n), b"%d" % n) for n in range(3)]
    consumer.confirm(7, *(guid(n) for n in range(3)))
    for hop in world.nodes.values():
        assert not hop.rig.node.queues.get(uri, world.nodes[0].rig.node.queues[uri]).messages


def controls(world: World, source: int, target: int) -> list[object]:
    """The control messages that went from one node to another."""
    found: list[object] = []
    for sender, receiver, data in world.wire:
        if (sender, receiver) == (source, target):
            view = memoryview(data)
            for frame in iter_frames(view, 0, len(view), 1 << 26):
                if frame.type == EventType.CONTROL:
                    message = ber.decode(ControlMessage, schema_message(view, frame.body, frame.end))
                    found.append(message.choice)
    return found


def pushes(world: World, source: int, target: int) -> list[tuple[bytes, int, list[tuple[int, int]]]]:
    """The messages that one node pushed to another: GUID, flags, subscriptions with their RDA bytes."""
    found = []
    for sender, receiver, data in world.wire:
        if (sender, receiver) == (source, target):
            view = memoryview(data)
            for frame in iter_frames(view, 0, len(view), 1 << 26):
                if frame.type == EventType.PUSH:
                    for push in iter_pushes(view, frame.body, frame.end):
                        infos = [(info.sub_queue_id, info.rda_info) for info in sub_queue_infos(push.options)]
                        found.append((push.guid, push.flags, infos))
    return found


def test_requests_go_up_as_the_reference_sends_them(world: World) -> None:
    """The same as between the reference's brokers (a fanout queue through a replica)."""
    client = world.client(1)
    client.open(0, FANOUT, WRITE | ACK)
    client.read(0, FANOUT, "foo", 5)
    client.close(0, FANOUT, READ, app="foo", sub_id=5, final=False)
    client.read(0, FANOUT, "foo", 6)
    client.close(0, FANOUT, WRITE | ACK, final=False)
    consumer = ConsumerInfo(
        max_unconfirmed_messages=1 << 20,
        max_unconfirmed_bytes=1 << 40,
        consumer_priority=0,
        consumer_priority_count=1,
    )

    def reading(sub_id: int) -> QueueHandleParameters:
        return handle(0, f"{FANOUT}?id=foo", READ, sub_id_info=SubQueueIdInfo(sub_id=sub_id, app_id="foo"))

    def wanting(*ids: int) -> ConfigureStream:
        subscriptions = tuple(
            Subscription(s_id=each, expression=Expression(text=""), consumers=(consumer,)) for each in ids
        )
        return ConfigureStream(q_id=0, stream_parameters=StreamParameters(app_id="foo", subscriptions=subscriptions))

    assert controls(world, 1, 0) == [
        OpenQueue(handle_parameters=handle(0, FANOUT, WRITE | ACK)),
        OpenQueue(handle_parameters=reading(1)),
        wanting(1),
        wanting(),
        CloseQueue(handle_parameters=reading(1)),
        OpenQueue(handle_parameters=reading(2)),
        wanting(2),
        CloseQueue(handle_parameters=handle(0, FANOUT, WRITE | ACK)),
    ]


@pytest.mark.parametrize("flags", [READ, WRITE | ACK])
def test_a_client_that_closes_hears_so_when_the_primary_has_answered(world: World, flags: int) -> None:
    client = world.client(1)
    client.open(3, QUEUE, flags)
    client.world = None  # nothing is carried over
    choice = CloseQueue(handle_parameters=handle(3, QUEUE, flags), is_final=True)
    client.send(build_schema_event(ber.encode(ControlMessage(r_id=9, choice=choice))))
    assert client._pick(ControlMessage) == []
    world.run()
    assert client._pick(ControlMessage) == [ControlMessage(r_id=9, choice=CloseQueueResponse())]


def test_one_push_per_link_for_all_apps(world: World) -> None:
    consumers = [world.client(1) for _ in APPS]
    for number, (client, app) in enumerate(zip(consumers, APPS, strict=True), 1):
        client.read(3, FANOUT, app, number)
    at_primary = world.client(0)
    at_primary.read(0, FANOUT, "foo", 1)
    producer = world.client(0)
    producer.open(0, FANOUT, WRITE | ACK)
    for number in range(4):
        assert producer.post(0, guid(number), b"payload") is AckStatus.SUCCESS
    # Foo's consumers take turns, so bar's part goes alone every second time.
    assert pushes(world, 0, 1) == [
        (guid(number), PushFlag.IMPLICIT_PAYLOAD, [(1, UNLIMITED), (2, UNLIMITED)][number % 2 :]) for number in range(4)
    ]
    assert [each.guid for each in consumers[0].pushes()] == [guid(0), guid(2)]
    assert [each.guid for each in at_primary.pushes()] == [guid(1), guid(3)]
    assert [each.guid for each in consumers[1].pushes()] == [guid(number) for number in range(4)]


def test_a_broadcast_crosses_the_link_once(world: World) -> None:
    uri = "bmq://broadcast/q"
    consumers = [world.client(1) for _ in range(3)]
    for client in consumers:
        client.read(1, uri)
    picky = world.client(1)
    picky.open(1, uri, READ)
    picky.subscribe(1, Wanted("n > 1"))
    producer = world.client(1)
    producer.open(1, uri, WRITE | ACK)
    assert producer.post(1, guid(0), b"all") is AckStatus.SUCCESS
    assert [client.payloads() for client in consumers] == [[b"all"]] * 3
    assert picky.payloads() == []
    assert pushes(world, 0, 1) == [(guid(0), 0, [(0, UNLIMITED)])]
    assert not world.nodes[1].rig.node.queues[uri].messages


def test_a_broadcast_that_is_on_its_way_comes_before_the_answer_that_ends_it(world: World) -> None:
    uri = "bmq://broadcast/q"
    producer, consumer = world.client(0), world.client(1)
    producer.open(0, uri, WRITE | ACK)
    consumer.read(0, uri)
    producer.world = consumer.world = None
    producer.put(0, guid(1), b"1")
    request = ConfigureStream(q_id=0, stream_parameters=StreamParameters(app_id="__default"))
    consumer.send(build_schema_event(ber.encode(ControlMessage(r_id=99, choice=request))))
    world.run()
    assert consumer.payloads() == [b"1"]
    producer.put(0, guid(2), b"2")
    world.run()
    assert consumer.payloads() == []


def test_broadcasts_of_one_millisecond_are_in_order(world: World) -> None:
    """No broadcast is flagged as out of order: the reference's relays would deliver such a message before others."""
    uri = "bmq://broadcast/q"
    consumer, producer = world.client(1), world.client(0)
    consumer.read(1, uri)
    producer.open(1, uri, WRITE | ACK)
    for number in range(3):
        producer.post(1, guid(number), b"tick")
    assert pushes(world, 0, 1) == [(guid(number), 0, [(0, UNLIMITED)]) for number in range(3)]
    assert [each.guid for each in consumer.pushes()] == [guid(number) for number in range(3)]


def test_a_broadcast_goes_to_no_hop_of_a_lower_priority(world: World) -> None:
    uri = "bmq://broadcast/q"
    here, there = world.client(0), world.client(1)
    for client, priority in ((here, 2), (there, 1)):
        client.open(1, uri, READ)
        client.subscribe(1, Wanted("", priority=priority))
    producer = world.client(0)
    producer.open(1, uri, WRITE | ACK)
    producer.post(1, guid(0), b"for one")
    there.subscribe(1, Wanted("", priority=2))
    producer.post(1, guid(1), b"for both")
    assert here.payloads() == [b"for one", b"for both"]
    assert there.payloads() == [b"for both"]
    assert [each[0] for each in pushes(world, 0, 1)] == [guid(1)]


def test_subscriptions_are_summed_by_expression_and_priority(world: World) -> None:
    one, two = world.client(1), world.client(1)
    for client in (one, two):
        client.open(1, QUEUE, READ)
    one.subscribe(1, Wanted("x > 1", priority=2, messages_max=5, bytes_max=50), Wanted("x < 9", count=3))
    two.subscribe(1, Wanted("x > 1", priority=2, messages_max=7, bytes_max=70), Wanted("x > 1", messages_max=1))
    (*_, last) = controls(world, 1, 0)
    assert isinstance(last, ConfigureStream)
    assert [
        (
            each.s_id,
            each.expression.text,
            *((c.consumer_priority, c.max_unconfirmed_messages, c.consumer_priority_count) for c in each.consumers),
        )
        for each in last.stream_parameters.subscriptions
    ] == [(1, "x > 1", (2, 12, 2), (0, 1, 1)), (2, "x < 9", (0, 1 << 20, 3))]
    two.drop()
    (*_, closed) = controls(world, 1, 0)
    assert closed == CloseQueue(handle_parameters=handle(0, QUEUE, READ))


def test_messages_of_a_lost_consumer_go_to_another_below_the_hop(world: World) -> None:
    first, second = world.client(1), world.client(1)
    first.read(1, QUEUE, messages_max=10)
    producer = world.client(0)
    producer.open(0, QUEUE, WRITE | ACK)
    for number in range(3):
        producer.post(0, guid(number), b"%d" % number)
    assert len(first.pushes()) == 3
    first.confirm(1, guid(1))
    second.read(1, QUEUE)
    first.drop()
    assert second.payloads() == [b"0", b"2"]
    second.confirm(1, guid(0), guid(2))
    assert not world.nodes[0].rig.node.queues[QUEUE].messages


def test_messages_held_by_a_hop_go_elsewhere_with_its_last_consumer(world: World) -> None:
    first, second = world.client(1), world.client(0)
    first.read(1, QUEUE, messages_max=2)
    producer = world.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    for number in range(3):
        producer.post(0, guid(number), b"%d" % number)
    assert first.payloads() == [b"0", b"1"]
    second.read(1, QUEUE)
    assert second.payloads() == [b"2"]
    first.drop()
    assert second.payloads() == [b"0", b"1"]
    assert not world.nodes[1].rig.node.queues[QUEUE].messages


@pytest.mark.parametrize("late", [{1, 2}, {0, 1, 2}, {2, 3}, set[int]()])
def test_messages_that_wait_at_a_hop_stay_in_order(world: World, late: set[int]) -> None:
    """The upstream's flag for a message out of order, set if another app got a newer one before, has no effect here."""
    consumer = world.client(1)
    consumer.open(1, QUEUE, READ)
    relay = world.nodes[1].rig.node.queues[QUEUE]
    assert isinstance(relay, RelayQueue)
    for number in (1, 2, 3, 0):
        flags = int(PushFlag.OUT_OF_ORDER) if number in late else 0
        relay.arrivals.on_push(Push(flags, 0, guid(number), 0, 0, memoryview(b""), memoryview(b"%d" % number)), ())
    consumer.configure(1)
    assert consumer.payloads() == [b"1", b"2", b"3", b"0"]


def test_messages_no_longer_wanted_below_the_hop_go_elsewhere(world: World) -> None:
    low, high = world.client(1), world.client(1)
    for client, text in ((low, "x < 5"), (high, "x >= 5")):
        client.open(1, QUEUE, READ)
        client.subscribe(1, Wanted(text, messages_max=1))
    producer = world.client(0)
    producer.open(0, QUEUE, WRITE | ACK)
    for number, x in enumerate((7, 8, 1, 2, 9)):
        data = encode_properties([Property("x", PropertyType.INT32, x)], 0) + b"%d" % x
        producer.put(0, guid(number), data, flags=PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES)
    assert [payload[-1:] for payload in high.payloads()] == [b"7"]
    other = world.client(0)
    other.open(1, QUEUE, READ)
    high.drop()
    assert other.payloads() == []
    other.subscribe(1, Wanted("x >= 5"))
    assert [payload[-1:] for payload in other.payloads()] == [b"7", b"8", b"9"]
    assert [payload[-1:] for payload in low.payloads()] == [b"1"]
    assert set(world.nodes[1].rig.node.queues[QUEUE].messages) <= {guid(2), guid(3)}
    # It may come back there.
    other.drop()
    back = world.client(1)
    back.open(1, QUEUE, READ)
    back.subscribe(1, Wanted("x >= 5"))
    assert [payload[-1:] for payload in back.payloads()] == [b"7", b"8", b"9"]
    back.confirm(1, guid(0), guid(1), guid(4))
    low.confirm(1, guid(2))
    low.confirm(1, guid(3))
    assert not world.nodes[0].rig.node.queues[QUEUE].messages


@pytest.mark.parametrize("is_back", [False, True])
def test_an_app_that_a_hop_hears_of_later_than_its_root(world: World, is_back: bool) -> None:
    consumer, producer = world.client(1), world.client(0)
    consumer.read(1, FANOUT, "foo", 1)
    producer.open(0, FANOUT, WRITE | ACK)
    relay = world.nodes[1].rig.node.queues[FANOUT]
    assert isinstance(relay, RelayQueue)
    key = relay.apps["foo"].key
    relay.unname_app(relay.apps["foo"])
    producer.post(0, guid(0), b"0")
    assert consumer.payloads() == [b"0"]
    if is_back:
        relay.name_app("foo", key)
    consumer.confirm(1, guid(0), sub_id=1)
    assert not relay.messages
    consumer.drop()
    assert ("foo" in relay.apps) is is_back


def test_a_link_that_breaks(world: World) -> None:
    first, second = world.client(1), world.client(0)
    first.read(1, QUEUE)
    producer = world.client(0)
    producer.open(0, QUEUE, WRITE | ACK)
    producer.post(0, guid(0), b"0")
    assert first.payloads() == [b"0"]
    world.part(0, 1)
    second.read(1, QUEUE)
    assert second.payloads() == [b"0"]


def test_poison_counters_go_down_and_rejects_go_up(world: World) -> None:
    """The reference's brokers do the same with 3 attempts."""
    uri = "bmq://poison/q"
    producer = world.client(0)
    producer.open(0, uri, WRITE | ACK)
    for attempt in range(3):
        client = world.client(1)
        client.read(0, uri, "foo", 1)
        if not attempt:
            producer.post(0, guid(0), b"bad")
        world.wait(4000)
        assert client.payloads() == [b"bad"], attempt
        client.drop()
    assert [infos for _, _, infos in pushes(world, 0, 1)] == [
        [(1, limited(3))],
        [(1, limited(2, poisonous=True))],
        [(1, limited(1, poisonous=True))],
    ]
    root = world.nodes[0].rig.node.queues[uri]
    assert root.apps["foo"].messages == 0
    assert root.apps["bar"].messages == 1
    last = world.client(1)
    last.read(0, uri, "foo", 1)
    world.wait(4000)
    assert last.payloads() == []


def test_an_upstream_refuses(world: World) -> None:
    client = world.client(1)
    answer = client.try_open(0, FANOUT, READ)
    assert isinstance(answer, Status)
    assert answer.message == "Reader of a fanout queue requires an appId to be specified."
    assert not world.nodes[1].rig.node.queues
    # And the primary has no more open than the hop.
    assert not world.nodes[0].rig.node.queues[FANOUT].is_open


def test_an_app_that_the_domain_has_lost_can_be_closed(world: World) -> None:
    client = world.client(1)
    client.read(1, FANOUT, "foo", 1)
    hop = world.nodes[1].rig.node
    # The domain names other apps meanwhile.
    del hop.queues[FANOUT].apps["foo"]
    client.close(1, FANOUT, READ, app="foo", sub_id=1)
    assert not hop.queues


def test_a_domain_whose_mode_and_storage_do_not_go_together(world: World) -> None:
    """The primary refuses to open a queue of the domain, and so does a replica."""
    world.domains["priority"] = replace(world.domains["priority"], incompatible="incompatible queue mode")
    for node_id in world.ids:
        status = world.client(node_id).try_open(0, QUEUE, WRITE | ACK)
        assert isinstance(status, Status)
        assert "incompatible queue mode" in status.message
        assert status.category is StatusCategory.UNKNOWN


def test_an_upstream_that_does_not_answer(world: World) -> None:
    """The client hears of it in the time that is configured, and the queue is not opened for it later."""
    world.make_primary(None)
    world.nodes[1].rig.configure(open_timeout_ms=1_000)
    client = world.client(1)
    opening = OpenQueue(handle_parameters=handle(0, QUEUE, READ | WRITE | ACK))
    client.send(client._schema_event(ControlMessage(r_id=1, choice=opening)))
    world.wait(900)
    assert client._pick(ControlMessage) == []
    world.wait(200)
    (answer,) = client._pick(ControlMessage)
    assert isinstance(answer.choice, Status)
    assert answer.choice.category is StatusCategory.TIMEOUT
    world.make_primary(0)
    world.wait(1_000)
    assert not world.nodes[1].rig.node.queues
    assert QUEUE not in world.nodes[0].rig.node.queues


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_removed_queue_that_is_refused_is_assigned_later(
    world: World, monkeypatch: pytest.MonkeyPatch, is_needed: bool
) -> None:
    client = world.client(1)
    client.read(1, QUEUE)
    queues = world.nodes[1].queues
    relay = world.nodes[1].rig.node.queues[QUEUE]
    assert isinstance(relay, RelayQueue)
    refusal = Refusal(StatusCategory.REFUSED, "there are too many queues", ClusterError.LIMIT)
    with monkeypatch.context() as full:
        full.setattr(world.places, "assign_queue", lambda uri, config, done: done(refusal))
        del world.places.state.queues[QUEUE]
        queues.unassigned(relay)
        world.wait(NO_ROOM_MS + 100)
        assert relay.upstream is None
        if not is_needed:
            client.close(1, QUEUE, READ)
    world.wait(NO_ROOM_MS)
    assert (QUEUE in world.places.state.queues) is is_needed
    assert (QUEUE in world.nodes[1].rig.node.queues) is is_needed
    if is_needed:
        producer = world.client(1)
        producer.open(1, QUEUE, WRITE | ACK)
        assert producer.post(1, guid(0), b"0") is AckStatus.SUCCESS
        assert client.payloads() == [b"0"]


def test_a_removed_queue_may_be_assigned_to_its_node(world: World) -> None:
    """The queue was in another partition, whose primary is lost."""
    node = world.nodes[1].rig.node
    world.client(0).open(1, QUEUE, WRITE | ACK)
    world.places.state.queues[QUEUE] = replace(world.places.state.queues[QUEUE], partition_id=3)
    client = world.client(1)
    opening = OpenQueue(handle_parameters=handle(1, QUEUE, WRITE | ACK))
    client.send(client._schema_event(ControlMessage(r_id=1, choice=opening)))
    world.make_primary(1)
    assert client._pick(ControlMessage) == []
    relay = node.queues[QUEUE]
    assert isinstance(relay, RelayQueue)
    del world.places.state.queues[QUEUE]
    world.nodes[1].queues.unassigned(relay)
    (answer,) = client._pick(ControlMessage)
    assert isinstance(answer.choice, OpenQueueResponse)
    assert client.post(1, guid(0), b"0") is AckStatus.SUCCESS
    assert node.queues[QUEUE].is_root


def test_two_wait_for_the_same_assignment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them makes the queue."""
    assign = world.places.assign_queue
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(world.places, "assign_queue", lambda *args: waiting.append(lambda: assign(*args)))
    clients = [world.client(node_id) for node_id in (0, 0, 1, 1)]
    opening = OpenQueue(handle_parameters=handle(0, QUEUE, READ))
    for client in clients:
        client.send(client._schema_event(ControlMessage(r_id=1, choice=opening)))
    for assigned in waiting:
        assigned()
    world.run()
    for client in clients:
        (answer,) = client._pick(ControlMessage)
        assert isinstance(answer.choice, OpenQueueResponse)


def test_a_link_that_is_behind_gets_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, producer = world.client(1), world.client(0)
    consumer.read(1, QUEUE)
    producer.open(0, QUEUE, WRITE | ACK)
    waiting = 5 << 20
    monkeypatch.setattr(type(world.nodes[0].links), "backlog", lambda self, node_id: waiting)
    world.run()
    assert producer.post(0, guid(0), b"0") is AckStatus.SUCCESS
    assert consumer.payloads() == []
    waiting = 0
    world.run()
    assert consumer.payloads() == [b"0"]
