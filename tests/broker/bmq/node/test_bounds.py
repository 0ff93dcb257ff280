"""Limits of the length of control messages, of their logged part, and of the data waiting for a broker."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from broker.bmq.core.pretty import SHOWN_BYTES_MAX, SHOWN_CHARACTERS_MAX, Shown
from broker.bmq.relay.guests import CONTROL_BYTES_MAX as OF_PROXIES_MAX
from broker.bmq.relay.guests import Guests
from broker.bmq.session.session import CONTROL_BYTES_MAX, EVENT_BYTES_MAX
from formats.bmq.codes import EventType
from formats.bmq.control.messages import (
    ClientType,
    ConfigureStream,
    ConfigureStreamResponse,
    ControlMessage,
    Expression,
    ExpressionVersion,
    OpenQueue,
    StreamParameters,
    Subscription,
)
from formats.bmq.wire.event import EVENT_HEADER, EventHeader
from tests.broker.bmq.rig import READ, WRITE, Client, Rig, handle, identity, start

QUEUE = "bmq://priority/q"


@pytest.fixture
def rig() -> Rig:
    return start(make_door=Guests)


def head(kind: EventType, length: int) -> bytes:
    """Make the header of an event, without the rest."""
    return EVENT_HEADER.pack(EventHeader(0, length, 1, kind, 2, 0, b"\0"))


def proxy(rig: Rig) -> Client:
    client = Client(rig.node)
    client.negotiate(replace(identity(ClientType.TCPBROKER), cluster_node_id=-1))
    client.take()
    client.inbox.clear()
    return client


@pytest.mark.parametrize("kind", [EventType.CONTROL, EventType.AUTHENTICATION])
def test_a_client_is_told_by_its_end_that_a_message_is_too_long(
    rig: Rig, kind: EventType, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = rig.connect()
    client.send(head(kind, CONTROL_BYTES_MAX))
    assert not client.session.finished
    other = rig.connect()
    other.send(head(kind, CONTROL_BYTES_MAX + 1))
    assert other.session.finished
    assert f"{CONTROL_BYTES_MAX + 1} bytes of {kind.name}, the limit is {CONTROL_BYTES_MAX}" in caplog.text


def test_an_administrators_commands_have_the_same_bound(rig: Rig) -> None:
    admin = rig.connect(client_type=ClientType.TCPADMIN)
    admin.send(head(EventType.CONTROL, CONTROL_BYTES_MAX + 1))
    assert admin.session.finished


@pytest.mark.parametrize("kind", [EventType.PUT, EventType.CONFIRM])
def test_messages_may_be_as_long_as_ever(rig: Rig, kind: EventType) -> None:
    client = rig.connect()
    client.send(head(kind, EVENT_BYTES_MAX))
    assert not client.session.finished


def test_a_proxy_may_ask_for_more_at_once(rig: Rig) -> None:
    client = proxy(rig)
    client.send(head(EventType.CONTROL, OF_PROXIES_MAX))
    assert not client.session.finished
    other = proxy(rig)
    other.send(head(EventType.CONTROL, OF_PROXIES_MAX + 1))
    assert other.session.finished


@pytest.mark.parametrize("count", [5, 100, 5_000])
def test_a_log_line_is_short_however_long_a_request_is(rig: Rig, count: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = rig.connect()
    client.open(1, QUEUE, READ)
    caplog.clear()
    wanted = tuple(
        Subscription(s_id=number, expression=Expression(version=ExpressionVersion.VERSION_1, text="x > 1"))
        for number in range(count)
    )
    choice = ConfigureStream(q_id=1, stream_parameters=StreamParameters(subscriptions=wanted))
    assert isinstance(client.ask(choice), ConfigureStreamResponse)
    (line,) = (record.getMessage() for record in caplog.records if ": received " in record.getMessage())
    assert len(line) < SHOWN_CHARACTERS_MAX + 100
    assert ("x > 1" in line) == (count == 5)
    if count > 5:
        assert "received ConfigureStream of " in line


def test_small_messages_whose_text_is_long_are_cut() -> None:
    wanted = tuple(Subscription(s_id=0, expression=Expression(text="")) for _ in range(SHOWN_BYTES_MAX // 8))
    message = ControlMessage(choice=ConfigureStream(q_id=1, stream_parameters=StreamParameters(subscriptions=wanted)))
    assert len(str(Shown(message, SHOWN_BYTES_MAX))) == SHOWN_CHARACTERS_MAX + 3


def test_a_broker_that_takes_nothing_is_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("broker.bmq.relay.guests.BACKLOG_BYTES_MAX", 10_000)
    client = proxy(rig)
    opening = client._schema_event(ControlMessage(r_id=1, choice=OpenQueue(handle_parameters=handle(1, QUEUE, WRITE))))
    for _ in range(1000):
        client.send(opening)
        if client.session.finished:
            break
    assert client.session.finished
    assert client.session.backlog == 0
    assert "does not read what it is sent" in caplog.text


def test_a_broker_that_is_silent_and_takes_nothing_is_ended(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.bmq.relay.guests.BACKLOG_BYTES_MAX", 10_000)
    client = proxy(rig)
    client.session.send_event(bytes(10_001))
    rig.wait(1000)
    assert client.session.finished


def test_a_broker_is_read_from_however_much_waits(rig: Rig) -> None:
    client = proxy(rig)
    client.session.send_event(bytes(32 << 20))
    assert client.session.backlog_bytes_max > 1 << 60
    opened = client._schema_event(ControlMessage(r_id=1, choice=OpenQueue(handle_parameters=handle(1, QUEUE, WRITE))))
    client.send(opened)
    assert not client.session.finished
