"""Nodes that authenticate themselves to the nodes they dial, before negotiation and again in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.bmq.links.dialing import REFUSED_MS
from broker.bmq.session.authentication import (
    LIFETIME_MS,
    AssumedCredential,
    Authentications,
    Authenticator,
    BasicAuthenticator,
    Granted,
)
from broker.bmq.session.credentials import BasicCredentials, Credentials, NoCredential
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import AuthenticationMessage, AuthenticationResponse, Status, StatusCategory
from formats.bmq.wire.event import build_schema_event, iter_frames
from tests.broker.bmq.member.peers_rig import LENGTH_MAX, One, Wire, meet

USERS = {"node1": "secret", "node3": "other"}


def dialer(user: str = "node1", password: str = "secret") -> One:
    return One(1, credentials=Credentials(BasicCredentials(user, password)))


def acceptor() -> One:
    """A node that lets no peer in that has not authenticated as the node that it claims to be."""
    return accepting(BasicAuthenticator(USERS))


def accepting(authenticator: Authenticator) -> One:
    return One(2, needs_proof=True, authentications=Authentications([authenticator], None))


def kinds(said: bytes) -> list[EventType]:
    view = memoryview(said)
    return [EventType(frame.type) for frame in iter_frames(view, 0, len(view), LENGTH_MAX)]


def test_a_node_authenticates_and_then_says_who_it_is() -> None:
    first, second = dialer(), acceptor()
    wire = Wire(first, second, 2)
    assert kinds(bytes(wire.ends[0][1].take_output())) == [EventType.AUTHENTICATION]
    wire = meet(dialer(), second, 2)
    assert kinds(wire.said[0])[:2] == [EventType.AUTHENTICATION, EventType.CONTROL]
    assert kinds(wire.said[1])[:2] == [EventType.AUTHENTICATION, EventType.CONTROL]
    assert second.member.links.is_up(1)
    assert wire.ends[0][0].member.links.is_up(2)
    assert wire.ends[1][1].entrance.proven == "BASIC_USER-node1"


@pytest.mark.parametrize(
    ("user", "password", "told"),
    [
        ("node1", "wrong", "refused this broker's credentials: Failed to authenticate with mechanism 'BASIC'"),
        ("node3", "other", "refused this node: This broker claims to be node 1, 'node1', but has authenticated as"),
    ],
)
def test_wrong_credentials_are_refused_and_tried_again_after_a_while(user: str, password: str, told: str) -> None:
    first, second = dialer(user, password), acceptor()
    meet(first, second, 2)
    assert not second.member.links.peers
    assert told in first.peers.faults[2]
    assert password not in first.peers.faults[2]
    first.dialed.clear()
    first.wait(REFUSED_MS - 100)
    assert not first.dialed
    first.wait(200)
    assert first.dialed == [2]


def test_without_credentials_nobody_gets_in() -> None:
    first, second = One(1), acceptor()
    meet(first, second, 2)
    assert not first.member.links.peers
    assert not second.member.links.peers


@pytest.mark.slow
def test_where_nobody_may_be_anonymous_the_session_of_a_node_lasts() -> None:
    """A session that authenticates again before each lifetime is over."""
    first, second = dialer(), acceptor()
    wire = meet(first, second, 2)
    second.now.ms = first.now.ms
    for _ in range(3 * LIFETIME_MS // 1_000):
        for one in (first, second):
            one.wait(1_000)
        wire.carry()
    assert first.member.links.is_up(2)
    assert second.member.links.is_up(1)
    # Each time when four fifths of its time are over.
    assert kinds(wire.said[0]).count(EventType.AUTHENTICATION) == 4


class Short:
    """An authenticator whose principals stand for a moment."""

    mechanism = "BASIC"
    blocking = False

    def authenticate(self, data: bytes, peer: str) -> Granted:
        return Granted("BASIC_USER-node1", 3_000)


def test_a_session_that_does_not_authenticate_again_ends() -> None:
    first, second = dialer(), accepting(Short())
    wire = meet(first, second, 2)
    second.wait(10_000)
    assert wire.ends[1][1].finished
    assert not second.member.links.is_up(1)


def test_short_lives_are_renewed_in_time() -> None:
    first, second = dialer(), accepting(Short())
    wire = meet(first, second, 2)
    for _ in range(20):
        first.wait(1_000)
        wire.carry()
        second.wait(1_000)
        wire.carry()
    assert second.member.links.is_up(1)


class Provider:
    """Gives what is there, in a thread of its own where `blocking`."""

    def __init__(self, *, blocking: bool = False) -> None:
        self.blocking = blocking
        self.found: AssumedCredential | Exception = AssumedCredential("BASIC", b"node1:secret")

    def credential(self) -> AssumedCredential:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def test_a_provider_that_takes_its_time_keeps_nobody_waiting() -> None:
    later: list[Callable[[], None]] = []

    def in_thread(work: Callable[[], AssumedCredential | str], done: Callable[[AssumedCredential | str], None]) -> None:
        later.append(lambda: done(work()))

    first, second = One(1, credentials=Credentials(Provider(blocking=True), in_thread)), acceptor()
    wire = meet(first, second, 2)
    assert wire.said == [b"", b""]
    (ask,) = later
    ask()
    wire.carry()
    assert second.member.links.is_up(1)
    # One whose session has ended by then says nothing.
    wire = meet(first, second, 2)
    wire.cut()
    later[1]()
    assert wire.ends[0][1].finished


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (NoCredential("the token service is away"), "the token service is away"),
        (RuntimeError("node1:secret"), "the credential provider failed"),
    ],
)
def test_a_provider_without_a_credential(fault: Exception, told: str) -> None:
    provider = Provider()
    provider.found = fault
    first, second = One(1, credentials=Credentials(provider)), acceptor()
    meet(first, second, 2)
    assert first.peers.faults[2] == f"requires authentication, but there are no credentials: {told}"
    assert not second.member.links.peers


@pytest.mark.parametrize("when", ["unasked", "twice", "garbage", "a request"])
def test_an_answer_that_is_none_ends_the_session(when: str) -> None:
    status = Status(category=StatusCategory.SUCCESS, code=0)
    answer = build_schema_event(
        ber.encode(AuthenticationMessage(choice=AuthenticationResponse(status=status))), EventType.AUTHENTICATION
    )
    first = One(1) if when == "unasked" else dialer()
    session = first.peers.connected(2, "127.0.0.1:1")
    request = bytes(session.take_output())
    sent = {
        "unasked": answer,
        "twice": answer * 2,
        "garbage": answer[:10] + b"\xff" * (len(answer) - 10),
        "a request": request,
    }
    session.receive(memoryview(sent[when]))
    assert session.finished
    assert not first.member.links.peers
