"""The queues and messages that a partition's records describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.bmq.store.partition_files import PartitionFiles, zero_from
from broker.bmq.store.recovery import recover
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, group_file_sets
from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag, QueueOpType
from formats.bmq.guid import parse_guid
from formats.errors import FormatError
from tests.broker.bmq.rig import guid
from tests.broker.bmq.store.writing import KEY, LIMITS, Partition
from tests.broker.fakes import Content, MemoryDirectory
from tests.golden.archives import map_file, truth, unpack_store

ALL = {"foo", "bar", "baz"}
OTHER = b"other"


@pytest.fixture
def partition() -> Partition:
    return Partition().create()


def test_a_message_is_wanted_by_those_who_have_not_confirmed_it(partition: Partition) -> None:
    partition.post(1).post(2).post(3).confirm(2, "foo").confirm(1, "bar").confirm(1, "foo")
    assert partition.outstanding() == {1: {"baz"}, 2: {"bar", "baz"}, 3: ALL}


def test_a_deleted_message_is_gone(partition: Partition) -> None:
    partition.post(1).post(2).confirm(1, "foo").delete(1)
    assert partition.outstanding() == {2: ALL}


def test_a_message_that_all_have_confirmed_is_gone(partition: Partition) -> None:
    """The message's deletion was not written before the crash."""
    partition.post(1).post(2).confirm(1, "foo").confirm(1, "bar").confirm(1, "baz")
    assert partition.outstanding() == {2: ALL}


def test_an_operation_that_makes_nothing_does_not_point_into_qlist(partition: Partition) -> None:
    """The field may hold anything: a bit of it may be corrupted, and validation only warns of that."""
    partition.operate(QueueOpType.PURGE).post(1)
    journal, at = partition.files.journal.buffer, partition.files.journal_end - 2 * JOURNAL_RECORD_SIZE
    journal[at + 37] ^= 0x10
    assert partition.outstanding() == {1: ALL}


def test_a_message_posted_again_is_a_new_one(partition: Partition) -> None:
    """Confirms of the first do not count for the second."""
    partition.post(1).post(2).confirm(1, "foo").confirm(1, "bar").delete(1).post(1)
    assert partition.outstanding() == {2: ALL, 1: ALL}
    partition.confirm(1, "baz")
    assert partition.outstanding() == {2: ALL, 1: {"foo", "bar"}}


def test_one_guid_in_two_queues(partition: Partition) -> None:
    partition.create(OTHER).post(1).post(1, OTHER).confirm(1, "foo", OTHER)
    _, recovered = partition.reopen()
    assert [(m.queue_key, len(m.confirmed)) for m in recovered.messages] == [(KEY, 0), (OTHER, 1)]
    partition.delete(1)
    _, recovered = partition.reopen()
    assert [m.queue_key for m in recovered.messages] == [OTHER]


def test_apps_that_confirm_of_themselves_do_so_before_the_message(partition: Partition) -> None:
    partition.confirm(1, "foo", reason=ConfirmReason.AUTO_CONFIRMED).post(1)
    partition.confirm(9, "foo", reason=ConfirmReason.AUTO_CONFIRMED)
    assert partition.outstanding() == {1: {"bar", "baz"}}


def test_a_purge_ends_what_was_before_it(partition: Partition) -> None:
    partition.create(OTHER).post(1).post(2, OTHER).operate(QueueOpType.PURGE).post(3)
    assert partition.outstanding() == {2: ALL, 3: ALL}


def test_a_purge_of_one_app_confirms_for_it(partition: Partition) -> None:
    partition.post(1).operate(QueueOpType.PURGE, app="foo").post(2)
    assert partition.outstanding() == {1: {"bar", "baz"}, 2: ALL}


def test_a_deleted_queue_is_gone_with_its_messages(partition: Partition) -> None:
    partition.create(OTHER).post(1).post(2, OTHER).operate(QueueOpType.DELETION)
    _, recovered = partition.reopen()
    assert set(recovered.queues) == {OTHER}
    assert partition.outstanding() == {2: ALL}
    partition.create().post(3)
    assert partition.outstanding() == {2: ALL, 3: ALL}


def test_apps_come_and_go() -> None:
    partition = Partition().create(apps=("foo", "bar")).post(1, ref_count=2)
    partition.create(apps=("baz",), added=True).post(2)
    partition.operate(QueueOpType.DELETION, app="foo").post(3, ref_count=2)
    _, recovered = partition.reopen()
    assert [app.app_id for app in recovered.queues[KEY].apps] == ["bar", "baz"]
    # An app that came later wants none of the messages before.
    assert partition.outstanding() == {1: {"bar"}, 2: {"bar", "baz"}, 3: {"bar", "baz"}}


def test_records_of_a_queue_that_never_was_are_left_out(partition: Partition) -> None:
    partition.post(1, OTHER).post(2)
    assert partition.outstanding() == {2: ALL}


def test_the_last_record_has_the_last_numbers(partition: Partition) -> None:
    assert (partition.reopen()[1].primary_lease_id, partition.reopen()[1].sequence_number) == (1, 2)
    partition.new_lease().post(1)
    assert (partition.reopen()[1].primary_lease_id, partition.reopen()[1].sequence_number) == (2, 2)
    assert partition.reopen()[1].records == 4


def test_files_end_where_their_last_record_does(partition: Partition) -> None:
    partition.post(1).create(OTHER).post(2).sync_point()
    files, recovered = partition.reopen()
    wrote = partition.files
    assert (files.journal_end, files.data_end, files.qlist_end) == (
        wrote.journal_end,
        wrote.data_end,
        wrote.qlist_end,
    )
    assert recovered.bytes_cut == 0


def test_data_without_a_record_is_cleared(partition: Partition) -> None:
    partition.post(1)
    ends = (partition.files.journal_end, partition.files.data_end, partition.files.qlist_end)
    partition.create(OTHER).post(2)
    buffer = partition.files.journal.buffer
    for at in range(ends[0], partition.files.journal_end, JOURNAL_RECORD_SIZE):
        buffer[at + JOURNAL_RECORD_SIZE - 5 : at + JOURNAL_RECORD_SIZE] = bytes(5)
    files, recovered = partition.reopen()
    assert (files.journal_end, files.data_end, files.qlist_end) == ends
    assert recovered.bytes_cut > 0
    assert not any(files.journal.buffer[ends[0] :])
    assert not any(files.data.buffer[ends[1] :])
    assert not any(files.qlist.buffer[ends[2] :])


def test_zero_from_counts_what_it_clears() -> None:
    file = MemoryDirectory().open("a", 1000)
    assert file.reserve(1000)
    assert zero_from(file, 0) == 0
    file.buffer[100:110] = b"0123456789"
    file.buffer[999] = 1
    assert zero_from(file, 105) == 6
    assert bytes(file.buffer[100:]) == b"01234" + bytes(895)
    file.close()


def test_a_message_whose_payload_lies_outside_is_an_error(partition: Partition) -> None:
    partition.post(1)
    partition.files.journal.buffer[partition.files.journal_end - 28] = 0xFF  # the upper byte of its offset
    with pytest.raises(FormatError):
        partition.reopen()


# -- stores of the reference


def opened(name: str, tmp_path: Path) -> PartitionFiles:
    """A golden store in memory; its files cut to what is written, or a little more."""
    path = unpack_store(name, tmp_path)
    directory = MemoryDirectory()
    for file in path.iterdir():
        data = bytes(map_file(file)[: 8 << 20])
        directory.files[file.name] = Content(bytearray(data), len(data))
    (file_set,) = group_file_sets(directory.names())
    return PartitionFiles.open(directory, file_set, LIMITS)


@pytest.mark.parametrize(("name", "posted"), [("single-crash", "single"), ("cluster-node0", "cluster")])
def test_golden_stores_hold_what_the_client_did_not_confirm(name: str, posted: str, tmp_path: Path) -> None:
    files = opened(name, tmp_path)
    recovered = recover(files)
    wanted: dict[bytes, set[str]] = {}
    for said in truth(posted):
        # Not stored; expired; and a queue whose rest was read in the failover run, of which the truth does not tell.
        if any(part in said["queue"] for part in ("mem.broadcast", "gold.ttl", "/orders-2")):
            continue
        apps = {"foo", "bar", "baz"} if "fanout" in said["queue"] else {"__default"}
        left = apps - set(said["confirmed_by"])
        if left:
            wanted[parse_guid(said["guid"].upper())] = left
    app_ids = {app.app_key: app.app_id for queue in recovered.queues.values() for app in queue.apps}
    told = {parse_guid(said["guid"].upper()) for said in truth(posted)}
    found = {
        message.guid: {app.app_id for app in recovered.queues[message.queue_key].apps}
        - {app_ids[key] for key in message.confirmed}
        for message in recovered.messages
        if message.guid in told
    }
    assert found == wanted
    assert len(found) == (180 if posted == "single" else 120)


def test_removed_messages_are_told_by_queue_in_their_order(partition: Partition) -> None:
    zeros = b"\0\0\1\0\0"
    partition.create(OTHER).create(zeros)
    keys = (KEY, OTHER, zeros)
    for number in range(30):
        partition.post(number, keys[number % 3])
    deleted = [7, 3, 29, 28, 0, 2, 4, 8, 5, 1]
    for number in deleted:
        partition.delete(number, keys[number % 3])
    _, recovered = partition.reopen()
    assert recovered.gone == {
        key: b"".join(guid(number) for number in deleted if keys[number % 3] == key) for key in keys
    }


def test_messages_purged_with_their_queue_count_as_removed(partition: Partition) -> None:
    partition.create(OTHER)
    for number in range(6):
        partition.post(number, KEY if number % 2 else OTHER)
    partition.delete(1).operate(QueueOpType.PURGE).post(7)
    _, recovered = partition.reopen()
    assert recovered.gone == {KEY: guid(1) + guid(3) + guid(5) + guid(1)}
    assert [message.guid for message in recovered.messages] == [guid(0), guid(2), guid(4), guid(7)]


def test_message_that_all_apps_are_done_with_counts_as_removed_without_a_deletion(partition: Partition) -> None:
    """A process may die after the purge of an app, or the last confirm, and before the deletions."""
    partition.post(1).confirm(1, "foo").confirm(1, "baz").post(2).operate(QueueOpType.PURGE, KEY, "bar")
    partition.post(3).confirm(3, "foo").confirm(3, "bar").confirm(3, "baz")
    _, recovered = partition.reopen()
    assert recovered.gone == {KEY: guid(1) + guid(3)}
    assert [message.guid for message in recovered.messages] == [guid(2)]


def test_message_refused_for_want_of_copies_does_not_count_as_removed(partition: Partition) -> None:
    refused = DeletionRecordFlag.NO_SC_QUORUM
    partition.post(1).delete(1, flag=refused).post(2).delete(2, flag=refused).post(2).delete(2)
    partition.post(3).delete(3, flag=refused).post(4).post(5).delete(5, flag=refused).post(5)
    assert partition.reopen()[1].gone == {KEY: guid(2)}
    partition.operate(QueueOpType.PURGE)
    assert partition.reopen()[1].gone == {KEY: guid(2) + guid(4) + guid(5) + guid(2)}


def test_a_purge_says_from_where_on_it_refused_for_want_of_copies(partition: Partition) -> None:
    partition.create(OTHER).post(0).new_lease().post(1).post(8, OTHER).post(2).post(3)
    partition.purge(refused=2)
    assert partition.reopen()[1].gone == {KEY: guid(0) + guid(1)}
    # Later ones may come again, like any others; messages of other queues do not matter to it.
    partition.post(3).post(4).operate(QueueOpType.PURGE).operate(QueueOpType.PURGE, OTHER)
    _, recovered = partition.reopen()
    assert recovered.gone == {KEY: guid(0) + guid(1) + guid(3) + guid(4), OTHER: guid(8)}
    assert not recovered.messages
