"""A proxy's links: whom it dials, what it says, who answers, and what becomes of links that fail or are lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bmq.core.config import NodeIdentity
from broker.bmq.links.dialing import REDIAL_MS, REDIAL_MS_MAX, REFUSED_MS
from broker.bmq.links.peer_links import Peer
from broker.bmq.proxy.links import PENDING_MS, UpstreamLinks
from broker.bmq.session.negotiation import NO_NODE_ID, answer_identity
from broker.bmq.session.session import Session
from broker.common.clock import Now
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    BrokerResponse,
    ClientIdentity,
    ClientType,
    GuidInfo,
    NegotiationMessage,
    NodeStatus,
)
from formats.bmq.wire.event import (
    HEARTBEAT_REQUEST,
    EventType,
    Frame,
    build_event,
    build_schema_event,
    iter_frames,
    schema_message,
)
from tests.broker.bmq.rig import NODE, START_S, bare_proxy

LENGTH_MAX = 1 << 30
ME = replace(NODE, cluster_name="planets", node_id=NO_NODE_ID, upstream_heartbeats_missed_max=2)
THEM = replace(NODE, cluster_name="planets", node_id=3, process_id=NODE.process_id + 1)


class Upward:
    """A proxy's links to nodes, and what they lead to; `dialed` are the nodes that it wanted to connect to."""

    name = "planets"

    def __init__(
        self,
        cluster_name: str = "planets",
        nodes: tuple[int, ...] = (3, 7),
        near: tuple[int, ...] = (3, 7),
        me: NodeIdentity = ME,
    ) -> None:
        self.statuses: dict[int, NodeStatus] = {}
        self.active_id: int | None = None
        self.now = Now(START_S, 1_000_000)
        self.node = bare_proxy(self.now, me)
        self.dialed: list[int] = []
        self.up: dict[int, Peer] = {}
        self.tell_status: list[bool] = []
        self.received: list[tuple[int, int]] = []
        self.links = UpstreamLinks(self.node, self, cluster_name, nodes, near, self.dialed.append)
        self.links.start()

    def peer_up(self, node_id: int, peer: Peer, *, tells_status: bool) -> None:
        self.up[node_id] = peer
        self.statuses[node_id] = NodeStatus.UNKNOWN
        self.tell_status.append(tells_status)

    def peer_down(self, node_id: int) -> None:
        del self.up[node_id], self.statuses[node_id]

    def receive(self, node_id: int, data: memoryview, frame: Frame) -> None:
        self.received.append((node_id, frame.type))

    def wait(self, ms: int) -> None:
        end = self.now.ms + ms
        while self.now.ms < end:
            self.now.ms += 10
            self.node.tick()

    def connect(self, node_id: int = 3) -> Session:
        return self.links.connected(node_id, "127.0.0.1:1")

    def answer(self, session: Session, them: ClientIdentity | None = None, refusal: str | None = None) -> None:
        """Send a broker's answer to the identity that the session has sent."""
        asking = identity_in(session)
        answer = answer_identity(THEM, 1, refusal, asking).choice
        assert isinstance(answer, BrokerResponse)
        answer = replace(answer, broker_identity=them or answer.broker_identity)
        session.receive(memoryview(build_schema_event(ber.encode(NegotiationMessage(choice=answer)))))

    def link(self, node_id: int = 3) -> Session:
        session = self.connect(node_id)
        self.answer(session)
        return session

    def tell(self, node_id: int, session: Session, status: NodeStatus = NodeStatus.AVAILABLE) -> None:
        """The node says what it is."""
        self.statuses[node_id] = status
        session.receive(memoryview(build_event(EventType.CONTROL, b"")))

    def newly_dialed(self) -> list[int]:
        """Return the nodes dialed since the last call."""
        dialed = list(self.dialed)
        self.dialed.clear()
        return dialed


def identity_in(session: Session) -> ClientIdentity:
    view = memoryview(session.take_output())
    frame = next(iter_frames(view, 0, len(view), LENGTH_MAX))
    choice = ber.decode(NegotiationMessage, schema_message(view, frame.body, frame.end)).choice
    assert isinstance(choice, ClientIdentity)
    return choice


def test_all_nodes_are_dialed_and_told_who_calls() -> None:
    upward = Upward()
    assert upward.dialed == [3, 7]
    said = identity_in(upward.connect())
    assert (said.client_type, said.cluster_name, said.cluster_node_id) == (ClientType.TCPBROKER, "planets", NO_NODE_ID)


def test_a_node_that_answers_is_up() -> None:
    upward = Upward()
    session = upward.link()
    assert list(upward.up) == [3]
    assert upward.tell_status == [True]
    assert not upward.node.sessions, "it is no client"
    session.receive(memoryview(build_event(EventType.PUSH, b"")))
    assert upward.received == [(3, EventType.PUSH)]
    upward.up[3].send_event(b"something")
    assert session.take_output() == b"something"


@pytest.mark.parametrize("features", ["", "HA:GRACEFUL_SHUTDOWN"])
def test_a_node_without_status_counts_as_available(features: str) -> None:
    upward = Upward()
    upward.answer(upward.connect(), broker(features=features, cluster_node_id=3))
    assert upward.tell_status == [False]


def test_a_proxy_has_no_status_to_tell() -> None:
    upward = Upward()
    upward.answer(upward.connect(), broker(features="HA:BROADCAST_TO_PROXIES", cluster_node_id=NO_NODE_ID))
    assert upward.tell_status == [False]


def broker(features: str, cluster_node_id: int) -> ClientIdentity:
    return ClientIdentity(
        protocol_version=1,
        client_type=ClientType.TCPBROKER,
        features=features,
        cluster_name="planets",
        cluster_node_id=cluster_node_id,
        guid_info=GuidInfo(),
    )


def test_proxy_with_addresses_alone_asks_for_no_cluster() -> None:
    upward = Upward(cluster_name="")
    session = upward.connect()
    asking = identity_in(session)
    assert asking.cluster_name == ""
    # It hears the cluster's name, and that the node is one of it.
    told = answer_identity(THEM, 1, None, asking)
    session.receive(memoryview(build_schema_event(ber.encode(told))))
    assert upward.tell_status == [True]


def test_a_lost_link_is_dialed_again() -> None:
    upward = Upward()
    upward.node.disconnect(upward.link(), "the peer closed the connection")
    assert not upward.up
    assert upward.links.faults[3] == "the link was lost"
    upward.wait(REDIAL_MS + 10)
    assert upward.dialed == [3, 7, 3]
    upward.link()
    assert list(upward.up) == [3]
    assert not upward.links.faults


def test_a_node_that_is_away_is_dialed_less_often() -> None:
    upward = Upward()
    for _ in range(20):
        upward.links.failed(7, "Connection refused")
        dialed = len(upward.dialed)
        waited = 0
        while len(upward.dialed) == dialed:
            upward.wait(10)
            waited += 10
        assert waited <= REDIAL_MS_MAX + 10
    assert waited >= REDIAL_MS_MAX


def test_a_refusal_is_told_and_tried_again_later() -> None:
    upward = Upward()
    session = upward.connect()
    upward.answer(session, refusal="not you")
    assert session.finished
    assert upward.links.faults[3] == "refused this node: not you"
    upward.wait(REFUSED_MS - 20)
    assert upward.dialed == [3, 7]
    upward.wait(40)
    assert upward.dialed == [3, 7, 3]


@pytest.mark.parametrize("garbage", [b"\xff" * 32, build_event(EventType.PUSH, b""), HEARTBEAT_REQUEST])
def test_garbage_instead_of_an_answer_ends_the_session(garbage: bytes) -> None:
    upward = Upward()
    session = upward.connect()
    session.receive(memoryview(garbage))
    assert session.finished
    assert not upward.up
    upward.wait(REDIAL_MS + 10)
    assert upward.dialed == [3, 7, 3]


def test_a_silent_node_is_given_up() -> None:
    upward = Upward()
    session = upward.link()
    upward.wait(ME.heartbeat_interval_ms * 4)
    assert session.finished
    assert not upward.up


def test_a_node_gets_no_heartbeats_that_the_configuration_has_none_of() -> None:
    upward = Upward(me=replace(ME, upstream_heartbeats_missed_max=0))
    session = upward.link()
    session.take_output()
    upward.wait(ME.heartbeat_interval_ms * 4)
    assert not session.finished
    assert session.take_output() == b""


def test_a_proxy_that_stops_dials_nobody() -> None:
    upward = Upward()
    session = upward.link()
    answering = upward.connect(7)
    upward.links.stop()
    upward.answer(answering)
    assert answering.finished
    upward.node.disconnect(session, "the node stops")
    upward.wait(REFUSED_MS * 2)
    assert upward.dialed == [3, 7]


# -- which


def test_two_links_are_enough() -> None:
    upward = Upward(nodes=(1, 2, 3, 4, 5), near=(1, 2, 3, 4, 5))
    assert upward.newly_dialed() == [1, 2]
    for node_id in (1, 2):
        upward.tell(node_id, upward.link(node_id))
    upward.wait(5_000)
    assert upward.newly_dialed() == []


def test_near_nodes_come_first_and_another_replaces_one_that_is_away() -> None:
    upward = Upward(nodes=(1, 2, 3, 4), near=(4, 2))
    assert upward.newly_dialed() == [2, 4]
    upward.links.failed(2, "Connection refused")
    assert upward.newly_dialed() == [1]
    upward.tell(4, upward.link(4))
    far = upward.link(1)
    upward.tell(1, far)
    # It will do, though it is far: one nearby is in use.
    upward.active_id = 4
    upward.wait(5_000)
    assert upward.newly_dialed() == []


def test_one_nearby_is_wanted_as_soon_as_it_is_back() -> None:
    upward = Upward(nodes=(1, 2, 3, 4), near=(4,))
    upward.links.failed(4, "Connection refused")
    for node_id in (1, 2):
        upward.tell(node_id, upward.link(node_id))
    upward.active_id = 2
    upward.newly_dialed()
    upward.wait(REDIAL_MS + 10)
    assert upward.newly_dialed() == [4]
    upward.tell(4, upward.link(4))
    # The one in use stays.
    assert sorted(upward.up) == [2, 4]
    upward.wait(5_000)
    assert upward.newly_dialed() == []


@pytest.mark.parametrize("status", [NodeStatus.STARTING, NodeStatus.STOPPING, NodeStatus.UNAVAILABLE])
def test_one_that_is_not_available_does_not_count_for_long(status: NodeStatus) -> None:
    upward = Upward(nodes=(1, 2, 3, 4), near=(1, 2, 3, 4))
    upward.tell(1, upward.link(1))
    slow = upward.link(2)
    upward.tell(2, slow, status)
    assert upward.newly_dialed() == [1, 2]
    upward.wait(PENDING_MS + 20)
    assert upward.newly_dialed() == [3]
    upward.tell(3, upward.link(3))
    upward.tell(2, slow)
    assert sorted(upward.up) == [1, 2], "whoever comes last in its order is left"


def test_one_that_does_not_answer_keeps_nobody_from_the_others() -> None:
    upward = Upward(nodes=(1, 2, 3), near=(1, 2, 3))
    assert upward.newly_dialed() == [1, 2]
    upward.wait(PENDING_MS + 20)
    assert upward.newly_dialed() == [3]
