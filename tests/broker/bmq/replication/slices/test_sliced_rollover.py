"""A rollover in slices of a partition that has copies, and what may happen between two of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count
from random import Random

import pytest

from broker.bmq.core.messages import Full
from broker.bmq.partition import waiting_posts
from broker.bmq.replication.copying.copy_records import OutOfStep
from broker.bmq.replication.partition_table import State
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from formats.bmq.codes import StorageMessageType
from formats.bmq.disk import journal_packing
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ConfirmReason
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.wire.storage import append_storage
from tests.broker.bmq.replication.partition_bus import KEY, Bus, Node
from tests.broker.bmq.rig import guid
from tests.broker.fakes import Crash, MemoryDirectory
from tests.simulator.machines.disk import Disk

LIMITS = PartitionLimits(journal=32 << 10, data=64 << 10, qlist=4 << 10)
HEALED = [State.PRIMARY_HEALED, State.REPLICA_HEALED, State.REPLICA_HEALED]
LIVE = range(60)
AMOUNT = 1
SLICES_MAX = 2000


def full(amount: int = AMOUNT, limits: PartitionLimits = LIMITS, *, outlives_power: bool = False) -> Bus:
    """A partition with much alive, and much that is not."""
    bus = Bus(limits=limits, amount=amount, outlives_power=outlives_power)
    bus.assign(0)
    bus.settle()
    for number in LIVE:
        bus.nodes[0].post(number)
        bus.nodes[0].post(1000 + number)
        bus.nodes[0].remove(1000 + number)
        bus.settle()
    assert bus.states() == HEALED
    return bus


def slice_by_slice(node: Node, between: Callable[[int], object] = lambda step: None) -> int:
    """Let a primary roll over until its new files are in use, without the others; how many slices that took."""
    before = node.stored.files
    node.stored.roll_over()
    steps = 0
    while node.stored.files is before and node.work.end_step():
        between(steps)
        steps += 1
        assert steps < SLICES_MAX
    return steps


def test_it_is_the_same_as_at_once() -> None:
    sliced, whole = full(), full(0)
    assert slice_by_slice(sliced.nodes[0]) > 10
    whole.nodes[0].stored.roll_over()
    for bus in (sliced, whole):
        bus.settle()
        bus.check_equal()
    assert sliced.nodes[0].files() == whole.nodes[0].files()


def test_posts_wait_and_come_in_their_order() -> None:
    bus = full()
    primary = bus.nodes[0]
    old = primary.stored.files
    ends: set[int] = set()

    def between(step: int) -> None:
        primary.post(100 + step)
        ends.add(old.journal_end)

    count = slice_by_slice(primary, between)
    # But for the record that ends them, nothing was added to the old files, and nothing was taken in before the new.
    assert len(ends) <= 2
    assert primary.posted[-1] < 100 or primary.stored.files is not old
    bus.settle()
    assert [number for number in primary.acked if 100 <= number < 1000] == list(range(100, 100 + count))
    assert bus.states() == HEALED
    bus.check_equal()


def test_messages_removed_during_a_rollover_stay_removed() -> None:
    bus = full()
    primary = bus.nodes[0]
    removed: list[int] = []

    def between(step: int) -> None:
        if step < len(LIVE):
            number = LIVE[step * 7 % len(LIVE)]
            primary.remove(number)
            removed.append(number)

    assert slice_by_slice(primary, between) > 10
    bus.settle()
    assert bus.states() == HEALED
    bus.check_equal()
    left = {guid(number) for number in LIVE if number not in removed}
    assert removed
    for node_id in bus.nodes:
        assert set(bus.kept(node_id)) == left
    assert set(primary.store) == left


def test_a_queue_that_is_made_meanwhile_is_there() -> None:
    bus = full()
    primary = bus.nodes[0]
    made: list[bytes] = []

    def between(step: int) -> None:
        if step in (2, 3, 5):
            key = b"made%d" % step
            made.append(key)
            primary.stored.append_queue(f"bmq://priority/made{step}", key, [("__default", b"\0" * 5)])
            primary.stored.register(key, {})

    slice_by_slice(primary, between)
    bus.settle()
    assert bus.states() == HEALED
    bus.check_equal()
    recovered = bus.nodes[1].partition.copy.recover()
    assert set(recovered.queues) == {KEY, *made}
    assert {queue.uri for queue in recovered.queues.values()} == {
        "bmq://priority/q",
        *(f"bmq://priority/made{step}" for step in (2, 3, 5)),
    }


def count_slices() -> int:
    return slice_by_slice(full().nodes[0])


def go_on(bus: Bus) -> None:
    """All nodes are there again, and take what is posted."""
    bus.settle(3000)
    assert sorted(state.name for state in bus.states()) == sorted(state.name for state in HEALED)
    (primary,) = [node for node in bus.nodes.values() if node.serving]
    primary.post(*range(5000, 5010))
    bus.settle(1000)
    assert primary.acked[-10:] == list(range(5000, 5010))
    bus.check_equal()


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_end_between_any_two_slices_loses_nothing(is_killed: bool) -> None:
    """The primary is killed, or another node is given the next lease."""
    for end in range(0, count_slices(), 3):
        bus = full()
        primary = bus.nodes[0]
        primary.stored.roll_over()
        for step in range(end):
            assert primary.work.end_step()
            primary.post(100 + step)
            primary.remove(LIVE[step % len(LIVE)]) if step < len(LIVE) else None
        acked, removed = set(primary.acked), end
        if is_killed:
            bus.kill(0)
            bus.assign(1)
            bus.settle(1000)
            bus.restart(0)
        else:
            bus.assign(1)
        bus.settle(3000)
        kept = set(bus.kept(1))
        gone = {guid(number) for number in LIVE[:removed]}
        for number in acked:
            if number < 1000:
                assert guid(number) in kept or guid(number) in gone, (end, number)
        assert all(guid(number) in kept for number in LIVE[removed:])
        go_on(bus)


def test_without_disk_it_comes_to_nothing_and_posts_are_refused() -> None:
    bus = full()
    primary = bus.nodes[0]
    stored = primary.stored
    stored.files.journal.reserve(LIMITS.journal)
    stored.files.data.reserve(LIMITS.data)
    before = stored.files
    stored.roll_over()
    for _ in range(8):
        assert primary.work.end_step()
    primary.directory.free = 0
    primary.post(100)
    primary.remove(*LIVE[:10])
    bus.settle()
    assert stored.files is before
    assert [primary.refused, primary.acked[-1:]] in ([[100], [1059]], [[], [100]])
    assert not set(bus.kept(1)) & {guid(number) for number in LIVE[:10]}
    bus.check_equal()


def test_a_rollover_that_frees_too_little_is_given_up() -> None:
    bus = full(limits=PartitionLimits(journal=16 << 10, data=64 << 10, qlist=4 << 10))
    primary = bus.nodes[0]
    number = 100
    while not primary.refused:
        primary.post(number)
        bus.settle()
        number += 1
        assert number < 1000
    assert set(primary.acked) >= set(range(100, number - 1))
    assert bus.states() == HEALED
    primary.remove(*LIVE)
    bus.now.ms += 1000
    primary.stored.tick()
    primary.post(900)
    bus.settle()
    assert primary.acked[-1] == 900
    bus.check_equal()


def test_too_many_posts_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_posts, "WAITING_BYTES_MAX", 4000)
    bus = full()
    primary = bus.nodes[0]
    primary.stored.roll_over()
    posted: list[int] = []

    def post_many() -> None:
        for number in range(100, 900):
            primary.post(number)
            posted.append(number)

    with pytest.raises(Full, match="too many posts are waiting"):
        post_many()
    assert len(posted) > 10
    bus.settle()
    assert [number for number in primary.acked if 100 <= number < 1000] == posted


# -- at a replica


def at_a_replica(amount: int = AMOUNT, *, outlives_power: bool = False) -> tuple[Bus, Node]:
    """A partition whose primary has just rolled over; its replicas know, and have done one slice at most."""
    bus = full(amount, outlives_power=outlives_power)
    primary, replica = bus.nodes[0], bus.nodes[1]
    slice_by_slice(primary)
    primary.partition.flush()
    while not replica.partition.copy.rollovers.is_rolling:
        replica.receive(0, bus.links[0, 1].popleft())
    return bus, replica


def has(replica: Node, number: int) -> bool:
    content = replica.partition.read(KEY, guid(number))
    return content is not None and bytes(content.data).startswith(b"message %d " % number)


@pytest.mark.parametrize("count", [1, 2, 64])
def test_a_replica_takes_no_record_for_the_header_of_its_new_files(count: int) -> None:
    """The header's place: the first record after a rollover tells where the records begin."""
    _, replica = at_a_replica()
    copy = replica.partition.copy
    lease_id, number = copy.records.position
    body = bytearray()
    for each in range(count):
        record = bytearray(JOURNAL_RECORD_SIZE)
        head = record, 0, lease_id, number + 1 + each, 0
        journal_packing.pack_confirm(*head, ConfirmReason.CONFIRMED, KEY, NULL_KEY, guid(each))
        append_storage(body, StorageMessageType.CONFIRM, 0, each * JOURNAL_RECORD_SIZE // 4, record)
    with pytest.raises(OutOfStep, match="a record for 0 cannot be the first after a rollover"):
        copy.write_all(memoryview(body), 0, len(body))
    assert copy.records.position == RecordNumber(lease_id, number)


def test_a_replica_acknowledges_nothing_before_it_is_over() -> None:
    bus, replica = at_a_replica()
    primary = bus.nodes[0]
    kept = replica.partition.copy.rollovers.kept
    primary.post(*range(100, 110))
    primary.partition.flush()
    bus.links[0, 2].clear()
    slices = 0
    while replica.partition.copy.rollovers.is_rolling:
        while bus.links[0, 1]:
            replica.receive(0, bus.links[0, 1].popleft())
        while bus.links[1, 0]:
            primary.receive(1, bus.links[1, 0].popleft())
        assert not any(100 <= number < 1000 for number in primary.acked)
        assert replica.partition.copy.rollovers.kept == kept
        # Messages from before the rollover and during it can be read.
        assert has(replica, 105)
        assert has(replica, LIVE[7])
        replica.flush()
        slices += 1
    assert slices > 10
    bus.settle()
    assert set(range(100, 110)) <= set(primary.acked)


def replica_slices() -> int:
    _, replica = at_a_replica()
    slices = 0
    while replica.work.end_step():
        slices += 1
    return slices


def interrupt(bus: Bus, how: str) -> None:
    """Kill node 1, a replica, or have node 0 get another lease, or node 1 or 2 become primary."""
    match how:
        case "killed":
            bus.kill(1)
            bus.settle(1000)
            bus.restart(1)
        case "primary":
            bus.kill(0)
            bus.assign(1)
            bus.settle(2000)
            bus.restart(0)
        case "again primary":
            bus.assign(0)
        case "another primary":
            bus.assign(2)
        case _:
            raise AssertionError(how)


def check_replica(bus: Bus, acked: Collection[int], removed: Collection[int], when: int) -> None:
    """Assert that node 1 comes to have what was acknowledged, and what was there, except for what was removed."""
    bus.settle(3000)
    kept = set(bus.kept(1))
    for number in acked:
        assert guid(number) in kept or number in removed or number >= 1000, (when, number)
    assert {guid(number) for number in LIVE if number not in removed} <= kept


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "again primary", "another primary", "primary"])
def test_a_replica_is_whole_whatever_happens_between_two_slices(how: str) -> None:
    """A replica that is killed, that becomes primary, or whose primary gets another lease or is replaced."""
    for end in range(0, replica_slices() + 8, 5):
        bus, _ = at_a_replica()
        primary = bus.nodes[0]
        primary.post(*range(100, 104))
        primary.remove(*LIVE[:5])
        primary.partition.flush()
        for _ in range(end):
            for target in (1, 2):
                if bus.links[0, target]:
                    bus.nodes[target].receive(0, bus.links[0, target].popleft())
                bus.nodes[target].flush()
        while bus.links[1, 0]:
            primary.receive(1, bus.links[1, 0].popleft())
        acked = set(primary.acked)
        interrupt(bus, how)
        check_replica(bus, acked, LIVE[:5], end)
        go_on(bus)


def power_lost(directory: MemoryDirectory, in_use: PartitionFiles, seed: int) -> MemoryDirectory:
    """The folder as a power failure leaves it: all of the files in use, and any sectors of those in the making."""
    disk = Disk(Random(seed), directory.after_crash())
    prefix = in_use.journal.name.removesuffix("journal")
    for name, content in disk.directory.files.items():
        if name.startswith(prefix):
            disk.directory.platter[name] = bytes(content.data)
    disk.power_lost()
    return disk.directory


def check_start(bus: Bus, node_id: int, directory: MemoryDirectory, kept: set[bytes]) -> None:
    """The node starts with that disk, alone, and has what it had; no files are left that nobody uses."""
    if node_id in bus.nodes:
        bus.kill(node_id)
    bus.disks[node_id] = directory
    bus.start(node_id)
    names = directory.names()
    assert not [name for name in names if name.endswith(".damaged")]
    assert kept <= set(bus.kept(node_id))
    assert sum(name.endswith("journal") for name in names) == 1


@pytest.mark.slow
@pytest.mark.parametrize("loses_power", [False, True])
def test_a_replica_that_dies_between_two_slices_starts_with_its_old_files_or_its_new(loses_power: bool) -> None:
    """A death or a loss of power after each step of a rollover and of what follows it."""
    bus, replica = at_a_replica(outlives_power=loses_power)
    primary = bus.nodes[0]
    disks = []
    for step in range(replica_slices() + 8):
        primary.post(100 + step)
        primary.partition.flush()
        while bus.links[0, 1]:
            replica.receive(0, bus.links[0, 1].popleft())
        disk = replica.directory.after_crash()
        disks.append(power_lost(disk, replica.stored.files, step) if loses_power else disk)
        replica.flush()
    assert not replica.partition.copy.rollovers.is_rolling
    for disk in disks:
        check_start(bus, 1, disk, {guid(number) for number in LIVE})


def dies_at_flush(primary: Node, flushes: int) -> bool:
    """Return whether a primary that rolls over, and removes messages meanwhile, dies at that of its flushes."""
    primary.directory.flushes_left = flushes
    try:
        slice_by_slice(primary, lambda step: primary.remove(step) if step in LIVE[:10] else None)
    except Crash:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("loses_power", [False, True])
def test_a_primary_that_dies_while_its_new_files_are_flushed_starts_with_its_old_or_its_new(loses_power: bool) -> None:
    """A death at each flush of new files by a primary that holds records of removals back."""
    for flushes in count():
        bus = full(outlives_power=True)
        primary, old = bus.nodes[0], bus.nodes[0].stored.files
        old.flush()
        primary.directory.flush()
        if not dies_at_flush(primary, flushes):
            break
        disk = power_lost(primary.directory, old, flushes) if loses_power else primary.directory.after_crash()
        check_start(bus, 0, disk, {guid(number) for number in LIVE[10:]})
    assert flushes > 10


def test_another_rollover_of_the_primary_waits_for_nothing() -> None:
    """The primary is through with two before the replica is through with one."""
    bus, _ = at_a_replica()
    primary = bus.nodes[0]
    while primary.work.end_step():
        pass
    primary.post(*range(100, 110))
    primary.remove(*LIVE[:10])
    slice_by_slice(primary)
    primary.post(*range(110, 120))
    bus.settle()
    assert bus.states() == HEALED
    bus.check_equal()
    assert set(range(100, 120)) <= set(primary.acked)


def test_without_disk_a_replica_heals_when_there_is_some() -> None:
    bus, replica = at_a_replica()
    files = replica.stored.files
    assert files.journal.reserve(LIMITS.journal)
    free, replica.directory.free = replica.directory.free, 0
    bus.settle(1000)
    assert replica.stored.files is files
    replica.directory.free = free
    bus.settle(3000)
    go_on(bus)


def test_a_replica_that_stops_keeps_what_came_behind_the_rollover() -> None:
    for slices in (0, 3, 40):
        bus, replica = at_a_replica()
        primary = bus.nodes[0]
        primary.post(*range(100, 104))
        primary.partition.flush()
        while bus.links[0, 1]:
            replica.receive(0, bus.links[0, 1].popleft())
        for _ in range(slices):
            replica.flush()
        replica.partition.stop()
        replica.stored.close()
        del bus.nodes[1]
        bus.settle()
        again = bus.start(1)
        assert {guid(number) for number in range(100, 104)} <= set(bus.kept(1))
        assert sum(name.endswith("journal") for name in again.directory.names()) == 1
