"""REPLICATION_RECEIPT: a replica has written all records up to one (source: bmqp::ReplicationReceipt).

A `Receipt` is alone in its event.
"""

from __future__ import annotations

from typing import NamedTuple

from formats.bmq.codes import EventType
from formats.bmq.wire.event import EVENT_HEADER_SIZE, build_event
from formats.errors import FormatError
from formats.schema import Annotated, Buffer, Layout, u32, u64

__all__ = ["RECEIPT", "Receipt", "build_receipt_event", "parse_receipt"]


class Receipt(NamedTuple):
    """The last record that the sender has of a partition.

    bmqp::ReplicationReceipt, 16 bytes:

         0 | partition_id 32     |
         4 | sequence_number 64  |
        12 | primary_lease_id 32 |
    """

    partition_id: Annotated[int, u32, "The partition's number."]
    sequence_number: Annotated[int, u64, "The last record that the replica has."]
    primary_lease_id: Annotated[int, u32, "The lease of that record."]


RECEIPT = Layout(Receipt, size=16, upstream="bmqp::ReplicationReceipt")
_HEADER_BYTES = build_event(EventType.REPLICATION_RECEIPT, bytes(RECEIPT.size))[:EVENT_HEADER_SIZE]

_pack = RECEIPT.words.pack


def parse_receipt(buffer: Buffer, start: int, end: int) -> Receipt:
    """The receipt in an event's body, `buffer[start:end]`; a longer body is a newer sender's."""
    if end - start < RECEIPT.size:
        raise FormatError("ReplicationReceipt", start, f"needs {RECEIPT.size} bytes, {end - start} left")
    return RECEIPT.unpack(buffer, start)


def build_receipt_event(partition_id: int, primary_lease_id: int, sequence_number: int) -> bytes:
    """A whole event."""
    return _HEADER_BYTES + _pack(partition_id, sequence_number, primary_lease_id)
