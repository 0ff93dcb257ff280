"""The records that a rollover carries over, and the state after a crash within one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.recovery import recover
from broker.bmq.store.rollover import Rollover
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, group_file_sets
from formats.bmq.disk.journal import ConfirmReason, QueueOpRecord, QueueOpType
from formats.bmq.stores.faults import Severity
from formats.bmq.stores.recover import iter_journal
from formats.bmq.stores.validate import FileView, validate_file_set
from tests.broker.bmq.store.writing import KEY, LIMITS, Partition
from tests.broker.fakes import MemoryDirectory

ALL = {"foo", "bar", "baz"}
OTHER = b"other"
NEXT = "20261121_051105"


@dataclass
class Place:
    """A message's location, as known to the queue engine."""

    offset: int


@pytest.fixture
def partition() -> Partition:
    return Partition().create()


def plan(partition: Partition) -> tuple[Rollover, dict[bytes, Place]]:
    """A rollover of what recovery finds alive."""
    _, recovered = partition.reopen()
    alive = {m.queue_key + m.guid: Place(m.offset) for m in recovered.messages}
    return Rollover(partition.files, alive, set(recovered.queues)), alive


def raising(error: Exception) -> None:
    raise error


def rolled(partition: Partition) -> PartitionFiles:
    """The new files after a rollover, with the sync point that a partition writes."""
    rollover, alive = plan(partition)
    fresh = rollover.copy(0, f"20261121_{int(partition.files.timestamp[9:]) + 1:06}", LIMITS, records_due=1)
    assert fresh is not None
    first_sync_point = fresh.journal_end
    partition.files.retire(raising)
    partition.files = fresh
    partition.sync_point()
    rollover.finish(fresh, first_sync_point)
    assert {place.offset for place in alive.values()} <= set(range(40, fresh.data_end, 8))
    return fresh


def faults(partition: Partition) -> list[str]:
    files = partition.files
    views = [FileView(file.name, bytes(file.buffer)) for file in (files.journal, files.data, files.qlist)]
    return [fault.code for fault in validate_file_set(*views) if fault.severity is Severity.ERROR]


def test_live_messages_are_carried_over(partition: Partition) -> None:
    partition.post(1).post(2).post(3).confirm(2, "foo").delete(1).create(OTHER).post(4, OTHER).confirm(4, "bar", OTHER)
    before = partition.outstanding()
    fresh = rolled(partition)
    assert partition.outstanding() == before == {2: {"bar", "baz"}, 3: ALL, 4: {"foo", "baz"}}
    # Two queues, three messages, two confirms, a sync point.
    assert len(list(iter_journal(fresh.journal.buffer))) == 8
    assert faults(partition) == []


def test_records_keep_their_numbers_and_order(partition: Partition) -> None:
    partition.post(1).post(2).delete(1).new_lease().confirm(2, "foo").post(3)
    rolled(partition)
    numbers = [(r.primary_lease_id, r.sequence_number) for _, r in iter_journal(partition.files.journal.buffer)]
    assert numbers == [(1, 2), (1, 4), (2, 2), (2, 3), (2, 4)]


def test_it_can_be_done_again_and_again(partition: Partition) -> None:
    partition.post(1).post(2).confirm(1, "foo")
    for number in range(3, 8):
        fresh = rolled(partition)
        assert fresh.journal.reserve(LIMITS.journal)
        assert fresh.data.reserve(LIMITS.data)
        partition.post(number).confirm(number, "bar").delete(number)
        assert faults(partition) == []
    assert partition.outstanding() == {1: {"bar", "baz"}, 2: ALL}


def test_nothing_alive_leaves_the_queues(partition: Partition) -> None:
    partition.create(OTHER).post(1).delete(1).operate(QueueOpType.DELETION, OTHER)
    fresh = rolled(partition)
    assert set(recover(fresh).queues) == {KEY}
    assert fresh.data_end == 40
    assert faults(partition) == []


def test_it_says_beforehand_how_much_it_carries(partition: Partition) -> None:
    partition.post(1).post(2).confirm(2, "foo").delete(1).sync_point()
    rollover, _ = plan(partition)
    sizes = (rollover.journal_bytes, rollover.data_bytes, rollover.qlist_bytes)
    fresh = rolled(partition)
    carried = (fresh.journal_end - 44 - JOURNAL_RECORD_SIZE, fresh.data_end - 40, fresh.qlist_end - 36)
    assert sizes == carried


def test_confirms_of_an_earlier_life_are_left(partition: Partition) -> None:
    partition.post(1).confirm(1, "foo").confirm(1, "bar").delete(1).post(1)
    rolled(partition)
    assert partition.outstanding() == {1: ALL}
    assert faults(partition) == []


def test_apps_that_confirm_of_themselves_do_not_get_the_message_after_all(partition: Partition) -> None:
    partition.confirm(1, "foo", reason=ConfirmReason.AUTO_CONFIRMED).post(2).post(1).confirm(1, "bar")
    rolled(partition)
    assert partition.outstanding() == {2: ALL, 1: {"baz"}}
    assert faults(partition) == []


def test_removals_of_single_apps_are_remembered(partition: Partition) -> None:
    partition.post(1).operate(QueueOpType.PURGE, app="foo").post(2).operate(QueueOpType.DELETION, app="bar").post(3)
    before = partition.outstanding()
    rolled(partition)
    assert partition.outstanding() == before == {1: {"baz"}, 2: {"foo", "baz"}, 3: {"foo", "baz"}}
    assert faults(partition) == []


def test_purges_are_carried_over_as_the_reference_does() -> None:
    partition = Partition().create().create(OTHER)
    partition.post(1).operate(QueueOpType.PURGE).post(2).operate(QueueOpType.PURGE, OTHER)
    partition.operate(QueueOpType.DELETION, OTHER)
    fresh = rolled(partition)
    kept = [
        record.queue_op_type for _, record in iter_journal(fresh.journal.buffer) if isinstance(record, QueueOpRecord)
    ]
    assert kept == [QueueOpType.CREATION, QueueOpType.PURGE]
    assert partition.outstanding() == {2: ALL}
    assert faults(partition) == []


def test_added_apps_are_carried_over() -> None:
    partition = Partition().create(apps=("foo",)).create(apps=("bar",), added=True).post(1, ref_count=2)
    fresh = rolled(partition)
    assert [app.app_id for app in recover(fresh).queues[KEY].apps] == ["foo", "bar"]
    assert faults(partition) == []


def test_one_guid_in_two_queues(partition: Partition) -> None:
    partition.create(OTHER).post(1).post(1, OTHER).confirm(1, "foo", OTHER)
    fresh = rolled(partition)
    assert [(m.queue_key, len(m.confirmed)) for m in recover(fresh).messages] == [(KEY, 0), (OTHER, 1)]
    assert faults(partition) == []


@pytest.mark.parametrize("free", [0, 50, 100, 150, 200, 300])
def test_a_disk_that_fills_up_leaves_everything_as_it_was(partition: Partition, free: int) -> None:
    partition.post(1).post(2).confirm(1, "foo")
    rollover, alive = plan(partition)
    names, offsets = partition.directory.names(), [place.offset for place in alive.values()]
    partition.directory.free = free
    assert rollover.copy(0, NEXT, LIMITS, records_due=5) is None
    assert partition.directory.names() == names
    assert [place.offset for place in alive.values()] == offsets
    assert partition.directory.free == free


def test_disk_for_what_is_due_is_taken_with_it(partition: Partition) -> None:
    partition.post(1).post(2)
    partition.directory.free = 1 << 20
    rollover, _ = plan(partition)
    fresh = rollover.copy(0, NEXT, LIMITS, records_due=7)
    assert fresh is not None
    assert fresh.journal.granted >= fresh.journal_end + 7 * JOURNAL_RECORD_SIZE


def test_files_are_removed_with_their_journal_last() -> None:
    directory = MemoryDirectory()
    files = PartitionFiles.create(directory, 0, NEXT, LIMITS)
    assert files is not None
    left = []
    remove = directory.remove

    def watched(name: str) -> None:
        remove(name)
        left.append([found.journal for found in group_file_sets(directory.names())])

    directory.remove = watched  # type: ignore[method-assign]
    files.remove()
    assert left == [[f"bmq_0.{NEXT}.bmq_journal"], [f"bmq_0.{NEXT}.bmq_journal"], []]
