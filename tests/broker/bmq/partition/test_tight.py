"""A store that the reference has filled to the brim: it keeps no room for what outstanding messages will still need."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.partition.tight import removing_first
from broker.bmq.queue.purges import purge
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from formats.bmq.disk import journal, journal_packing
from formats.bmq.disk.data import write_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ConfirmReason, QueueOpType
from formats.bmq.disk.padding import DWORD
from tests.broker.bmq.queue.posting import FANOUT, QUEUE, numbers, payload, producing, reading
from tests.broker.bmq.rig import APPS, Rig, guid, start

RECORDS = 500
LIMITS = PartitionLimits(journal=RECORDS * JOURNAL_RECORD_SIZE, data=256 << 10, qlist=4 << 10)
# Records that the reference leaves free in a journal, for sync points and purges.
LEFT = 18


def partition(rig: Rig) -> StoredPartition:
    return rig.node.partitions[0]


def left(rig: Rig) -> int:
    return (LIMITS.journal - partition(rig).files.journal_end) // JOURNAL_RECORD_SIZE


def brim(uri: str, ref_count: int, records_left: int = LEFT) -> tuple[Rig, int]:
    """A node that starts on such a store; how many messages are in it."""
    rig = start(limits=LIMITS)
    producing(rig, uri)
    here, key, count = partition(rig), rig.node.queues[uri].key, 0
    files = here.files
    assert files.journal.reserve(LIMITS.journal)
    assert files.data.reserve(LIMITS.data)
    while left(rig) > records_left:
        data, at = payload(count), files.data_end
        files.data_end = write_data_record(files.data.buffer, at, data)
        here.records.sequence_number += 1
        head = files.journal.buffer, files.journal_end, here.primary_lease_id, here.sequence_number, rig.now.wall_s
        journal_packing.pack_message(*head, ref_count, 0, key, at // DWORD, guid(count), crc32c(data))
        files.journal_end += JOURNAL_RECORD_SIZE
        count += 1
    return rig.restart(), count


def check(rig: Rig) -> None:
    """No file is larger than configured, and what is in them is sound."""
    assert not rig.faults()
    assert (partition(rig).room.limits.journal, partition(rig).room.limits.data) == (LIMITS.journal, LIMITS.data)
    for name in rig.directory.names():
        if "bmq_0" in name:
            limit = LIMITS.journal if name.endswith("journal") else LIMITS.data
            assert len(rig.directory.files[name].data) <= limit, name
    assert left(rig) >= 1


def settle(rig: Rig) -> None:
    rig.node.work.finish()
    check(rig)


@pytest.mark.slow
def test_it_is_drained_within_its_files_and_takes_messages_again() -> None:
    rig, count = brim(QUEUE, 1)
    producer, consumer = producing(rig), reading(rig)
    assert producer.post(1, guid(10_000), b"x") is AckStatus.STORAGE_FAILURE
    assert numbers(consumer) == list(range(count))
    rollovers = 0
    files = partition(rig).files
    for number in range(count):
        consumer.confirm(1, guid(number))
        settle(rig)
        rollovers += partition(rig).files is not files
        files = partition(rig).files
    assert partition(rig).room.tight is None
    assert 3 <= rollovers <= 10, "each makes room for about twice as many"
    assert producer.post(1, guid(10_000), b"x") is AckStatus.SUCCESS
    check(rig)
    again = rig.restart()
    assert [push.guid for push in reading(again).pushes()] == [guid(10_000)]


@pytest.mark.slow
@pytest.mark.parametrize("records_left", [3, 4, LEFT])
@pytest.mark.parametrize("at_once", [False, True])
def test_removed_messages_stay_removed_whenever_the_process_dies(records_left: int, at_once: bool) -> None:
    rig, count = brim(QUEUE, 1, records_left)
    consumer = reading(rig)
    gone = 100
    if at_once:
        consumer.confirm(1, *map(guid, range(gone)))
        settle(rig)
    for number in () if at_once else range(gone):
        consumer.confirm(1, guid(number))
        settle(rig)
    if records_left == LEFT:
        assert numbers(reading(rig.restart())) == list(range(gone, count))
    # There was no room for any removal, and nothing to get rid of: it is served, and nothing is lost.
    assert set(numbers(reading(rig.restart()))) >= set(range(gone, count))
    rig.stop()
    assert not rig.faults()


def test_confirms_of_some_apps_do_not_take_the_room_that_removals_need() -> None:
    rig, count = brim(FANOUT, len(APPS))
    consumers = [reading(rig, FANOUT, app) for app in APPS]
    for consumer in consumers[:2]:
        for number in range(count):
            consumer.confirm(1, guid(number), sub_id=1)
        settle(rig)
    assert left(rig) > LEFT - 4
    consumers[2].confirm(1, *map(guid, range(count - 10)), sub_id=1)
    settle(rig)
    # The remaining messages have room, as do confirms of some apps.
    assert partition(rig).room.tight is None
    again = rig.restart()
    assert [numbers(reading(again, FANOUT, app)) for app in APPS] == [[], [], list(range(count - 10, count))]


def test_a_purge_makes_room() -> None:
    rig, _ = brim(QUEUE, 1)
    rig.node.queues[QUEUE]
    purge(rig.node.queues[QUEUE])
    rig.wait(2000)
    settle(rig)
    assert partition(rig).room.tight is None
    assert producing(rig).post(1, guid(10_000), b"x") is AckStatus.SUCCESS
    assert [push.guid for push in reading(rig.restart()).pushes()] == [guid(10_000)]


@pytest.mark.slow
def test_a_store_that_is_not_drained_is_handed_back_as_it_was() -> None:
    rig, count = brim(QUEUE, 1)
    for _ in range(LEFT + 6):
        assert numbers(reading(rig)) == list(range(count))
        rig.wait(3000)
        check(rig)
        rig.stop()
        rig = start(rig.directory, limits=LIMITS)
    assert numbers(reading(rig)) == list(range(count))


def test_it_ends_as_soon_as_there_is_room_for_what_is_due() -> None:
    rig, count = brim(QUEUE, 1, records_left=RECORDS * 4 // 10)
    consumer = reading(rig)
    assert partition(rig).room.tight is not None
    gone = 0
    while partition(rig).room.tight is not None:
        consumer.confirm(1, guid(gone))
        settle(rig)
        gone += 1
    # Each message takes its own record and one for its removal, and some are left over.
    assert gone - (count - RECORDS // 2) < RECORDS // 10
    assert numbers(reading(rig.restart())) == list(range(gone, count))


def test_it_does_not_roll_over_again_and_again_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig, _ = brim(QUEUE, 1, records_left=3)
    consumer = reading(rig)
    consumer.confirm(1, *map(guid, range(50)))
    settle(rig)
    rig.wait(10_000)
    assert caplog.text.count("frees no space") == 1
    settle(rig)


def test_it_rolls_over_when_there_is_disk() -> None:
    rig, count = brim(QUEUE, 1)
    consumer = reading(rig)
    free, rig.directory.free = rig.directory.free, 0
    consumer.confirm(1, *map(guid, range(50)))
    rig.wait(3000)
    settle(rig)
    before = partition(rig).files
    assert partition(rig).room.tight is not None
    rig.directory.free = free
    rig.wait(2000)
    settle(rig)
    assert partition(rig).files is not before
    assert numbers(reading(rig.restart())) == list(range(50, count))


def test_records_are_sorted() -> None:
    buffer = bytearray(6 * JOURNAL_RECORD_SIZE)
    a, b = b"queue", b"other"
    at = iter(range(0, len(buffer), JOURNAL_RECORD_SIZE))
    journal_packing.pack_confirm(buffer, next(at), 1, 1, 0, ConfirmReason.CONFIRMED, a, b"app--", guid(1))
    journal_packing.pack_confirm(buffer, next(at), 1, 2, 0, ConfirmReason.CONFIRMED, a, b"app--", guid(2))
    journal_packing.pack_confirm(buffer, next(at), 1, 3, 0, ConfirmReason.CONFIRMED, b, b"app--", guid(1))
    journal_packing.pack_deletion(buffer, next(at), 1, 4, 0, 0, a, guid(1))
    journal_packing.pack_queue_op(buffer, next(at), 1, 5, 0, QueueOpType.PURGE, b)
    journal_packing.pack_confirm(buffer, next(at), 1, 6, 0, ConfirmReason.CONFIRMED, b, b"app--", guid(3))

    def numbered(records: bytes) -> list[int]:
        rows = range(0, len(records), JOURNAL_RECORD_SIZE)
        return [journal.ANY_RECORD.unpack(records, row).sequence_number for row in rows]

    removing, others = removing_first(bytes(buffer))
    # The first went with its message, the third with its queue's.
    assert (numbered(removing), numbered(others)) == ([4, 5], [2, 6])
