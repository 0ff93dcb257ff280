"""Calls that something else ends, faults of the broker, and messages that are dealt with while they are renewed."""

from __future__ import annotations

from typing import Any

import pytest

from broker.common.faults import Inconsistent
from broker.rocketmq.grpc.brokers.loopback import Loopback
from broker.rocketmq.grpc.consuming.renewals import Changed, Held
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.grpc.codes import ClientType, Code
from formats.rocketmq.grpc.messages import Message, duration_of_ms, make
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.grpc.grpc_service_rig import consumer, resource
from tests.broker.rocketmq.grpc.served import Served, message
from tests.broker.rocketmq.proxy.clustered import Clustered


@pytest.fixture(params=[Served, Clustered], ids=["alone", "cluster"])
def served(request: pytest.FixtureRequest) -> Served:
    """The service before its own broker, and before that of a cluster."""
    made: Served = request.param()
    return made


@pytest.fixture
def alone() -> Served:
    """The service before its own broker, which has a connection of each client."""
    return Served()


def terminate(served: Served) -> Message:
    return served.call("NotifyClientTermination", make("NotifyClientTerminationRequest", group=resource("g")))


# -- clients that are forgotten


def test_calls_of_a_client_that_says_farewell_are_answered(served: Served) -> None:
    telemetry, _ = served.tell(consumer(kind=ClientType.SIMPLE_CONSUMER))
    waiting = served.begin("ReceiveMessage", served.receive_request())
    assert terminate(served).status.code == Code.OK
    assert served.client.status(waiting) == "0"
    answers = served.answers("ReceiveMessage", waiting)
    assert answers[0].status.code == Code.INTERNAL_SERVER_ERROR
    assert answers[-1].WhichOneof("content") == "delivery_timestamp"
    assert served.client.status(telemetry) == "0"
    assert not served.service._open


def test_calls_of_a_client_that_the_broker_gives_up_are_answered(alone: Served) -> None:
    telemetry, _ = alone.tell(consumer(kind=ClientType.SIMPLE_CONSUMER))
    (client,) = alone.service._clients
    waiting = alone.begin("ReceiveMessage", alone.receive_request())
    assert isinstance(client.link, Loopback)
    client.link._session.give_up("no heartbeat")
    alone.service.tick()
    alone.client.exchange()
    assert alone.client.status(waiting) == "0"
    assert alone.answers("ReceiveMessage", waiting)[0].status.code == Code.INTERNAL_SERVER_ERROR
    assert alone.client.status(telemetry) == "14"
    assert not alone.service._open
    # It may begin again.
    assert alone.tell(consumer())[1][0].status.code == Code.OK
    assert alone.send(message()).status.code == Code.OK


# -- faults


def test_a_fault_in_a_call_ends_that_call_only(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Message:
        raise OverflowError("does not fit")

    other = served.begin("ReceiveMessage", served.receive_request())
    monkeypatch.setattr("broker.rocketmq.grpc.sending.properties_of", fail)
    answer = served.send(message())
    assert (answer.status.code, answer.status.message) == (Code.INTERNAL_SERVER_ERROR, "a fault of this broker")
    assert (served.rig.faults.others, served.rig.faults.of_sessions) == (1, 0)
    monkeypatch.undo()
    served.send(message())
    assert served.client.status(other) == "0"


def test_a_fault_in_the_broker_ends_its_session_with_that_client(
    alone: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(frame: Frame, session: Session) -> None:
        raise KeyError("half done")

    monkeypatch.setattr(alone.rig.broker, "receive", fail)
    stream = alone.begin("SendMessage", make("SendMessageRequest", messages=[message()]))
    monkeypatch.undo()
    failed = alone.rig.faults.next_failed()
    (client,) = alone.service._clients
    assert isinstance(client.link, Loopback)
    assert failed is client.link._session
    failed.give_up("a fault of this broker")
    alone.service.tick()
    alone.client.exchange()
    (answer,) = alone.answers("SendMessage", stream)
    assert answer.status.code == Code.INTERNAL_SERVER_ERROR
    assert not alone.client.is_over()
    assert alone.send(message()).status.code == Code.OK


def test_a_change_that_is_cut_short_ends_the_process(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("the log")

    monkeypatch.setattr(served.rig.store.log, "append", fail)
    with pytest.raises(Inconsistent):
        served.begin("SendMessage", make("SendMessageRequest", messages=[message()]))


# -- messages that are renewed


class Gate:
    """Holds answers of the broker back while `is_shut`."""

    def __init__(self) -> None:
        self.is_shut = False
        self._held: list[tuple[Loopback, list[Frame]]] = []

    def take(self, holder: Loopback, data: list[Frame]) -> list[Frame]:
        if not self.is_shut:
            return data
        self._held.append((holder, data))
        return []

    @property
    def holds(self) -> bool:
        """Return whether an answer waits."""
        return bool(self._held)

    def open(self) -> None:
        """Let all pass."""
        self.is_shut = False
        held, self._held = self._held, []
        for holder, data in held:
            holder.pass_on(data, len(data))


def renewing() -> tuple[Served, Gate, str]:
    """A push consumer with a message whose renewal the broker has not answered yet, and the message's handle."""
    gate = Gate()
    served = Served(gate=gate)
    served.tell(consumer())
    served.send(message())
    (held,) = served.receive(auto_renew=True)
    gate.is_shut = True
    while not gate.holds:
        assert served.ms < 60_000
        served.pass_time(500)
    return served, gate, str(held.system_properties.receipt_handle)


def dealt(served: Served, method: str, handle: str) -> int:
    request = make(f"{method}Request", group=resource("g"), topic=resource("t"))
    if method == "AckMessage":
        request.entries.add(message_id="1", receipt_handle=handle)
    else:
        request.receipt_handle, request.message_id = handle, "ID-1"
    if method == "ChangeInvisibleDuration":
        request.invisible_duration.CopyFrom(duration_of_ms(1_000))
    return served.begin(method, request)


def heartbeat(served: Served) -> None:
    served.call("Heartbeat", make("HeartbeatRequest", group=resource("g")))


@pytest.mark.parametrize("method", ["AckMessage", "ForwardMessageToDeadLetterQueue"])
def test_a_message_that_is_dealt_with_during_its_renewal_does_not_come_again(method: str) -> None:
    served, gate, handle = renewing()
    stream = dealt(served, method, handle)
    assert served.client.status(stream) is None
    gate.open()
    served.step()
    (answer,) = served.answers(method, stream)
    assert answer.status.code == Code.OK
    for _ in range(4):
        heartbeat(served)
        assert served.receive() == []
        served.pass_time(20_000)
    assert served.receive() == []


def test_another_time_for_a_message_during_its_renewal_is_the_one_that_holds() -> None:
    served, gate, handle = renewing()
    stream = dealt(served, "ChangeInvisibleDuration", handle)
    gate.open()
    served.step()
    (answer,) = served.answers("ChangeInvisibleDuration", stream)
    assert answer.status.code == Code.OK
    served.pass_time(5_000)
    (again,) = served.receive()
    assert again.system_properties.delivery_attempt == 2
    assert served.acknowledge(again.system_properties.receipt_handle).status.code == Code.OK
    for _ in range(4):
        heartbeat(served)
        assert served.receive() == []
        served.pass_time(20_000)


def test_a_message_is_renewed_once_at_a_time() -> None:
    served, gate, handle = renewing()
    (held,) = next(iter(served.service._renewals._held.values())).values()
    handed: list[Held] = []
    change = served.service._renewals._change

    def note(held: Held, ms: int, renewed: Changed) -> None:
        handed.append(held)
        change(held, ms, renewed)

    served.service._renewals._change = note
    served.pass_time(6_000)
    assert (held.is_changing, handed) == (True, [])
    gate.open()
    served.step()
    assert (held.is_changing, handed) == (False, [])
    served.pass_time(50_000)
    assert handed == [held]
    assert served.acknowledge(handle).status.code == Code.OK


def test_request_that_waits_for_a_renewal_is_answered_when_the_client_is_forgotten() -> None:
    served, _, handle = renewing()
    stream = dealt(served, "AckMessage", handle)
    (client,) = served.service._clients
    served.service._leave_client(client)
    served.client.exchange()
    (answer,) = served.answers("AckMessage", stream)
    assert answer.entries[0].status.code == Code.INTERNAL_SERVER_ERROR


def test_a_message_of_a_client_that_leaves_during_its_renewal_comes_again_soon() -> None:
    served, gate, _ = renewing()
    (client,) = served.service._clients
    request = make("NotifyClientTerminationRequest", group=resource("g"))
    stream = served.begin("NotifyClientTermination", request)
    assert served.client.status(stream) == "0"
    # Nothing can be done before the handle is known.
    link = client.link
    assert link is not None
    states = [link.is_over]
    gate.open()
    served.step()
    assert [*states, link.is_over] == [False, True]
    served.client_id = "another"
    served.pass_time(5_000)
    (again,) = served.receive()
    assert again.system_properties.delivery_attempt == 2


def failing(served: Served, monkeypatch: pytest.MonkeyPatch, code: ResponseCode, times: int) -> list[int]:
    """Have the broker refuse the next renewals; when it did."""
    refused: list[int] = []
    receive = served.rig.broker.receive

    def refuse(frame: Frame, session: Session) -> None:
        if frame.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME and len(refused) < times:
            refused.append(served.ms)
            session.send(Frame(code, frame.opaque, 1, "not now"))
        else:
            receive(frame, session)

    monkeypatch.setattr(served.rig.broker, "receive", refuse)
    return refused


@pytest.mark.parametrize(
    ("code", "times", "is_hidden"),
    [
        (ResponseCode.SYSTEM_ERROR, 1, True),
        (ResponseCode.SERVICE_NOT_AVAILABLE, 1, True),
        (ResponseCode.NO_MESSAGE, 1, False),
        (ResponseCode.SYSTEM_ERROR, 9, False),
    ],
)
def test_a_renewal_that_fails_for_a_while_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, code: ResponseCode, times: int, is_hidden: bool
) -> None:
    served = Served()
    served.tell(consumer())
    served.send(message())
    served.receive(auto_renew=True)
    refused = failing(served, monkeypatch, code, times)
    for _ in range(4):
        heartbeat(served)
        served.pass_time(20_000)
    assert 1 <= len(refused) <= 3
    assert (served.receive() == []) is is_hidden
