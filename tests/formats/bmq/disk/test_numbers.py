"""Numbers of records: their order, their text, and where they are read."""

from __future__ import annotations

from formats.bmq.control.messages import PartitionSequenceNumber
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import MESSAGE_RECORD
from formats.bmq.disk.numbers import LedgerNumber, RecordNumber


def test_a_newer_lease_comes_after_every_number_of_an_older_one() -> None:
    numbers = [RecordNumber(2, 1), RecordNumber(1, 9), RecordNumber(1, 10)]
    assert sorted(numbers) == [RecordNumber(1, 9), RecordNumber(1, 10), RecordNumber(2, 1)]
    assert LedgerNumber(1, 9) < LedgerNumber(2, 1)


def test_numbers_are_shown_as_the_tools_take_them() -> None:
    assert f"{RecordNumber(3, 4711)} {LedgerNumber(2, 14)}" == "3-4711 2-14"


def test_a_record_and_a_message_of_the_protocol_have_a_number() -> None:
    record = MESSAGE_RECORD.unpack(bytes(JOURNAL_RECORD_SIZE))._replace(primary_lease_id=3, sequence_number=4711)
    named = PartitionSequenceNumber(primary_lease_id=3, sequence_number=4711)
    assert RecordNumber.of(record) == RecordNumber.of(named) == RecordNumber(3, 4711)
