"""The rollover of a partition that is full to the brim, in slices, and what may happen between two of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker.bmq.partition import rollovers as rollovers_module
from broker.bmq.partition.room import SYNC_POINTS_KEPT
from broker.bmq.partition.tight import REMOVED_MIN
from broker.bmq.queue.purges import purge
from formats.bmq.codes import AckStatus
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from tests.broker.bmq.partition.test_tight import LEFT, LIMITS, RECORDS, brim, check, left, partition, settle
from tests.broker.bmq.queue.posting import FANOUT, QUEUE, numbers, payload, producing, reading
from tests.broker.bmq.rig import APPS, Client, Rig, guid, start

AMOUNT = 4


def sliced(uri: str = QUEUE, ref_count: int = 1, records_left: int = LEFT, amount: int = AMOUNT) -> tuple[Rig, int]:
    """A node at rest that was started on a store that is full; how many messages are in it."""
    rig, count = brim(uri, ref_count, records_left)
    settle(rig)
    rig.node.work.amount = rig.node.work.left = amount
    return rig, count


def check_payloads(rig: Rig, uri: str = QUEUE) -> None:
    """All messages are found wherever they are just now."""
    queue = rig.node.queues[uri]
    for key, message in queue.messages.items():
        data = bytes(queue.log.read(message))
        assert guid(int(data)) == key


def in_files(rig: Rig, uri: str = QUEUE, app: str = "") -> set[int]:
    """Return the messages that consumers of another process receive if this one is killed."""
    return set(numbers(reading(rig.restart(), uri, app)))


def step(rig: Rig) -> bool:
    rig.now.ms += 1
    return bool(rig.node.end_step()[0])


@pytest.mark.slow
@pytest.mark.parametrize("amount", [3, 40])
def test_confirms_go_on_and_whoever_dies_has_lost_nothing(amount: int) -> None:
    rig, count = sliced(amount=amount)
    consumer = reading(rig)
    rig.node.work.finish()
    consumer.confirm(1, *map(guid, range(50)))
    gone, steps, sets = 50, 0, {partition(rig).files.journal.name}
    lost: set[int] = set()
    while step(rig):
        steps += 1
        sets.add(partition(rig).files.journal.name)
        if steps % 7 == 0 and gone < 120:
            consumer.confirm(1, guid(gone))
            gone += 1
        if steps % 11 == 0:
            check_payloads(rig)
            here = in_files(rig)
            # Removed messages stay removed once a next process would not find them.
            assert here >= set(range(gone, count))
            assert not here & lost
            lost |= set(range(count)) - here
    assert len(sets) >= 3
    assert steps > 1000 // amount
    check(rig)
    check_payloads(rig)
    assert in_files(rig) == set(range(gone, count))


def test_nothing_is_added_to_the_files_while_they_are_carried_over() -> None:
    rig, count = sliced(records_left=RECORDS * 4 // 10)
    consumer = reading(rig)
    rig.node.work.finish()
    number = count // 2
    consumer.confirm(1, *map(guid, range(number)))
    while sum(name.endswith(".bmq_journal") for name in rig.directory.names()) == 1:
        step(rig)
    old, end = partition(rig).files, partition(rig).files.journal_end
    assert left(rig) > REMOVED_MIN
    while partition(rig).files is old:
        assert old.journal_end == end
        consumer.confirm(1, guid(number))
        number += 1
        step(rig)
    assert number > count // 2 + 50
    settle(rig)
    assert in_files(rig) == set(range(number, count))


def test_no_slice_carries_over_more_than_it_may() -> None:
    rig, _ = sliced()
    consumer = reading(rig)
    rig.node.work.finish()
    consumer.confirm(1, *map(guid, range(20)))
    carried: list[int] = []
    old = partition(rig).files
    while step(rig) and partition(rig).files is old:
        found = [name for name in rig.directory.names() if name.endswith(".bmq_journal")]
        if len(found) > 1:
            data = rig.directory.files[max(found)].data
            carried.append(sum(any(data[at : at + 60]) for at in range(44, len(data), 60)))
    assert len(carried) > RECORDS // (4 * AMOUNT)
    assert all(later - earlier <= 4 * AMOUNT for earlier, later in pairwise(carried))


def test_records_that_wait_are_written_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.bmq.partition.tight.RECORDS_MAX", 3)
    rig, count = sliced(FANOUT, len(APPS), records_left=RECORDS * 6 // 10, amount=1000)
    consumers = [reading(rig, FANOUT, app) for app in APPS]
    rig.node.work.finish()
    at = [partition(rig).files.journal_end]
    consumers[0].confirm(1, *map(guid, range(count)), sub_id=1)
    consumers[1].confirm(1, *map(guid, range(0, count, 2)), sub_id=1)
    while step(rig):
        at.append(partition(rig).files.journal_end)
    assert all(later - earlier <= 3 * JOURNAL_RECORD_SIZE for earlier, later in pairwise(at))
    # As many as leave room for the removal of all.
    assert left(rig) == count + REMOVED_MIN + SYNC_POINTS_KEPT
    again = rig.restart()
    assert len(numbers(reading(again, FANOUT, APPS[0]))) < count
    for consumer in consumers[1:]:
        consumer.confirm(1, *map(guid, range(count)), sub_id=1)
    settle(rig)
    assert partition(rig).room.tight is None
    assert not in_files(rig, FANOUT, APPS[0])


def test_a_partition_that_cannot_have_room_is_served_without_a_walk_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(*_: object) -> None:
        pytest.fail("all of it is looked at in one step")

    monkeypatch.setattr(rollovers_module, "Rollover", walk)
    rig, count = brim(QUEUE, 1)
    assert partition(rig).room.tight is not None
    assert numbers(reading(rig)) == list(range(count))


@pytest.mark.parametrize("steps", [0, 1, 30, 300, 900])
def test_a_stop_in_its_midst_leaves_one_set_and_what_fits(steps: int) -> None:
    rig, count = sliced(amount=1)
    consumer = reading(rig)
    rig.node.work.finish()
    consumer.confirm(1, *map(guid, range(50)))
    for _ in range(steps):
        step(rig)
    room = left(rig) - 2
    rig.stop()
    assert sum(name.endswith(".bmq_journal") for name in rig.directory.names()) == 1
    assert not rig.faults()
    again = start(rig.directory, limits=LIMITS)
    settle(again)
    here = numbers(reading(again))
    assert set(here) >= set(range(50, count))
    assert len(here) <= count - min(room, 50)


def test_posts_are_taken_as_soon_as_there_is_room_and_are_found() -> None:
    rig, count = sliced(records_left=RECORDS * 4 // 10, amount=1)
    consumer, producer = reading(rig), producing(rig)
    rig.node.work.finish()
    consumer.confirm(1, *map(guid, range(count - 100)))
    posted = 1000
    while step(rig):
        if partition(rig).room.tight is None and posted < 1010:
            assert producer.post(1, guid(posted), payload(posted)) is AckStatus.SUCCESS
            posted += 1
        check_payloads(rig)
    assert posted == 1010
    check(rig)
    assert in_files(rig) == {*range(count - 100, count), *range(1000, 1010)}


def test_a_purge_meanwhile_leaves_nothing() -> None:
    rig, count = sliced()
    consumer = reading(rig)
    rig.node.work.finish()
    consumer.confirm(1, *map(guid, range(50)))
    for _ in range(60):
        step(rig)
    purge(rig.node.queues[QUEUE])
    assert in_files(rig) >= set(range(50, count))
    settle(rig)
    assert not in_files(rig)
    assert producing(rig).post(1, guid(10_000), b"1") is AckStatus.SUCCESS


def test_a_full_disk_in_its_midst_ends_it_until_there_is_some() -> None:
    rig, count = sliced()
    consumer = reading(rig)
    rig.node.work.finish()
    consumer.confirm(1, *map(guid, range(50)))
    before = partition(rig).files
    for _ in range(60):
        step(rig)
    free, rig.directory.free = rig.directory.free, 0
    settle(rig)
    assert partition(rig).files is before
    rig.directory.free = free
    rig.wait(2000)
    settle(rig)
    assert partition(rig).files is not before
    assert in_files(rig) == set(range(50, count))


def test_a_client_is_served_between_slices() -> None:
    rig, count = sliced()
    first: Client = reading(rig)
    rig.node.work.finish()
    first.confirm(1, *map(guid, range(50)))
    for _ in range(100):
        step(rig)
    rig.node.disconnect(first.session, "gone")
    second = reading(rig)
    settle(rig)
    assert numbers(second) == list(range(50, count))
