"""Positions of records, by bisection and by linear search."""

from __future__ import annotations

import random

import pytest

from broker.bmq.replication.positions import (
    JOURNAL_START,
    NOWHERE,
    history,
    mirrored_lease,
    offset_behind,
    offset_of,
    position_at,
)
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.disk.files import FILE_HEADER, JOURNAL_FILE_HEADER, JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import RecordType
from formats.bmq.disk.numbers import RecordNumber
from tests.broker.bmq.store.writing import Partition

LIMITS = PartitionLimits(journal=64 << 10, data=256 << 10, qlist=4 << 10)


@pytest.mark.parametrize("seed", range(20))
def test_records_are_found(seed: int) -> None:
    chance = random.Random(seed)
    partition = Partition(limits=LIMITS)
    for _ in range(chance.randrange(6)):
        for number in range(chance.randrange(40)):
            partition.number += chance.choice((0, 0, 0, 3))
            partition.post(number)
        partition.lease += chance.choice((0, 0, 4))
        partition.new_lease()
    files = partition.files
    places = range(JOURNAL_START, files.journal_end, JOURNAL_RECORD_SIZE)
    first = chance.choice((0, *places))
    header = JOURNAL_FILE_HEADER.unpack(files.journal.buffer, FILE_HEADER.size)
    header = header._replace(first_sync_point_after_rollover_offset_words=first // 4)
    JOURNAL_FILE_HEADER.pack_into(files.journal.buffer, FILE_HEADER.size, header)

    at = {position_at(files.journal.buffer, place): place for place in places}
    assert len(at) == len(places)
    leases = {position.primary_lease_id: position for position, place in at.items() if place >= first}
    assert history(files) == list(reversed(leases.values()))
    posted = [each for each, place in at.items() if files.journal.buffer[place] >> 4 == RecordType.MESSAGE]
    for number in range(partition.number + 9):
        assert mirrored_lease(files, number) == max(
            (lease for lease, posted_as in posted if posted_as == number), default=0
        )
    wanted = {
        RecordNumber(lease, number) for lease in range(partition.lease + 2) for number in range(partition.number + 9)
    }
    for position in wanted | set(at):
        assert offset_of(files, position) == at.get(position)
        behind = at[position] + JOURNAL_RECORD_SIZE if at.get(position, -1) >= first else None
        assert offset_behind(files, position) == (JOURNAL_START if position == NOWHERE else behind)


def test_an_empty_journal_has_no_history() -> None:
    partition = Partition(limits=LIMITS)
    partition.files.journal_end = JOURNAL_START
    assert history(partition.files) == []
    assert offset_of(partition.files, RecordNumber(1, 1)) is None
