"""Frames of SEND_MESSAGE_V2 read by what they have in common: the same fields as `next_frame` reads, or none."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.fast.send_frames import Posted, answer_fields, answer_maker, frame_place, posted_of, read_posted
from formats.rocketmq.hosts import Host
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, encode_frame, next_frame
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.rocketmq.remoting.headers.sending import SendMessageRequestV2, SendMessageResponse
from formats.rocketmq.remoting.versions import VERSION
from tests.golden.rocketmq.captures import CAPTURES, streams

REQUEST = codec_of(SendMessageRequestV2)
RESPONSE = codec_of(SendMessageResponse)
HEADER = SendMessageRequestV2("p", "t", "TBW102", 4, 1, 0, 1_700_000_000_000, 0, "UNIQ_KEY\1AB\2WAIT\1true\2", 0, False)
ENCODINGS = list(HeaderEncoding)


def frame_of(header: SendMessageRequestV2, encoding: HeaderEncoding = HeaderEncoding.JSON, opaque: int = 7) -> Frame:
    fields = REQUEST.write(header)
    return Frame(RequestCode.SEND_MESSAGE_V2, opaque, 0, None, fields, b"body", version=493, encoding=encoding)


def posted(data: bytes | memoryview, at: int = 0) -> Posted | None:
    view = memoryview(data)
    place = frame_place(view, at, len(view))
    return None if place is None else read_posted(view, at, place)


def check(data: memoryview, at: int) -> bool:
    """Read a frame both ways; whether both could."""
    found = posted(data, at)
    if found is None:
        return False
    parsed = next_frame(data, at, len(data))
    assert parsed is not None
    frame, end = parsed
    header = REQUEST.read(frame.ext_fields)
    pieces = iter(found.properties)
    text = b"".join(name + b"\1" + next(pieces) + b"\2" for name in pieces if name or found.properties[-1])
    assert (header.queue_id, header.born_ms, end) == (found.queue_id, found.born_ms, found.end)
    assert (header.properties or "").encode() == text
    assert bytes(data[found.body_at : found.end]) == bytes(frame.body)
    opaque = b"%d" % frame.opaque if frame.encoding is HeaderEncoding.JSON else struct.pack(">i", frame.opaque)
    assert found.opaque == opaque
    assert not frame.is_response
    return True


def captured() -> Iterator[tuple[memoryview, int, Frame]]:
    """Find the requests to send in captures of Java clients."""
    for capture in (each for each in CAPTURES if each.startswith("pcap/")):
        for stream in streams(capture):
            view, at = memoryview(stream.data), 0
            while (found := next_frame(view, at, len(view))) is not None:
                frame, end = found
                if frame.code == RequestCode.SEND_MESSAGE_V2 and not frame.is_response:
                    yield view, at, frame
                at = end


def test_captured_requests_are_read_alike() -> None:
    outcomes = [check(view, at) for view, at, _ in captured()]
    assert outcomes.count(True) > 0.9 * len(outcomes) > 500


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_requests_differ_from_each_other_in_few_fields(encoding: HeaderEncoding) -> None:
    first = posted(encode_frame(frame_of(HEADER, encoding)))
    changed = HEADER._replace(queue_id=3, born_ms=1, properties="A\1B\2")
    second = posted(encode_frame(frame_of(changed, encoding, 12_345)))
    assert first is not None
    assert second is not None
    assert first.rest == second.rest
    assert second.properties == [b"A", b"B", b""]
    for other in (HEADER._replace(topic="u"), HEADER._replace(flag=1), HEADER._replace(max_reconsume_times=3)):
        third = posted(encode_frame(frame_of(other, encoding)))
        assert third is not None
        assert third.rest != first.rest


UNUSUAL = {
    "negative queue": HEADER._replace(queue_id=-1),
    "no properties": HEADER._replace(properties=None),
    "empty value": HEADER._replace(properties="A\1\2"),
    "no last separator": HEADER._replace(properties="A\1B"),
    "separators out of turn": HEADER._replace(properties="A\1B\1C\2D\2"),
    "other letters": HEADER._replace(properties="A\1\u00e9\2"),
    "control characters": HEADER._replace(topic="t\n"),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("case", UNUSUAL)
def test_unusual_requests_are_left_alone(case: str, encoding: HeaderEncoding) -> None:
    assert posted(encode_frame(frame_of(UNUSUAL[case], encoding))) is None


def test_text_that_json_escapes_is_left_alone() -> None:
    for text in ('A\1"\2', "A\1\\\2"):
        assert posted(encode_frame(frame_of(HEADER._replace(properties=text)))) is None


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_frame_that_is_not_whole_is_left_alone(encoding: HeaderEncoding) -> None:
    data = encode_frame(frame_of(HEADER, encoding))
    assert posted(data) is not None
    assert all(posted(data[:end]) is None for end in range(len(data)))


@given(st.sampled_from(ENCODINGS), st.data())
def test_damaged_requests_are_read_alike_or_left_alone(encoding: HeaderEncoding, draw: st.DataObject) -> None:
    data = bytearray(encode_frame(frame_of(HEADER, encoding)))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.sampled_from([*b'0159",\\:{}\0\1\2\3AaZz~', 127]))
    try:
        check(memoryview(bytes(data)), 0)
    except FormatError:
        # A pattern knows only the form of the constant part, which its first reader decodes and checks.
        assert posted(bytes(data)) is not None


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 62),
    st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), min_size=1),
    st.integers(-(1 << 31), (1 << 31) - 1),
)
def test_answers_are_those_of_the_general_encoder(
    encoding: HeaderEncoding, offset: int, queue_id: int, queue_offset: int, unique_id: str, opaque: int
) -> None:
    host, fields = Host("127.0.0.1", 10911), {"MSG_REGION": "100%", "TRACE_ON": "true"}
    response = SendMessageResponse(str(OffsetId(host, offset)), queue_id, queue_offset, transaction_id=unique_id)
    fields_written = {**fields, **RESPONSE.write(response)}
    frame = Frame(ResponseCode.SUCCESS, opaque, FrameFlag.RESPONSE, None, fields_written, version=VERSION)
    number = b"%d" % opaque if encoding is HeaderEncoding.JSON else struct.pack(">i", opaque)
    make = answer_maker(encoding, host, fields)
    assert make(offset, queue_id, queue_offset, unique_id.encode(), number) == encode_frame(
        frame._replace(encoding=encoding)
    )


def test_frame_gives_what_its_bytes_give() -> None:
    frame = frame_of(HEADER)
    of_bytes, of_frame = posted(encode_frame(frame)), posted_of(frame)
    assert of_bytes is not None
    assert of_frame is not None
    assert of_frame[1:4] == of_bytes[1:4]
    assert (of_frame.body_at, of_frame.end) == (0, len(frame.body))
    assert posted_of(frame_of(HEADER._replace(queue_id=3, born_ms=5))) == of_frame._replace(queue_id=3, born_ms=5)
    others: list[dict[str, Any]] = [{"topic": "u"}, {"system_flags": 1}, {"is_batch": True}, {"broker_name": "b"}]
    for changes in others:
        other = posted_of(frame_of(HEADER._replace(**changes)))
        assert other is not None
        assert other.rest != of_frame.rest


@pytest.mark.parametrize(
    "changed",
    [
        {"queue_id": -1},
        {"queue_id": 1_000_000_000},
        {"born_ms": -1},
        {"born_ms": 10**18},
        {"properties": None},
        {"properties": ""},
        {"properties": "UNIQ_KEY\1AB"},
        {"properties": "UNIQ_KEY\1\2"},
        {"properties": "\1AB\2"},
        {"properties": "UNIQ_KEY\1\u00e9\2"},
        {"properties": "UNIQ_KEY\1\ud800\2"},
        {"properties": "UNIQ_KEY\1A\nB\2"},
    ],
)
def test_frame_of_no_common_form_is_left(changed: dict[str, Any]) -> None:
    assert posted_of(frame_of(HEADER._replace(**changed))) is None


def test_other_frames_are_left() -> None:
    frame = frame_of(HEADER)
    assert posted_of(frame._replace(code=RequestCode.SEND_BATCH_MESSAGE)) is None
    assert posted_of(frame._replace(ext_fields=None)) is None
    assert posted_of(frame._replace(ext_fields={**(frame.ext_fields or {}), "e": "\u0663"})) is None


def test_header_of_an_answer_is_that_of_its_declaration() -> None:
    assert RESPONSE.read(answer_fields("ID", 3, 4, "U")) == SendMessageResponse("ID", 3, 4, "U")
