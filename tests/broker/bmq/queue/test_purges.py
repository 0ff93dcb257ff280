"""Purges take effect at once, and what they leave over is cleared away in slices."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.core.messages import Full
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.upkeep import expire
from broker.bmq.store.finding import ROWS, find_message
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from formats.bmq.disk import journal
from tests.broker.bmq.queue.posting import FANOUT, QUEUE, numbers, payload, post, producing, reading
from tests.broker.bmq.queue.test_upkeep import changed, check, with_ttl
from tests.broker.bmq.rig import APPS, READ, Rig, guid, start
from tests.simulator.judges.invariants import check_queue

AMOUNT = 3
ROOM = PartitionLimits(journal=128 << 10, data=64 << 10, qlist=8 << 10)
MANY = 200


def slicing(rig: Rig) -> Rig:
    rig.node.work.amount = rig.node.work.left = AMOUNT
    return rig


def filled(uri: str = FANOUT, *read: str, count: int = MANY) -> tuple[Rig, Queue]:
    """A node that does little at once, and a queue with much."""
    rig = slicing(start(limits=ROOM))
    producer = producing(rig, uri)
    for app in read:
        reading(rig, uri, app)
    post(producer, *range(count))
    rig.node.work.finish()
    return rig, rig.node.queues[uri]


def steps(rig: Rig) -> int:
    count = 1
    while any(rig.node.end_step()):
        for queue in rig.node.queues.values():
            check_queue(queue)
        count += 1
    return count


# -- all of a queue


def test_a_purged_queue_is_empty_at_once(caplog: pytest.LogCaptureFixture) -> None:
    rig, queue = filled(QUEUE)
    consumer = reading(rig, QUEUE, messages_max=2)
    producer = producing(rig)
    assert numbers(consumer) == [0, 1]
    assert purge(queue) == (MANY, sum(len(payload(number)) for number in range(MANY)))
    assert (len(queue.messages), queue.bytes, rig.node.partitions[0].records.due) == (0, 0, 0)
    assert not rig.restart().node.queues[QUEUE].messages
    # It has room, and knows what was there.
    assert producer.post(1, guid(5), payload(5)) is AckStatus.SUCCESS
    assert not queue.messages
    post(producer, MANY)
    assert numbers(consumer) == [MANY]
    assert steps(rig) > 1
    assert producer.post(1, guid(7), payload(7)) is AckStatus.SUCCESS
    assert set(queue.messages) == {guid(MANY)}
    consumer.confirm(1, guid(0), guid(MANY))
    assert not queue.messages
    assert queue.history.size == MANY + 1
    check(rig)


def test_a_queue_that_was_purged_can_go_before_all_is_cleared_away() -> None:
    rig, queue = filled(QUEUE)
    for session in list(rig.node.sessions.values()):
        rig.node.disconnect(session, "gone")
    purge(queue)
    rig.node.role.take_away(queue)
    assert QUEUE not in rig.node.queues
    rig.node.work.finish()
    assert rig.node.partitions[0].records.due == 0
    assert not rig.faults()


def test_a_purge_of_all_in_the_midst_of_that_of_an_app() -> None:
    rig, queue = filled(FANOUT, "foo")
    purge_app(queue, queue.apps["bar"])
    assert purge(queue)[0] == MANY
    assert rig.node.partitions[0].records.due == 0
    post(producing(rig, FANOUT), MANY)
    rig.node.work.finish()
    assert rig.node.partitions[0].records.due == 3
    assert not queue.ghosts
    check(rig)


# -- all of an app


def test_an_app_that_was_purged_wants_nothing_at_once() -> None:
    rig, queue = filled(FANOUT, "foo", "bar", "baz")
    bar, foo = queue.apps["bar"], queue.apps["foo"]
    assert purge_app(queue, bar)[0] == MANY
    assert (bar.messages, bar.bytes, foo.messages) == (0, 0, MANY)
    assert queue.ghosts
    again = rig.restart().node.queues[FANOUT]
    assert not any(message.outstanding & again.apps["bar"].bit for message in again.messages.values())
    late = reading(rig, FANOUT, "bar")
    post(producing(rig, FANOUT), MANY)
    assert numbers(late) == []  # the other consumer's turn
    assert steps(rig) > MANY // AMOUNT - 2
    assert not queue.ghosts
    check(rig)


def test_messages_wanted_only_by_a_purged_app_go_in_slices() -> None:
    rig, queue = filled(QUEUE)
    (app,) = queue.apps.values()
    sizes = [MANY]
    purge_app(queue, app)
    sizes.append(len(queue.messages))
    while any(rig.node.end_step()):
        sizes.append(len(queue.messages))
    sizes.append(len(queue.messages))
    assert sizes[-1] == 0
    assert all(before - after <= AMOUNT for before, after in pairwise(sizes))
    assert rig.node.partitions[0].records.due == 0
    check(rig)


def test_others_confirm_while_an_app_is_purged() -> None:
    rig, queue = filled(FANOUT)
    foo, baz = reading(rig, FANOUT, "foo"), reading(rig, FANOUT, "baz")
    rig.node.work.finish()
    purge_app(queue, queue.apps["bar"])
    for number in (0, 1, MANY - 2, MANY - 1):
        for client in (foo, baz):
            client.confirm(1, guid(number), sub_id=1)
    steps(rig)
    assert set(queue.messages) == {guid(number) for number in range(2, MANY - 2)}
    check(rig)


def test_messages_expire_while_an_app_is_purged() -> None:
    rig = slicing(start(domains=with_ttl(1, "fanout"), limits=ROOM))
    post(producing(rig, FANOUT), *range(MANY))
    queue = rig.node.queues[FANOUT]
    purge_app(queue, queue.apps["bar"])
    rig.now.ms += 5000
    expire(queue)
    steps(rig)
    assert not queue.messages
    assert rig.node.partitions[0].records.due == 0
    assert not queue.ghosts
    check(rig)


def test_a_rollover_waits_for_no_purge_and_carries_nothing_over_that_is_gone() -> None:
    rig, queue = filled(QUEUE)
    (app,) = queue.apps.values()
    purge_app(queue, app)
    assert queue.messages
    rig.node.partitions[0].roll_over()
    rig.node.work.finish()
    assert not queue.messages
    assert rig.node.partitions[0].records.due == 0
    check(rig)


def test_an_app_that_goes_with_much_and_comes_back() -> None:
    rig, queue = filled(FANOUT, "foo", "bar", "baz")
    changed(rig, "bar", "baz")
    assert set(queue.apps) == {"bar", "baz"}
    changed(rig, *APPS)
    assert queue.apps["foo"].bit not in queue.ghosts
    post(producing(rig, FANOUT), MANY)
    new = reading(rig, FANOUT, "foo")
    rig.node.work.finish()
    assert set(numbers(new)) <= {MANY}
    assert queue.apps["foo"].messages == 1
    check(rig)


def test_an_app_without_messages_needs_no_record() -> None:
    rig, queue = filled(QUEUE, count=0)
    end = rig.node.partitions[0].files.journal_end
    assert purge_app(queue, queue.apps["__default"]) == (0, 0)
    assert rig.node.partitions[0].files.journal_end == end


# -- where a message's record is


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 3)), min_size=1, max_size=40),
    st.integers(0, 1000),
    st.sampled_from((1, 2, ROWS)),
)
def test_the_record_of_each_message_is_found(actions: list[tuple[bool, int]], pick: int, rows: int) -> None:
    rig = start(limits=ROOM)
    producer, consumer = producing(rig), reading(rig, QUEUE)
    number = 0
    for posts, times in actions:
        for _ in range(times):
            if posts:
                post(producer, number)
                number += 1
            else:
                consumer.confirm(1, guid(number // 2))
    queue = rig.node.queues[QUEUE]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("broker.bmq.store.finding.ROWS", rows)
        for message in list(queue.messages.values()):
            found = find_message(rig.node.partitions[0].files, message.offset)
            assert found.guid == message.guid


def test_it_is_found_without_a_look_at_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.bmq.store.finding.ROWS", 4)
    rig = start(limits=ROOM)
    post(producing(rig), *range(500))
    looked = 0
    original = journal.ANY_RECORD.column

    def column(array: object, name: str) -> object:
        nonlocal looked
        looked += len(array)  # type: ignore[arg-type]
        return original(array, name)  # type: ignore[arg-type]

    monkeypatch.setattr(journal.ANY_RECORD, "column", column)
    message = rig.node.queues[QUEUE].messages[guid(321)]
    assert find_message(rig.node.partitions[0].files, message.offset).guid == guid(321)
    assert looked < 100


def test_a_purge_of_an_app_without_room_changes_nothing() -> None:
    rig, queue = filled(QUEUE)
    partition = rig.node.partitions[0]
    partition.room.limits.journal = partition.files.journal_end + 10
    with pytest.raises(Full):
        purge_app(queue, queue.apps["__default"])
    assert len(queue.messages) == MANY
    assert not queue.ghosts
    consumer = reading(rig, QUEUE)
    rig.node.work.finish()
    assert numbers(consumer) == list(range(MANY))
    consumer.close(1, QUEUE, READ)
