"""Effects on a replica's files when records are taken back, or the node is about to serve the partition."""

from __future__ import annotations

import numpy as np
import pytest

from broker.bmq.replication.positions import JOURNAL_START, last_position, offset_behind
from broker.bmq.store import cutting, partition_files
from broker.bmq.store.cutting import clear_records
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.recovery import recover
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import RecordType
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.stores.recover import iter_journal
from tests.broker.bmq.rig import guid
from tests.broker.bmq.store.writing import Partition

LIMITS = PartitionLimits(journal=64 << 10, data=256 << 10, qlist=4 << 10)


RECORDS_BEFORE = 22


def two_leases() -> Partition:
    """A sync point, a queue and 20 messages under the first; under the second, sync points between messages."""
    partition = Partition(limits=LIMITS).create()
    for number in range(20):
        partition.post(number)
    partition.new_lease()
    for number in range(20, 40):
        partition.post(number)
        if number % 7 == 0:
            partition.sync_point()
    return partition


def records_of(files: PartitionFiles) -> list[bytes]:
    journal = files.journal.buffer
    places = range(JOURNAL_START, files.journal_end, JOURNAL_RECORD_SIZE)
    return [bytes(journal[at : at + JOURNAL_RECORD_SIZE]) for at in places]


@pytest.mark.parametrize("part_records", [1, 5, 1 << 16])
@pytest.mark.parametrize("torn", [0, 1, 8, 30, 59, 60, 61, 200])
def test_a_process_killed_while_it_cuts_leaves_a_journal_that_ends_later(
    monkeypatch: pytest.MonkeyPatch, part_records: int, torn: int
) -> None:
    monkeypatch.setattr(cutting, "PART_RECORDS", part_records)
    files = two_leases().files
    records = records_of(files)
    behind = offset_behind(files, RecordNumber(1, RECORDS_BEFORE))
    assert behind is not None
    parts = list(cutting.clear_order(files.journal.buffer, behind, files.journal_end))
    for count in range(len(parts)):
        partition = two_leases()
        journal = partition.files.journal.buffer
        for part in parts[:count]:
            journal[part] = bytes(part.stop - part.start)
        last = parts[count]
        size = min(torn, last.stop - last.start)
        journal[last.start : last.start + size] = bytes(size)
        files, recovered = partition.reopen()
        left = records_of(files)
        assert len(left) >= RECORDS_BEFORE
        assert left == records[: len(left)]
        assert len(list(iter_journal(files.journal.buffer))) == len(left)
        assert len(recovered.messages) == sum(record[0] >> 4 == RecordType.MESSAGE for record in left)


def test_records_cut_off_are_gone() -> None:
    partition = two_leases()
    files = partition.files
    behind = offset_behind(files, RecordNumber(1, RECORDS_BEFORE))
    assert behind is not None
    clear_records(files.journal.buffer, behind, files.journal_end)
    files, recovered = partition.reopen()
    assert last_position(files) == RecordNumber(1, RECORDS_BEFORE)
    assert [message.guid for message in recovered.messages] == [guid(number) for number in range(20)]
    assert not any(files.journal.buffer[files.journal_end :])
    assert not any(files.data.buffer[files.data_end :])


def test_process_that_wrote_the_files_reads_nothing_after_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    files, found = two_leases().reopen()
    monkeypatch.setattr(partition_files, "written_end", None)
    monkeypatch.setattr(type(files.journal), "data_end", property(lambda file: len(file.buffer)))
    assert recover(files, files.ends) == found
    assert files.ends == two_leases().files.ends
    # Of what is cut off, only what was written is looked at and cleared.
    ends = files.ends
    behind = offset_behind(files, RecordNumber(1, RECORDS_BEFORE))
    assert behind is not None
    clear_records(files.journal.buffer, behind, files.journal_end)
    files.data.buffer[ends.data] = 1
    assert recover(files, ends).bytes_cut == np.count_nonzero(
        two_leases().files.data.buffer[files.data_end : ends.data]
    )
    assert files.data.buffer[ends.data] == 1
    assert not any(files.data.buffer[files.data_end : ends.data])
