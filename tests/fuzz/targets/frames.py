"""Any bytes on a connection are refused, or are whole events one after the other, of known types, and the head of one.

Heartbeats and all other events come in this frame. A frame's header is written back, and its length is exact.
"""

from __future__ import annotations

from formats.bmq.codes import EventType
from formats.bmq.wire.event import EVENT_HEADER, Frame, iter_frames, next_frame, schema_encoding, schema_message
from tests.fuzz.seeds import SIZE_MAX, events

__all__ = ["decode", "seeds", "verify"]

WITH_SCHEMA = (EventType.CONTROL, EventType.ELECTOR, EventType.AUTHENTICATION)


def decode(data: bytes) -> list[Frame]:
    frames = []
    view = memoryview(data)
    for frame in iter_frames(data, 0, len(data), SIZE_MAX):
        if frame.type in WITH_SCHEMA:
            schema_encoding(frame.type_specific)
            assert len(schema_message(view, frame.body, frame.end)) < frame.end - frame.body
        frames.append(frame)
    return frames


def verify(data: bytes, frames: list[Frame]) -> None:
    at = 0
    for frame in frames:
        header = EVENT_HEADER.unpack(data, at)
        assert EVENT_HEADER.pack(header) == data[at : at + EVENT_HEADER.size]
        assert (EventType(frame.type), frame.end - at) == (header.type, header.length)
        assert at + EVENT_HEADER.size <= frame.body <= frame.end <= len(data)
        # Byte by byte, an event is whole with its last byte.
        assert next_frame(data, at, frame.end - 1, SIZE_MAX) is None
        at = frame.end
    assert len(data) - at < SIZE_MAX


def seeds() -> list[bytes]:
    single = events()
    return [*single, b"".join(event for event in single if len(event) < 100)]
