"""A partition is taken over in slices, and what may happen between two of them."""

from __future__ import annotations

import pytest

from broker.bmq.replication.partition_table import State
from broker.bmq.store.partition_files import PartitionLimits
from tests.broker.bmq.replication.partition_bus import Bus, Node
from tests.broker.bmq.rig import guid

LIMITS = PartitionLimits(journal=64 << 10, data=128 << 10, qlist=4 << 10)
LIVE = range(60)
AMOUNT = 4
STEPS_MAX = 2000


def full() -> Bus:
    """A partition with much alive, and much that is not."""
    bus = Bus(limits=LIMITS, amount=AMOUNT)
    bus.assign(0)
    bus.settle()
    for number in LIVE:
        bus.nodes[0].post(number)
        bus.nodes[0].post(1000 + number)
        bus.settle()
        bus.nodes[0].remove(1000 + number)
    bus.settle()
    assert bus.nodes[0].acked
    return bus


def fail_over(bus: Bus) -> Node:
    bus.kill(0)
    return bus.assign(1)


def steps_of_take_over() -> int:
    bus = full()
    node = fail_over(bus)
    steps = 0
    while not node.serving:
        bus.step()
        steps += 1
        assert steps < STEPS_MAX
    return steps


def check_served(bus: Bus, lost: frozenset[int] = frozenset()) -> None:
    """Check that one node serves the partition, with all its messages, and that all nodes have the same."""
    bus.settle(3000)
    (primary,) = [node for node in bus.nodes.values() if node.serving]
    assert set(primary.store) >= {guid(number) for number in LIVE if number not in lost}
    assert not set(primary.store) & {guid(1000 + number) for number in LIVE}
    assert set(primary.stored.records.stores[b"queue"]) == set(primary.store)
    assert primary.stored.records.due == len(primary.store)
    primary.post(*range(5000, 5010))
    bus.settle(1000)
    assert primary.acked[-10:] == list(range(5000, 5010))
    bus.check_equal()


def test_it_takes_many_slices_and_all_is_there() -> None:
    assert steps_of_take_over() > 2 * len(LIVE) // AMOUNT
    bus = full()
    node = fail_over(bus)
    bus.settle(2000)
    assert bus.states() == [State.PRIMARY_HEALED, State.REPLICA_HEALED]
    assert list(node.store) == [guid(number) for number in LIVE]
    # It remembers what was removed.
    assert all(node.history.is_new(guid(1000 + number)) is False for number in LIVE)
    check_served(bus)


def test_replicas_hear_of_it_when_it_is_over() -> None:
    bus = full()
    node = fail_over(bus)
    while not node.serving:
        assert not bus.nodes[2].partition.primary_is_active
        bus.step()
    bus.settle()
    assert bus.nodes[2].partition.primary_is_active


def test_a_replica_that_comes_meanwhile_is_healed() -> None:
    bus = full()
    node = fail_over(bus)
    while node.partition.taking_over is None:
        bus.step()
    bus.restart(0)
    for _ in range(4):
        bus.step()
    assert not node.serving
    check_served(bus)
    assert bus.states() == [State.REPLICA_HEALED, State.PRIMARY_HEALED, State.REPLICA_HEALED]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "another primary", "again primary", "no primary"])
def test_an_end_between_any_two_slices_loses_nothing(how: str) -> None:
    for end in range(0, steps_of_take_over() + 6, 4):
        bus = full()
        fail_over(bus)
        for _ in range(end):
            bus.step()
        bus.restart(0)
        if how == "killed":
            bus.kill(1)
            bus.assign(2)
            bus.settle(2000)
            bus.restart(1)
        elif how == "another primary":
            bus.assign(2)
        elif how == "again primary":
            bus.assign(1)
        else:
            for node in bus.nodes.values():
                node.partition.primary_changed(None, 0)
            bus.step()
            bus.assign(2)
        check_served(bus)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "primary again", "stopped"])
def test_a_primary_that_becomes_a_replica_finds_its_messages_in_slices(how: str) -> None:
    for end in range(0, 40, 6):
        bus = full()
        old = bus.nodes[0]
        bus.assign(1)
        if not end:
            assert old.partition.copy.rollovers.is_busy
        for _ in range(end):
            bus.step()
        if how == "killed":
            bus.kill(0)
            bus.settle(1000)
            bus.restart(0)
        elif how == "primary again":
            bus.assign(0)
        else:
            old.partition.stop()
            bus.kill(0)
        check_served(bus)


def test_a_primary_whose_files_have_rotted_receives_them_from_others() -> None:
    bus = full()
    # The records of queues, after the head of the file.
    qlist = bus.nodes[1].stored.files.qlist
    qlist.buffer[30:60] = b"\xff" * 30
    del qlist
    node = fail_over(bus)
    bus.restart(0)
    bus.settle(1000)
    assert [each.serving for each in bus.nodes.values()] == [False] * 3
    assert node.stored.damage.is_there
    bus.assign(1)
    bus.settle(3000)
    assert bus.disks[1].damaged
    check_served(bus)


def test_records_cut_from_rotten_files_are_received_again() -> None:
    bus = full()
    bus.part(0)
    old = bus.nodes[0]
    old.post(*range(700, 703))
    bus.assign(1, among=(1, 2))
    bus.settle(1000)
    old.partition.primary_changed(1, bus.lease_id)
    while old.partition.copy.rollovers.is_busy:
        old.flush()
    old.stored.files.data.buffer[0] ^= 1
    bus.join()
    bus.settle(3000)
    assert bus.disks[0].damaged
    check_served(bus)


@pytest.mark.slow
@pytest.mark.parametrize("amount", [0, AMOUNT])
def test_a_primary_without_descriptors_waits_until_it_can_read_what_was_removed(amount: int) -> None:
    bus = Bus(limits=LIMITS, amount=amount)
    bus.assign(0)
    bus.settle()
    for number in range(1500):
        bus.nodes[0].post(number)
        bus.nodes[0].remove(number)
        if number % 10 == 9:
            bus.settle()
    assert bus.nodes[0].directory.archived
    # A file that is open is read as it is.
    bus.kill(0)
    bus.kill(1)
    bus.restart(1)
    node = bus.assign(1)
    node.directory.is_out_of_descriptors = True
    bus.settle(3000)
    assert not any(each.serving for each in bus.nodes.values())
    assert not node.stored.active
    node.directory.is_out_of_descriptors = False
    bus.settle(1000)
    assert node.serving
    assert not any(node.history.is_new(guid(number)) for number in range(1500))
    assert node.outdated == []
    node.post(*range(5000, 5010))
    bus.settle(1000)
    assert node.acked == list(range(5000, 5010))
    bus.check_equal()
