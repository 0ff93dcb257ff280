"""Any bytes as the body of an ACK event are refused, or are whole messages that can be written and read again."""

from __future__ import annotations

from formats.bmq.codes import EventType
from formats.bmq.wire.ack import Ack, build_ack_event, iter_acks
from formats.bmq.wire.event import EVENT_HEADER_SIZE
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> list[Ack]:
    return list(iter_acks(data, 0, len(data)))


def verify(data: bytes, acks: list[Ack]) -> None:
    event = build_ack_event((each.status, each.correlation_id, each.guid, each.queue_id) for each in acks)
    again = iter_acks(event, EVENT_HEADER_SIZE, len(event))
    assert list(again) == [each._replace(reserved=0) for each in acks]


def seeds() -> list[bytes]:
    return bodies(EventType.ACK)
