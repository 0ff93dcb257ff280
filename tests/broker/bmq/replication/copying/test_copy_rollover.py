"""A replica's rollover, against journals that a primary of the reference leaves."""

from __future__ import annotations

import pytest

from broker.bmq.replication.copying.copy_rollover import CopyRollover
from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import CONFIRM_RECORD, ConfirmReason, RecordType
from tests.broker.bmq.rig import guid
from tests.broker.bmq.store.writing import LIMITS, Partition

AUTO = ConfirmReason.AUTO_CONFIRMED


def rolled_over(partition: Partition, units: int) -> list[bytes]:
    """Return the records that are carried over when the journal ends with a sync point."""
    partition.sync_point()
    fresh = PartitionFiles.create(partition.directory, 0, "20261121_051105", LIMITS)
    assert fresh is not None
    first = fresh.journal_end
    rollover = CopyRollover(partition.files, fresh, 0)
    while not rollover.is_copied:
        rollover.advance(units)
    journal = fresh.journal.buffer
    return [
        bytes(journal[at : at + JOURNAL_RECORD_SIZE]) for at in range(first, fresh.journal_end, JOURNAL_RECORD_SIZE)
    ]


@pytest.mark.parametrize("units", [1, 1000])
def test_automatic_confirms_of_a_message_that_had_no_room_are_carried_over(units: int) -> None:
    """The message comes to the new files: their primary has the confirms in front of it there."""
    partition = Partition().create().post(1)
    partition.confirm(2, "foo", reason=AUTO).confirm(2, "bar", reason=AUTO)
    kept = rolled_over(partition, units)
    assert [record[0] >> 4 for record in kept] == [
        RecordType.QUEUE_OP,
        RecordType.MESSAGE,
        RecordType.CONFIRM,
        RecordType.CONFIRM,
    ]
    assert {CONFIRM_RECORD.unpack(record).guid for record in kept[2:]} == {guid(2)}


@pytest.mark.parametrize("units", [1, 1000])
def test_automatic_confirms_of_a_message_that_never_came_are_not(units: int) -> None:
    partition = Partition().create().confirm(2, "foo", reason=AUTO).post(1)
    kept = rolled_over(partition, units)
    assert [record[0] >> 4 for record in kept] == [RecordType.QUEUE_OP, RecordType.MESSAGE]
