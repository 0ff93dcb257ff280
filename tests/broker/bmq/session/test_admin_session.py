"""Sessions of administrators: commands in, answers out, and nothing else."""

from __future__ import annotations

import pytest

from broker.bmq.session.session_table import SessionState
from formats.bmq.control.messages import (
    AdminCommand,
    AdminCommandResponse,
    ClientType,
    ControlMessage,
    Disconnect,
    DisconnectResponse,
    OpenQueue,
)
from formats.bmq.wire.event import HEARTBEAT_REQUEST, EncodingType, EventType, build_event
from tests.broker.bmq.rig import WRITE, Client, Rig, handle, identity, start


@pytest.fixture
def rig() -> Rig:
    return start(administer=lambda node: lambda command, source, may_read=None: (0, f"{command} from {source}"))


def administrator(rig: Rig, encoding: EncodingType = EncodingType.BER) -> Client:
    client = Client(rig.node, encoding)
    assert client.negotiate(identity(ClientType.TCPADMIN)).result.code == 0
    return client


@pytest.mark.parametrize("encoding", EncodingType)
def test_commands_are_answered_one_by_one(rig: Rig, encoding: EncodingType) -> None:
    client = administrator(rig, encoding)
    for command in ("HELP", "STAT SHOW"):
        assert client.ask(AdminCommand(command=command)) == AdminCommandResponse(
            text=f"{command} from client:42@10.0.0.1:5000"
        )


def test_a_node_without_administration_says_so() -> None:
    client = administrator(start())
    assert client.ask(AdminCommand(command="HELP")) == AdminCommandResponse(text="This node does not accept commands")


def test_an_administrator_says_good_bye(rig: Rig) -> None:
    client = administrator(rig)
    assert client.ask(Disconnect()) == DisconnectResponse()
    assert client.session.state is SessionState.DISCONNECTED


def test_an_administrator_opens_no_queue(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    client = administrator(rig)
    request = OpenQueue(handle_parameters=handle(1, "bmq://priority/q", WRITE))
    client.send(client._schema_event(ControlMessage(r_id=1, choice=request)))
    assert not client.take()
    assert not rig.node.queues
    assert "#CLIENT_IMPROPER_BEHAVIOR" in caplog.text


@pytest.mark.parametrize("kind", [EventType.PUT, EventType.CONFIRM, EventType.ACK, EventType.REJECT])
def test_an_administrator_sends_no_messages(rig: Rig, kind: EventType) -> None:
    client = administrator(rig)
    client.send(build_event(kind, b""))
    assert client.session.finished


def test_a_client_sends_no_commands(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    client = rig.connect()
    client.send(client._schema_event(ControlMessage(r_id=1, choice=AdminCommand(command="HELP"))))
    assert not client.take()
    assert "#CLIENT_IMPROPER_BEHAVIOR" in caplog.text


def test_heartbeats_go_both_ways(rig: Rig) -> None:
    client = administrator(rig)
    client.send(HEARTBEAT_REQUEST)
    rig.wait(4000)
    assert client.controls() == [EventType.HEARTBEAT_RSP, EventType.HEARTBEAT_REQ]
