"""A walk in parts finds what a look at the whole journal does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.store.partition_files import PartitionLimits
from broker.bmq.store.purge_walk import PurgeWalk
from broker.bmq.store.recovery import deleted_guids, last_purges, purges, removed_guids
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import scan
from tests.broker.bmq.store.sliced_recovery_rig import KEYS, STEP, sorted_gone, take_step
from tests.broker.bmq.store.writing import Partition
from tests.families import examples

LIMITS = PartitionLimits(journal=64 << 10, data=64 << 10, qlist=64 << 10)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, max_size=60), st.integers(1, 9))
def test_it_finds_the_same(steps: list[tuple[str, *tuple[object, ...]]], rows: int) -> None:
    partition = Partition(limits=LIMITS).create().create(KEYS[1])
    for step in steps:
        take_step(partition, step)
    partition.purge(refused=3)
    journal = partition.files.journal
    first = open_file(journal.buffer, FileType.JOURNAL).first_record_offset
    records = scan(journal.buffer, first, (partition.files.journal_end - first) // JOURNAL_RECORD_SIZE)
    found = deleted_guids(records)
    walk = PurgeWalk(last_purges(purges(records)))
    assert walk.end == len(records)
    while not walk.is_over:
        for key, guids in walk.advance(records, rows).items():
            assert len(guids) <= rows * 16
            found[key] = found.get(key, b"") + guids
    assert sorted_gone(found) == sorted_gone(removed_guids(records))
