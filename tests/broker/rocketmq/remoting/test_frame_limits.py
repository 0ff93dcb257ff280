"""Bounds on the length of frames, by their codes; a longer one is refused when its header is there."""

from __future__ import annotations

import struct

import pytest

from broker.common.clock import Now
from broker.common.faults import Faults
from broker.common.timers import Timers
from broker.rocketmq.node import Node
from broker.rocketmq.remoting.limits import LONG_HEADER_BYTES_MAX, SHORT_FRAME_BYTES_MAX, frame_bytes_max
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.remoting.bodies.routes import REGISTRATION_BYTES_MAX
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX, Frame, FrameFlag, HeaderEncoding, encode_frame, next_frame
from formats.rocketmq.remoting.raft import CODE
from tests.broker.rocketmq.remoting.remoting_rig import Echo, frames

LONG = [
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    CODE,
]


def accepted(echo: Echo) -> Session:
    now = Now()
    return Node(now, Faults(now), Timers()).connect_to(echo)("127.0.0.1:5", lambda: frozenset())


def dialed(echo: Echo) -> Session:
    now = Now()
    return Node(now, Faults(now), Timers()).open("127.0.0.1:5", echo)


def front(frame: Frame, length: int) -> bytes:
    """The length and the header of a frame with a claimed size."""
    return struct.pack(">I", length) + encode_frame(frame)[4:]


def test_requests_that_carry_messages_or_topics_may_be_long() -> None:
    assert all(frame_bytes_max(code) == FRAME_BYTES_MAX for code in LONG)
    assert REGISTRATION_BYTES_MAX < frame_bytes_max(RequestCode.REGISTER_BROKER) < 4 << 20
    others = set(RequestCode) - set(LONG) - {RequestCode.REGISTER_BROKER}
    assert {frame_bytes_max(code) for code in others} == {SHORT_FRAME_BYTES_MAX}
    assert frame_bytes_max(-1) == frame_bytes_max(1 << 31) == SHORT_FRAME_BYTES_MAX


CODES = [*RequestCode, CODE, 5_000]
# A binary header has 16 bits for the code.
KINDS = [(code, HeaderEncoding.JSON) for code in CODES] + [
    (code, HeaderEncoding.BINARY) for code in CODES if code <= 0x7FFF
]


@pytest.mark.parametrize(("code", "encoding"), KINDS)
def test_a_long_frame_is_refused_when_its_header_is_there(code: int, encoding: HeaderEncoding) -> None:
    echo = Echo()
    session = accepted(echo)
    data = front(Frame(code, 3, ext_fields={"a": "b"}, encoding=encoding), SHORT_FRAME_BYTES_MAX + 1)
    for end in range(len(data)):
        assert session.receive(memoryview(data[:end])) == 0
        assert not session.finished
    assert session.receive(memoryview(data)) == 0
    assert session.finished == (code not in LONG and code != RequestCode.REGISTER_BROKER)
    assert echo.got == []
    if session.finished:
        (answer,) = frames(session.take_output())
        assert (answer.opaque, answer.code, answer.is_response) == (3, ResponseCode.SYSTEM_ERROR, True)
        assert str(SHORT_FRAME_BYTES_MAX) in (answer.remark or "")


@pytest.mark.parametrize("more", [0, 1])
def test_a_registration_may_be_as_long_as_its_body_and_header_may_be(more: int) -> None:
    session = accepted(Echo())
    length = frame_bytes_max(RequestCode.REGISTER_BROKER) + more
    session.receive(memoryview(front(Frame(RequestCode.REGISTER_BROKER, 3), length)))
    assert session.finished == bool(more)


@pytest.mark.parametrize("size", [SHORT_FRAME_BYTES_MAX, SHORT_FRAME_BYTES_MAX + 1])
def test_a_long_frame_that_comes_at_once_is_refused_too(size: int) -> None:
    echo = Echo()
    session = accepted(echo)
    head = encode_frame(Frame(RequestCode.HEART_BEAT, 1))
    whole = encode_frame(Frame(RequestCode.HEART_BEAT, 1, body=bytes(size + 4 - len(head))))
    session.receive(memoryview(whole))
    assert session.finished == (size > SHORT_FRAME_BYTES_MAX)
    assert len(echo.got) == (size == SHORT_FRAME_BYTES_MAX)


def test_a_long_message_in_portions_is_taken_whole() -> None:
    echo = Echo()
    session = accepted(echo)
    sent = Frame(RequestCode.SEND_MESSAGE, 1, ext_fields={"a": "b"}, body=bytes(3 << 20))
    data = encode_frame(sent)
    for end in (4, 8, 100, 1 << 20, len(data) - 1):
        assert session.receive(memoryview(data[:end])) == 0
    assert session.event_bytes_max == len(data)
    assert session.receive(memoryview(data)) == len(data)
    assert [frame.body for frame in echo.got] == [sent.body]
    # The next frame is looked at by itself.
    session.receive(memoryview(front(Frame(RequestCode.HEART_BEAT, 2), 2 << 20)))
    assert session.finished


def test_the_header_of_a_long_frame_has_a_bound() -> None:
    session = accepted(Echo())
    session.receive(memoryview(struct.pack(">II", 15 << 20, LONG_HEADER_BYTES_MAX + 1)))
    assert session.finished
    assert "header" in session.reason


def test_an_answer_may_be_long_if_it_was_asked_for() -> None:
    for is_asked in (True, False):
        echo = Echo()
        session = accepted(echo)
        number = session.ask(Frame(RequestCode.GET_CONSUMER_RUNNING_INFO, 0)) if is_asked else 1
        whole = encode_frame(Frame(ResponseCode.SUCCESS, number, FrameFlag.RESPONSE, body=bytes(2 << 20)))
        session.receive(memoryview(whole[:1000]))
        assert session.finished == (not is_asked)
        if is_asked:
            session.receive(memoryview(whole))
            assert len(echo.got) == 1
            # It was answered: there is no other one.
            session.receive(memoryview(whole))
            assert session.finished


def test_dialed_peer_may_send_long_frames_of_any_code() -> None:
    echo = Echo()
    session = dialed(echo)
    whole = encode_frame(Frame(RequestCode.CHECK_TRANSACTION_STATE, 1, FrameFlag.ONE_WAY, body=bytes(3 << 20)))
    session.receive(memoryview(whole[:-1]))
    session.receive(memoryview(whole))
    assert len(echo.got) == 1
    assert not session.finished
    assert next_frame(memoryview(whole), 0, len(whole)) is not None
