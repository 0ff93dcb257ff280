"""A rollover in slices, and what may happen between two of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.core.work import SLICE
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from tests.broker.bmq.queue.posting import FANOUT, QUEUE, numbers, payload, post, producing, reading
from tests.broker.bmq.queue.test_upkeep import changed, check
from tests.broker.bmq.rig import ACK, APPS, READ, WRITE, Client, Rig, guid, start
from tests.broker.fakes import Crash, MemoryDirectory
from tests.families import examples

AMOUNT = 4
ROOM = PartitionLimits(journal=96 << 10, data=64 << 10, qlist=8 << 10)
MANY = 60


def begun(amount: int = AMOUNT, limits: PartitionLimits = ROOM, count: int = MANY) -> tuple[Rig, Client, Client]:
    """A node with much in a queue, some of it done with by one app, and clients that post and read."""
    rig = start(limits=limits)
    rig.node.work.amount = rig.node.work.left = SLICE
    producer, consumer = producing(rig, FANOUT), reading(rig, FANOUT, "foo")
    post(producer, *range(count))
    consumer.confirm(1, *map(guid, range(0, count, 3)), sub_id=1)
    others = [reading(rig, FANOUT, app) for app in ("bar", "baz")]
    for other in others:
        other.confirm(1, *map(guid, range(0, count, 6)), sub_id=1)
        rig.node.disconnect(other.session, "gone")
    numbers(consumer)
    rig.node.work.finish()
    rig.node.work.amount = rig.node.work.left = amount
    return rig, producer, consumer


def partition(rig: Rig) -> StoredPartition:
    return rig.node.partitions[0]


def sets(rig: Rig) -> int:
    """Count the file sets."""
    return sum(name.endswith(".bmq_journal") for name in rig.directory.names())


def slice_by_slice(rig: Rig, between: Callable[[int], object] = lambda step: None) -> int:
    """Roll over; between two slices something else happens. How many slices it took."""
    partition(rig).roll_over()
    step = 0
    while rig.node.end_step()[0]:
        between(step)
        step += 1
    return step


def kept(rig: Rig) -> dict[bytes, tuple[frozenset[str], bytes]]:
    """Collect the apps that want each message of the fanout queue, and its payload."""
    queue = rig.node.queues[FANOUT]
    return {
        key: (
            frozenset(app.app_id for app in queue.apps.values() if message.outstanding & app.bit),
            bytes(queue.log.read(message)),
        )
        for key, message in queue.messages.items()
    }


def check_all(rig: Rig, before: dict[bytes, tuple[frozenset[str], bytes]] | None = None) -> None:
    here = kept(rig)
    assert before is None or here == before
    assert kept(rig.restart()) == here
    check(rig)


def test_it_carries_over_the_same_bytes_as_at_once() -> None:
    (sliced, *_), (whole, *_) = begun(), begun(SLICE)
    before = kept(sliced)
    assert slice_by_slice(sliced) > 5
    partition(whole).roll_over()
    assert sets(sliced) == sets(whole) == 1
    for one, other in zip(
        (partition(sliced).files.journal, partition(sliced).files.data, partition(sliced).files.qlist),
        (partition(whole).files.journal, partition(whole).files.data, partition(whole).files.qlist),
        strict=True,
    ):
        assert one.name == other.name
        assert bytes(one.buffer) == bytes(other.buffer)
    check_all(sliced, before)


def test_removals_of_single_apps_are_carried_over() -> None:
    rig, *_ = begun()
    queue = rig.node.queues[FANOUT]
    purge_app(queue, queue.apps["bar"])
    rig.node.work.finish()
    before = kept(rig)
    assert not any("bar" in wanting for wanting, _ in before.values())
    assert slice_by_slice(rig) > 5
    check_all(rig, before)


def test_no_slice_carries_over_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, *_ = begun()
    carried: list[int] = []

    def look(step: int) -> None:
        found = [name for name in rig.directory.names() if name.endswith(".bmq_journal")]
        if len(found) > 1:
            data = rig.directory.files[max(found)].data
            carried.append(sum(any(data[at : at + 60]) for at in range(44, len(data), 60)))

    slice_by_slice(rig, look)
    assert len(carried) > 5
    assert all(later - earlier <= 4 * AMOUNT for earlier, later in pairwise(carried))


def test_posts_and_confirms_go_on_meanwhile() -> None:
    rig, producer, consumer = begun()
    numbers(consumer)

    def between(step: int) -> None:
        post(producer, 1000 + step)
        assert numbers(consumer) == [1000 + step]
        consumer.confirm(1, guid(1000 + step), guid(1 + step), sub_id=1)
        between_sets = kept(rig)
        assert kept(rig.restart()) == between_sets

    assert slice_by_slice(rig, between) > 5
    assert sets(rig) == 1
    check_all(rig)
    late = reading(rig, FANOUT, "bar")
    rig.node.work.finish()
    assert numbers(late) == sorted(numbers_of(rig, "bar"))
    # And once more, at once.
    rig.node.work.amount = rig.node.work.left = SLICE
    partition(rig).roll_over()
    check_all(rig)


def numbers_of(rig: Rig, app: str) -> list[int]:
    return [int(data) for apps, data in kept(rig).values() if app in apps]


def test_payloads_are_found_wherever_they_are() -> None:
    rig, *_ = begun()
    before = kept(rig)
    slice_by_slice(rig, lambda step: (kept(rig) == before) or pytest.fail("a payload is another"))


def test_redelivery_between_slices_is_in_order() -> None:
    rig, *_ = begun()
    bar = reading(rig, FANOUT, "bar")
    rig.node.work.finish()
    expected = numbers(bar)

    def between(step: int) -> None:
        nonlocal bar
        if step > 20:
            return
        rig.node.disconnect(bar.session, "gone")
        bar = reading(rig, FANOUT, "bar")

    slice_by_slice(rig, between)
    rig.node.work.finish()
    assert numbers(bar) == expected


# Events that may happen between two slices.
actions = st.lists(
    st.tuples(
        st.sampled_from(
            ("post", "post", "foo", "bar", "baz", "foo", "bar", "baz", "purge", "purge bar", "app", "queue", "tick")
        ),
        st.integers(0, MANY + 40),
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(actions, st.integers(1, 6), st.integers(0, 40))
def test_rollover_with_any_events_between_its_slices(
    actions: list[tuple[str, int]], amount: int, crash_at: int
) -> None:
    rig, producer, _ = begun(amount, count=30)
    readers = {app: reading(rig, FANOUT, app) for app in APPS}
    later = iter(range(1000, 2000))
    other_id = iter(range(2, 1000))
    pending = list(actions)

    def act(kind: str, number: int) -> None:
        queue = rig.node.queues[FANOUT]
        if kind == "post":
            assert producer.post(1, guid(next(later)), payload(number)) is AckStatus.SUCCESS
        elif kind in readers and queue.messages:
            readers[kind].confirm(1, list(queue.messages)[number % len(queue.messages)], sub_id=1)
        elif kind == "purge":
            purge(queue)
        elif kind == "purge bar":
            purge_app(queue, queue.apps["bar"])
        elif kind == "app":
            changed(rig, *(APPS if number % 2 else APPS[:2]), name="fanout")
        elif kind == "queue":
            client = rig.connect()
            uri = f"bmq://priority/{number % 3}"
            queue_id = next(other_id)
            client.open(queue_id, uri, WRITE | ACK)
            client.post(queue_id, guid(next(later)), b"x")
            purge(rig.node.queues[uri])
            if number % 2:
                rig.node.disconnect(client.session, "gone")
                if rig.node.queues[uri].is_idle:
                    rig.node.role.take_away(rig.node.queues[uri])
        elif kind == "tick":
            partition(rig).tick()

    def between(step: int) -> None:
        for _ in range(2):
            if pending:
                act(*pending.pop())
        if step == crash_at:
            assert kept(rig.restart()) == {key: value for key, value in kept(rig).items() if value[0]}

    slice_by_slice(rig, between)
    rig.node.work.finish()
    assert sets(rig) == 1
    check_all(rig)
    while pending:
        act(*pending.pop())
    rig.node.work.finish()
    partition(rig).roll_over()
    rig.node.work.finish()
    check_all(rig)


@pytest.mark.parametrize("outlives_power", [False, True])
def test_a_crash_at_any_call_loses_nothing(outlives_power: bool) -> None:
    for steps in range(1000):
        rig = start(limits=ROOM, outlives_power=outlives_power)
        producer = producing(rig, FANOUT)
        post(producer, *range(12))
        rig.node.work.amount = rig.node.work.left = 2
        before = kept(rig)
        rig.directory.steps_left = steps
        try:
            partition(rig).roll_over()
            rig.node.work.finish()
        except Crash:
            directory = rig.directory.after_crash()
            assert kept(rig.restart(directory)) == before
            continue
        assert sets(rig) == 1
        return
    pytest.fail("it never comes to an end")


def test_a_power_failure_at_any_flush_loses_nothing() -> None:
    for flushes in range(1000):
        rig = start(limits=ROOM, outlives_power=True)
        post(producing(rig, FANOUT), *range(12))
        rig.node.work.amount = rig.node.work.left = 2
        for file in (partition(rig).files.data, partition(rig).files.qlist, partition(rig).files.journal):
            file.flush()
        before = kept(rig)
        ledger = {name: bytes(each.data) for name, each in rig.directory.files.items() if name.endswith("csl")}
        rig.directory.platter |= ledger
        rig.directory.flushes_left = flushes
        try:
            partition(rig).roll_over()
            rig.node.work.finish()
        except Crash:
            left = rig.directory.after_crash()
            for name, content in left.files.items():
                platter = rig.directory.platter.get(name, b"")
                content.data[:] = platter.ljust(len(content.data), b"\0")
            assert kept(rig.restart(left)) == before
            continue
        return
    pytest.fail("it never comes to an end")


@pytest.mark.slow
def test_it_begins_before_a_file_is_full_and_refuses_nothing() -> None:
    limits = PartitionLimits(journal=24 << 10, data=1 << 20, qlist=4096)
    rig = start(limits=limits)
    rig.node.work.amount = rig.node.work.left = AMOUNT
    producer, consumer = producing(rig), reading(rig)
    post(producer, *range(40))
    rig.node.work.finish()
    held = set(map(guid, range(40)))
    for number in range(40, 2000):
        post(producer, number)
        rig.node.end_step()
        consumer.confirm(1, guid(number))
        rig.node.end_step()
        numbers(consumer)
    assert set(rig.node.queues[QUEUE].messages) == held
    assert len(rig.directory.archived) > 3
    rig.node.work.finish()
    check(rig)


def test_a_file_that_is_full_before_it_ends_has_the_rest_done_at_once() -> None:
    limits = PartitionLimits(journal=24 << 10, data=1 << 20, qlist=4096)
    rig = start(limits=limits)
    rig.node.work.amount = rig.node.work.left = AMOUNT
    producer, consumer = producing(rig), reading(rig)
    for number in range(1000):
        post(producer, number)
        if number > 30:
            consumer.confirm(1, guid(number))
    assert set(rig.node.queues[QUEUE].messages) == set(map(guid, range(31)))
    assert rig.directory.archived
    rig.node.work.finish()
    check(rig)


@pytest.mark.parametrize("slices", range(1, 40, 4))
def test_its_task_ends_when_somebody_else_has_ended_it(slices: int) -> None:
    limits = PartitionLimits(journal=24 << 10, data=1 << 20, qlist=4096)
    rig = start(limits=limits)
    rig.node.work.amount = rig.node.work.left = AMOUNT
    producer, consumer = producing(rig), reading(rig)
    post(producer, *range(31))
    partition(rig).roll_over()
    for _ in range(slices):
        rig.node.end_step()
    for number in range(31, 300):
        post(producer, number)
        consumer.confirm(1, guid(number))
    rig.node.work.finish()
    assert rig.directory.archived
    assert sets(rig) == 1
    check(rig)


def test_too_much_alive_is_not_looked_at_again_and_again() -> None:
    limits = PartitionLimits(journal=1 << 20, data=8 << 10, qlist=4096)
    rig = start(limits=limits)
    rig.node.work.amount = rig.node.work.left = AMOUNT
    producer, consumer = producing(rig), reading(rig)
    number = 0
    while producer.post(1, guid(number), b"x" * 40) is AckStatus.SUCCESS:
        rig.node.end_step()
        number += 1
    assert number > 100
    rig.node.work.finish()
    assert sets(rig) == 1
    calls = rig.directory.steps_left
    for _ in range(3):
        rig.wait(1000)
        assert producer.post(1, guid(number), b"x") is AckStatus.STORAGE_FAILURE
    assert calls - rig.directory.steps_left < 20
    consumer.confirm(1, *map(guid, range(number // 2)))
    rig.wait(1000)
    assert producer.post(1, guid(number + 1), b"x") is AckStatus.SUCCESS
    rig.node.work.finish()
    check(rig)


def test_a_full_disk_ends_it_and_nothing_else() -> None:
    rig, producer, _ = begun()
    before = kept(rig)
    rig.directory.free = 2000
    slice_by_slice(rig)
    assert sets(rig) == 1
    assert not rig.directory.archived
    rig.directory.free = 1 << 30
    check_all(rig, before)
    post(producer, 5000)
    assert slice_by_slice(rig) > 5
    assert rig.directory.archived
    check_all(rig)


def test_a_queue_that_is_made_has_disk_in_the_old_files_too() -> None:
    """A disk that fills up before the new files are whole: the old ones get the queue's records after all."""
    rig, *_ = begun()
    partition(rig).kept.is_copied = True
    client = rig.connect()

    def between(step: int) -> None:
        if partition(rig).rollovers.is_copying and "bmq://priority/new" not in rig.node.queues:
            client.open(3, "bmq://priority/new", WRITE | ACK)
            rig.directory.free = 0

    slice_by_slice(rig, between)
    assert "bmq://priority/new" in rig.node.queues
    assert sets(rig) == 1
    old = partition(rig).files
    assert old.journal_end <= old.journal.granted
    assert old.qlist_end <= old.qlist.granted
    assert set(rig.restart().node.queues) == {FANOUT, "bmq://priority/new"}


@pytest.mark.parametrize("steps", [1, 5, 50])
def test_a_stop_in_its_midst_leaves_one_set(steps: int) -> None:
    rig, *_ = begun()
    before = kept(rig)
    partition(rig).roll_over()
    for _ in range(steps):
        rig.node.end_step()
    rig.stop()
    assert sets(rig) == 1
    again = start(rig.directory, domains=rig.domains, limits=ROOM)
    assert kept(again) == before
    assert not again.faults()


def test_a_queue_that_is_made_and_one_that_goes_meanwhile() -> None:
    rig, *_ = begun()
    client = rig.connect()
    client.open(2, QUEUE, WRITE | READ | ACK)

    def between(step: int) -> None:
        if step == 1:
            client.open(3, "bmq://priority/new", WRITE | ACK)
            assert client.post(3, guid(5000), b"new") is AckStatus.SUCCESS
        if step == 3:
            rig.node.disconnect(client.session, "gone")
            rig.node.role.take_away(rig.node.queues[QUEUE])

    slice_by_slice(rig, between)
    again = rig.restart().node
    assert set(again.queues) == {FANOUT, "bmq://priority/new"}
    assert list(again.queues["bmq://priority/new"].messages) == [guid(5000)]
    check_all(rig)


def test_files_in_memory_alone_stay_as_they_are() -> None:
    directory = MemoryDirectory()
    rig = start(directory, limits=ROOM)
    partition(rig).roll_over()
    assert sets(rig) == 1
