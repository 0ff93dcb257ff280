"""Files that are cut back end where recovery finds that they do."""

from __future__ import annotations

from random import Random

import pytest

from broker.bmq.store import cutting
from broker.bmq.store.cutting import clear_records, ends_at, set_ends
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.recovery import recover
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from tests.broker.bmq.store.writing import Partition

LIMITS = PartitionLimits(journal=64 << 10, data=64 << 10, qlist=64 << 10)
RECORDS = 60


def written(seed: int) -> Partition:
    """Few or many messages among other records, and queues that are made now and then."""
    random = Random(seed)
    partition = Partition(limits=LIMITS)
    share = random.random()
    for number in range(RECORDS):
        if random.random() < 0.1:
            partition.create(b"q%03d_" % number)
        elif random.random() < share:
            partition.post(number)
        else:
            partition.sync_point()
    return partition


def contents(files: PartitionFiles) -> list[bytes]:
    return [bytes(file.buffer) for file in (files.journal, files.data, files.qlist)]


def test_they_end_where_recovery_finds_that_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        monkeypatch.setattr(cutting, "PART_RECORDS", 1 + seed % 7)
        count = Random(seed).randrange(RECORDS)
        cut, whole = written(seed).files, written(seed).files
        behind = cut.journal_end - count * JOURNAL_RECORD_SIZE
        ends = ends_at(cut, behind)
        for files in (cut, whole):
            clear_records(files.journal.buffer, behind, files.journal_end)
        set_ends(cut, ends)
        recover(whole, whole.ends)
        assert cut.ends == whole.ends
        assert contents(cut) == contents(whole)
