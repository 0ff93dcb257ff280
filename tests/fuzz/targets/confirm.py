"""Any bytes as the body of a CONFIRM event are refused, or are whole messages that can be written and read again."""

from __future__ import annotations

from formats.bmq.codes import EventType
from formats.bmq.wire.confirm import build_confirm_event, iter_confirms
from formats.bmq.wire.event import EVENT_HEADER_SIZE
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> list[tuple[int, bytes, int]]:
    return list(iter_confirms(memoryview(data), 0, len(data)))


def verify(data: bytes, messages: list[tuple[int, bytes, int]]) -> None:
    event = memoryview(build_confirm_event(messages))
    assert list(iter_confirms(event, EVENT_HEADER_SIZE, len(event))) == messages


def seeds() -> list[bytes]:
    return bodies(EventType.CONFIRM)
