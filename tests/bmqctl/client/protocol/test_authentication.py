from __future__ import annotations

import pytest

from bmqctl.client.protocol.authentication import Credentials
from bmqctl.client.protocol.events import ConnectionLost, Event, Started, Stopped
from bmqctl.client.protocol.guid import ClientGuidGenerator
from bmqctl.client.protocol.lifecycle import Session
from bmqctl.client.protocol.machine import Machine, MachineOptions
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    Status,
    StatusCategory,
)
from formats.bmq.wire.event import EventType, build_schema_event, next_frame
from tests.bmqctl.client.fakes import FakeBroker

SECOND_NS = 1_000_000_000
WHO = Credentials("BASIC", b"user:secret")
GRANTED = Status(category=StatusCategory.SUCCESS, code=0)
REFUSED = Status(category=StatusCategory.REFUSED, code=-1, message="Invalid username or password")


def machine_with(credentials: Credentials | None = WHO, *, resume: bool = False) -> Machine:
    options = MachineOptions("test", 1, 5 * SECOND_NS, credentials=credentials, resume=resume)
    machine = Machine(options, ClientGuidGenerator(b"client", 0, 0), 0)
    machine.start(0)
    return machine


def asked(data: bytes) -> AuthenticationRequest:
    """The one authentication request that `data` is."""
    frame = next_frame(data, 0, len(data), 1 << 20)
    assert frame is not None
    assert (frame.type, frame.end) == (EventType.AUTHENTICATION, len(data))
    request = ber.decode(AuthenticationMessage, memoryview(data)[frame.body : frame.end]).choice
    assert isinstance(request, AuthenticationRequest)
    return request


def answer(status: Status = GRANTED, lifetime_ms: int | None = None) -> bytes:
    message = AuthenticationMessage(choice=AuthenticationResponse(status=status, lifetime_ms=lifetime_ms))
    return build_schema_event(ber.encode(message), EventType.AUTHENTICATION)


def introduce(machine: Machine, lifetime_ms: int | None = None) -> list[Event]:
    machine.data_to_send()
    assert machine.receive(answer(lifetime_ms=lifetime_ms), 0) == []
    return machine.receive(FakeBroker().receive(bytes(machine.data_to_send())), 0)


def test_credentials_go_before_all_else() -> None:
    machine = machine_with()
    request = asked(bytes(machine.data_to_send()))
    assert (request.mechanism, request.data) == ("BASIC", b"user:secret")
    (started,) = introduce(machine)
    assert isinstance(started, Started)
    assert machine.deadline_ns is not None


def test_credentials_that_are_refused_end_the_session() -> None:
    machine = machine_with()
    assert machine.receive(answer(REFUSED), 0) == [
        Stopped("the broker refused our credentials: Invalid username or password")
    ]


def test_a_session_that_is_to_resume_tries_again() -> None:
    machine = machine_with(resume=True)
    assert machine.receive(answer(REFUSED), 0) == []
    assert machine.state is Session.RECONNECTING
    machine.start(0)
    asked(bytes(machine.data_to_send()))
    introduce(machine)
    (lost,) = machine.receive(answer(REFUSED), 0)
    assert isinstance(lost, ConnectionLost)


@pytest.mark.parametrize(("lifetime_ms", "due_s"), [(20_000, 15), (100_000, 90), (4000, 0)])
def test_credentials_are_given_again_before_they_expire(lifetime_ms: int, due_s: int) -> None:
    machine = machine_with()
    introduce(machine, lifetime_ms)
    assert machine.deadline_ns == min(due_s, 3) * SECOND_NS  # or the next look at heartbeats
    machine.data_to_send()
    if due_s:
        assert machine.tick(due_s * SECOND_NS - 1) == []
        assert EventType.AUTHENTICATION not in kinds(machine)
    assert machine.tick(due_s * SECOND_NS) == []
    assert kinds(machine).count(EventType.AUTHENTICATION) == 1
    # Not twice for one answer; and the session goes on.
    machine.tick(due_s * SECOND_NS + 1)
    assert EventType.AUTHENTICATION not in kinds(machine)
    assert machine.receive(answer(), 0) == []
    assert machine.state is Session.STARTED


def kinds(machine: Machine) -> list[int]:
    data = bytes(machine.data_to_send())
    found = []
    at = 0
    while frame := next_frame(data, at, len(data), 1 << 20):
        found.append(frame.type)
        at = frame.end
    return found


def test_a_broker_does_not_ask_for_credentials() -> None:
    machine = machine_with()
    message = AuthenticationMessage(choice=AuthenticationRequest(mechanism="BASIC"))
    (stopped,) = machine.receive(build_schema_event(ber.encode(message), EventType.AUTHENTICATION), 0)
    assert stopped == Stopped("the broker refused our credentials: it requested credentials from this client")


def test_an_answer_to_what_was_not_asked_is_no_protocol() -> None:
    machine = machine_with(None)
    (stopped,) = machine.receive(answer(), 0)
    assert isinstance(stopped, Stopped)
    assert stopped.fault is not None
    assert "AUTHENTICATION" in stopped.fault
