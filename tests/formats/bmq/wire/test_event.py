from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.bmq.codes import EVENT_SIZE_MAX, EncodingType, EventType
from formats.bmq.wire.event import (
    EVENT_HEADER,
    EVENT_HEADER_SIZE,
    HEARTBEAT_REQUEST,
    HEARTBEAT_RESPONSE,
    EventHeader,
    Frame,
    build_event,
    build_schema_event,
    iter_frames,
    next_frame,
    schema_encoding,
    schema_message,
)
from formats.errors import FormatError

STREAM = HEARTBEAT_REQUEST + build_event(EventType.PUT, b"abcd") + HEARTBEAT_RESPONSE + build_schema_event(b"{}")
FRAMES = [
    Frame(EventType.HEARTBEAT_REQ, 0, 8, 8),
    Frame(EventType.PUT, 0, 16, 20),
    Frame(EventType.HEARTBEAT_RSP, 0, 28, 28),
    Frame(EventType.CONTROL, 0, 36, 40),
]


def header(**changes: Any) -> bytes:
    good = EventHeader(0, EVENT_HEADER_SIZE, 1, EventType.PUT, 2, 0, b"\0")
    return EVENT_HEADER.pack(good._replace(**changes))


def test_events_are_found_whole() -> None:
    assert list(iter_frames(STREAM, 0, len(STREAM), EVENT_SIZE_MAX)) == FRAMES


def test_events_are_found_as_their_last_byte_comes() -> None:
    found: list[Frame] = []
    offset = 0
    for available in range(len(STREAM) + 1):
        while (frame := next_frame(STREAM, offset, available, EVENT_SIZE_MAX)) is not None:
            assert frame.end == available
            found.append(frame)
            offset = frame.end
    assert found == FRAMES


def test_the_buffer_may_be_longer_than_what_has_arrived() -> None:
    buffer = bytearray(STREAM) + bytes(1000)
    assert list(iter_frames(buffer, 0, len(STREAM), EVENT_SIZE_MAX)) == FRAMES


def test_the_head_of_an_event_is_left_over() -> None:
    frames = list(iter_frames(STREAM, 0, len(STREAM) - 1, EVENT_SIZE_MAX))
    assert frames == FRAMES[:-1]


def test_a_longer_header_is_skipped() -> None:
    event = header(length=EVENT_HEADER_SIZE + 8, header_words=4) + b"newer..."
    assert next_frame(event, 0, len(event), EVENT_SIZE_MAX) == Frame(EventType.PUT, 0, 16, 16)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"fragment": 1}, "EventHeader.length"),
        ({"length": 101}, "EventHeader.length"),
        ({"length": 7}, "EventHeader.header_words"),
        ({"length": 0}, "EventHeader.header_words"),
        ({"protocol_version": 0}, "EventHeader.protocol_version"),
        ({"protocol_version": 2}, "EventHeader.protocol_version"),
        ({"type": 0}, "EventHeader.type"),
        ({"type": 16}, "EventHeader.type"),
        ({"header_words": 1}, "EventHeader.header_words"),
        ({"header_words": 3}, "EventHeader.header_words"),
    ],
)
def test_impossible_headers_are_refused_before_the_event_is_whole(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(FormatError) as caught:
        next_frame(header(**changes), 0, EVENT_HEADER_SIZE, 100)
    assert caught.value.path == path
    assert 0 <= caught.value.offset < EVENT_HEADER_SIZE


def test_the_longest_event_allowed_is_awaited() -> None:
    assert next_frame(header(length=100), 0, EVENT_HEADER_SIZE, 100) is None


@given(message=st.binary(max_size=64), encoding=st.sampled_from(EncodingType))
def test_schema_messages_come_back_without_padding(message: bytes, encoding: EncodingType) -> None:
    event = memoryview(build_schema_event(message, EventType.ELECTOR, encoding))
    frame = next_frame(event, 0, len(event), EVENT_SIZE_MAX)
    assert frame is not None
    assert len(event) % 4 == 0
    assert frame.type == EventType.ELECTOR
    assert schema_encoding(frame.type_specific) is encoding
    assert schema_message(event, frame.body, frame.end) == message


@pytest.mark.parametrize("body", [b"", b"abc\0", b"abc\5", b"ab\4"])
def test_a_schema_message_needs_padding(body: bytes) -> None:
    with pytest.raises(FormatError):
        schema_message(memoryview(body), 0, len(body))


@pytest.mark.parametrize("encoding", range(2, 8))
def test_unknown_encodings_are_refused(encoding: int) -> None:
    with pytest.raises(FormatError, match="no encoding"):
        schema_encoding(encoding << 5)
