"""A proxy's connection to an address: when it is made, and the bounds on what waits for it."""

from __future__ import annotations

import pytest

from broker.rocketmq.grpc.statuses import NO_ANSWER, UNREACHABLE
from broker.rocketmq.proxy import wire as module
from broker.rocketmq.proxy.wire import Events, Wire
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from tests.broker.rocketmq.proxy.clustered import Network

ADDRESS = "127.0.0.1:1"


class Echo:
    """Answers each request with its code, or not at all."""

    def __init__(self) -> None:
        self.is_silent = False

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        return at

    def receive(self, frame: Frame, session: Session) -> None:
        if not self.is_silent:
            session.answer(frame, Frame(frame.code, 0))

    def disconnected(self, session: Session) -> None: ...


class Wired:
    """A wire, and what became of what was asked over it."""

    def __init__(self) -> None:
        self.ms = 0
        self.network = Network(lambda: self.ms)
        self.echo = Echo()
        self.told: list[str] = []
        self.codes: list[int] = []
        events = Events(lambda: self.told.append("connected"), lambda: self.told.append("lost"), lambda frame: False)
        self.wire = Wire(ADDRESS, self.network.dial(ADDRESS), self.network.open, events, self._later, lambda: self.ms)
        self.works: list[object] = []

    def _later(self, work: object) -> None:
        self.works.append(work)

    def listen(self) -> None:
        self.network.services[ADDRESS] = self.echo

    def ask(self, code: int = 7) -> None:
        before = len(self.codes)
        self.wire.ask(Frame(code, 0), self.ms + 1_000, lambda answer: self.codes.append(answer.code))
        # Nobody is answered while still asking.
        assert len(self.codes) == before

    def step(self) -> None:
        while self.network.exchange():
            pass
        works, self.works = self.works, []
        for work in works:
            assert callable(work)
            work()


@pytest.fixture
def wired() -> Wired:
    return Wired()


def test_it_connects_when_there_is_something_to_ask(wired: Wired) -> None:
    wired.listen()
    wired.step()
    assert (wired.network.dialed, wired.wire.is_idle) == ([], True)
    wired.ask(7)
    wired.ask(8)
    wired.step()
    wired.ask(9)
    wired.step()
    assert (wired.codes, wired.told, wired.network.dialed) == ([7, 8, 9], ["connected"], [ADDRESS])


def test_unreachable_broker_is_left_alone_for_a_moment(wired: Wired) -> None:
    wired.ask()
    wired.step()
    wired.ask()
    wired.step()
    assert (wired.codes, len(wired.network.dialed)) == ([UNREACHABLE, UNREACHABLE], 1)
    wired.listen()
    wired.ms = 500
    wired.ask(7)
    wired.step()
    assert wired.codes[2:] == [7]


def test_requests_on_a_lost_connection_fail(wired: Wired) -> None:
    wired.listen()
    wired.echo.is_silent = True
    wired.ask()
    wired.step()
    wired.network.end(ADDRESS)
    assert (wired.codes, wired.told) == ([UNREACHABLE], ["connected", "lost"])
    assert wired.wire.waiting == 0


def test_request_without_an_answer_in_time_fails_and_a_late_answer_is_ignored(wired: Wired) -> None:
    wired.listen()
    wired.ask(7)
    wired.ms = 999
    wired.wire.expire(wired.ms)
    assert wired.codes == []
    wired.ms = 1_000
    wired.wire.expire(wired.ms)
    assert wired.codes == [NO_ANSWER]
    wired.echo.is_silent = True
    wired.ask(8)
    wired.step()
    ((_, pipe),) = wired.network.pipes
    wired.ms = 2_000
    wired.wire.expire(wired.ms)
    pipe.far.send(Frame(8, 1, 1))
    wired.step()
    assert wired.codes == [NO_ANSWER, NO_ANSWER]


def test_there_is_a_bound_on_requests(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REQUESTS_MAX", 2)
    wired.listen()
    wired.echo.is_silent = True
    for _ in range(3):
        wired.ask()
    wired.step()
    assert wired.codes == [ResponseCode.SYSTEM_BUSY]


def test_there_is_a_bound_on_bytes_that_the_other_side_does_not_take(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_OUTPUT_BYTES_MAX", 1_000)
    wired.listen()
    wired.ask()
    wired.step()
    ((_, pipe),) = wired.network.pipes
    pipe.is_stuck = True
    for _ in range(2):
        wired.wire.ask(Frame(7, 0, body=bytes(1_001)), 10_000, lambda answer: wired.codes.append(answer.code))
    wired.step()
    assert wired.codes == [7, ResponseCode.SYSTEM_BUSY]
    assert not pipe.near.finished


def test_a_frame_that_is_none_ends_the_connection_only(wired: Wired) -> None:
    wired.listen()
    wired.echo.is_silent = True
    wired.ask()
    wired.step()
    ((_, pipe),) = wired.network.pipes
    pipe.far.send_bytes(b"\xff" * 64)
    wired.step()
    assert wired.codes == [UNREACHABLE]
    wired.echo.is_silent = False
    wired.ask(7)
    wired.step()
    assert wired.codes[1:] == [7]


def test_a_request_that_cannot_be_written_fails_alone(wired: Wired) -> None:
    wired.listen()
    unwritable = Frame(1 << 20, 0, encoding=HeaderEncoding.BINARY)
    for _ in range(2):
        wired.ask(7)
        wired.wire.ask(unwritable, 10_000, lambda answer: wired.codes.append(answer.code))
        wired.ask(8)
        wired.step()
        assert sorted(wired.codes) == [ResponseCode.SYSTEM_ERROR, 7, 8]
        wired.codes.clear()
    assert wired.told == ["connected"]


def test_headers_that_wait_for_the_connection_count(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OUTPUT_BYTES_MAX", 1_000)
    for _ in range(3):
        frame = Frame(7, 0, ext_fields={"a": "x" * 400})
        wired.wire.ask(frame, 10_000, lambda answer: wired.codes.append(answer.code))
    assert wired.wire.waiting == 2


def test_requests_that_wait_for_the_connection_are_bounded_as_well(
    wired: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_OUTPUT_BYTES_MAX", 1_000)
    for _ in range(3):
        wired.wire.ask(Frame(7, 0, body=bytes(600)), 10_000, lambda answer: wired.codes.append(answer.code))
    assert wired.wire.waiting == 2
    wired.step()
    assert wired.codes.count(ResponseCode.SYSTEM_BUSY) == 1


def settled(wired: Wired, most: int) -> int:
    """Take steps until nothing waits; return their number. No more than `most` requests end in one."""
    steps = 0
    while wired.wire.waiting or wired.works:
        before = len(wired.codes)
        wired.step()
        steps += 1
        assert len(wired.codes) - before <= most
        assert steps < 100
    return steps


def test_requests_that_waited_are_sent_in_slices_and_in_order(wired: Wired) -> None:
    wired.listen()
    for number in range(2_000):
        wired.ask(number)
    wired.step()
    # These come after the ones that wait still.
    for number in range(2_000, 2_100):
        wired.ask(number)
    assert settled(wired, 400) >= 5
    assert wired.codes == list(range(2_100))


@pytest.mark.parametrize("how", ["unreachable", "lost", "late"])
def test_requests_fail_in_slices(wired: Wired, how: str) -> None:
    if how != "unreachable":
        wired.listen()
        wired.echo.is_silent = True
    for number in range(1_000):
        wired.ask(number)
    if how != "unreachable":
        for _ in range(10):
            wired.step()
    if how == "lost":
        wired.network.end(ADDRESS)
    elif how == "late":
        wired.ms = 1_000
        wired.wire.expire(wired.ms)
    assert settled(wired, 400) >= 3
    assert wired.codes == [NO_ANSWER if how == "late" else UNREACHABLE] * 1_000


def test_only_late_requests_are_given_up(wired: Wired) -> None:
    for number in range(3):
        wired.ms = number * 100
        wired.ask(number)
    for ms, count in ((999, 0), (1_000, 1), (1_099, 1), (1_200, 3)):
        wired.wire.expire(ms)
        assert wired.codes == [NO_ANSWER] * count
