"""A new primary that has no disk for the partition that it is to serve."""

from __future__ import annotations

import pytest

from broker.bmq.replication.partition_table import State
from tests.broker.bmq.replication.partition_bus import Bus, Node
from tests.broker.fakes import MemoryDirectory


def without_disk(bus: Bus) -> Node:
    """Make a node primary whose disk is empty and has no room for more files."""
    bus.assign(0)
    bus.settle()
    bus.nodes[0].post(*range(20))
    bus.settle()
    bus.kill(2)
    bus.disks[2] = MemoryDirectory()
    bus.restart(2).directory.free = 0
    bus.settle()
    return bus.assign(2)


@pytest.mark.parametrize("room", [0, 2000])
def test_a_primary_without_room_for_a_partition_waits_before_it_asks_for_it_again(room: int) -> None:
    """Primaries without room for new files, or for the records in them."""
    bus = Bus()
    new = without_disk(bus)
    new.directory.free = room
    for _ in range(100):
        bus.step()
    assert not bus.step()
    assert new.partition.state is State.PRIMARY_HEALING_STG2
    assert new.partition.copy.records.is_fresh == bool(room)
    bus.settle(1000)
    assert new.partition.state is State.PRIMARY_HEALING_STG2
    new.directory.free = 1 << 30
    bus.settle(1000)
    assert new.serving
    bus.check_equal()


def test_a_primary_that_has_room_again_serves_on() -> None:
    """Room is free before the next attempt: the node does not restart."""
    bus = Bus()
    new = without_disk(bus)
    while new.partition.state is not State.PRIMARY_HEALING_STG2:
        assert bus.step()
    new.directory.free = 1 << 30
    while not new.serving:
        bus.settle(100)
    new.post(20)
    bus.settle(1000)
    assert new.serving
    assert new.outdated == []
    bus.check_equal()
