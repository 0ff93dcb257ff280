"""A session from its first byte to its last: every row of its table, and every byte that has no place in a state."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from broker.bmq.session.session import EVENT_BYTES_MAX, NEGOTIATION_BYTES_MAX
from broker.bmq.session.session_table import TRANSITIONS, SessionState, SessionTrigger
from formats.bmq.codes import AckStatus
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    BrokerResponse,
    ClientType,
    ControlMessage,
    Disconnect,
    DisconnectResponse,
    NegotiationMessage,
    OpenQueue,
    Status,
    StatusCategory,
)
from formats.bmq.wire.event import (
    EVENT_HEADER,
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    EncodingType,
    EventHeader,
    EventType,
    build_event,
    build_schema_event,
    iter_frames,
)
from tests.broker.bmq.rig import ACK, NODE, WRITE, Client, Rig, guid, handle, identity, put_event, start

QUEUE = "bmq://priority/q"
HELLO = build_schema_event(ber.encode(NegotiationMessage(choice=identity())))
GOOD_BYE = build_schema_event(ber.encode(ControlMessage(r_id=1, choice=Disconnect())))


@pytest.fixture
def rig() -> Rig:
    return start()


def in_state(rig: Rig, state: SessionState) -> Client:
    """A client whose session has come to `state` by what it sent."""
    client = Client(rig.node)
    if state is not SessionState.NEGOTIATING:
        client.negotiate(identity())
        client.open(1, QUEUE, WRITE | ACK)
    if state is SessionState.DISCONNECTED:
        client.disconnect()
    elif state is SessionState.CLOSED:
        client.send(b"\xff" * 8)
    client.take()
    assert client.session.state is state
    return client


def say_who(client: Client) -> None:
    client.send(HELLO)


def say_goodbye(client: Client) -> None:
    client.send(GOOD_BYE)


def drop(client: Client) -> None:
    client.drop()


def babble(client: Client) -> None:
    client.send(b"\xff" * 8)


CAUSES: dict[SessionTrigger, list[Callable[[Client], None]]] = {
    SessionTrigger.IDENTIFIED: [say_who],
    SessionTrigger.DISCONNECT: [say_goodbye],
    SessionTrigger.ENDED: [drop, babble],
}


def rows() -> Iterator[tuple[SessionState, Callable[[Client], None], SessionState]]:
    for (state, trigger), after in TRANSITIONS.items():
        for cause in CAUSES[trigger]:
            yield state, cause, after


@pytest.mark.parametrize(("state", "cause", "after"), list(rows()))
def test_each_row_of_the_table_happens(
    rig: Rig, state: SessionState, cause: Callable[[Client], None], after: SessionState
) -> None:
    client = in_state(rig, state)
    cause(client)
    assert client.session.state is after
    assert client.session.finished == (after is SessionState.CLOSED)


def test_every_state_can_be_reached_and_left() -> None:
    reached = {SessionState.NEGOTIATING} | set(TRANSITIONS.values())
    assert reached == set(SessionState)
    assert {state for state, trigger in TRANSITIONS if trigger is SessionTrigger.ENDED} == set(SessionState)


# -- what a state makes of each type of event


FOREIGN = [
    EventType.PUSH,
    EventType.ACK,
    EventType.CLUSTER_STATE,
    EventType.ELECTOR,
    EventType.STORAGE,
    EventType.RECOVERY,
    EventType.PARTITION_SYNC,
    EventType.REPLICATION_RECEIPT,
    EventType.AUTHENTICATION,
]


def test_the_lists_of_event_types_are_complete() -> None:
    served = {"PUT", "CONFIRM", "CONTROL", "HEARTBEAT_REQ", "HEARTBEAT_RSP", "REJECT"}
    assert {kind.name for kind in FOREIGN} | served == {kind.name for kind in EventType} - {"UNDEFINED"}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_client_that_sends_what_brokers_send_is_put_off(rig: Rig, kind: EventType) -> None:
    client = in_state(rig, SessionState.RUNNING)
    client.send(build_event(kind, bytes(16)))
    assert client.session.finished


@pytest.mark.parametrize("kind", [kind for kind in EventType if kind not in (EventType.UNDEFINED, EventType.CONTROL)])
def test_nothing_comes_before_the_identity(rig: Rig, kind: EventType) -> None:
    client = in_state(rig, SessionState.NEGOTIATING)
    client.send(build_event(kind, bytes(16)))
    assert client.session.finished


@pytest.mark.parametrize("state", [SessionState.DISCONNECTED, SessionState.CLOSED])
@pytest.mark.parametrize("kind", [kind for kind in EventType if kind is not EventType.UNDEFINED])
def test_nothing_counts_after_the_end(rig: Rig, state: SessionState, kind: EventType) -> None:
    client = in_state(rig, state)
    client.send(build_event(kind, b"\xff" * 16))
    assert client.session.state is state
    assert not client.take()


@pytest.mark.parametrize("kind", [0, 17, 63])
@pytest.mark.parametrize("state", [SessionState.NEGOTIATING, SessionState.RUNNING, SessionState.DISCONNECTED])
def test_types_that_do_not_exist_end_the_session(rig: Rig, state: SessionState, kind: int) -> None:
    client = in_state(rig, state)
    client.send(EVENT_HEADER.pack(EventHeader(0, 8, 1, kind, 2, 0, b"\0")))
    assert client.session.finished


BODIES = {
    "PUT cut short": build_event(EventType.PUT, bytes(20)),
    "PUT of nothing": build_event(EventType.PUT, bytes(36)),
    "CONFIRM that is none": build_event(EventType.CONFIRM, b"\xff" * 10),
    "CONTROL that is no BER": build_event(EventType.CONTROL, b"\xff" * 16),
    "CONTROL that is no JSON": build_event(EventType.CONTROL, b"{]" + b"\2\2", EncodingType.JSON << 5),
    "CONTROL of no encoding": build_event(EventType.CONTROL, b"1234", 7 << 5),
    "an identity for a request": HELLO,
    "another protocol version": EVENT_HEADER.pack(EventHeader(0, 8, 2, EventType.PUT, 2, 0, b"\0")),
    "a fragment": EVENT_HEADER.pack(EventHeader(1, 8, 1, EventType.PUT, 2, 0, b"\0")),
    "a header of no words": EVENT_HEADER.pack(EventHeader(0, 8, 1, EventType.PUT, 0, 0, b"\0")),
    "an event of no length": EVENT_HEADER.pack(EventHeader(0, 0, 1, EventType.PUT, 2, 0, b"\0")),
    "an event that is too long": EVENT_HEADER.pack(EventHeader(0, EVENT_BYTES_MAX + 1, 1, EventType.PUT, 2, 0, b"\0")),
}


@pytest.mark.parametrize("name", BODIES)
def test_malformed_events_end_the_session_and_no_other(rig: Rig, name: str) -> None:
    other = in_state(rig, SessionState.RUNNING)
    client = in_state(rig, SessionState.RUNNING)
    client.send(BODIES[name])
    assert client.session.finished
    assert not client.session.handles
    assert other.post(1, guid(1), b"still served") is AckStatus.SUCCESS


def test_sound_events_before_the_fault_count(rig: Rig) -> None:
    client = in_state(rig, SessionState.RUNNING)
    sound = b"".join(put_event(1, guid(number), b"payload") for number in range(3))
    client.send(sound + b"\xff" * 100)
    assert client.session.finished
    assert [ack.guid for ack in client.acks()] == [guid(number) for number in range(3)]


def test_an_identity_is_short(rig: Rig) -> None:
    client = in_state(rig, SessionState.NEGOTIATING)
    client.send(EVENT_HEADER.pack(EventHeader(0, NEGOTIATION_BYTES_MAX + 4, 1, EventType.CONTROL, 2, 0, b"\0")))
    assert client.session.finished


# -- however the bytes arrive


def conversation() -> bytes:
    opening = ControlMessage(r_id=7, choice=OpenQueue(handle_parameters=handle(1, QUEUE, WRITE | ACK)))
    puts = b"".join(put_event(1, guid(number), b"payload") for number in range(3))
    return HELLO + build_schema_event(ber.encode(opening)) + puts + HEARTBEAT_REQUEST + GOOD_BYE


def answers(chunks: list[bytes]) -> bytes:
    client = Client(start().node)
    for chunk in chunks:
        client.send(chunk)
    client.take()
    assert client.session.state is SessionState.DISCONNECTED
    return bytes(client.received)


@pytest.mark.slow
def test_bytes_may_arrive_as_they_like() -> None:
    """Whole, byte by byte, cut in two anywhere."""
    sent = conversation()
    expected = answers([sent])
    kinds = [frame.type for frame in iter_frames(expected, 0, len(expected), len(expected))]
    assert kinds == [EventType.CONTROL, EventType.CONTROL, EventType.ACK, EventType.HEARTBEAT_RSP, EventType.CONTROL]
    assert answers([sent[at : at + 1] for at in range(len(sent))]) == expected
    for at in range(1, len(sent)):
        assert answers([sent[:at], sent[at:]]) == expected


@pytest.mark.parametrize("behind", [b"\xff" * 8, HELLO, b"\0"])
def test_nothing_behind_the_good_bye_is_answered(behind: bytes) -> None:
    client = Client(start().node)
    client.send(HELLO + GOOD_BYE)
    before = client.take()
    client.send(behind)
    assert not client.take()
    assert before


# -- negotiation


@pytest.mark.parametrize("encoding", EncodingType)
def test_the_answer_says_who_the_broker_is(rig: Rig, encoding: EncodingType) -> None:
    client = Client(rig.node, encoding)
    answer = client.negotiate(identity())
    assert answer.result == Status(category=StatusCategory.SUCCESS, code=0)
    assert (answer.heartbeat_interval_ms, answer.max_missed_heartbeats) == (3000, 10)
    assert answer.broker_identity.client_type is ClientType.TCPBROKER
    assert answer.broker_identity.session_id == client.session.session_id
    assert (answer.broker_identity.host_name, answer.broker_identity.pid) == (NODE.host, NODE.process_id)
    client.disconnect()


def test_requests_are_answered_in_the_encoding_of_the_identity(rig: Rig) -> None:
    client = Client(rig.node, EncodingType.JSON)
    client.negotiate(identity())
    client.send(GOOD_BYE)
    output = client.take()
    (frame,) = iter_frames(output, 0, len(output), len(output))
    assert jsonc.decode(ControlMessage, memoryview(output)[frame.body :]).choice == DisconnectResponse()


@pytest.mark.parametrize("client_type", [ClientType.TCPBROKER, ClientType.UNKNOWN])
def test_only_clients_are_taken(rig: Rig, client_type: ClientType) -> None:
    client = Client(rig.node)
    answer = client.negotiate(identity(client_type))
    assert answer.result.category is StatusCategory.NOT_SUPPORTED
    assert client_type.name in answer.result.message
    assert client.session.finished


def test_a_broker_response_is_no_identity(rig: Rig) -> None:
    answer = Client(rig.node).negotiate(identity())
    assert isinstance(answer, BrokerResponse)
    client = Client(rig.node)
    client.send(build_schema_event(ber.encode(NegotiationMessage(choice=answer))))
    assert client.session.finished
    assert not client.take()


def test_authentication_is_refused_in_words(rig: Rig) -> None:
    client = Client(rig.node)
    request = AuthenticationMessage(choice=AuthenticationRequest(mechanism="basic", data=b"me"))
    client.send(build_schema_event(ber.encode(request), EventType.AUTHENTICATION))
    output = memoryview(bytes(client.session.take_output()))
    (frame,) = iter_frames(output, 0, len(output), len(output))
    assert frame.type == EventType.AUTHENTICATION
    answer = ber.decode(AuthenticationMessage, output[frame.body :]).choice
    assert isinstance(answer, AuthenticationResponse)
    assert answer.status.category is StatusCategory.REFUSED
    assert client.session.finished


# -- time


def test_a_peer_that_says_nothing_is_put_off(rig: Rig) -> None:
    client = Client(rig.node)
    rig.wait(60_000)
    assert not client.session.finished
    rig.wait(1_000)
    assert client.session.finished


def test_a_dripping_peer_is_put_off(rig: Rig) -> None:
    """Bytes that make no identity do not buy time."""
    client = Client(rig.node)
    for byte in HELLO[:61]:
        client.send(bytes([byte]))
        rig.wait(1_000)
    assert client.session.finished


def test_heartbeats_go_to_a_silent_peer(rig: Rig) -> None:
    client = in_state(rig, SessionState.RUNNING)
    rig.wait(2_000)
    assert client.controls() == []
    rig.wait(1_000)
    assert client.controls() == [EventType.HEARTBEAT_REQ]
    rig.wait(6_000)
    assert client.controls() == [EventType.HEARTBEAT_REQ] * 2


def test_a_dead_peer_is_put_off_after_the_missed_heartbeats(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    client = in_state(rig, SessionState.RUNNING)
    rig.wait(32_000)
    assert client.controls() == [EventType.HEARTBEAT_REQ] * 10
    before = client.session.finished
    rig.wait(1_000)
    assert (before, client.session.finished) == (False, True)
    assert "#TCP_DEAD_CHANNEL: closing unresponsive channel after 10 missed heartbeats [session: '" in caplog.text


@pytest.mark.parametrize("sent", [[HEARTBEAT_RESPONSE] * 20, [bytes([b]) for b in put_event(1, guid(1), b"long")[:20]]])
def test_any_byte_is_a_sign_of_life(rig: Rig, sent: list[bytes]) -> None:
    client = in_state(rig, SessionState.RUNNING)
    for each in sent:
        rig.wait(5_000)
        client.send(each)
    assert not client.session.finished
    assert client.controls().count(EventType.HEARTBEAT_REQ) == 20


def test_a_heartbeat_is_answered(rig: Rig) -> None:
    client = in_state(rig, SessionState.RUNNING)
    client.send(HEARTBEAT_REQUEST * 2)
    assert client.controls() == [EventType.HEARTBEAT_RSP] * 2


# -- the end


@pytest.mark.parametrize("end", [say_goodbye, drop, babble])
def test_the_end_frees_what_the_session_held(rig: Rig, end: Callable[[Client], None]) -> None:
    client = in_state(rig, SessionState.RUNNING)
    client.read(2, "bmq://priority/other")
    end(client)
    assert not client.session.handles
    assert not any(app.streams for queue in rig.node.queues.values() for app in queue.apps.values())
    if end is drop:
        assert client.session.session_id not in rig.node.sessions
        assert client.session not in rig.node.dirty


def test_sessions_are_numbered(rig: Rig) -> None:
    ids = [Client(rig.node).session.session_id for _ in range(3)]
    assert len(set(ids)) == 3
    assert set(rig.node.sessions) == set(ids)
