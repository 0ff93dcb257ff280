"""Behaviour with full files or a full disk: refusals, work that continues, and recovery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bmq.core.messages import Full
from broker.bmq.node.changes import reconfigure
from broker.bmq.partition.room import RECORDS_LEFT_MIN, SPARE_RECORDS_MAX
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import Status, StatusCategory
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, JournalFileHeader, group_file_sets, open_file
from formats.bmq.disk.journal import JournalOpRecord, SyncPointType
from formats.bmq.stores.recover import iter_journal
from tests.broker.bmq.rig import ACK, READ, WRITE, Client, Rig, guid, start
from tests.broker.fakes import MemoryDirectory

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"

# Room for about 80 messages of one app beyond the spare, or 60 of 100 bytes.
SHORT_JOURNAL = PartitionLimits(journal=(SPARE_RECORDS_MAX + 160) * JOURNAL_RECORD_SIZE, data=64 << 10, qlist=1 << 10)
SHORT_DATA = PartitionLimits(journal=64 << 10, data=8 << 10, qlist=1 << 10)
FULL = AckStatus.STORAGE_FAILURE


def producing(rig: Rig, uri: str = QUEUE) -> Client:
    client = rig.connect()
    client.open(1, uri, WRITE | ACK)
    return client


def confirming(rig: Rig, uri: str = QUEUE, app: str = "") -> Client:
    """A client that may confirm and gets nothing."""
    client = rig.connect()
    client.open(1, uri, READ, app, 1 if app else 0)
    return client


def fill(producer: Client, first: int = 0, size: int = 100) -> int:
    """Post until a message is refused; return the number of accepted messages."""
    for number in range(first, first + 10_000):
        status = producer.post(1, guid(number), bytes(size))
        if status is not AckStatus.SUCCESS:
            assert status is FULL
            return number - first
    raise AssertionError("it never fills up")


def left(rig: Rig, uri: str = QUEUE) -> list[bytes]:
    """The GUIDs that a new consumer gets."""
    client = rig.connect()
    client.read(1, uri)
    return [push.guid for push in client.pushes()]


def sync_points(rig: Rig) -> list[SyncPointType]:
    journal = rig.directory.files[rig.directory.find("journal")].data
    return [
        SyncPointType(record.sync_point_type)
        for _, record in iter_journal(journal)
        if isinstance(record, JournalOpRecord)
    ]


@pytest.mark.parametrize("limits", [SHORT_JOURNAL, SHORT_DATA])
def test_a_full_file_refuses_messages_and_nothing_else(limits: PartitionLimits) -> None:
    rig = start(limits=limits)
    producer, consumer = producing(rig), confirming(rig)
    posted = fill(producer)
    assert posted > 50
    assert producer.post(1, guid(posted), bytes(100)) is FULL
    consumer.confirm(1, guid(0), guid(posted - 1))
    assert left(rig) == [guid(number) for number in range(1, posted - 1)]
    assert not rig.faults()


def test_a_full_partition_is_one_alarm_until_it_is_well_again(caplog: pytest.LogCaptureFixture) -> None:
    alarm = "PANIC [PARTITION_READONLY] Partition [0]: is full: the journal file"
    rig = start(limits=SHORT_JOURNAL)
    producer, consumer = producing(rig), confirming(rig)
    posted = fill(producer)
    rig.wait(2000)
    assert not fill(producer, posted)
    assert caplog.text.count(alarm) == 1
    consumer.confirm(1, *(guid(number) for number in range(posted)))
    rig.wait(1000)
    assert fill(producer, posted) > 50
    assert caplog.text.count(alarm) == 2


def test_a_partition_that_was_full_lets_an_app_go() -> None:
    rig = start(limits=SHORT_JOURNAL)
    producer = producing(rig, FANOUT)
    consumers = [confirming(rig, FANOUT, app) for app in ("foo", "bar", "baz")]
    posted = fill(producer)
    domain = rig.node.domains["fanout"]
    with pytest.raises(Full):
        reconfigure(rig.node, domain, replace(domain.config, app_ids=("foo", "bar")))
    for consumer in consumers:
        consumer.confirm(1, *(guid(number) for number in range(posted)), sub_id=1)
    rig.wait(1000)
    reconfigure(rig.node, domain, replace(domain.config, app_ids=("foo", "bar")))
    assert list(rig.node.queues[FANOUT].apps) == ["foo", "bar"]


def test_room_refused_to_a_large_message_is_refused_to_a_small_one() -> None:
    rig = start(limits=SHORT_JOURNAL)
    few, many = producing(rig), producing(rig, FANOUT)
    posted = fill(many)
    assert few.post(1, guid(10_000), b"x") is FULL
    consumers = [confirming(rig, FANOUT, app) for app in ("foo", "bar", "baz")]
    for consumer in consumers:
        consumer.confirm(1, *(guid(number) for number in range(posted)), sub_id=1)
    rig.wait(1000)
    assert few.post(1, guid(10_001), b"x") is AckStatus.SUCCESS
    assert not rig.faults()


@pytest.mark.parametrize("records", [70, 136])
def test_most_of_a_small_journal_is_for_messages(records: int) -> None:
    rig = start(limits=PartitionLimits(journal=records * JOURNAL_RECORD_SIZE, data=64 << 10, qlist=1 << 10))
    # Each takes its own record, and one more must be left for its deletion.
    assert 2 * fill(producing(rig)) > records * 0.7


@pytest.mark.parametrize("limits", [SHORT_JOURNAL, SHORT_DATA])
def test_posting_goes_on_when_enough_was_confirmed(limits: PartitionLimits) -> None:
    rig = start(limits=limits)
    producer, consumer = producing(rig), confirming(rig)
    posted = fill(producer)
    consumer.confirm(1, *(guid(number) for number in range(0, posted, 2)))
    rig.wait(1000)
    again = fill(producer, posted)
    assert again > 10
    rig.wait(1000)
    expected = [guid(number) for number in (*range(1, posted, 2), *range(posted, posted + again))]
    assert left(rig) == expected
    assert not rig.faults()
    assert left(rig.restart()) == expected


def test_a_full_partition_looks_for_room_once_a_second() -> None:
    """A look is a walk over the whole journal: a flood of posts must not make it one per message."""
    rig = start(limits=SHORT_DATA)
    producer, consumer = producing(rig), confirming(rig)
    posted = fill(producer)
    consumer.confirm(1, *(guid(number) for number in range(posted)))
    assert producer.post(1, guid(posted), bytes(100)) is FULL
    rig.wait(1000)
    assert producer.post(1, guid(posted), bytes(100)) is AckStatus.SUCCESS


def test_a_message_larger_than_a_file_is_refused_alone() -> None:
    rig = start(limits=SHORT_DATA)
    producer = producing(rig)
    names = rig.directory.names()
    for number in range(3):
        assert producer.post(1, guid(number), bytes(SHORT_DATA.data)) is FULL
        assert producer.post(1, guid(100 + number), b"x") is AckStatus.SUCCESS
    assert rig.directory.names() == names
    assert not rig.directory.archived


def test_files_are_rolled_over_again_and_again() -> None:
    rig = start(limits=SHORT_JOURNAL)
    producer, consumer = producing(rig), confirming(rig)
    assert producer.post(1, guid(100_000), b"stays") is AckStatus.SUCCESS
    for number in range(1000):
        assert producer.post(1, guid(number), bytes(number % 50 + 1)) is AckStatus.SUCCESS
        if number % 100:
            consumer.confirm(1, guid(number))
        if not number % 50:
            rig.wait(1000)
    assert len(rig.directory.archived) >= 3 * 5
    assert not rig.faults()
    expected = [guid(100_000), *(guid(number) for number in range(0, 1000, 100))]
    assert left(rig) == expected
    assert left(rig.restart()) == expected
    (file_set,) = group_file_sets(rig.directory.names())
    assert file_set.journal is not None
    header = open_file(rig.directory.files[file_set.journal].data).header
    assert isinstance(header, JournalFileHeader)
    assert header.first_sync_point_after_rollover_offset_words


# As the reference's suite has it.
TINY_JOURNAL = PartitionLimits(journal=1844, data=64 << 10, qlist=1 << 10)


def test_a_very_small_journal_rolls_over_as_early_as_the_references_does() -> None:
    rig = start(limits=TINY_JOURNAL)
    producer, consumer = producing(rig), confirming(rig)
    files = rig.node.partitions[0].files
    for number in range(20):
        is_late = files.journal_end + RECORDS_LEFT_MIN * JOURNAL_RECORD_SIZE > TINY_JOURNAL.journal
        assert producer.post(1, guid(number), b"x") is AckStatus.SUCCESS
        assert (rig.node.partitions[0].files is not files) == is_late
        if is_late:
            break
        if number < 2:
            consumer.confirm(1, guid(number))
            rig.wait(1000)
    assert number == 6
    assert left(rig.restart()) == [guid(each) for each in range(2, 7)]
    assert not rig.faults()


def test_a_very_small_journal_takes_what_it_can_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = start(limits=TINY_JOURNAL)
    count = fill(producing(rig))
    assert len(rig.directory.archived) <= 3 * 3
    assert not rig.faults()
    monkeypatch.setattr("broker.bmq.partition.room.RECORDS_LEFT_MIN", 0)
    assert count == fill(producing(start(limits=TINY_JOURNAL)))


def test_confirms_of_some_apps_outlast_rollovers() -> None:
    rig = start(limits=SHORT_JOURNAL)
    producer = producing(rig, FANOUT)
    apps = {app: confirming(rig, FANOUT, app) for app in ("foo", "bar", "baz")}
    assert producer.post(1, guid(100_000), b"stays") is AckStatus.SUCCESS
    apps["foo"].confirm(1, guid(100_000), sub_id=1)
    for number in range(300):
        assert producer.post(1, guid(number), bytes(20)) is AckStatus.SUCCESS
        for client in apps.values():
            client.confirm(1, guid(number), sub_id=1)
    assert rig.directory.archived
    again = rig.restart()
    wanted = {}
    for app in apps:
        client = again.connect()
        client.read(1, FANOUT, app, 1)
        wanted[app] = [push.guid for push in client.pushes()]
    assert wanted == {"foo": [], "bar": [guid(100_000)], "baz": [guid(100_000)]}
    assert not again.faults()


def test_the_old_files_end_with_a_rollover_sync_point() -> None:
    rig = start(limits=SHORT_DATA)
    producer, consumer = producing(rig), confirming(rig)
    number = 0
    while not rig.directory.archived:
        assert producer.post(1, guid(number), bytes(100)) is AckStatus.SUCCESS
        consumer.confirm(1, guid(number))
        number += 1
    (name,) = (name for name in rig.directory.archived if name.endswith("journal"))
    *_, (_, last) = iter_journal(rig.directory.archived[name])
    assert isinstance(last, JournalOpRecord)
    assert last.sync_point_type == SyncPointType.ROLLOVER
    # The new ones begin with a copy of it, under its own number, and one of their own.
    journal = rig.directory.files[rig.directory.find("journal")].data
    header = open_file(journal).header
    assert isinstance(header, JournalFileHeader)
    records = list(iter_journal(journal))
    (at, copy), (_, first) = [each for each in records if isinstance(each[1], JournalOpRecord)][:2]
    assert at == header.first_sync_point_after_rollover_offset_words * 4
    assert isinstance(copy, JournalOpRecord)
    ends = copy.data_file_offset_dwords, copy.qlist_file_offset_words
    assert copy == last._replace(
        sync_point_type=SyncPointType.REGULAR, data_file_offset_dwords=ends[0], qlist_file_offset_words=ends[1]
    )
    assert isinstance(first, JournalOpRecord)
    assert first.sync_point_type == SyncPointType.REGULAR
    assert (first.data_file_offset_dwords, first.qlist_file_offset_words) == ends
    assert first.sequence_number == copy.sequence_number + 1 == first.sync_point_sequence_number


# -- the disk


def test_a_full_disk_refuses_messages_and_nothing_else() -> None:
    rig = start(MemoryDirectory(chunk=1024))
    producer, consumer = producing(rig), confirming(rig)
    rig.directory.free = 5000
    posted = fill(producer)
    assert posted > 5
    consumer.confirm(1, *(guid(number) for number in range(posted - 1)))
    rig.wait(5000)
    assert left(rig) == [guid(posted - 1)]
    assert not rig.faults()
    rig.directory.free = 1 << 30
    assert producer.post(1, guid(posted), bytes(100)) is AckStatus.SUCCESS
    assert left(rig.restart()) == [guid(posted - 1), guid(posted)]


def test_a_disk_full_to_the_brim_keeps_confirms_safe() -> None:
    """Every record that a message will still need has its disk when the message is acked."""
    for free in range(0, 4000, 173):
        rig = start(MemoryDirectory())
        producer = producing(rig, FANOUT)
        rig.directory.free = free
        posted = fill(producer, size=10)
        for app in ("foo", "bar", "baz"):
            client = confirming(rig, FANOUT, app)
            client.confirm(1, *(guid(number) for number in range(posted)), sub_id=1)
        assert not rig.node.queues[FANOUT].messages
        rig.stop()
        assert not rig.faults()


@pytest.mark.parametrize("free", [0, 100, 2000, 9000, 20_000])
def test_a_disk_that_fills_up_in_a_rollover_leaves_the_old_files_in_use(free: int) -> None:
    rig = start(limits=SHORT_DATA)
    producer, consumer = producing(rig), confirming(rig)
    for number in range(40):
        assert producer.post(1, guid(number), bytes(100)) is AckStatus.SUCCESS
    consumer.confirm(1, *(guid(number) for number in range(20)))
    rig.directory.free = free
    posted = fill(producer, 40)
    consumer.confirm(1, *(guid(number) for number in range(20, 30)))
    assert not rig.faults()
    expected = [guid(number) for number in range(30, 40 + posted)]
    assert left(rig) == expected
    rig.directory.free = 1 << 30
    assert left(rig.restart()) == expected
    consumer.confirm(1, *expected[::2])
    rig.wait(1000)
    assert producer.post(1, guid(1000), bytes(100)) is AckStatus.SUCCESS
    assert not rig.faults()


@pytest.mark.slow
def test_confirms_are_safe_after_a_rollover_took_the_last_of_the_disk() -> None:
    """The new journal has disk for all records that are due, or the old files stay in use."""
    rolled_over = set()
    for free in range(9_000, 15_000, 100):
        rig = start(MemoryDirectory(keeps_archive=True), limits=SHORT_DATA)
        producer, consumer = producing(rig), confirming(rig)
        for number in range(60):
            assert producer.post(1, guid(number), bytes(100)) is AckStatus.SUCCESS
        consumer.confirm(1, *(guid(number) for number in range(20)))
        rig.directory.free = free
        posted = fill(producer, 60)
        rolled_over.add(len(rig.directory.archived))
        consumer.confirm(1, *(guid(number) for number in range(20, 60 + posted)))
        assert not rig.node.queues[QUEUE].messages
        rig.stop()
        assert not rig.faults()
    assert rolled_over == {0, 3}


def test_a_node_starts_on_a_full_disk_if_its_files_have_room() -> None:
    rig = start(MemoryDirectory(chunk=4096))
    producer = producing(rig)
    assert producer.post(1, guid(1), b"x") is AckStatus.SUCCESS
    rig.directory.free = 0
    assert left(rig.restart()) == [guid(1)]


# -- queues


def test_a_full_qlist_refuses_queues_and_nothing_else() -> None:
    rig = start(limits=SHORT_DATA)
    client = rig.connect()
    opened = 0
    while True:
        answer = client.try_open(opened, f"bmq://priority/queue-{opened}", WRITE)
        if isinstance(answer, Status):
            break
        opened += 1
    assert answer.category is StatusCategory.NOT_READY
    assert opened > 8
    names = rig.directory.names()
    for number in range(5):
        assert isinstance(client.try_open(opened, f"bmq://priority/more-{number}", WRITE), Status)
        rig.wait(1000)
    assert rig.directory.names() == names
    assert client.post(0, guid(1), b"x") is AckStatus.SUCCESS
    assert not rig.faults()
    again = rig.restart()
    assert len(again.node.queues) == opened
    assert left(again, "bmq://priority/queue-0") == [guid(1)]


def test_many_queues_come_back() -> None:
    rig = start(limits=PartitionLimits(journal=64 << 10, data=64 << 10, qlist=64 << 10))
    client = rig.connect()
    for number in range(200):
        client.open(number, f"bmq://{'priority' if number % 2 else 'fanout'}/queue-{number}", WRITE)
    keys = {uri: queue.key for uri, queue in rig.node.queues.items()}
    assert len(set(keys.values())) == 200
    assert not rig.faults()
    again = rig.restart()
    assert {uri: queue.key for uri, queue in again.node.queues.items()} == keys


# -- sync points and leases


def test_a_lease_begins_with_a_sync_point() -> None:
    rig = start()
    for lease in range(2, 6):
        rig = rig.restart()
        assert rig.node.partitions[0].primary_lease_id == lease
    records = [record for _, record in iter_journal(rig.directory.files[rig.directory.find("journal")].data)]
    assert [(r.primary_lease_id, r.sequence_number) for r in records] == [(lease, 1) for lease in range(1, 6)]
    assert sync_points(rig) == [SyncPointType.REGULAR] * 5
    assert not rig.faults()


def test_a_tick_writes_a_sync_point_only_after_something_was_written() -> None:
    rig = start()
    rig.wait(5000)
    assert len(sync_points(rig)) == 1
    producer = producing(rig)
    rig.wait(3000)
    assert len(sync_points(rig)) == 2
    producer.post(1, guid(1), b"x")
    rig.wait(3000)
    assert len(sync_points(rig)) == 3
    assert not rig.faults()


def test_lease_ids_grow_when_journals_are_lost() -> None:
    """The ledger remembers them."""
    rig = start().restart().restart()
    assert rig.node.partitions[0].primary_lease_id == 3
    directory = rig.directory.after_crash()
    for name in [name for name in directory.names() if not name.endswith("csl")]:
        del directory.files[name]
    assert rig.restart(directory).node.partitions[0].primary_lease_id == 4


def test_lease_ids_grow_when_the_ledger_is_lost() -> None:
    rig = start().restart().restart()
    directory = rig.directory.after_crash()
    del directory.files[directory.find("csl")]
    assert rig.restart(directory).node.partitions[0].primary_lease_id == 4


def test_a_disabled_partition_takes_no_message_and_lets_those_it_has_go() -> None:
    rig = start()
    producer = producing(rig)
    assert producer.post(1, guid(0), b"kept") is AckStatus.SUCCESS
    (partition,) = rig.node.partitions.values()
    partition.room.set_available(False)
    assert producer.post(1, guid(1), b"refused") is FULL
    confirming(rig).confirm(1, guid(0))
    assert partition.state().messages == 0
    partition.room.set_available(True)
    assert producer.post(1, guid(2), b"kept") is AckStatus.SUCCESS
    assert left(rig) == [guid(2)]
    assert not rig.faults()


def test_a_rollover_on_command_happens_however_little_it_frees(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rig = start(limits=SHORT_DATA)
    producer = producing(rig)
    count = fill(producer)
    (partition,) = rig.node.partitions.values()
    before = partition.files.timestamp
    partition.roll_over()
    assert partition.files.timestamp != before
    assert "Initiating rollover" in caplog.text
    assert "ROLLOVER COMPLETE" in caplog.text
    again = rig.restart()
    assert left(again) == [guid(number) for number in range(count)]
    assert not again.faults()


@pytest.mark.parametrize("front", [0x00, 0x7F, 0x80, 0xFF])
def test_a_rollover_whatever_guids_clients_make(front: int) -> None:
    """GUIDs with any first byte: the reference's begin with a version number, a client's may begin with anything."""
    rig = start()
    producer, consumer = producing(rig, FANOUT), confirming(rig, FANOUT, "foo")
    guids = [bytes((front,)) * 8 + number.to_bytes(8, "big") for number in range(1, 4)]
    for each in guids:
        assert producer.post(1, each, b"payload") is AckStatus.SUCCESS
    consumer.confirm(1, guids[0], sub_id=1)
    rig.node.partitions[0].roll_over()
    assert not rig.faults()
    again = rig.restart()
    assert not again.faults()
    queue = again.node.queues[FANOUT]
    assert list(queue.messages) == guids
    assert [app.messages for app in queue.apps.values()] == [2, 3, 3]
