"""Work that a replica leaves for later slices, for any store size: other work is done between two of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker.bmq.core.work import Task, Work
from broker.bmq.replication import replica_actions
from broker.bmq.replication.copying.copy_rollover import CopyRollover
from broker.bmq.replication.partition_table import State
from broker.bmq.replication.positions import NOWHERE
from formats.bmq.codes import EventType
from formats.bmq.disk.numbers import RecordNumber
from tests.broker.bmq.replication.partition_bus import Bus, Node
from tests.broker.bmq.replication.slices.test_sliced_rollover import (
    AMOUNT,
    HEALED,
    LIVE,
    at_a_replica,
    check_replica,
    full,
    go_on,
    interrupt,
    slice_by_slice,
)
from tests.broker.bmq.rig import guid

NEW = range(100, 120)


@pytest.fixture
def nothing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a task or a rollover is done at once."""

    def complete(self: Work, task: Task) -> None:
        raise AssertionError("a task is done in one go")

    advance = CopyRollover.advance

    def advance_a_little(self: CopyRollover, units: int) -> int:
        assert units <= AMOUNT, "a rollover is done in one go"
        return advance(self, units)

    monkeypatch.setattr(Work, "complete", complete)
    monkeypatch.setattr(CopyRollover, "advance", advance_a_little)


def receive_all(bus: Bus, node: Node) -> None:
    """Deliver what the primary has sent, without a slice in between."""
    while bus.links[0, node.node_id]:
        node.receive(0, bus.links[0, node.node_id].popleft())


def type_of(event: bytes) -> int:
    return event[4] & 0x3F


# -- another rollover


def twice() -> tuple[Bus, Node]:
    """The primary has completed two rollovers, with posts between and after; a replica has begun one."""
    bus, replica = at_a_replica()
    primary = bus.nodes[0]
    while primary.work.end_step():
        pass
    primary.post(*NEW[:10])
    primary.remove(*LIVE[:10])
    slice_by_slice(primary)
    while primary.work.end_step():
        pass
    primary.post(*NEW[10:])
    primary.partition.flush()
    return bus, replica


@pytest.mark.usefixtures("nothing_at_once")
def test_another_rollover_of_the_primary_waits_until_the_first_is_finished() -> None:
    bus, replica = twice()
    primary = bus.nodes[0]
    old = replica.stored.files
    kept = replica.partition.copy.rollovers.kept
    receive_all(bus, replica)
    assert replica.stored.files is old
    assert replica.partition.copy.rollovers.kept == kept
    # Messages between the rollovers can be read; later ones wait.
    assert replica.partition.read(b"queue", guid(NEW[5])) is not None
    assert replica.partition.read(b"queue", guid(NEW[15])) is None
    files = [old]
    slices = 0
    while replica.flush():
        slices += 1
        while bus.links[1, 0]:
            primary.receive(1, bus.links[1, 0].popleft())
        if replica.stored.files is not files[-1]:
            files.append(replica.stored.files)
        # Nothing is acknowledged before it is in files with which a next process goes on.
        assert not set(primary.acked) & (set(NEW[:10]) if len(files) == 1 else set())
        assert not set(primary.acked) & (set(NEW[10:]) if len(files) < 3 else set())
    assert len(files) == 3
    assert slices > 2 * len(LIVE) // AMOUNT
    bus.settle(1000)
    assert set(NEW) <= set(primary.acked)
    bus.check_equal()


def test_a_second_rollover_is_the_same_as_at_once() -> None:
    bus, _ = twice()
    whole = full(0)
    whole.nodes[0].stored.roll_over()
    whole.nodes[0].post(*NEW[:10])
    whole.nodes[0].remove(*LIVE[:10])
    whole.nodes[0].stored.roll_over()
    whole.nodes[0].post(*NEW[10:])
    for each in (bus, whole):
        each.settle()
        each.check_equal()
        assert each.states() == HEALED
    assert bus.nodes[1].files() == whole.nodes[1].files()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stopped", "link lost", "again primary", "another primary", "primary"])
def test_an_end_between_any_two_slices_loses_nothing(how: str) -> None:
    for end in range(0, 150, 12):
        bus, replica = twice()
        primary = bus.nodes[0]
        receive_all(bus, replica)
        for _ in range(end):
            replica.flush()
        while bus.links[1, 0]:
            primary.receive(1, bus.links[1, 0].popleft())
        acked = set(primary.acked)
        if how == "stopped":
            replica.partition.stop()
            replica.stored.close()
            del bus.nodes[1]
            for other in bus.nodes:
                bus._disconnect(1, other)
            bus.settle(1000)
            bus.restart(1)
            assert {guid(number) for number in NEW} <= set(bus.kept(1))
        elif how == "link lost":
            bus.part(1)
            bus.settle(1000)
            bus.join()
        else:
            interrupt(bus, how)
        check_replica(bus, acked, LIVE[:10], end)
        go_on(bus)


def test_the_second_is_finished_though_the_primary_dies_before_its_first_record_behind_it() -> None:
    bus, replica = twice()
    while not replica.partition.copy.rollovers.rolls_again:
        replica.receive(0, bus.links[0, 1].popleft())
    bus.kill(0)
    files = [replica.stored.files]
    while replica.flush():
        if replica.stored.files is not files[-1]:
            files.append(replica.stored.files)
    assert len(files) == 3
    assert not replica.partition.copy.rollovers.is_busy
    bus.assign(2)
    bus.settle(3000)
    bus.restart(0)
    go_on(bus)


def test_a_second_rollover_without_disk_comes_to_nothing_and_heals() -> None:
    bus, replica = twice()
    receive_all(bus, replica)
    first = replica.stored.files
    while replica.stored.files is first:
        replica.flush()
    free, replica.directory.free = replica.directory.free, 0
    bus.settle(1000)
    replica.directory.free = free
    bus.settle(5000)
    go_on(bus)


def test_too_much_that_waits_for_a_rollover_has_it_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_actions, "BUFFERED_MAX", 500)
    bus, replica = twice()
    old = replica.stored.files
    receive_all(bus, replica)
    bus.nodes[0].post(*range(200, 210))
    bus.nodes[0].partition.flush()
    receive_all(bus, replica)
    assert replica.stored.files is not old
    bus.settle()
    assert set(range(200, 210)) <= set(bus.nodes[0].acked)
    bus.check_equal()


# -- records are dropped while a replica finds where its messages are


def placing() -> tuple[Bus, Node]:
    """A replica goes on in new files, and has yet to find where its messages are in them."""
    bus, replica = at_a_replica()
    primary = bus.nodes[0]
    while primary.work.end_step():
        pass
    primary.post(*NEW)
    primary.partition.flush()
    receive_all(bus, replica)
    while replica.partition.copy.rollovers.is_rolling:
        replica.flush()
    return bus, replica


@pytest.mark.usefixtures("nothing_at_once")
@pytest.mark.parametrize("everything", [False, True])
def test_dropping_records_does_not_wait_until_messages_are_found(everything: bool) -> None:
    bus, replica = placing()
    primary = bus.nodes[0]
    names = {name for name in replica.directory.names() if name.endswith("journal")}
    assert len(names) == 2, "the old files are still there"
    end = primary.partition.position
    assert primary.partition.stream is not None
    primary.partition.stream.forget(1)
    primary.partition.drop_behind(
        1, NOWHERE if everything else RecordNumber(end.primary_lease_id, end.sequence_number - 5)
    )
    receive_all(bus, replica)
    assert names <= set(replica.directory.names())
    bus.settle(2000)
    assert bus.states() == HEALED
    bus.check_equal()
    assert sum(name.endswith("journal") for name in replica.directory.names()) == 1
    go_on(bus)


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True])
def test_a_replica_may_be_lost_again_while_it_gets_what_was_dropped(everything: bool) -> None:
    for end in range(0, 120, 7):
        bus, _ = placing()
        primary = bus.nodes[0]
        last = primary.partition.position
        assert primary.partition.stream is not None
        primary.partition.stream.forget(1)
        primary.partition.drop_behind(
            1, NOWHERE if everything else RecordNumber(last.primary_lease_id, last.sequence_number - 5)
        )
        for _ in range(end):
            bus.step()
        bus.part(1)
        for _ in range(end // 3):
            bus.step()
        bus.join()
        bus.settle(3000)
        go_on(bus)


@pytest.mark.usefixtures("nothing_at_once")
def test_a_rollover_that_came_to_nothing_is_looked_through_while_all_is_received_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus, replica = at_a_replica()
    primary = bus.nodes[0]
    while primary.work.end_step():
        pass
    primary.post(*NEW)
    primary.partition.flush()
    receive_all(bus, replica)
    monkeypatch.setattr(CopyRollover, "check", lambda self: False)
    bus.settle(3000)
    go_on(bus)
    assert replica.partition.state is State.REPLICA_HEALED


# -- records that were put aside


def put_aside() -> tuple[Bus, Node]:
    """A replica receives live records before it is healed, as another primary may send them."""
    bus = full()
    primary, replica = bus.nodes[0], bus.nodes[1]
    bus.part(1)
    primary.post(*NEW[:5])
    bus.settle()
    bus.join()
    heals: list[bytes] = []
    link = bus.links[0, 1]
    for number in (*([None] * 20), *range(200, 260)):
        if number is not None:
            primary.post(number)
        primary.flush()
        while link:
            event = link.popleft()
            if type_of(event) == EventType.PARTITION_SYNC:
                heals.append(event)
            else:
                replica.receive(0, event)
        while bus.links[1, 0]:
            primary.receive(1, bus.links[1, 0].popleft())
    assert heals
    assert replica.partition.state is State.REPLICA_HEALING
    for event in heals:
        replica.receive(0, event)
    return bus, replica


def test_records_put_aside_are_written_in_slices_and_in_order() -> None:
    bus, replica = put_aside()
    primary = bus.nodes[0]
    ends = [replica.partition.position]
    slices = 0
    while ends[-1] < primary.partition.position:
        primary.post(300 + slices)
        primary.partition.flush()
        receive_all(bus, replica)
        replica.flush()
        ends.append(replica.partition.position)
        slices += 1
        assert slices < 200
        if slices == 10:
            assert ends[-1] < primary.partition.position
        if slices > 10:
            break
    steps = [after.sequence_number - before.sequence_number for before, after in pairwise(ends)]
    assert max(steps) <= 20
    bus.settle()
    assert bus.states() == HEALED
    bus.check_equal()
    assert set(range(200, 260)) <= set(primary.acked)


@pytest.mark.parametrize("how", ["stopped", "garbage", "primary"])
def test_records_put_aside_are_not_lost_between_slices(how: str) -> None:
    bus, replica = put_aside()
    assert replica.partition.position < bus.nodes[0].partition.position
    if how == "stopped":
        replica.partition.stop()
        replica.stored.close()
        del bus.nodes[1]
        for other in bus.nodes:
            bus._disconnect(1, other)
        bus.settle()
        bus.restart(1)
        assert {guid(number) for number in range(200, 260)} <= set(bus.kept(1))
    elif how == "garbage":
        replica.partition._buffered.appendleft(memoryview(b"\xff" * 100))
    else:
        bus.assign(1)
    bus.settle(3000)
    go_on(bus)
    assert {guid(number) for number in range(200, 260)} <= set(bus.kept(1))


def test_where_there_are_no_slices_a_replica_rolls_over_twice_at_once() -> None:
    bus = full(0)
    for _ in range(2):
        bus.nodes[0].stored.roll_over()
        bus.nodes[0].post(*NEW)
        bus.nodes[0].remove(*NEW)
    bus.settle()
    bus.check_equal()
