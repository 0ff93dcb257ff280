"""Strangers that say that they are a node of the cluster, and nodes that come from elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.bmq.links.admission import Admission, KnownNode
from broker.bmq.links.origins import LOOK_UP_MS, Origins, address_of
from broker.bmq.member.peers import TOLD_MS
from broker.bmq.session.authentication import (
    ANONYMOUS,
    AnonymousAuthenticator,
    AssumedCredential,
    Authentications,
    BasicAuthenticator,
)
from broker.bmq.session.entrance import uncertified
from broker.bmq.session.negotiation import own_identity
from broker.bmq.session.session import Session
from broker.common.clock import Now
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    BrokerResponse,
    ClientIdentity,
    ElectorMessage,
    LeaderHeartbeat,
    NegotiationMessage,
    StatusCategory,
)
from formats.bmq.wire.event import build_schema_event, iter_frames, schema_message
from tests.broker.bmq.member.peers_rig import LENGTH_MAX, One, meet

STRANGER = "203.0.113.7:4242"


def identity(node_id: int = 1) -> ClientIdentity:
    """Make the identity that node `node_id` would send."""
    return own_identity(replace(One(2).node.identity, node_id=node_id), 1, "planets")


def says(session: Session, identity: ClientIdentity) -> None:
    session.receive(memoryview(build_schema_event(ber.encode(NegotiationMessage(choice=identity)))))


def authenticates(session: Session, user: str, password: str = "secret") -> None:
    request = AuthenticationRequest(mechanism="BASIC", data=f"{user}:{password}".encode())
    message = ber.encode(AuthenticationMessage(choice=request))
    session.receive(memoryview(build_schema_event(message, EventType.AUTHENTICATION)))


def answer(session: Session) -> BrokerResponse:
    """Take the session's answer."""
    view = memoryview(bytes(session.take_output()))
    frame = next(iter_frames(view, 0, len(view), LENGTH_MAX))
    said = ber.decode(NegotiationMessage, schema_message(view, frame.body, frame.end)).choice
    assert isinstance(said, BrokerResponse)
    return said


class Resolver:
    """Looks hosts up; `addresses` are what it knows, and what is `asked` waits for `answer`."""

    def __init__(self) -> None:
        self.addresses: dict[str, frozenset[str] | str] = {}
        self.asked: list[tuple[str, Callable[[frozenset[str] | str], None]]] = []

    def look_up(self, host: str, done: Callable[[frozenset[str] | str], None]) -> None:
        self.asked.append((host, done))

    def answer(self) -> None:
        asked, self.asked = self.asked, []
        for host, done in asked:
            done(self.addresses.get(host, f"{host} is not known"))


HOSTS = {1: "east1", 2: "east2", 3: "10.0.0.3"}
ADDRESSES: dict[str, frozenset[str] | str] = {
    "east1": frozenset({"10.0.0.1", "2001:db8::1"}),
    "east2": frozenset({"10.0.0.2"}),
}


def one(
    resolver: Resolver,
    *,
    needs_proof: bool = False,
    hosts: dict[int, str] = HOSTS,
    authentications: Authentications | None = None,
) -> One:
    """Node 2, whose cluster's hosts the resolver knows; its users are named as nodes are, and one is not."""
    users = {"node1": "secret", "node3": "secret", "somebody": "secret"}
    everybody = Authentications(
        [BasicAuthenticator(users), AnonymousAuthenticator()], AssumedCredential(ANONYMOUS, b"")
    )
    return One(
        2,
        hosts=hosts,
        look_up=resolver.look_up,
        needs_proof=needs_proof,
        authentications=authentications or everybody,
    )


def known(
    resolver: Resolver | None = None, *, needs_proof: bool = False, authentications: Authentications | None = None
) -> One:
    """Likewise, when all has been looked up."""
    resolver = resolver or Resolver()
    resolver.addresses |= ADDRESSES
    made = one(resolver, needs_proof=needs_proof, authentications=authentications)
    resolver.answer()
    return made


def test_a_node_comes_from_its_configured_address() -> None:
    for address in ("10.0.0.1:5000", "2001:db8::1:5000", "::ffff:10.0.0.1:5000"):
        acceptor = known()
        session = acceptor.node.connect(address)
        says(session, identity())
        assert answer(session).result.category is StatusCategory.SUCCESS
        assert acceptor.member.links.is_up(1)


@pytest.mark.parametrize("address", [STRANGER, "10.0.0.2:5000", "10.0.0.3:5000", "2001:db8::2:5000", "127.0.0.1:5000"])
def test_a_stranger_is_refused_with_one_line(address: str, caplog: pytest.LogCaptureFixture) -> None:
    resolver = Resolver()
    acceptor = known(resolver)
    acceptor.wait(LOOK_UP_MS)
    with caplog.at_level(logging.ERROR, "broker.peers"):
        for _ in range(20):
            session = acceptor.node.connect(address)
            says(session, identity())
            resolver.answer()
            assert session.finished
            assert answer(session).result.category is StatusCategory.NOT_SUPPORTED
    assert not acceptor.member.links.peers
    (line,) = caplog.messages
    place = address.rpartition(":")[0]
    assert f"claims to be node 1, 'node1', but connects from {place}, not from east1, 10.0.0.1, 2001:db8::1" in line
    assert "has not authenticated" in line
    # It is not told again before a while is over; and the real node is not blamed.
    acceptor.wait(TOLD_MS)
    session = acceptor.node.connect(address)
    says(session, identity())
    resolver.answer()
    assert session.finished
    assert 1 not in acceptor.peers.faults


def test_a_stranger_neither_evicts_a_node_nor_reaches_the_election() -> None:
    """A heartbeat of the greatest term: a node that took it would follow the stranger, and keep the term for ever."""
    first, second = One(1), One(2)
    wire = meet(first, second, 2)
    kept = list(second.kept)
    stranger = second.node.connect(STRANGER)
    says(stranger, identity())
    heartbeat = ber.encode(ElectorMessage(term=(1 << 64) - 1, choice=LeaderHeartbeat()))
    stranger.receive(memoryview(build_schema_event(heartbeat, EventType.ELECTOR)))
    wire.carry()
    assert stranger.finished
    assert second.member.links.is_up(1)
    assert first.member.links.is_up(2)
    assert not any(session.finished for _, session in wire.ends)
    assert second.kept == kept
    assert second.member.election.leader_id is None


def test_a_node_that_names_a_term_that_no_election_comes_to_loses_its_link() -> None:
    first, second = One(1), One(2)
    wire = meet(first, second, 2)
    heartbeat = ber.encode(ElectorMessage(term=(1 << 64) - 1, choice=LeaderHeartbeat()))
    wire.ends[1][1].receive(memoryview(build_schema_event(heartbeat, EventType.ELECTOR)))
    assert wire.ends[1][1].finished
    assert not second.member.links.is_up(1)
    assert second.kept == []


def test_proof_lets_a_node_in_from_anywhere() -> None:
    for needs_proof in (False, True):
        acceptor = known(needs_proof=needs_proof)
        session = acceptor.node.connect(STRANGER)
        authenticates(session, "node1")
        session.take_output()
        says(session, identity())
        assert answer(session).result.category is StatusCategory.SUCCESS
        assert acceptor.member.links.is_up(1)


def test_a_certificate_that_names_the_node_is_a_proof() -> None:
    acceptor = known(needs_proof=True)
    session = acceptor.node.connect(STRANGER, lambda: frozenset({"east1.example.com", "node1"}))
    says(session, identity())
    assert answer(session).result.category is StatusCategory.SUCCESS
    assert acceptor.member.links.is_up(1)


@pytest.mark.parametrize(
    ("user", "names", "shown"),
    [
        (None, uncertified(), "has not authenticated"),
        ("somebody", uncertified(), "has authenticated as 'BASIC_USER-somebody'"),
        ("node3", uncertified(), "has authenticated as 'BASIC_USER-node3'"),
        (None, frozenset({"node3"}), "has a certificate for node3"),
        ("somebody", frozenset({"node3"}), "'BASIC_USER-somebody' and has a certificate for node3"),
    ],
)
def test_where_proof_is_configured_the_right_address_does_not_do(
    user: str | None, names: frozenset[str], shown: str
) -> None:
    acceptor = known(needs_proof=True)
    session = acceptor.node.connect("10.0.0.1:5000", lambda: names)
    if user is not None:
        authenticates(session, user)
        session.take_output()
    says(session, identity())
    result = answer(session).result
    assert result.category is StatusCategory.NOT_SUPPORTED
    assert shown in result.message
    assert not acceptor.member.links.peers


def test_the_anonymous_credential_proves_nothing() -> None:
    """The anonymous credential is a node's, but the peer did not send it."""
    users = [BasicAuthenticator({"node1": "secret"})]
    acceptor = known(
        needs_proof=True, authentications=Authentications(users, AssumedCredential("BASIC", b"node1:secret"))
    )
    session = acceptor.node.connect("10.0.0.1:5000")
    says(session, identity())
    assert answer(session).result.category is StatusCategory.NOT_SUPPORTED


def test_the_mechanism_for_anybody_proves_nothing() -> None:
    session = known().node.connect(STRANGER)
    request = AuthenticationRequest(mechanism="Anonymous")
    message = ber.encode(AuthenticationMessage(choice=request))
    session.receive(memoryview(build_schema_event(message, EventType.AUTHENTICATION)))
    assert session.entrance.auth.principal == "anonymous"
    assert session.entrance.proven is None


def test_peer_that_connects_before_the_hosts_are_resolved_waits() -> None:
    resolver = Resolver()
    resolver.addresses |= ADDRESSES
    acceptor = one(resolver)
    right, wrong = acceptor.node.connect("10.0.0.1:5000"), acceptor.node.connect(STRANGER)
    for session in (right, wrong):
        says(session, identity())
        assert session.paused
        assert not session.output_size()
    resolver.answer()
    assert not right.paused
    assert answer(right).result.category is StatusCategory.SUCCESS
    assert answer(wrong).result.category is StatusCategory.NOT_SUPPORTED
    assert acceptor.member.links.is_up(1)


def test_a_session_that_ends_while_it_waits_stays_ended() -> None:
    resolver = Resolver()
    resolver.addresses |= ADDRESSES
    acceptor = one(resolver)
    session = acceptor.node.connect("10.0.0.1:5000")
    says(session, identity())
    acceptor.node.disconnect(session, "the peer closed the connection")
    resolver.answer()
    assert session.finished
    assert not acceptor.member.links.peers


def test_a_node_that_has_moved_is_let_in_when_its_host_is_looked_up_again() -> None:
    resolver = Resolver()
    resolver.addresses |= ADDRESSES
    acceptor = one(resolver)
    resolver.answer()
    resolver.addresses["east1"] = frozenset({"10.0.9.9"})
    # Strangers do not make this node ask without end.
    for _ in range(5):
        early = acceptor.node.connect("10.0.9.9:5000")
        says(early, identity())
        assert early.finished
    assert resolver.asked == []
    acceptor.wait(LOOK_UP_MS)
    session = acceptor.node.connect("10.0.9.9:5000")
    says(session, identity())
    assert session.paused
    assert len(resolver.asked) == 1
    resolver.answer()
    assert answer(session).result.category is StatusCategory.SUCCESS


def test_a_host_that_cannot_be_looked_up_keeps_its_addresses() -> None:
    resolver = Resolver()
    resolver.addresses |= ADDRESSES
    acceptor = one(resolver)
    resolver.answer()
    resolver.addresses["east1"] = "Temporary failure in name resolution"
    acceptor.wait(LOOK_UP_MS)
    stranger = acceptor.node.connect(STRANGER)
    says(stranger, identity())
    resolver.answer()
    assert stranger.finished
    session = acceptor.node.connect("10.0.0.1:5000")
    says(session, identity())
    assert answer(session).result.category is StatusCategory.SUCCESS


@pytest.mark.parametrize(
    ("hosts", "node_id", "address", "is_known"),
    [
        ({1: "127.0.0.1", 2: "127.0.0.1"}, 1, "127.0.0.1", True),
        ({1: "127.0.0.1", 2: "127.0.0.1"}, 1, "127.0.0.2", True),
        ({1: "127.0.0.1", 2: "127.0.0.1"}, 1, "::1", True),
        ({1: "0.0.0.0", 2: "0.0.0.0"}, 1, "127.0.0.1", True),
        # Some nodes of this host are named by its address, others by the loopback's.
        ({1: "127.0.0.1", 2: "10.0.0.2"}, 1, "10.0.0.2", True),
        ({1: "10.0.0.2", 2: "127.0.0.1"}, 1, "127.0.0.1", False),
        ({1: "10.0.0.2", 2: "10.0.0.2"}, 1, "127.0.0.1", True),
        ({1: "127.0.0.1", 2: "127.0.0.1"}, 1, "10.0.0.2", False),
        ({1: "10.0.0.1", 2: "10.0.0.2"}, 1, "127.0.0.1", False),
        ({1: "10.0.0.1", 2: "10.0.0.2"}, 1, "10.0.0.2", False),
        ({1: "10.0.0.1", 2: "10.0.0.2"}, 1, "10.0.0.1", True),
    ],
)
def test_nodes_of_one_host(hosts: dict[int, str], node_id: int, address: str, is_known: bool) -> None:
    origins = Origins(hosts, 2, Now(), lambda host, done: pytest.fail("an address is not looked up"))
    origins.start()
    assert origins.has(node_id, address) is is_known


def test_a_host_is_looked_up_once_when_its_node_comes_before_the_start() -> None:
    asked: list[tuple[str, Callable[[frozenset[str] | str], None]]] = []
    went_on: list[int] = []
    origins = Origins({1: "n1", 2: "n2"}, 2, Now(), lambda host, done: asked.append((host, done)))
    assert origins.renew(1, lambda: went_on.append(1))
    origins.start()
    assert [host for host, done in asked] == ["n1", "n2"]
    for _, done in asked:
        done(frozenset(("10.0.0.1",)))
    assert went_on == [1]
    assert origins.has(1, "10.0.0.1")


def test_the_address_of_a_peer() -> None:
    assert address_of("10.0.0.1:80") == "10.0.0.1"
    assert address_of("::ffff:10.0.0.1:80") == "10.0.0.1"
    assert address_of("fe80::1%eth0:80") == "fe80::1"
    assert address_of("2001:0db8::0001:80") == "2001:db8::1"
    assert address_of("n1") == "n1"


def test_names_of_one_node_are_no_proof_for_another() -> None:
    nodes = {1: KnownNode("east1", frozenset({"broker"})), 2: KnownNode("east2"), 3: KnownNode("east3")}
    admission = Admission(nodes, Origins(dict.fromkeys(nodes, "10.0.0.1"), 2, Now(), lambda host, done: None))
    session = One(2).node.connect(STRANGER, lambda: frozenset({"east1"}))
    assert admission.refusal(1, session.entrance) is None
    assert "not from 10.0.0.1" in (admission.refusal(3, session.entrance) or "")
    session = One(2).node.connect(STRANGER)
    session.entrance.proven = "broker"
    assert admission.refusal(1, session.entrance) is None
    assert admission.refusal(3, session.entrance) is not None
