"""A QLIST that somebody has removed: the ledger tells what was in it, or the node does not start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.bmq.assembly.opening import StoreDamaged
from broker.bmq.node.changes import collect_idle_queues, reconfigure
from broker.bmq.store.lost_qlist import DEFAULT_APPS, Apps, LedgerNames, NotTold, make_qlist
from broker.bmq.store.partition_files import readable
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import QueueOpType
from formats.bmq.stores.recover import journal_extent
from tests.broker.bmq.rig import ACK, DOMAINS, READ, WRITE, Client, Rig, guid, start
from tests.broker.bmq.store.writing import APP_KEYS, KEY, Partition
from tests.broker.fakes import Crash, MemoryDirectory

PRIORITY, FANOUT, DEAD = "bmq://priority/q", "bmq://fanout/q", "bmq://priority/dead"


def post(rig: Rig, uri: str, *numbers: int) -> None:
    client = rig.connect()
    client.open(1, uri, WRITE | ACK)
    for number in numbers:
        client.put(1, guid(number), b"message %d" % number)


def read(rig: Rig, uri: str) -> list[bytes]:
    client: Client = rig.connect()
    client.read(1, uri)
    return client.payloads()


def with_apps(rig: Rig, *apps: str) -> None:
    domain = rig.node.domains["fanout"]
    rig.domains["fanout"] = replace(DOMAINS["fanout"], app_ids=apps)
    reconfigure(rig.node, domain, rig.domains["fanout"])
    rig.wait(1000)


def plain(rig: Rig) -> None:
    post(rig, PRIORITY, 1, 2)
    post(rig, FANOUT, 3)


def apps_that_come_and_go(rig: Rig) -> None:
    post(rig, FANOUT, 1)
    with_apps(rig, "foo", "bar", "baz", "four")
    post(rig, FANOUT, 2)
    with_apps(rig, "foo", "four")
    with_apps(rig, "foo", "four", "bar", "another")
    post(rig, FANOUT, 3)
    post(rig, PRIORITY, 4)


def a_queue_that_is_no_more(rig: Rig) -> None:
    client = rig.connect()
    client.open(1, DEAD, READ)
    client.close(1, DEAD, READ)
    post(rig, PRIORITY, 1)
    rig.wait(3000)
    collect_idle_queues(rig.node, 0)
    rig.wait(1000)
    collect_idle_queues(rig.node, 0)
    assert DEAD not in rig.node.queues
    post(rig, FANOUT, 2)


def a_rollover(rig: Rig) -> None:
    apps_that_come_and_go(rig)
    rig.node.partitions[0].roll_over()


def a_ledger_of_another_term(rig: Rig) -> None:
    plain(rig)
    rig.wait(1000)
    rig.stop()


HISTORIES = [plain, apps_that_come_and_go, a_queue_that_is_no_more, a_rollover, a_ledger_of_another_term]


def left_by(history: Callable[[Rig], None]) -> tuple[Rig, MemoryDirectory, bytes]:
    """A process, the folder that it leaves, and the content of its QLIST, which is gone."""
    rig = start(domains=dict(DOMAINS))
    history(rig)
    if not rig.node.stopping:
        rig.wait(2000)
    directory = rig.directory.after_crash()
    content = bytes(directory.files.pop(directory.find("qlist")).data)
    return rig, directory, content


@pytest.mark.parametrize("history", HISTORIES)
def test_a_lost_qlist_is_made_again(history: Callable[[Rig], None], caplog: pytest.LogCaptureFixture) -> None:
    rig, directory, before = left_by(history)
    again = rig.restart(directory)
    assert "recreated from the cluster-state ledger" in caplog.text
    after = bytes(directory.files[directory.find("qlist")].data)
    assert after.rstrip(b"\0") == before.rstrip(b"\0")
    assert again.faults() == []
    for uri in (PRIORITY, FANOUT):
        sound = rig.node.queues.get(uri)
        queue = again.node.queues.get(uri)
        assert (queue is None) == (sound is None)
        if queue is not None and sound is not None and sound.apps:
            assert list(queue.messages) == list(sound.messages)
            assert {app.app_id: app.key for app in queue.apps.values()} == {
                app.app_id: app.key for app in sound.apps.values()
            }
    if history is plain:
        assert read(again, PRIORITY) == [b"message 1", b"message 2"]


def test_a_crash_at_any_point_loses_nothing() -> None:
    for steps in range(200):
        rig, directory, before = left_by(plain)
        directory.steps_left = steps
        try:
            rig.restart(directory)
        except Crash:
            again = rig.restart(directory.after_crash())
            content = bytes(again.directory.files[again.directory.find("qlist")].data)
            assert content.rstrip(b"\0") == before.rstrip(b"\0"), steps
            assert read(again, PRIORITY) == [b"message 1", b"message 2"], steps
            continue
        break
    assert steps > 5


def test_one_that_was_being_made_is_made_anew() -> None:
    rig, directory, before = left_by(plain)
    start(directory)
    after = directory.after_crash()
    content = after.files[after.find("qlist")].data
    assert bytes(content).rstrip(b"\0") == before.rstrip(b"\0")
    content[:8] = bytes(8)
    assert read(rig.restart(after), PRIORITY) == [b"message 1", b"message 2"]


def test_it_outlives_a_power_failure_where_all_does() -> None:
    _, directory, before = left_by(plain)
    start(directory, outlives_power=True)
    name = directory.find("qlist")
    assert directory.platter[name].rstrip(b"\0") == before.rstrip(b"\0")
    assert not any(name == changed for changed, _ in directory.unflushed)


@pytest.mark.parametrize("known", ["nothing", "another key"])
def test_queue_missing_from_the_ledger_is_refused(known: str, caplog: pytest.LogCaptureFixture) -> None:
    rig, directory, _ = left_by(plain)
    del directory.files[directory.find("csl")]
    if known == "another key":
        other = start(domains=dict(DOMAINS))
        post(other, "bmq://priority/other", 1)
        ledger = other.directory.find("csl")
        directory.files[ledger] = other.directory.after_crash().files[ledger]
    with pytest.raises(StoreDamaged) as caught:
        rig.restart(directory)
    assert [fault.code for fault in caught.value.faults] == ["set-incomplete"]
    assert "cannot be recreated: the ledger has no queue" in caplog.text
    assert not any(name.endswith("qlist") for name in directory.names())


def test_without_disk_the_node_does_not_start(caplog: pytest.LogCaptureFixture) -> None:
    rig, directory, _ = left_by(plain)
    directory.free = 0
    with pytest.raises(StoreDamaged):
        rig.restart(directory)
    assert "cannot be recreated: no disk space" in caplog.text
    assert not any(name.endswith("qlist") for name in directory.names())


# -- what the ledger may say of a journal


def apps(*names: str) -> Apps:
    return tuple((name, APP_KEYS.get(name, name.ljust(5, "-").encode())) for name in names)


def grown() -> Partition:
    """A queue that was created with one app, and got another."""
    return Partition().create(apps=("foo",)).create(apps=("bar",), added=True).sync_point()


@pytest.mark.parametrize(
    "states",
    [
        [apps("foo"), apps("foo", "bar")],
        [apps("foo", "bar")],  # a ledger that begins with what came of it
        [apps("foo", "bar"), apps("foo", "bar", "baz")],  # the journal has yet to learn of the last
    ],
)
def test_the_apps_are_those_that_fit(states: list[Apps]) -> None:
    partition = grown()
    names = {KEY: LedgerNames("bmq://fanout/queue", 0, states)}
    made = make_qlist(readable(partition.files.journal), 0, names)
    assert made == bytes(partition.files.qlist.buffer[: partition.files.qlist_end])


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({}, "has no queue"),
        ({KEY: LedgerNames("bmq://fanout/queue", 1, [apps("foo", "bar")])}, "in partition 0"),
        ({KEY: LedgerNames("bmq://fanout/muchlonger", 0, [apps("foo", "bar")])}, "which apps"),
        ({KEY: LedgerNames("bmq://fanout/queue", 0, [apps("foo")])}, "which apps"),
        ({KEY: LedgerNames("bmq://fanout/queue", 0, [apps("foo"), apps("foo", "longer")])}, "which apps"),
    ],
)
def test_contradictory_sources_restore_no_queue_list(names: dict[bytes, LedgerNames], reason: str) -> None:
    with pytest.raises(NotTold, match=reason):
        make_qlist(readable(grown().files.journal), 0, names)


@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("is_synced", [False, True])
def test_without_a_sync_point_behind_the_last_record_the_ledger_tells_it(*, is_added: bool, is_synced: bool) -> None:
    partition = Partition().create(apps=("foo", "bar"))
    if is_synced:
        partition.sync_point()
    if is_added:
        partition.create(apps=("baz",), added=True)
    # Of the last state the journal does not know yet.
    states = [apps("foo", "bar"), apps("foo", "bar", "baz"), apps("foo", "bar", "baz", "four")]
    names = {KEY: LedgerNames("bmq://fanout/queue", 0, states)}
    made = make_qlist(readable(partition.files.journal), 0, names)
    assert made == bytes(partition.files.qlist.buffer[: partition.files.qlist_end])


@pytest.mark.parametrize("is_added", [False, True])
def test_of_several_records_before_messages_none_is_taken_on_a_guess(*, is_added: bool) -> None:
    partition = Partition()
    if is_added:
        partition.create(apps=("foo",)).sync_point().create(apps=("bar", "baz"), added=True)
    else:
        partition.create(apps=("foo", "bar", "baz"))
    states = [apps("foo"), apps("foo", "bar"), apps("foo", "bar", "baz")]
    names = {KEY: LedgerNames("bmq://fanout/queue", 0, states[not is_added :])}
    make_qlist(readable(partition.files.journal), 0, names)  # whichever it was, nobody waits for anything
    partition.post(1)
    with pytest.raises(NotTold, match="which apps queue 'bmq://fanout/queue' had when its newest messages came"):
        make_qlist(readable(partition.files.journal), 0, names)
    partition.sync_point()
    made = make_qlist(readable(partition.files.journal), 0, names)
    assert made == bytes(partition.files.qlist.buffer[: partition.files.qlist_end])


def test_messages_of_other_queues_and_of_before_need_no_guess() -> None:
    partition = Partition().create(key=b"other", apps=("foo",)).create(apps=("foo",)).post(1).sync_point()
    partition.create(apps=("bar",), added=True).post(2, key=b"other")
    names = {
        KEY: LedgerNames("bmq://fanout/queue", 0, [apps("foo"), apps("foo", "bar"), apps("foo", "bar", "baz")]),
        b"other": LedgerNames("bmq://fanout/other", 0, [apps("foo")]),
    }
    made = make_qlist(readable(partition.files.journal), 0, names)
    assert made == bytes(partition.files.qlist.buffer[: partition.files.qlist_end])


def test_messages_of_a_queue_that_is_no_more_need_no_guess() -> None:
    partition = Partition().create(apps=("foo",)).post(1).delete(1).operate(QueueOpType.DELETION)
    names = {KEY: LedgerNames("bmq://fanout/queue", 0, [apps("foo"), apps("foo", "bar")])}
    made = make_qlist(readable(partition.files.journal), 0, names)
    assert made == bytes(partition.files.qlist.buffer[: partition.files.qlist_end])


def test_a_record_that_may_name_no_app_or_the_one_by_default_is_no_guess() -> None:
    partition = Partition().create(apps=()).post(1)
    names = {KEY: LedgerNames("bmq://fanout/queue", 0, [(), DEFAULT_APPS])}
    made = make_qlist(readable(partition.files.journal), 0, names)
    assert made == bytes(partition.files.qlist.buffer[: partition.files.qlist_end])


def test_the_only_state_that_could_be_is_taken_although_messages_follow() -> None:
    partition = Partition().create(apps=("foo",)).sync_point().create(apps=("bar", "baz"), added=True).post(1)
    names = {KEY: LedgerNames("bmq://fanout/queue", 0, [apps("foo"), apps("foo", "bar", "baz")])}
    made = make_qlist(readable(partition.files.journal), 0, names)
    assert made == bytes(partition.files.qlist.buffer[: partition.files.qlist_end])


def test_a_process_that_ends_within_a_second_of_a_new_queue_keeps_its_messages() -> None:
    rig = start(domains=dict(DOMAINS))
    plain(rig)
    directory = rig.directory.after_crash()
    before = bytes(directory.files.pop(directory.find("qlist")).data)
    again = rig.restart(directory)
    assert bytes(directory.files[directory.find("qlist")].data).rstrip(b"\0") == before.rstrip(b"\0")
    assert again.faults() == []
    assert read(again, PRIORITY) == [b"message 1", b"message 2"]


def test_records_that_begin_elsewhere_are_not_told() -> None:
    partition = Partition().create(apps=("foo",)).create(apps=("bar",), added=True).sync_point()
    journal = bytearray(readable(partition.files.journal))
    extent = journal_extent(journal)
    at = extent.first_record_offset + JOURNAL_RECORD_SIZE  # after the first sync point: the CREATION
    del journal[at : at + JOURNAL_RECORD_SIZE]
    names = {KEY: LedgerNames("bmq://fanout/queue", 0, [apps("foo", "bar")])}
    with pytest.raises(NotTold, match="where the records were"):
        make_qlist(journal, 0, names)


def test_a_journal_without_queues_has_an_empty_one() -> None:
    partition = Partition()
    made = make_qlist(readable(partition.files.journal), 0, {})
    assert made == bytes(partition.files.qlist.buffer[: partition.files.qlist_end])
