"""Unconfirmed messages, added and removed apps, and unused queues."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.messages import Content, Full
from broker.bmq.core.work import SLICE
from broker.bmq.node.changes import collect_idle_queues, reconfigure
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.queue.queue import Queue
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import OpenQueueResponse, Status, StatusCategory
from formats.bmq.disk.journal import DELETION_RECORD, QUEUE_OP_RECORD, QueueOpType, RecordType, scan, select
from tests.broker.bmq.queue.posting import FANOUT, QUEUE, numbers, post, producing, reading
from tests.broker.bmq.rig import APPS, DOMAINS, READ, WRITE, Rig, guid, start

MEMORY = "bmq://memory/q"
ROOMY = PartitionLimits(journal=1 << 20, data=4 << 20, qlist=64 << 10)
BOTH = pytest.mark.parametrize("uri", [QUEUE, MEMORY])


def queue(rig: Rig, uri: str = QUEUE) -> Queue:
    return rig.node.queues[uri]


def ops(rig: Rig) -> list[tuple[QueueOpType, bytes]]:
    """The operations on queues in the journal, and the app that each is about."""
    files = rig.node.partitions[0].files
    records = scan(files.journal.buffer, 44, (files.journal_end - 44) // 60)
    found, _ = select(records, RecordType.QUEUE_OP)
    data = found.tobytes()
    each = [QUEUE_OP_RECORD.unpack(data, at) for at in range(0, len(data), 60)]
    return [(QueueOpType(op.queue_op_type), op.app_key) for op in each]


def deletions(rig: Rig) -> list[int]:
    """Return the reasons of deletions, in order."""
    files = rig.node.partitions[0].files
    records = scan(files.journal.buffer, 44, (files.journal_end - 44) // 60)
    found, _ = select(records, RecordType.DELETION)
    reasons: list[int] = DELETION_RECORD.column(found, "deletion_flag").tolist()
    return reasons


def due(rig: Rig) -> int:
    return sum(
        message.outstanding.bit_count() for each in rig.node.queues.values() for message in each.messages.values()
    )


def check(rig: Rig) -> None:
    """The books are in order, and the files say the same."""
    kept = {uri: each for uri, each in rig.node.queues.items() if each.config.persistent}
    assert rig.node.partitions[0].records.due == sum(
        message.outstanding.bit_count() for each in kept.values() for message in each.messages.values()
    )
    assert not rig.faults()
    again = rig.restart().node
    for uri, each in kept.items():
        assert {key: wanted(each, key) for key in each.messages} == {
            key: wanted(again.queues[uri], key) for key in again.queues[uri].messages
        }


def wanted(each: Queue, key: bytes) -> set[str]:
    return {app.app_id for app in each.apps.values() if each.messages[key].outstanding & app.bit}


# -- time to live


def with_ttl(seconds: int, *names: str) -> list[DomainConfig]:
    return [replace(DOMAINS[name], message_ttl_s=seconds) for name in names]


@BOTH
def test_messages_expire_by_the_time_of_their_arrival(uri: str) -> None:
    rig = start(domains=with_ttl(10, "priority", "memory"))
    producer = producing(rig, uri)
    post(producer, 1, 2)
    rig.wait(6000)
    post(producer, 3)
    rig.wait(4000)
    assert len(queue(rig, uri).messages) == 3
    rig.wait(1000)
    assert set(queue(rig, uri).messages) == {guid(3)}
    assert numbers(reading(rig, uri)) == [3]
    if uri == QUEUE:
        assert deletions(rig) == [2, 2]
        check(rig)
    rig.wait(6000)
    assert not queue(rig, uri).messages
    assert rig.node.domains[uri[6:-2]].usage.messages == 0


def test_message_held_by_a_consumer_expires_too(caplog: pytest.LogCaptureFixture) -> None:
    rig = start(domains=with_ttl(5, "fanout"))
    producer = producing(rig, FANOUT)
    consumer = reading(rig, FANOUT, "foo", messages_max=1)
    post(producer, 1)
    rig.wait(3000)
    post(producer, 2)
    assert numbers(consumer) == [1]
    consumer.confirm(1, guid(1), sub_id=1)
    assert numbers(consumer) == [2]
    caplog.set_level("INFO")
    rig.wait(3000)
    assert "garbage-collected [1] messages due to TTL expiration" in caplog.text
    rig.wait(3000)
    consumer.confirm(1, guid(2), sub_id=1)
    assert not queue(rig, FANOUT).messages
    post(producer, 3)
    assert numbers(consumer) == [3]
    check(rig)


def test_a_restart_does_not_renew_messages() -> None:
    rig = start(domains=with_ttl(10, "priority"))
    post(producing(rig), 1)
    rig.wait(8000)
    again = rig.restart()
    again.wait(2000)
    assert len(queue(again).messages) == 1
    again.wait(1000)
    assert not queue(again).messages


def test_many_messages_expire_in_slices(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rig = start(domains=with_ttl(1, "memory"))
    each = producing(rig, MEMORY).session.handles[1].queue
    for number in range(3 * SLICE):
        each.post_one(guid(number), _content())
    rig.now.ms += 3000
    rig.node.tick()
    left = [len(each.messages)]
    while any(rig.node.end_step()):
        left.append(len(each.messages))
    left.append(len(each.messages))
    assert left[-1] == 0
    assert all(before - after <= SLICE for before, after in pairwise([3 * SLICE, *left]))
    assert caplog.text.count("messages due to TTL expiration") == 1
    assert f"garbage-collected [{3 * SLICE}] messages" in caplog.text


def _content() -> Content:
    return Content(b"x", 0, 0, False, 0)


# -- purges


@BOTH
def test_a_purge_removes_all(uri: str) -> None:
    rig = start()
    producer, consumer = producing(rig, uri), reading(rig, uri, messages_max=2)
    post(producer, *range(5))
    assert numbers(consumer) == [0, 1]
    assert purge(queue(rig, uri)) == (5, 5)
    assert purge(queue(rig, uri)) == (0, 0)
    assert not queue(rig, uri).messages
    consumer.confirm(1, guid(0))
    post(producer, 7, 8, 9)
    assert numbers(consumer) == [7, 8]
    if uri == QUEUE:
        assert [kind for kind, _ in ops(rig)] == [QueueOpType.CREATION, QueueOpType.PURGE]
        assert deletions(rig) == []
        check(rig)


def test_a_purge_of_one_app_leaves_the_others_theirs() -> None:
    rig = start()
    producer = producing(rig, FANOUT)
    foo, bar = reading(rig, FANOUT, "foo"), reading(rig, FANOUT, "bar")
    post(producer, 1, 2, 3)
    bar.confirm(1, guid(2), sub_id=1)
    foo.confirm(1, guid(2), sub_id=1)
    baz = queue(rig, FANOUT).apps["baz"]
    assert purge_app(queue(rig, FANOUT), baz) == (3, 3)
    assert set(queue(rig, FANOUT).messages) == {guid(1), guid(3)}
    assert deletions(rig) == [0]
    check(rig)
    late = reading(rig, FANOUT, "baz")
    assert numbers(late) == []
    foo.confirm(1, guid(1), guid(3), sub_id=1)
    assert purge_app(queue(rig, FANOUT), queue(rig, FANOUT).apps["bar"]) == (2, 2)
    assert not queue(rig, FANOUT).messages
    check(rig)
    assert purge_app(queue(rig, FANOUT), baz) == (0, 0)
    post(producer, 4)
    assert numbers(late) == [4]
    check(rig)


def test_purges_hold_over_a_rollover() -> None:
    rig = start()
    producer = producing(rig, FANOUT)
    post(producer, 1, 2)
    purge_app(queue(rig, FANOUT), queue(rig, FANOUT).apps["bar"])
    post(producer, 3)
    rig.node.partitions[0].roll_over()
    check(rig)


def test_a_full_journal_takes_the_purge_of_a_queue_and_nothing_less() -> None:
    rig = start(limits=PartitionLimits(journal=8192, data=1 << 20, qlist=4096))
    one, other = producing(rig), producing(rig, FANOUT)
    for number in range(50):
        post(one, number)
    number = 100
    while other.post(1, guid(number), b"1") is AckStatus.SUCCESS:
        number += 1
    assert number > 100
    assert one.post(1, guid(99), b"1") is AckStatus.STORAGE_FAILURE
    with pytest.raises(Full):
        purge_app(queue(rig, FANOUT), queue(rig, FANOUT).apps["baz"])
    assert one.post(1, guid(99), b"1") is AckStatus.STORAGE_FAILURE
    assert purge(queue(rig, FANOUT))[0] == number - 100
    assert other.post(1, guid(99), b"1") is AckStatus.SUCCESS
    assert one.post(1, guid(98), b"1") is AckStatus.SUCCESS
    check(rig)


# -- apps


def changed(rig: Rig, *app_ids: str, name: str = "fanout", **more: object) -> None:
    domain = rig.node.domains[name]
    config = replace(domain.config, app_ids=app_ids, **more)  # type: ignore[arg-type]
    rig.domains = {**rig.domains, name: config}
    reconfigure(rig.node, domain, config)


def test_a_new_app_gets_what_comes_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    rig = start()
    producer = producing(rig, FANOUT)
    early = reading(rig, FANOUT, "quux")
    assert "ALARM [FANOUT_UNREGISTERED_APPID] AppId 'quux' is not authorized for queue" in caplog.text
    post(producer, 1)
    assert numbers(early) == []
    changed(rig, *APPS, "quux")
    post(producer, 2)
    assert numbers(early) == [2]
    assert [kind for kind, _ in ops(rig)] == [QueueOpType.CREATION, QueueOpType.ADDITION]
    check(rig)
    early.confirm(1, guid(2), sub_id=1)
    check(rig)
    caplog.clear()
    assert numbers(reading(rig, FANOUT, "quux")) == []
    assert "ALARM" not in caplog.text
    for app in APPS:
        reading(rig, FANOUT, app).confirm(1, guid(1), guid(2), sub_id=1)
    assert not queue(rig, FANOUT).messages
    check(rig)


def test_an_app_that_goes_leaves_its_messages_to_the_others() -> None:
    rig = start()
    producer = producing(rig, FANOUT)
    foo, bar, baz = (reading(rig, FANOUT, app) for app in APPS)
    post(producer, 1, 2)
    assert [numbers(each) for each in (foo, bar, baz)] == [[1, 2]] * 3
    bar.confirm(1, guid(1), sub_id=1)
    baz.confirm(1, guid(1), sub_id=1)
    changed(rig, "bar", "baz")
    assert set(queue(rig, FANOUT).messages) == {guid(2)}
    assert [kind for kind, _ in ops(rig)] == [QueueOpType.CREATION, QueueOpType.PURGE, QueueOpType.DELETION]
    check(rig)
    post(producer, 3)
    assert [numbers(each) for each in (foo, bar, baz)] == [[], [3], [3]]
    foo.confirm(1, guid(2), sub_id=1)
    bar.confirm(1, guid(2), guid(3), sub_id=1)
    baz.confirm(1, guid(2), guid(3), sub_id=1)
    assert not queue(rig, FANOUT).messages
    # It comes back under another key, and starts empty.
    foo.close(1, FANOUT, READ, sub_id=1, app="foo")
    post(producer, 4)
    changed(rig, *APPS)
    post(producer, 5)
    assert numbers(reading(rig, FANOUT, "foo")) == [5]
    check(rig)
    rig.node.partitions[0].roll_over()
    check(rig)


def test_a_fanout_may_begin_without_apps() -> None:
    rig = start(domains=[replace(DOMAINS["fanout"], app_ids=())])
    producer, consumer = producing(rig, FANOUT), reading(rig, FANOUT, "foo")
    post(producer, 1)
    assert not queue(rig, FANOUT).messages
    check(rig)
    changed(rig, "foo")
    post(producer, 2)
    assert numbers(consumer) == [2]
    check(rig)
    changed(rig)
    assert not queue(rig, FANOUT).messages
    post(producer, 3)
    assert numbers(consumer) == []
    check(rig)


def test_apps_come_and_go_with_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    rig = start()
    post(producing(rig, FANOUT), 1)
    reading(rig, FANOUT, "foo").confirm(1, guid(1), sub_id=1)
    rig.domains = {**rig.domains, "fanout": replace(rig.domains["fanout"], app_ids=("bar", "baz", "quux"))}
    again = rig.restart()
    assert set(queue(again, FANOUT).apps) == {"bar", "baz", "quux"}
    assert "FANOUT_APPIDS_DIFFER" not in caplog.text
    post(producing(again, FANOUT), 2)
    assert numbers(reading(again, FANOUT, "quux")) == [2]
    assert numbers(reading(again, FANOUT, "bar")) == [1, 2]
    check(again)
    info = again.node.ledger.state.queues[FANOUT]
    assert {app.app_id for app in info.app_ids} == {"bar", "baz", "quux"}


def test_an_app_that_is_owed_messages_outlives_a_restart_with_a_domain_that_does_not_name_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = start()
    other = "bmq://fanout/other"
    post(producing(rig, FANOUT), 1)
    producing(rig, other)
    for app in ("foo", "baz"):
        reading(rig, FANOUT, app).confirm(1, guid(1), sub_id=1)
    rig.domains = {**rig.domains, "fanout": replace(rig.domains["fanout"], app_ids=("foo",))}
    again = rig.restart()
    assert [set(queue(again, uri).apps) for uri in (FANOUT, other)] == [{"foo", "bar"}] * 2
    (line,) = [each for each in caplog.messages if "FANOUT_APPIDS_DIFFER" in each]
    assert line.startswith("ALARM [FANOUT_APPIDS_DIFFER] Messages are stored for the apps 'bar' of domain 'fanout'")
    assert "DOMAINS RECONFIGURE fanout to this node" in line
    post(producing(again, FANOUT), 2)
    assert numbers(reading(again, FANOUT, "bar")) == [1, 2]
    check(again)
    changed(again, "foo")
    assert [set(queue(again, uri).apps) for uri in (FANOUT, other)] == [{"foo"}] * 2
    check(again)


def test_an_unregistered_app_alarms_again_when_all_its_readers_have_left(caplog: pytest.LogCaptureFixture) -> None:
    rig = start()
    first, second = reading(rig, FANOUT, "quux"), reading(rig, FANOUT, "quux")
    assert caplog.text.count("FANOUT_UNREGISTERED_APPID") == 1
    for client in (first, second):
        client.close(1, FANOUT, READ, sub_id=1, app="quux")
    reading(rig, FANOUT, "quux")
    assert caplog.text.count("FANOUT_UNREGISTERED_APPID") == 2


@pytest.mark.parametrize("uri", ["bmq://changing/a", "bmq://changing/b"])
def test_apps_of_queues_in_memory_change_too(uri: str) -> None:
    rig = start(domains=[DomainConfig("changing", Mode.FANOUT, APPS, persistent=False)])
    producer = producing(rig, uri)
    post(producer, 1)
    changed(rig, "foo", "new", name="changing")
    post(producer, 2)
    assert numbers(reading(rig, uri, "foo")) == [1, 2]
    assert numbers(reading(rig, uri, "new")) == [2]
    assert not rig.faults()


# -- reconfiguration


def test_limits_change_while_the_queue_is_in_use() -> None:
    rig = start()
    producer = producing(rig, FANOUT)
    post(producer, 1, 2, 3)
    changed(rig, *APPS, queue_messages_max=2)
    assert producer.post(1, guid(4), b"4") is AckStatus.LIMIT_MESSAGES
    changed(rig, *APPS, queue_messages_max=10, message_ttl_s=5)
    post(producer, 4)
    rig.wait(7000)
    assert not queue(rig, FANOUT).messages


def test_changed_app_subscriptions_count_for_later_messages() -> None:
    rig = start()
    producer = producing(rig, FANOUT)
    changed(rig, *APPS, subscriptions=(("foo", "exists(x)"),))
    post(producer, 1)
    changed(rig, *APPS, subscriptions=())
    post(producer, 2)
    assert numbers(reading(rig, FANOUT, "foo")) == [2]
    assert numbers(reading(rig, FANOUT, "bar")) == [1, 2]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"mode": Mode.PRIORITY}, "Reconfiguration of domain routing mode is not allowed"),
        ({"persistent": False}, "Reconfiguration of storage type is not allowed"),
    ],
)
def test_impossible_change_of_a_domain_is_refused(other: dict[str, object], reason: str) -> None:
    rig = start()
    producing(rig, FANOUT)
    domain = rig.node.domains["fanout"]
    config = domain.config
    with pytest.raises(ValueError, match=reason):
        reconfigure(rig.node, domain, replace(config, **other))  # type: ignore[arg-type]
    assert domain.config is config


# -- how many


def test_a_domain_has_no_more_queues_than_it_may(caplog: pytest.LogCaptureFixture) -> None:
    rig = start(domains=[replace(DOMAINS["priority"], queues_max=5)])
    client = rig.connect()
    for number in range(4):
        client.open(number, f"bmq://priority/q{number}", READ)
    assert "ALARM [DOMAIN_QUEUE_LIMIT_HIGH_WATERMARK] domain 'bmq://priority' has reached the 80%" in caplog.text
    assert "(current: 4, limit: 5)" in caplog.text
    client.open(4, "bmq://priority/q4", READ)
    answer = client.try_open(5, "bmq://priority/q5", READ)
    assert isinstance(answer, Status)
    assert (answer.category, answer.code) == (StatusCategory.REFUSED, -205)
    assert "PANIC [DOMAIN_QUEUE_LIMIT_FULL]" in caplog.text
    assert isinstance(client.try_open(6, "bmq://priority/q0", READ), OpenQueueResponse)
    client.close(3, "bmq://priority/q3", READ)
    assert collect_idle_queues(rig.node, 0) == 1
    client.open(5, "bmq://priority/q5", READ)


def test_a_queue_has_no_more_producers_and_consumers_than_it_may() -> None:
    rig = start(domains=[replace(DOMAINS["fanout"], producers_max=1, consumers_max=2)])
    first = producing(rig, FANOUT)
    second = rig.connect()
    answer = second.try_open(1, FANOUT, WRITE)
    assert isinstance(answer, Status)
    assert answer.message == "Client would exceed the limit of 1 producer(s)"
    for app in ("foo", "foo", "bar", "bar"):
        reading(rig, FANOUT, app)
    with pytest.raises(AssertionError, match="limit of 2 consumer"):
        reading(rig, FANOUT, "foo")
    # An app that the domain does not name may be added later, with the readers that it has.
    for _ in range(2):
        reading(rig, FANOUT, "unnamed")
    with pytest.raises(AssertionError, match="limit of 2 consumer"):
        reading(rig, FANOUT, "unnamed")
    first.close(1, FANOUT, WRITE)
    assert isinstance(second.try_open(1, FANOUT, WRITE), OpenQueueResponse)


# -- queues that nobody uses


def test_a_queue_that_nobody_uses_is_deleted_after_a_while() -> None:
    rig = start()
    rig.configure(keepalive_ms=10_000)
    client = rig.connect()
    client.open(1, QUEUE, READ | WRITE)
    client.open(2, FANOUT, WRITE)
    post(client, 1)
    client.confirm(1, guid(1))
    rig.wait(20_000)
    assert set(rig.node.queues) == {QUEUE, FANOUT}
    client.put(2, guid(2), b"kept")
    client.disconnect()
    rig.wait(8_000)
    assert set(rig.node.queues) == {QUEUE, FANOUT}
    rig.wait(4_000)
    assert set(rig.node.queues) == {FANOUT}
    assert set(rig.node.ledger.state.queues) == {FANOUT}
    assert ops(rig)[-1][0] is QueueOpType.DELETION
    assert not rig.faults()
    again = rig.restart()
    assert set(again.node.queues) == {FANOUT}
    # And it can be made again.
    post(producing(again), 5)
    assert numbers(reading(again)) == [5]
    check(again)
