"""A machine that loses power in a rollover: the node starts from one set of files or the other, and misses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest

from broker.bmq.node.durability import Durability
from broker.bmq.store.partition_files import PartitionLimits
from tests.broker.bmq.rig import ACK, READ, WRITE, Rig, guid, start
from tests.broker.fakes import Crash, MemoryDirectory
from tests.simulator.machines.disk import Disk

QUEUE = "bmq://priority/q"
LIMITS = PartitionLimits(journal=16 << 10, data=8 << 10, qlist=1 << 10)
KEPT = [b"message %d" % number for number in range(5)]
WAYS = 4


def fill_and_roll_over(directory: MemoryDirectory, what: str, left: int) -> None:
    """`KEPT` is posted, and others until the files are full; `Crash` after that many more steps of `what`."""
    rig = start(directory, limits=LIMITS, outlives_power=True)
    durability = Durability(rig.node.partitions.values(), rig.node.ledger)
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    client.open(2, QUEUE, READ)
    for number, payload in enumerate(KEPT):
        client.put(1, guid(number), payload)
    partition = rig.node.partitions[0]
    number = 100
    while partition.files.data_end + 1000 < LIMITS.data:
        client.put(1, guid(number), bytes(900))
        client.confirm(2, guid(number))
        number += 1
    durability.sync()
    old = partition.files
    setattr(directory, what, left)
    client.put(1, guid(number), bytes(900))
    durability.sync()
    assert partition.files is not old


def crashes() -> Iterator[MemoryDirectory]:
    """The folder at each change and each wait of a rollover, nothing open."""
    for what in ("steps_left", "flushes_left"):
        for left in count():
            directory = MemoryDirectory()
            try:
                fill_and_roll_over(directory, what, left)
            except Crash:
                yield directory.after_crash()
            else:
                assert left >= 5
                break


def powerless(directory: MemoryDirectory) -> Iterator[MemoryDirectory]:
    """Yield possible states of the disk after a power failure.

    First some of the sectors, the oldest ones; every other time without the last changes of the folder that were not
    waited for. Then any sectors of files that were never waited for: in the others, that would be damage amid records,
    which no node takes.
    """
    for way in range(2 * WAYS):
        disk = Disk(Random(way), directory.after_crash())
        disk.power_lost(in_order=True, keeps_folders=way % 2 == 0)
        yield disk.directory
    for way in range(WAYS):
        disk = Disk(Random(way), directory.after_crash())
        for name in disk.directory.platter:
            disk.directory.platter[name] = bytes(disk.directory.files[name].data)
        disk.power_lost()
        yield disk.directory


def check(directory: MemoryDirectory) -> Rig:
    rig = start(directory, limits=LIMITS, outlives_power=True)
    assert not rig.faults()
    assert sum(not name.endswith(("csl", "removed")) for name in directory.names()) == 3
    client = rig.connect()
    client.read(1, QUEUE)
    assert client.payloads()[: len(KEPT)] == KEPT
    return rig


@pytest.mark.slow
def test_power_that_fails_at_any_point_of_a_rollover_takes_nothing() -> None:
    archived = set()
    for directory in crashes():
        archived.add(len(directory.archived))
        for left in powerless(directory):
            check(check(left).directory.after_crash())
    assert archived == {0, 1, 2, 3}


@pytest.mark.slow
def test_power_that_fails_after_a_process_was_killed_in_a_rollover_takes_nothing() -> None:
    """The next process does not take for written what the first one has not waited for."""
    for directory in crashes():
        after = check(directory).directory
        for left in powerless(after):
            check(left)


def test_without_a_policy_a_rollover_waits_for_nothing() -> None:
    rig = start(limits=LIMITS)
    rig.node.partitions[0].roll_over()
    assert rig.directory.flushed == []


def test_a_rollover_waits_for_all_and_the_folder_then_for_its_header() -> None:
    rig = start(limits=LIMITS, outlives_power=True)
    rig.directory.flushed.clear()
    rig.node.partitions[0].roll_over()
    kinds = [name.rpartition(".")[2] for name in rig.directory.flushed]
    assert kinds == ["bmq_data", "bmq_qlist", "bmq_journal", rig.directory.path, "bmq_journal"]


def test_a_first_set_is_in_the_folder_before_anything_is_written() -> None:
    """A set of which a file is missing is damaged, unless nothing is in it."""
    for way in range(10):
        rig = start(limits=LIMITS, outlives_power=True)
        disk = Disk(Random(way), rig.directory.after_crash())
        disk.power_lost(in_order=True, keeps_folders=False)
        assert not start(disk.directory, limits=LIMITS, outlives_power=True).faults()


@pytest.mark.parametrize("sectors", [1, 2])
def test_a_new_journal_of_which_the_beginning_never_arrived_is_not_used(sectors: int) -> None:
    directory = next(each for each in crashes() if len({name.split(".")[1] for name in each.names()}) > 2)
    newest = directory.find("bmq_journal")
    directory.files[newest].data[: 512 * sectors] = bytes(512 * sectors)
    directory.files[newest].data[1024:1030] = b"\x10other"
    directory.files[newest].backed = max(directory.files[newest].backed, 2048)
    check(directory)
    assert newest not in directory.names()
