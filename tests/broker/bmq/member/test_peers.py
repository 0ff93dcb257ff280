"""Nodes that meet: who may come in, what both sides say, and what becomes of links that are lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bmq.links.agreement import disagreement, to_features
from broker.bmq.links.dialing import REDIAL_MS, REDIAL_MS_MAX, REFUSED_MS
from broker.bmq.session.negotiation import EARLY_FEATURE, REMOVALS_FEATURE
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import BrokerResponse, ClientIdentity, NegotiationMessage
from formats.bmq.wire.event import build_event, iter_frames, schema_message
from tests.broker.bmq.member.peers_rig import LENGTH_MAX, One, Wire, meet
from tests.golden.captures import streams


def test_the_lower_id_dials() -> None:
    assert One(1).dialed == [2, 3]
    assert One(2).dialed == [3]
    assert One(3).dialed == []


def test_two_nodes_that_have_no_heartbeats_configured_send_none() -> None:
    first, second = One(1), One(2)
    wire = meet(first, second, 2)
    assert first.node.identity.heartbeat_interval_ms
    assert first.node.identity.peer_heartbeats_missed_max == 0
    for one in (first, second):
        one.wait(one.node.identity.heartbeat_interval_ms * 4)
    wire.carry()
    for said in wire.said:
        events = iter_frames(memoryview(said), 0, len(said), LENGTH_MAX)
        assert EventType.HEARTBEAT_REQ not in [frame.type for frame in events]


def test_two_nodes_meet_and_say_what_the_reference_says() -> None:
    first, second = One(1), One(2)
    wire = meet(first, second, 2)
    assert first.member.links.is_up(2)
    assert second.member.links.is_up(1)
    assert first.member.statuses[2] is second.member.statuses[1] is first.member.status
    # They are no clients.
    assert not first.node.sessions
    assert not second.node.sessions
    captured = {name.rpartition("/")[2]: data for name, data in streams("wire-cluster")}
    for index, name in enumerate(("cluster.05.40530-30201.c2s.bin", "cluster.05.40530-30201.s2c.bin")):
        view = memoryview(captured[name])
        frame = next(iter_frames(view, 0, len(view), LENGTH_MAX))
        theirs = ber.decode(NegotiationMessage, schema_message(view, frame.body, frame.end)).choice
        ours = wire.first_said(index)
        assert type(ours) is type(theirs)
        assert _shared(ours) == _shared(theirs)


def _shared(said: object) -> tuple[object, ...]:
    """Return the parts that do not depend on the process or its build."""
    if isinstance(said, BrokerResponse):
        return (said.result, said.protocol_version, said.is_deprecated_sdk, *_shared(said.broker_identity))
    assert isinstance(said, ClientIdentity)
    return (
        said.protocol_version,
        said.sdk_version,
        said.client_type,
        said.features.replace(f";{REMOVALS_FEATURE};{EARLY_FEATURE}", ""),  # ours alone
        said.cluster_name,
        said.cluster_node_id,
        said.sdk_language,
        said.guid_info,
    )


@pytest.mark.parametrize(
    ("dialer", "complaint"),
    [
        (One(1, cluster="moons"), "is of cluster 'moons', this node of 'planets'"),
        (One(1, nodes=9), None),
        (One(1, features=to_features({"a": 1, "b": 2})), "has a different configuration: b is 2 there and 3 here"),
        (One(1, features=to_features({"a": 1, "b": 3, "c": 4})), None),
    ],
    ids=["another cluster", "of this cluster", "disagrees", "knows more"],
)
def test_members_with_equal_features_may_join(dialer: One, complaint: str | None) -> None:
    acceptor = One(2, features=to_features({"a": 1, "b": 3}))
    meet(dialer, acceptor, 2)
    assert acceptor.member.links.is_up(1) is dialer.member.links.is_up(2) is (complaint is None)
    if complaint is not None:
        assert acceptor.peers.faults.get(1, complaint) == complaint
        assert dialer.peers.faults[2] == f"refused this node: This broker {complaint}"
        # It is asked again, but not at once.
        dialer.dialed.clear()
        dialer.wait(REFUSED_MS - 100)
        assert not dialer.dialed
        dialer.wait(200)
        assert dialer.dialed == [2]


def test_member_without_the_required_features_is_refused() -> None:
    own = "PROTOCOL_ENCODING:BER;" + to_features({"nodes": "1@a", "partitionConfig.numPartitions": 4, "other": 1})
    assert disagreement(own, own) is None
    assert disagreement(own, "") == "it reports no features"
    assert disagreement(own, to_features({})) == "it does not report nodes"
    told = to_features({"nodes": "1@a", "other": 1})
    assert disagreement(own, told) == "it does not report partitionConfig.numPartitions"
    # One of an older release, one of a newer, and one of the reference.
    assert disagreement(own, to_features({"nodes": "1@a", "partitionConfig.numPartitions": 4})) is None
    assert disagreement(own, own + ",more=1") is None
    assert disagreement(own, "PROTOCOL_ENCODING:BER,JSON;HA:GRACEFUL_SHUTDOWN") is None


def test_dialed_member_must_have_the_same_configuration() -> None:
    """The dialed node is refused although it lets this node in."""
    first, second = One(1, features=to_features({"b": 2})), One(2)
    meet(first, second, 2)
    assert first.member.links.is_up(2)
    second = One(2)
    second.node.identity = replace(second.node.identity, cluster_features=to_features({"b": 3}))
    second.peers._mismatch = lambda identity: None  # type: ignore[method-assign]
    first = One(1, features=to_features({"b": 2}))
    meet(first, second, 2)
    assert first.peers.faults[2] == "has a different configuration: b is 3 there and 2 here"
    assert not first.member.links.is_up(2)


def test_a_node_that_is_another_than_dialed_is_left() -> None:
    first, third = One(1), One(3)
    meet(first, third, 2)
    assert first.peers.faults[2] == "is node 3 of cluster 'planets', not node 2 of 'planets'"
    assert not first.member.links.is_up(2)
    assert not third.member.links.is_up(1)


def test_a_node_beyond_the_cluster_is_refused() -> None:
    ninth, second = One(9, nodes=9), One(2)
    wire = Wire(ninth, second, 2)
    wire.carry()
    assert not second.member.links.peers
    answer = wire.first_said(1)
    assert isinstance(answer, BrokerResponse)
    assert "is node 9, which is not another node of this cluster" in answer.result.message


def test_a_lost_link_is_dialed_again_ever_more_seldom() -> None:
    first, second = One(1), One(2)
    wire = meet(first, second, 2)
    first.dialed.clear()
    wire.cut()
    assert not first.member.links.is_up(2)
    assert not second.member.links.is_up(1)
    gaps = []
    for _ in range(6):
        began = first.now.ms
        while not first.dialed:
            first.wait(10)
        gaps.append(first.now.ms - began)
        first.dialed.clear()
        first.peers.failed(2, "Connection refused")
    assert gaps[0] <= REDIAL_MS + 10
    assert gaps == sorted(gaps)
    assert gaps[-1] == REDIAL_MS_MAX
    second.wait(60_000)
    assert second.dialed == [3]  # of these two it is not the one to dial


def test_a_node_that_comes_again_has_lost_its_older_link() -> None:
    first, second = One(1), One(2)
    old = meet(first, second, 2)
    meet(first, second, 2)
    old.carry()
    assert first.member.links.is_up(2)
    assert second.member.links.is_up(1)
    assert {session.finished for _, session in old.ends} == {True}


@pytest.mark.parametrize(
    "garbage", [build_event(EventType.AUTHENTICATION, bytes(8)), bytes(64), build_event(EventType.ELECTOR, b"\xff" * 8)]
)
def test_garbage_costs_a_peer_its_link(garbage: bytes) -> None:
    first, second = One(1), One(2)
    wire = meet(first, second, 2)
    wire.ends[1][1].receive(memoryview(garbage))
    wire.carry()
    assert not second.member.links.is_up(1)
    assert not first.member.links.is_up(2)


@pytest.mark.parametrize("garbage", [b"\0" * 16, build_event(EventType.PUT, bytes(8))])
def test_a_dialed_node_must_answer(garbage: bytes) -> None:
    first = One(1)
    session = first.peers.connected(2, "127.0.0.1:1")
    session.receive(memoryview(garbage))
    assert session.finished
    assert "not a valid event" in first.peers.faults[2]


def test_stopping_node_admits_no_member() -> None:
    first, second = One(1), One(2)
    second.peers.stop()
    meet(first, second, 2)
    assert not first.member.links.is_up(2)
    assert not second.member.links.is_up(1)
