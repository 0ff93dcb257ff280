"""Frames between gRPC clients and the broker of the process: handed over as they are, in their order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.rocketmq.grpc.brokers import loopback
from broker.rocketmq.grpc.brokers.loopback import Loopback
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame


class Broker:
    """A broker with prepared answers."""

    def __init__(self) -> None:
        self.requests: list[Frame] = []
        self.session: Session | None = None

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        self.requests.append(frame)
        self.session = session

    def disconnected(self, session: Session) -> None:
        pass

    def answer(self, number: int, body: bytes | memoryview = b"") -> None:
        assert self.session is not None
        self.session.answer(self.requests[number], Frame(ResponseCode.SUCCESS, 0, body=body))


class Gate:
    """Holds back what is said while `is_shut`, and lets it go before what is said next."""

    def __init__(self) -> None:
        self.is_shut = False
        self.held: list[list[Frame]] = []

    def take(self, holder: Loopback, data: list[Frame]) -> list[Frame]:
        if self.is_shut:
            self.held.append(data)
            return []
        for each in self.held:
            holder.pass_on(each, len(each))
        return data


class Rig:
    def __init__(self) -> None:
        self.broker, self.gate, self.changes = Broker(), Gate(), 0
        self.heard: list[tuple[str, bytes]] = []
        host = Host("127.0.0.1", 5)
        self.link = Loopback(1, host, self.broker, self.gate, self._changed, lambda: 0, lambda _: True, self._failed)

    def _changed(self, link: Loopback) -> None:
        self.changes += 1

    def _failed(self, session: Session, error: Exception) -> None:
        raise error

    def ask(self, name: str) -> None:
        self.link.ask("", Frame(1, 0), self._note(name))

    def _note(self, name: str) -> Callable[[Frame], None]:
        return lambda frame: self.heard.append((name, bytes(frame.body)))


def test_answer_comes_when_the_step_is_over_with_the_body_as_it_was_said() -> None:
    rig, data = Rig(), bytearray(b"body")
    rig.ask("a")
    rig.broker.answer(0, memoryview(data))
    data[:] = b"else"
    assert (rig.heard, rig.changes) == ([], 1)
    rig.link.deliver()
    assert rig.heard == [("a", b"body")]


def test_requests_are_refused_while_too_much_was_said_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "_SAID_BYTES_MAX", 100)
    one, other = Rig(), Rig()
    one.link.all_said = other.link.all_said
    one.ask("a")
    one.broker.answer(0, bytes(101))
    other.ask("b")
    assert other.broker.requests == []
    other.link.deliver()
    assert other.heard == [("b", b"")]
    one.link.deliver()
    assert one.link.all_said.number == 0
    other.ask("c")
    other.broker.answer(0, b"c")
    other.link.end()
    assert one.link.all_said.number == 0


def test_order_is_that_in_which_the_broker_spoke() -> None:
    rig = Rig()
    for name in "abc":
        rig.ask(name)
    rig.gate.is_shut = True
    rig.broker.answer(1)
    rig.link.deliver()
    assert rig.heard == []
    rig.gate.is_shut = False
    rig.broker.answer(2)
    rig.broker.answer(0)
    rig.link.deliver()
    assert [name for name, _ in rig.heard] == ["b", "c", "a"]


def test_bytes_of_frames_are_frames() -> None:
    rig = Rig()
    rig.ask("a")
    assert rig.broker.session is not None
    (request,) = rig.broker.requests
    rig.broker.session.send_bytes(encode_frame(request._replace(flag=1, body=b"x")))
    rig.link.deliver()
    assert rig.heard == [("a", b"x")]


def test_session_with_too_much_output_at_once_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "OUTPUT_BYTES_MAX", 10)
    rig = Rig()
    for name in "abc":
        rig.ask(name)
    over = []
    for number in range(3):
        rig.broker.answer(number, b"12345678")
        over.append(rig.link.is_over)
        if number == 0:
            rig.link.deliver()
    assert over == [False, False, True]
    rig.link.deliver()
    assert [name for name, _ in rig.heard] == ["a"]
    rig.link.end()
    assert [name for name, _ in rig.heard] == ["a", "b", "c"]


def test_delivery_reports_whether_the_broker_was_asked_again() -> None:
    rig = Rig()
    rig.ask("a")
    rig.link.ask("", Frame(1, 0), lambda _: rig.ask("c"))
    rig.broker.answer(0)
    assert not rig.link.deliver()
    rig.broker.answer(1)
    assert rig.link.deliver()
    assert not rig.link.deliver()
    assert [name for name, _ in rig.heard] == ["a"]
    assert len(rig.broker.requests) == 3
