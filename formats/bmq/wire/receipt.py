# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""REPLICATION_RECEIPT: a replica has written all records up to one (source: bmqp::ReplicationReceipt).

A `Receipt` is alone in its event.
"""

from __future__ import annotations

from typing import Final

from formats.bmq.codes import EventType
from formats.bmq.wire.event import EVENT_HEADER_SIZE, build_event
from formats.bmq.wire.layouts.receipt_layout import RECEIPT, Receipt
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["RECEIPT", "Receipt", "build_receipt_event", "parse_receipt"]

_HEADER_BYTES: Final = build_event(EventType.REPLICATION_RECEIPT, bytes(RECEIPT.size))[:EVENT_HEADER_SIZE]
_SIZE: Final = RECEIPT.size
_pack: Final = RECEIPT.words.pack
_unpack: Final = RECEIPT.words.unpack_from
_new: Final = tuple.__new__


def parse_receipt(buffer: Buffer, start: int, end: int) -> Receipt:
    """Parse the receipt in the body `buffer[start:end]`; newer senders may append fields."""
    if end - start < _SIZE:
        raise FormatError("ReplicationReceipt", start, f"needs {_SIZE} bytes, {end - start} left")
    return _new(Receipt, _unpack(buffer, start))


def build_receipt_event(partition_id: int, primary_lease_id: int, sequence_number: int) -> bytes:
    return _HEADER_BYTES + _pack(partition_id, sequence_number, primary_lease_id)
