"""Any bytes as the body of a REPLICATION_RECEIPT event are refused, or begin with a receipt that is written back."""

from __future__ import annotations

from formats.bmq.codes import EventType
from formats.bmq.wire.event import EVENT_HEADER_SIZE
from formats.bmq.wire.receipt import RECEIPT, Receipt, build_receipt_event, parse_receipt
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> Receipt:
    return parse_receipt(data, 0, len(data))


def verify(data: bytes, receipt: Receipt) -> None:
    event = build_receipt_event(receipt.partition_id, receipt.primary_lease_id, receipt.sequence_number)
    assert event[EVENT_HEADER_SIZE:] == data[: RECEIPT.size]


def seeds() -> list[bytes]:
    return bodies(EventType.REPLICATION_RECEIPT)
