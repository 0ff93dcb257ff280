"""A proxy below a cluster of several nodes: its clients never notice which it uses, and which is primary."""

from __future__ import annotations

import pytest

from broker.bmq.proxy.proxy import UpstreamNode
from broker.bmq.relay.guests import Guest, Guests
from broker.bmq.relay.handover import HANDED_OVER
from broker.bmq.session.session import Session
from formats.bmq.codes import AckStatus, EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClusterMessage,
    ConfigureStream,
    ControlMessage,
    NodeStatus,
    NodeStatusAdvisory,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    Status,
    StatusCategory,
    StopRequest,
    StopResponse,
)
from formats.bmq.wire.event import build_schema_event, iter_frames, schema_message
from formats.bmq.wire.push import iter_pushes
from tests.broker.bmq.proxy.test_proxy import BROADCAST, DOMAINS, FANOUT, QUEUE, requests_on
from tests.broker.bmq.proxy.tree import Below, Link, Tree
from tests.broker.bmq.relay.hop_rig import World
from tests.broker.bmq.rig import ACK, READ, WRITE, guid

NODES = tuple(UpstreamNode(number, f"node{number}") for number in range(3))


class Place:
    """A cluster of three, node 0 primary, and a proxy that is linked to all, using the node of the highest number."""

    def __init__(self) -> None:
        self.tree = Tree(DOMAINS)
        self.world: World = self.tree.cluster(range(3))
        self.proxy: Below = self.tree.proxy("proxy", NODES)
        self.links: dict[int, Link] = {}
        for number in (2, 1, 0):
            self.link(number)
        assert self.proxy.cluster.active_id == 2
        self.producer = self.tree.client(self.proxy.node)
        self.consumer = self.tree.client(self.proxy.node)

    def link(self, number: int) -> None:
        self.links[number] = self.tree.join(self.proxy, self.world.nodes[number].rig.node, number)

    def use(self, number: int) -> None:
        """Let the proxy use this node."""
        for other in [other for other in self.links if other != number]:
            self.tree.cut(self.links.pop(other))
        if number not in self.links:
            self.link(number)
        assert self.proxy.cluster.active_id == number

    def guests(self, number: int) -> Guests:
        session: Session = self.links[number].upper
        assert isinstance(session._broker, Guest)
        return session._broker._guests

    def settle(self) -> None:
        self.tree.wait(1000)


@pytest.mark.parametrize("number", [0, 1])
def test_at_the_primary_and_at_a_replica(number: int) -> None:
    it = Place()
    it.use(number)
    it.producer.open(0, FANOUT, WRITE | ACK)
    it.consumer.read(0, FANOUT, "foo", 1)
    it.consumer.read(0, FANOUT, "bar", 2)
    assert [it.producer.post(0, guid(n), b"%d" % n) for n in range(3)] == [AckStatus.SUCCESS] * 3
    pushes = it.consumer.pushes()
    assert [push.payload for push in pushes] == [b"0", b"0", b"1", b"1", b"2", b"2"]
    # A proxy has no store: what it gets has its payload.
    view = memoryview(bytes(it.links[number].down))
    (payloads,) = [
        [bytes(push.data) for push in iter_pushes(view, frame.body, frame.end)]
        for frame in [frame for frame in iter_frames(view, 0, len(view), 1 << 30) if frame.type == EventType.PUSH][-1:]
    ]
    assert payloads[-1] == b"2"
    for sub_id in (1, 2):
        it.consumer.confirm(0, *(guid(n) for n in range(3)), sub_id=sub_id)
    assert not it.world.nodes[0].rig.node.queues[FANOUT].messages


@pytest.mark.parametrize("move", ["cut", "stopping", "stop request", "unavailable"])
def test_another_node_is_used(move: str) -> None:
    it = Place()
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    assert [it.producer.post(0, guid(n), b"%d" % n) for n in range(4)] == [AckStatus.SUCCESS] * 4
    it.consumer.confirm(0, guid(0))
    link = it.links[2]
    if move == "cut":
        it.tree.cut(it.links.pop(2))
    elif move == "stop request":
        request = ClusterMessage(choice=StopRequest(cluster_name="local", version=2))
        link.upper.send_event(build_schema_event(ber.encode(ControlMessage(r_id=77, choice=request))))
        it.tree.wait(4000)
        view = memoryview(bytes(link.up))
        last = [frame for frame in iter_frames(view, 0, len(view), 1 << 30) if frame.type == EventType.CONTROL]
        said = [ber.decode(ControlMessage, schema_message(view, frame.body, frame.end)) for frame in last[1:]]
        assert said[-1] == ControlMessage(r_id=77, choice=ClusterMessage(choice=StopResponse(cluster_name="local")))
    else:
        status = NodeStatus.STOPPING if move == "stopping" else NodeStatus.UNAVAILABLE
        it.guests(2).set_status(status)
    it.producer.put(0, guid(4), b"4")
    it.tree.wait(4000)
    it.settle()
    assert it.proxy.cluster.active_id == 1
    assert [ack.status for ack in it.producer.acks()] == [0]
    assert [push.guid for push in it.consumer.pushes()] == [guid(n) for n in range(5)]
    it.consumer.confirm(0, *(guid(n) for n in range(1, 5)))
    assert not it.world.nodes[0].rig.node.queues[QUEUE].messages
    if move != "cut":
        # Nothing of it is left where it was.
        assert not link.upper.handles
        assert QUEUE not in it.world.nodes[2].rig.node.queues


@pytest.mark.parametrize("used", [0, 1, 2])
def test_the_primary_changes(used: int) -> None:
    """The node that the proxy uses was the primary, becomes it, or neither."""
    it = Place()
    it.use(used)
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    other = it.tree.client(it.proxy.node)
    other.read(0, FANOUT, "foo", 1)
    assert [it.producer.post(0, guid(n), b"%d" % n) for n in range(4)] == [AckStatus.SUCCESS] * 4
    it.consumer.confirm(0, guid(0))
    assert len(it.consumer.pushes()) == 4
    files = it.world.nodes[0].rig
    it.world.make_primary(1, files)
    it.settle()
    assert it.producer.post(0, guid(4), b"4") is AckStatus.SUCCESS
    assert [push.guid for push in it.consumer.pushes()] == [guid(4)]
    it.consumer.confirm(0, *(guid(n) for n in range(1, 5)))
    assert not it.world.nodes[1].rig.node.queues[QUEUE].messages
    assert it.producer.open(1, FANOUT, WRITE | ACK)
    assert it.producer.post(1, guid(9), b"9") is AckStatus.SUCCESS
    assert other.payloads() == [b"9"]
    it.producer.drop()
    it.consumer.drop()
    other.drop()
    it.settle()
    assert not it.links[used].upper.handles
    assert not any(queue.is_open for hop in it.world.nodes.values() for queue in hop.rig.node.queues.values())


def test_the_node_in_use_and_the_primary_die_together() -> None:
    it = Place()
    it.use(0)
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    assert it.producer.post(0, guid(0), b"0") is AckStatus.SUCCESS
    assert it.consumer.payloads() == [b"0"]
    it.tree.cut(it.links.pop(0))
    files = it.world.crash(0)
    it.producer.put(0, guid(1), b"1")
    it.consumer.confirm(0, guid(0))
    for hop in it.world.nodes.values():
        hop.queues.primary_changed(0, None, 0)
    it.link(2)
    it.settle()
    assert it.producer.acks() == []
    it.world.make_primary(1, files)
    it.settle()
    assert [ack.status for ack in it.producer.acks()] == [0]
    assert it.consumer.payloads() == [b"1"]
    assert list(it.world.nodes[1].rig.node.queues[QUEUE].messages) == [guid(1)]


def test_a_broadcast_below_a_replica() -> None:
    it = Place()
    consumers = [it.tree.client(it.proxy.node) for _ in range(10)]
    for consumer in consumers:
        consumer.read(0, BROADCAST)
    producer = it.tree.client(it.world.nodes[1].rig.node)
    producer.open(0, BROADCAST, WRITE | ACK)
    before = len(it.links[2].down)
    assert producer.post(0, guid(1), b"x" * 500) is AckStatus.SUCCESS
    assert all(consumer.payloads() == [b"x" * 500] for consumer in consumers)
    assert len(it.links[2].down) - before < 600


def test_a_node_says_what_it_is_at_once() -> None:
    it = Place()
    view = memoryview(bytes(it.links[0].down))
    said = [
        ber.decode(ControlMessage, schema_message(view, frame.body, frame.end))
        for frame in list(iter_frames(view, 0, len(view), 1 << 30))[1:]
    ]
    advisory = NodeStatusAdvisory(status=NodeStatus.AVAILABLE)
    assert said == [ControlMessage(choice=ClusterMessage(choice=advisory))]
    assert it.proxy.cluster.statuses == dict.fromkeys(range(3), NodeStatus.AVAILABLE)


def test_numbers_of_brokers_do_not_collide() -> None:
    it = Place()
    numbers = {link.upper._broker.downstream.number for link in it.links.values()}  # type: ignore[union-attr]
    assert len(numbers) == 1 or all(number < HANDED_OVER for number in numbers)
    assert all(number < HANDED_OVER for number in numbers)


def test_a_proxy_that_stops() -> None:
    it = Place()
    below = it.tree.proxy("below")
    it.tree.join(below, it.proxy.node)
    client = it.tree.client(below.node)
    client.open(0, QUEUE, WRITE | ACK)
    client.read(1, FANOUT, "foo", 1)
    assert client.post(0, guid(0), b"0") is AckStatus.SUCCESS
    assert it.proxy.node.retire() is False
    it.tree.run()
    # It looks for another; there is none.
    assert below.cluster.active_id is None
    assert it.proxy.node.retire()
    client.put(0, guid(1), b"1")
    assert client.acks() == []
    it.proxy.proxy.leave()
    for session in list(it.proxy.node.sessions.values()):
        it.proxy.node.disconnect(session, "the node stops")
    it.tree.run()
    assert not it.links[2].upper.handles


def test_consumers_confirm_before_a_proxy_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    it = Place()
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    for number in range(2):
        assert it.producer.post(0, guid(number), b"%d" % number) is AckStatus.SUCCESS
    assert len(it.consumer.pushes()) == 2
    assert not it.proxy.node.retire()
    # Nothing more is begun.
    assert it.producer.post(0, guid(2), b"2") is AckStatus.SUCCESS
    assert it.consumer.pushes() == []
    it.consumer.confirm(0, guid(0))
    assert not it.proxy.node.retire()
    assert it.consumer.pushes() == []
    it.consumer.confirm(0, guid(1))
    assert it.proxy.node.retire()
    said = [each for each in caplog.messages if "unconfirmed message" in each]
    assert said == [
        "waiting for 2 unconfirmed message(s)",
        "waiting for 1 unconfirmed message(s)",
        "no unconfirmed message(s)",
    ]
    assert list(it.world.nodes[0].rig.node.queues[QUEUE].messages) == [guid(2)]


@pytest.mark.parametrize("stays", [False, True])
def test_consumers_confirm_before_another_node_is_used(stays: bool) -> None:
    """Messages at a consumer here must not go to one elsewhere, and no newer ones come before them."""
    it = Place()
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    elsewhere = it.tree.client(it.world.nodes[1].rig.node)
    assert [it.producer.post(0, guid(n), b"%d" % n) for n in range(3)] == [AckStatus.SUCCESS] * 3
    assert len(it.consumer.pushes()) == 3
    elsewhere.read(0, QUEUE)
    it.guests(2).set_status(NodeStatus.STOPPING)
    it.tree.run()
    assert it.proxy.cluster.active_id == 2
    # Posts continue; new messages go to others, or wait.
    assert it.producer.post(0, guid(3), b"3") is AckStatus.SUCCESS
    assert it.consumer.pushes() == []
    assert [push.guid for push in elsewhere.pushes()] == [guid(3)]
    it.consumer.confirm(0, guid(0), guid(1))
    assert it.proxy.cluster.active_id == 2
    if stays:
        it.guests(2).set_status(NodeStatus.AVAILABLE)
        it.tree.run()
    else:
        it.consumer.confirm(0, guid(2))
        it.tree.run()
        assert it.proxy.cluster.active_id == 1
    elsewhere.confirm(0, guid(3))
    elsewhere.drop()
    assert it.producer.post(0, guid(4), b"4") is AckStatus.SUCCESS
    it.settle()
    assert [push.guid for push in it.consumer.pushes()] == [guid(4)]
    it.consumer.confirm(0, guid(2), guid(4))
    assert not it.world.nodes[0].rig.node.queues[QUEUE].messages


@pytest.mark.parametrize("stays", [False, True])
def test_a_node_that_stops_opens_no_queue(stays: bool) -> None:
    """Queues requested meanwhile are open as soon as a node that is not stopping is used."""
    it = Place()
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    assert it.producer.post(0, guid(0), b"0") is AckStatus.SUCCESS
    assert len(it.consumer.pushes()) == 1
    it.guests(2).set_status(NodeStatus.STOPPING)
    it.tree.run()
    late = it.tree.client(it.proxy.node)
    late.ask_later(FANOUT, READ, "foo")
    it.tree.wait(1000)
    assert it.proxy.cluster.active_id == 2
    assert late.taken() == []
    assert FANOUT not in it.world.nodes[2].rig.node.queues
    if stays:
        it.guests(2).set_status(NodeStatus.AVAILABLE)
        it.tree.run()
    it.consumer.confirm(0, guid(0))
    it.settle()
    assert it.proxy.cluster.active_id == (2 if stays else 1)
    (opened,) = late.taken()
    assert isinstance(opened, OpenQueueResponse)
    assert (FANOUT in it.world.nodes[2].rig.node.queues) is stays


@pytest.mark.parametrize("status", [NodeStatus.AVAILABLE, NodeStatus.STOPPING])
def test_answer_of_a_stopping_node_to_an_open_request(status: NodeStatus) -> None:
    it = Place()
    link = it.links[2]
    link.blocked = True
    it.guests(2).set_status(status)
    parameters = QueueHandleParameters(uri=QUEUE, q_id=7, flags=int(WRITE), write_count=1)
    request = ControlMessage(r_id=77, choice=OpenQueue(handle_parameters=parameters))
    link.lower.send_event(build_schema_event(ber.encode(request)))
    it.tree.run()
    view = memoryview(bytearray(link.upper.take_output()))
    said = [
        ber.decode(ControlMessage, schema_message(view, frame.body, frame.end))
        for frame in iter_frames(view, 0, len(view), 1 << 30)
        if frame.type == EventType.CONTROL
    ]
    (answer,) = [each.choice for each in said if each.r_id == 77]
    if status is NodeStatus.STOPPING:
        assert answer == Status(category=StatusCategory.REFUSED, code=-11, message="this node is stopping")
    else:
        assert isinstance(answer, OpenQueueResponse)
    assert bool(link.upper.handles) is (status is NodeStatus.AVAILABLE)


def test_a_node_that_stops_is_not_waited_for_long() -> None:
    it = Place()
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    assert it.producer.post(0, guid(0), b"0") is AckStatus.SUCCESS
    it.guests(2).set_status(NodeStatus.STOPPING)
    it.tree.wait(2500)
    assert it.proxy.cluster.active_id == 2
    it.tree.wait(1000)
    assert it.proxy.cluster.active_id == 1
    assert len(it.consumer.pushes()) == 1
    it.consumer.confirm(0, guid(0))
    assert not it.world.nodes[0].rig.node.queues[QUEUE].messages


def test_a_node_asks_a_proxy_to_be_ready_for_its_stop_and_leaves_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's proxies answer, and keep their queues open at the node until the link ends."""
    it = Place()
    it.producer.open(0, QUEUE, WRITE | ACK)
    guests, guest = it.guests(2), it.links[2].upper._broker
    assert isinstance(guest, Guest)
    sent: list[ControlMessage] = []
    monkeypatch.setattr(guest, "_send", sent.append)
    assert not guests.retire()
    request = ClusterMessage(choice=StopRequest(cluster_name="local", version=2))
    assert sent == [ControlMessage(r_id=1, choice=request)]
    answer = ControlMessage(r_id=1, choice=ClusterMessage(choice=StopResponse(cluster_name="local")))
    event = memoryview(build_schema_event(ber.encode(answer)))
    (frame,) = iter_frames(event, 0, len(event), 1 << 30)
    guest.receive(event, frame)
    assert guest.downstream.handles
    assert guests.retire()


def test_a_proxy_that_knows_no_stop_requests_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Place()
    it.producer.open(0, QUEUE, WRITE | ACK)
    guests, known = it.guests(2), it.links[2].upper._broker
    assert isinstance(known, Guest)
    guest = Guest(guests, it.links[2].upper, it.world.nodes[2].rig.node, "PROTOCOL_ENCODING:BER,JSON")
    sent: list[ControlMessage] = []
    monkeypatch.setattr(guest, "_send", sent.append)
    guest.ask_to_leave()
    advisory = NodeStatusAdvisory(status=NodeStatus.STOPPING)
    assert sent == [ControlMessage(choice=ClusterMessage(choice=advisory))]


class Broadcast(Place):
    """A consumer of a broadcast queue and a producer below the proxy, and a producer at the primary."""

    def __init__(self) -> None:
        super().__init__()
        self.producer.open(0, BROADCAST, WRITE | ACK)
        self.consumer.read(0, BROADCAST)
        self.elsewhere = self.tree.client(self.world.nodes[0].rig.node)
        self.elsewhere.open(0, BROADCAST, WRITE | ACK)

    def post(self, number: int) -> None:
        assert self.producer.post(0, guid(number), b"%d" % number) is AckStatus.SUCCESS

    def post_elsewhere(self, number: int) -> None:
        assert self.elsewhere.post(0, guid(number), b"%d" % number) is AckStatus.SUCCESS


def test_the_next_node_knows_a_broadcast_queues_consumers_before_it_gets_posts() -> None:
    it = Broadcast()
    for number in (2, 1, 0):
        it.tree.cut(it.links.pop(number))
    for number in range(3):
        it.post(number)
    it.link(1)
    it.settle()
    assert it.consumer.payloads() == [b"0", b"1", b"2"]
    it.post(3)
    assert it.consumer.payloads() == [b"3"]


def test_posts_to_a_broadcast_queue_wait_for_the_answer_about_its_consumers() -> None:
    it = Broadcast()
    for number in (2, 1, 0):
        it.tree.cut(it.links.pop(number))
    it.post(0)
    link = it.links[1] = Link(it.proxy, 1, it.world.nodes[1].rig.node)
    it.tree.links.append(link)
    asked = 0
    while not any(isinstance(each, ConfigureStream) for each in requests_on(link.up)):
        asked += 1
        assert asked < 100
        it.proxy.node.role.settle()
        link.carry()
        if not any(isinstance(each, ConfigureStream) for each in requests_on(link.up)):
            it.world.run()
    # Neither is the answer here yet, nor was the post sent.
    frames = iter_frames(memoryview(bytes(link.up)), 0, len(link.up), 1 << 30)
    assert EventType.PUT not in {frame.type for frame in frames}
    it.settle()
    assert it.consumer.payloads() == [b"0"]


@pytest.mark.parametrize("stays", [False, True])
def test_no_broadcast_is_lost_between_a_node_that_stops_and_the_next(stays: bool) -> None:
    it = Broadcast()
    it.producer.open(1, QUEUE, WRITE | ACK)
    it.consumer.read(1, QUEUE)
    assert it.producer.post(1, guid(100), b"to be confirmed") is AckStatus.SUCCESS
    assert len(it.consumer.pushes()) == 1
    link = it.links[2]
    link.blocked = True
    it.guests(2).set_status(NodeStatus.STOPPING)
    for session in it.world.nodes[2].rig.node.sessions.values():
        session.hold()
    it.post(0)
    it.post_elsewhere(1)
    link.blocked = False
    it.tree.run()
    # Until the last confirm is in, others' broadcasts come.
    it.post_elsewhere(2)
    assert it.consumer.payloads() == [b"0", b"1", b"2"]
    link.up_blocked = True
    it.consumer.confirm(1, guid(100))
    assert it.proxy.cluster.active_id == 2
    # The node has been asked to send no more broadcasts: it would pass this on to nobody.
    it.post(3)
    if stays:
        it.guests(2).set_status(NodeStatus.AVAILABLE)
        it.tree.run()
    link.up_blocked = False
    it.settle()
    assert it.proxy.cluster.active_id == (2 if stays else 1)
    it.post(4)
    if not stays:
        assert it.consumer.payloads() == [b"3", b"4"]


def test_a_broadcast_queue_that_is_closed_while_its_node_stops() -> None:
    it = Broadcast()
    it.producer.open(1, QUEUE, WRITE | ACK)
    it.consumer.read(1, QUEUE)
    assert it.producer.post(1, guid(100), b"to be confirmed") is AckStatus.SUCCESS
    it.guests(2).set_status(NodeStatus.STOPPING)
    it.tree.run()
    it.consumer.close(0, BROADCAST, READ)
    it.producer.close(0, BROADCAST, WRITE)
    it.consumer.confirm(1, guid(100))
    it.tree.run()
    assert it.proxy.cluster.active_id == 1
