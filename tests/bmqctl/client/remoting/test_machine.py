"""The connection of a RocketMQ client, without I/O."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.client.remoting.machine import OPAQUE_MAX, Answered, Asked, Ended, Machine, State, Unanswered
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, LanguageCode, encode_frame, next_frame

CODE = RequestCode.GET_MAX_OFFSET
FAR = 1 << 62


def sent(machine: Machine[str]) -> list[Frame]:
    """The frames that the machine has for its peer."""
    view, at, frames = memoryview(machine.data_to_send()), 0, []
    while (found := next_frame(view, at, len(view))) is not None:
        frame, at = found
        frames.append(frame)
    assert at == len(view)
    return frames


def answer_to(frame: Frame, code: int = ResponseCode.SUCCESS, body: bytes = b"") -> bytes:
    return encode_frame(Frame(code, frame.opaque, FrameFlag.RESPONSE, body=body, encoding=frame.encoding))


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_request_and_answer(encoding: HeaderEncoding) -> None:
    machine: Machine[str] = Machine(encoding)
    machine.request(CODE, {"topic": "t"}, context="first", deadline_ns=FAR, body=b"body")
    assert machine.pending_size > 0
    (request,) = sent(machine)
    assert machine.pending_size == 0
    assert machine.data_to_send() == b""
    assert (request.code, request.flag, request.ext_fields, request.encoding) == (CODE, 0, {"topic": "t"}, encoding)
    assert (bytes(request.body), request.language) == (b"body", LanguageCode.PYTHON)
    (event,) = machine.receive(answer_to(request, ResponseCode.NO_PERMISSION, b"no"))
    assert isinstance(event, Answered)
    assert (event.context, event.frame.code, bytes(event.frame.body)) == ("first", ResponseCode.NO_PERMISSION, b"no")
    assert (machine.waiting, machine.deadline_ns) == (0, None)


@given(st.lists(st.integers(1, 40), max_size=20), st.permutations(range(8)))
def test_answers_come_in_any_order_and_in_any_pieces(sizes: list[int], order: list[int]) -> None:
    machine: Machine[int] = Machine()
    requests = {}
    for number in range(8):
        opaque = machine.request(CODE, None, context=number, deadline_ns=FAR)
        requests[number] = Frame(CODE, opaque)
    data = b"".join(answer_to(requests[number], body=b"%d" % number * number) for number in order)
    events = []
    for size in sizes:
        events += machine.receive(data[:size])
        data = data[size:]
    events += machine.receive(data)
    found = [(event.context, bytes(event.frame.body)) for event in events if isinstance(event, Answered)]
    assert found == [(number, b"%d" % number * number) for number in order]


def test_deadlines_are_kept_one_by_one() -> None:
    machine: Machine[str] = Machine()
    for context, deadline_ns in (("late", 300), ("soon", 100), ("next", 200)):
        machine.request(CODE, None, context=context, deadline_ns=deadline_ns)
    late, soon, _ = sent(machine)
    assert machine.deadline_ns == 100
    assert machine.tick(99) == []
    assert machine.tick(200) == [Unanswered("soon", "timed out"), Unanswered("next", "timed out")]
    assert machine.deadline_ns == 300
    # The answer that comes after all is nobody's.
    assert machine.receive(answer_to(soon)) == []
    assert [type(event) for event in machine.receive(answer_to(late))] == [Answered]
    assert machine.tick(1000) == []


def test_the_end_gives_up_all_requests_once() -> None:
    machine: Machine[str] = Machine()
    for context in ("a", "b"):
        machine.request(CODE, None, context=context, deadline_ns=FAR)
    assert machine.lost("gone") == [Unanswered("a", "gone"), Unanswered("b", "gone"), Ended("gone")]
    assert machine.state is State.ENDED
    assert (machine.lost("again"), machine.tick(FAR), machine.receive(b"x"), machine.data_to_send()) == (
        [],
        [],
        [],
        b"",
    )
    with pytest.raises(RuntimeError, match="ended"):
        machine.request(CODE, None, context="c", deadline_ns=FAR)
    with pytest.raises(RuntimeError, match="ended"):
        machine.notify(CODE, None)


def test_a_malformed_frame_ends_the_connection_after_what_came_before_it() -> None:
    machine: Machine[str] = Machine(bytes_max=1000)
    for context in ("a", "b"):
        machine.request(CODE, None, context=context, deadline_ns=FAR)
    first, _ = sent(machine)
    answered, unanswered, ended = machine.receive(answer_to(first) + b"\0\0\x10\0garbage")
    assert isinstance(answered, Answered)
    assert answered.context == "a"
    assert isinstance(unanswered, Unanswered)
    assert unanswered.context == "b"
    assert isinstance(ended, Ended)
    assert "malformed frame" in ended.reason
    assert "4096 bytes are more than the 1000" in ended.reason


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_requests_of_the_peer_are_answered_in_their_encoding(encoding: HeaderEncoding) -> None:
    machine: Machine[str] = Machine()
    asked = Frame(RequestCode.GET_CONSUMER_RUNNING_INFO, 77, encoding=encoding)
    (event,) = machine.receive(encode_frame(asked))
    assert isinstance(event, Asked)
    machine.refuse(event.frame)
    (refusal,) = sent(machine)
    assert (refusal.opaque, refusal.is_response, refusal.encoding) == (77, True, encoding)
    assert refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    (event,) = machine.receive(encode_frame(asked._replace(flag=FrameFlag.ONE_WAY)))
    assert isinstance(event, Asked)
    machine.refuse(event.frame)
    assert sent(machine) == []


def test_one_way_requests_wait_for_nothing() -> None:
    machine: Machine[str] = Machine()
    machine.notify(RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": "t"})
    (frame,) = sent(machine)
    assert frame.is_one_way
    assert machine.waiting == 0


def test_numbers_begin_again_and_pass_over_those_that_wait() -> None:
    machine: Machine[str] = Machine()
    assert machine.request(CODE, None, context="kept", deadline_ns=FAR) == 0
    machine._opaque = OPAQUE_MAX
    assert machine.request(CODE, None, context="last", deadline_ns=FAR) == OPAQUE_MAX
    assert machine.request(CODE, None, context="next", deadline_ns=FAR) == 1


def test_memory_of_deadlines_does_not_grow_with_answered_requests() -> None:
    machine: Machine[int] = Machine()
    for number in range(1000):
        opaque = machine.request(CODE, None, context=number, deadline_ns=number)
        machine.receive(answer_to(Frame(CODE, opaque)))
        assert machine.deadline_ns is None
    assert machine._deadlines == []
