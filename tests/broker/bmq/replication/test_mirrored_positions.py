"""Records whose lease and number are exchanged: the reference's replicas would take one for the other."""

from __future__ import annotations

import logging
import random

import pytest

from broker.bmq.replication.positions import JOURNAL_START, position_at
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, RecordType
from formats.bmq.disk.numbers import RecordNumber
from tests.broker.bmq.replication.partition_bus import Bus
from tests.broker.bmq.rig import guid
from tests.families import mostly_slow

FOUND = (RecordType.MESSAGE, RecordType.CONFIRM, RecordType.QUEUE_OP)


def positions(files: PartitionFiles) -> dict[RecordNumber, RecordType]:
    """Return the type of each record."""
    buffer = files.journal.buffer
    places = range(JOURNAL_START, files.journal_end, JOURNAL_RECORD_SIZE)
    return {position_at(buffer, at): RecordType(ANY_RECORD.unpack(buffer, at).type) for at in places}


def mirrored(files: PartitionFiles) -> list[RecordNumber]:
    """Return the records that are found by their position, and whose mirror is, too."""
    found = {position for position, kind in positions(files).items() if kind in FOUND}
    mirrors = {RecordNumber(each.sequence_number, each.primary_lease_id) for each in found}
    return [each for each in found if each.primary_lease_id != each.sequence_number and each in mirrors]


@pytest.mark.parametrize("seed", mostly_slow(range(10), 3))
def test_no_record_has_the_mirrored_position_of_another(seed: int) -> None:
    chance = random.Random(seed)
    bus = Bus()
    number = 0
    for _ in range(12):
        primary = bus.assign(chance.randrange(3))
        bus.settle()
        assert primary.serving
        count = chance.randrange(15)
        primary.post(*range(number, number + count))
        number += count
        if primary.store and chance.random() < 0.3:
            primary.remove(chance.choice([each for each in range(number) if guid(each) in primary.store]))
        if chance.random() < 0.3:
            primary.stored.roll_over()
        bus.settle()
        assert mirrored(primary.stored.files) == []
    bus.check_equal()


def test_a_lease_begins_with_as_many_sync_points_as_are_needed() -> None:
    bus = Bus()
    for _ in range(2):
        primary = bus.assign(0)
        bus.settle()
        primary.post(*range(primary.stored.primary_lease_id * 10, primary.stored.primary_lease_id * 10 + 2))
        bus.settle()
    # The messages of lease 2 have the numbers 2 and 3.
    primary = bus.assign(1)
    bus.settle()
    primary.post(30)
    bus.settle()
    kinds = positions(primary.stored.files)
    assert [kinds[RecordNumber(3, number)] for number in (1, 2, 3)] == [
        RecordType.JOURNAL_OP,
        RecordType.JOURNAL_OP,
        RecordType.MESSAGE,
    ]
    bus.check_equal()


def test_a_journal_without_room_for_them_is_served_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    bus = Bus(limits=PartitionLimits(journal=3 << 10, data=64 << 10, qlist=4 << 10))
    bus.lease_id = 58
    primary = bus.assign(0)
    bus.settle()
    while primary.stored.sequence_number < 58:
        primary.post(0)
        primary.remove(0)
    while primary.stored.sequence_number < 60:
        primary.post(primary.stored.sequence_number)
    bus.settle()
    assert positions(primary.stored.files)[RecordNumber(59, 60)] is RecordType.MESSAGE
    caplog.set_level(logging.WARNING)
    primary = bus.assign(1)
    bus.settle()
    assert "no room for sync points up to number 59" in caplog.text
    primary.post(100)
    bus.settle()
    assert primary.acked == [100]
    bus.check_equal()
