"""Connections: frames in any portions, strangers, silence, floods, and faults that end one of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.common.clock import Now
from broker.common.faults import Faults, Inconsistent
from broker.common.timers import Timers
from broker.rocketmq.node import Node
from broker.rocketmq.remoting.session import IDLE_MS, OUTPUT_BYTES_MAX, Session
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, encode_frame
from tests.broker.rocketmq.remoting.remoting_rig import Echo, frames
from tests.broker.rocketmq.rig import Rig


def make_node() -> Node:
    now = Now()
    return Node(now, Faults(now), Timers())


def open_session(node: Node, service: Any) -> Session:
    return node.connect_to(service)("127.0.0.1:5", lambda: frozenset())


@given(st.lists(st.integers(1, 40), min_size=1), st.sampled_from(HeaderEncoding))
def test_frames_come_in_any_portions(sizes: list[int], encoding: HeaderEncoding) -> None:
    echo = Echo()
    session = open_session(make_node(), echo)
    sent = [Frame(34, number, body=b"b%d" % number, encoding=encoding) for number in range(5)]
    data = b"".join(map(encode_frame, sent))
    held = b""
    while data or held:
        size = sizes[len(data) % len(sizes)]
        held, data = held + data[:size], data[size:]
        used = session.receive(memoryview(held))
        held = held[used:]
        if not data and not used:
            break
    assert held == b""
    assert [each.body for each in echo.got] == [each.body for each in sent]
    answers = frames(session.take_output())
    assert [(each.opaque, each.encoding, each.flag) for each in answers] == [
        (number, encoding, FrameFlag.RESPONSE) for number in range(5)
    ]


def test_one_way_request_has_no_answer() -> None:
    session = open_session(make_node(), Echo())
    data = encode_frame(Frame(34, 1, FrameFlag.ONE_WAY))
    session.receive(memoryview(data))
    assert session.output_size() == 0


@given(st.binary(min_size=1))
def test_any_bytes_are_frames_or_end_the_connection(data: bytes) -> None:
    echo = Echo()
    session = open_session(make_node(), echo)
    used = session.receive(memoryview(data))
    assert 0 <= used <= len(data)
    if session.finished:
        assert session.output_size() == 0
        assert session.reason
        assert session.receive(memoryview(b"more")) == 4
        assert len(echo.got) <= len(data)


def test_silent_connection_is_closed() -> None:
    node = make_node()
    session = open_session(node, Echo())
    finished = []
    for passed_ms in (IDLE_MS, 1_001):
        node.now.ms += passed_ms
        node.tick()
        finished.append(session.finished)
    assert finished == [False, True]
    assert session in node.dirty


def test_connection_that_takes_nothing_is_closed() -> None:
    node = make_node()
    session = open_session(node, Echo())
    for _ in range(OUTPUT_BYTES_MAX // (8 << 20) + 1):
        session.send(Frame(0, 1, body=bytes(8 << 20)))
    assert session.finished
    assert session.output_size() == 0


def test_service_hears_of_the_end_once() -> None:
    node, echo = make_node(), Echo()
    session = open_session(node, echo)
    node.disconnect(session, "the peer closed the connection")
    assert echo.gone == [session]
    assert (node.sessions, node.dirty) == ({}, set())
    session.send(Frame(0, 1))
    assert session.output_size() == 0


def test_requests_of_ours_have_numbers_of_their_own() -> None:
    session = open_session(make_node(), Echo())
    numbers = [session.ask(Frame(40, 0)), session.ask(Frame(40, 0), one_way=True)]
    assert [(each.opaque, each.flag) for each in frames(session.take_output())] == [
        (numbers[0], 0),
        (numbers[1], FrameFlag.ONE_WAY),
    ]
    assert numbers == [1, 2]


class Failing:
    """A part whose work fails."""

    def end_step(self) -> bool:
        raise ValueError("step")

    def tick(self) -> None:
        raise ValueError("tick")

    def leave(self) -> None:
        raise ValueError("leave")


def test_fault_in_what_is_due_is_noted_and_one_in_a_step_ends_the_process() -> None:
    node = make_node()
    node.add(Failing())
    node.tick()
    node.leave()
    assert node.faults.others == 2
    with pytest.raises(Inconsistent, match="the end of a step was interrupted by ValueError: step"):
        node.end_step()


def test_fault_over_a_held_request_ends_its_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two consumers wait for a queue; looking at it again fails for the first of them."""
    rig = Rig()
    one, two, sender = rig.peer(), rig.peer(), rig.peer()
    sender.send(b"first")
    one.pull(offset=1, sysFlag=6)
    waiting = two.pull(offset=1, sysFlag=6)
    looked = iter([ValueError("a fault")])
    find = rig.groups.find

    def fail_once(group: str, now_ms: int) -> GroupConfig | None:
        for fault in looked:
            raise fault
        return find(group, now_ms)

    monkeypatch.setattr(rig.groups, "find", fail_once)
    sender.send(b"second")
    assert rig.faults.of_sessions == 1
    failed = rig.faults.next_failed()
    assert failed is one.session
    answer = two.answer(waiting)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert sender.send(b"third").code == ResponseCode.SUCCESS
    assert sender.call(RequestCode.GET_MAX_OFFSET, topic="t", queueId=0).ext_fields == {"offset": "3"}
