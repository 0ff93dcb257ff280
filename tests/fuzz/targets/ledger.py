"""Any bytes as a cluster-state ledger are refused, or have records up to the end, each with a message and a checksum.

If the first byte is odd, the checksums are corrected first: else hardly any input would reach the messages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from formats.bmq.control import ber
from formats.bmq.control.messages import ClusterMessage
from formats.bmq.disk.ledger import (
    LedgerFileHeader,
    LedgerRecord,
    LedgerRecordType,
    build_ledger_record,
    open_ledger,
    parse_ledger_record,
)
from formats.bmq.stores.recover import iter_ledger
from tests.fuzz.schema_messages import schema_words, verify_schema
from tests.fuzz.seal import seal_ledger
from tests.fuzz.seeds import ledger

__all__ = ["decode", "seeds", "verify", "words"]


class Read(NamedTuple):
    header: LedgerFileHeader
    records: list[tuple[LedgerRecord, Any]]


def decode(data: bytes) -> Read:
    buffer = bytearray(data[1:])
    header, first = open_ledger(buffer)
    if data[0] & 1:
        seal_ledger(buffer, first)
    return Read(header, [(record, ber.decode(ClusterMessage, record.body)) for record in iter_ledger(buffer)])


def verify(data: bytes, read: Read) -> None:
    at = read.header.header_words * 4
    for record, message in read.records:
        head = record.header
        assert record.offset == at
        numbers = (head.elector_term, head.sequence_number, head.timestamp)
        built = build_ledger_record(LedgerRecordType(head.record_type), *numbers, record.body)
        assert parse_ledger_record(built, 0).body == record.body
        verify_schema(message)
        at = record.end
    assert at < len(data)


def seeds() -> list[bytes]:
    return [b"\0" + ledger(), b"\1" + ledger(2), b"\1" + ledger(8) + bytes(64)]


def words() -> list[bytes]:
    return schema_words(ClusterMessage)
