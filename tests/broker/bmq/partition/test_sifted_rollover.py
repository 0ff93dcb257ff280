"""A rollover takes as long as what is alive, not as what the journal has besides."""

from __future__ import annotations

import pytest

from broker.bmq.store import sieve
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.bmq.store.sieve import JournalRows
from tests.broker.bmq.queue.posting import QUEUE, post, producing, reading
from tests.broker.bmq.replication.partition_bus import Bus
from tests.broker.bmq.rig import Rig, guid, start

LIMITS = PartitionLimits(journal=1 << 20, data=1 << 20, qlist=8 << 10)
PART_ROWS = 16


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieve, "PART_ROWS", PART_ROWS)
    monkeypatch.setattr(sieve, "REST_ROWS", PART_ROWS)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of records that rollovers look at."""
    found: list[int] = []
    part = JournalRows.part

    def noted(self: JournalRows, first: int, end: int) -> object:
        found.append(end - first)
        return part(self, first, end)

    monkeypatch.setattr(JournalRows, "part", noted)
    return found


def busy(messages: int) -> Rig:
    """A node through which messages went, of which two are left."""
    rig = start(limits=LIMITS)
    producer, consumer = producing(rig, QUEUE), reading(rig, QUEUE)
    for number in range(messages):
        post(producer, number)
        if number > 1:
            consumer.confirm(1, guid(number - 2))
        rig.now.ms += 100
        rig.node.tick()
        rig.node.work.finish()
    return rig


@pytest.mark.parametrize("messages", [50, 400])
def test_a_node_that_rolls_over_at_once_looks_at_few_records(messages: int, looked_at: list[int]) -> None:
    rig = busy(messages)
    partition = rig.node.partitions[0]
    assert partition.records.message_count == 2
    before = len(JournalRows(partition.files))
    looked_at.clear()
    partition.roll_over()
    assert before > 2 * messages
    assert max(looked_at) <= 1 + 2 + PART_ROWS
    assert partition.records.message_count == 2
    assert len(rig.restart().node.queues[QUEUE].messages) == 2
    assert not rig.faults()


def test_messages_that_came_at_once_are_sifted_in_slices() -> None:
    rig = start(limits=LIMITS)
    producer = producing(rig, QUEUE)
    for number in range(3 * PART_ROWS):
        post(producer, number)
    rig.node.tick()
    slices = rig.node.work.slices
    rig.node.work.finish()
    assert rig.node.work.slices - slices >= 2
    assert len(rig.node.partitions[0].rollovers.sieve.rows(rig.node.partitions[0].files)) == 1 + 3 * PART_ROWS


def replica_rolled_over(gone: int, *, sifts: bool) -> tuple[int, dict[str, bytes], PartitionFiles]:
    """Let a cluster roll over; the slices that it takes a replica, and the files of that."""
    bus = Bus(limits=LIMITS, amount=4)
    bus.assign(0)
    bus.settle()
    primary, replica = bus.nodes[0], bus.nodes[1]
    primary.post(0, 1)
    for number in range(gone):
        primary.post(100 + number)
        primary.remove(100 + number)
        bus.settle()
        for node in bus.nodes.values() if sifts else ():
            node.stored.rollovers.sift()
            bus.settle()
    before, slices = replica.stored.files, replica.work.slices
    primary.stored.roll_over()
    bus.settle()
    assert replica.stored.files is not before
    bus.check_equal()
    return replica.work.slices - slices, replica.files(), replica.stored.files


def test_a_replica_is_through_as_soon_with_a_long_journal() -> None:
    short, _, _ = replica_rolled_over(20, sifts=True)
    long, sifted, _ = replica_rolled_over(300, sifts=True)
    slow, whole, _ = replica_rolled_over(300, sifts=False)
    assert long <= short + 2
    assert slow > 3 * long
    assert sifted == whole
