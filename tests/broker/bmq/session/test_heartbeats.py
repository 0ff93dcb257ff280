"""Heartbeats: on each kind of link only if the configuration wants them there, and only to peers that know them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.bmq.core.config import NodeIdentity
from broker.bmq.relay.guests import Guests
from formats.bmq.codes import EventType
from formats.bmq.control.messages import BrokerResponse, ClientIdentity, ClientLanguage, ClientType
from formats.bmq.wire.event import HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE
from tests.broker.bmq.rig import NODE, Client, Rig, identity, start

MINUTE = 60_000
REQUEST = EventType.HEARTBEAT_REQ

CPP = identity()
JAVA = replace(identity(), sdk_language=ClientLanguage.JAVA)
UNKNOWN = replace(identity(), sdk_language=ClientLanguage.UNKNOWN)
ADMIN = identity(ClientType.TCPADMIN)
PROXY = replace(identity(ClientType.TCPBROKER), cluster_name="local")

ALL = replace(NODE, heartbeats_missed_max=3, downstream_heartbeats_missed_max=3)


def connected(rig: Rig, who: ClientIdentity) -> Client:
    client = Client(rig.node)
    client.negotiate(who)
    client.take()
    return client


def node(me: NodeIdentity) -> Rig:
    return start(identity=me, make_door=Guests)


@pytest.mark.parametrize(
    ("off", "who"),
    [
        ({"heartbeats_missed_max": 0}, CPP),
        ({"downstream_heartbeats_missed_max": 0}, PROXY),
        ({"heartbeat_interval_ms": 0}, CPP),
        ({"heartbeat_interval_ms": 0}, PROXY),
    ],
)
def test_none_are_sent_where_the_configuration_has_none(off: dict[str, Any], who: ClientIdentity) -> None:
    rig = node(replace(ALL, **off))
    client = connected(rig, who)
    rig.wait(MINUTE)
    assert not client.session.finished
    assert REQUEST not in client.controls()


@pytest.mark.parametrize("who", [CPP, PROXY])
def test_they_are_sent_where_it_has_some(who: ClientIdentity) -> None:
    rig = node(ALL)
    client = connected(rig, who)
    rig.wait(MINUTE)
    assert client.controls().count(REQUEST) == 3
    assert client.session.finished


@pytest.mark.parametrize("who", [JAVA, UNKNOWN, ADMIN])
def test_a_client_that_may_not_know_them_gets_none(who: ClientIdentity) -> None:
    rig = node(ALL)
    client = connected(rig, who)
    rig.wait(MINUTE)
    assert client.controls() == []
    assert not client.session.finished


@pytest.mark.parametrize("event", [HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE])
@pytest.mark.parametrize("who", [JAVA, UNKNOWN, ADMIN])
def test_client_that_sends_a_heartbeat_gets_them(who: ClientIdentity, event: bytes) -> None:
    rig = node(ALL)
    client = connected(rig, who)
    client.send(event)
    rig.wait(MINUTE)
    assert client.controls().count(REQUEST) == 3
    assert client.session.finished


@pytest.mark.parametrize(("who", "told"), [(CPP, 10), (JAVA, 10), (PROXY, 20), (ADMIN, 0)])
def test_a_peer_is_told_how_many_it_may_miss(who: ClientIdentity, told: int) -> None:
    rig = node(replace(NODE, heartbeats_missed_max=10, downstream_heartbeats_missed_max=20))
    client = Client(rig.node)
    answer = client.negotiate(who)
    assert isinstance(answer, BrokerResponse)
    assert answer.max_missed_heartbeats == told
