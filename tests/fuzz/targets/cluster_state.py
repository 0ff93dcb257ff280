"""Any bytes as the body of a CLUSTER_STATE event are refused, or are a ledger record with a cluster message.

If the first byte is odd, the record's checksum is corrected first: else hardly any input would reach its message.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import ClusterMessage
from formats.bmq.disk.ledger import LedgerRecord, LedgerRecordType, build_ledger_record, parse_ledger_record
from tests.fuzz.schema_messages import schema_words, verify_schema
from tests.fuzz.seal import seal_ledger_record
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify", "words"]


class Read(NamedTuple):
    record: LedgerRecord
    message: Any


def decode(data: bytes) -> Read:
    body = bytearray(data[1:])
    if data[:1] and data[0] & 1:
        seal_ledger_record(body, 0)
    record = parse_ledger_record(body, 0)
    return Read(record, ber.decode(ClusterMessage, record.body))


def verify(data: bytes, read: Read) -> None:
    head = read.record.header
    numbers = (head.elector_term, head.sequence_number, head.timestamp)
    built = build_ledger_record(LedgerRecordType(head.record_type), *numbers, read.record.body)
    assert parse_ledger_record(built, 0).body == read.record.body
    verify_schema(read.message)


def seeds() -> list[bytes]:
    return [mode + body for body in bodies(EventType.CLUSTER_STATE) for mode in (b"\0", b"\1")]


def words() -> list[bytes]:
    return schema_words(ClusterMessage)
