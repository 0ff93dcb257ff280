"""A replica whose machine loses power while it goes on to other files: it starts, with what it had waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, count
from random import Random

import pytest

from broker.bmq.replication.partition_table import State
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.disk.numbers import RecordNumber
from tests.broker.bmq.replication.partition_bus import Bus
from tests.broker.fakes import Crash, MemoryDirectory
from tests.simulator.machines.disk import Disk

LIMITS = PartitionLimits(journal=16 << 10, data=32 << 10, qlist=4 << 10)
HEALED = [State.PRIMARY_HEALED, State.REPLICA_HEALED, State.REPLICA_HEALED]
LIVE = range(20)
REPLICA = 2


def small() -> Bus:
    bus = Bus(limits=LIMITS, outlives_power=True)
    bus.assign(0)
    bus.settle()
    bus.nodes[0].post(*LIVE)
    bus.settle()
    bus.nodes[REPLICA].stored.files.flush()
    return bus


def roll_over(bus: Bus) -> None:
    """Post until the primary is in new files; not all of that has arrived."""
    primary = bus.nodes[0]
    before = primary.stored.files
    number = 100
    while primary.stored.files is before:
        bus.settle()
        primary.post(number)
        primary.remove(number)
        number += 1


def die_when(bus: Bus, what: str, left: int) -> None:
    """The replica gets so far with new files, and then it dies."""
    directory, stored = bus.disks[REPLICA], bus.nodes[REPLICA].stored
    make_timestamp = stored.sets.make_timestamp

    def make(prefix: str) -> str:
        setattr(directory, what, left)
        return make_timestamp(prefix)

    stored.sets.make_timestamp = make


def rolling(bus: Bus) -> None:
    roll_over(bus)
    bus.settle()


def received_anew(bus: Bus) -> None:
    bus.part(REPLICA)
    roll_over(bus)
    bus.join()
    bus.settle(3000)


@pytest.mark.slow
@pytest.mark.parametrize("go_on", [rolling, received_anew])
def test_power_that_fails_at_any_point_leaves_one_set_or_the_other(go_on: Callable[[Bus], None]) -> None:
    crashes = 0
    for what in ("steps_left", "flushes_left"):
        for left in count():
            bus = small()
            die_when(bus, what, left)
            kept = set(bus.kept(REPLICA))
            try:
                go_on(bus)
            except Crash:
                crashes += 1
            else:
                break
            disk = bus.disks[REPLICA].after_crash()
            bus.kill(REPLICA)
            bus.disks[REPLICA] = disk.after_crash()
            bus.restart(REPLICA)
            started = bus.disks[REPLICA].after_crash()
            bus.kill(REPLICA)
            # It fails at once, or when the next process has just started.
            for directory in chain(powerless(disk), powerless(started)):
                bus.disks[REPLICA] = directory
                bus.restart(REPLICA)
                assert set(bus.kept(REPLICA)) >= kept
                bus.settle(3000)
                assert bus.states() == HEALED
                bus.check_equal()
                bus.kill(REPLICA)
    assert crashes > 10


def powerless(directory: MemoryDirectory) -> Iterator[MemoryDirectory]:
    """Yield possible states of the disk: some sectors, the first written; any, of files that were never flushed."""
    for seed in range(2):
        disk = Disk(Random(seed), directory.after_crash())
        disk.power_lost(in_order=True)
        yield disk.directory
        disk = Disk(Random(seed), directory.after_crash())
        for name in disk.directory.platter:
            disk.directory.platter[name] = bytes(disk.directory.files[name].data)
        for name, content in disk.directory.files.items():
            if "20261121_051104" in name:
                disk.directory.platter[name] = bytes(content.data)
        disk.power_lost()
        yield disk.directory


def test_receipts_of_a_rollover_wait_for_the_messages_before_it() -> None:
    """The receipts for it leave before the new files are whole."""
    bus = small()
    node = bus.nodes[REPLICA]
    node.work.amount = node.work.left = 4
    node.stored.work_with(node.work)
    roll_over(bus)
    old = node.stored.files
    while not node.partition.copy.rollovers.is_rolling:
        bus.step()
    assert node.stored.files is old
    assert sum(name.endswith("journal") for name in node.directory.names()) == 2
    position = node.partition.copy.rollovers.kept
    node.stored.files.flush()
    bus.kill(REPLICA)
    disk = Disk(Random(0), bus.disks[REPLICA])
    disk.power_lost()
    bus.disks[REPLICA] = disk.directory
    assert bus.restart(REPLICA).partition.copy.records.position == position
    bus.settle(3000)
    bus.check_equal()


def test_a_journal_that_is_cut_back_is_on_the_disk_before_its_payloads_are_cleared() -> None:
    """Power that fails between the flushes of both finds a journal that names no payload that is gone."""
    bus = small()
    node = bus.nodes[REPLICA]
    files, position = node.stored.files, node.partition.copy.records.position
    assert node.partition.copy.cut(RecordNumber(position.primary_lease_id, position.sequence_number - 5))
    files.data.flush()
    bus.kill(REPLICA)
    disk = bus.disks[REPLICA]
    for name, content in disk.files.items():
        content.data[:] = disk.platter[name]
    restarted = bus.restart(REPLICA)
    assert not restarted.stored.damage.is_there
    assert restarted.partition.copy.records.position.sequence_number == position.sequence_number - 5
    bus.settle(3000)
    bus.check_equal()
