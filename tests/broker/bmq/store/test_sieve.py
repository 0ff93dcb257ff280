"""A sieve of journals: the rest of one has the same alive as all of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.store import sieve
from broker.bmq.store.moving import Moving
from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.recovery import recover
from broker.bmq.store.rollover import Rollover
from broker.bmq.store.sieve import JournalRows, JournalSieve
from broker.bmq.store.sliced_recovery import SlicedRecovery
from formats.bmq.disk.journal import ConfirmReason, QueueOpType
from tests.broker.bmq.store.sliced_recovery_rig import KEYS, LIMITS, STEP, take_step
from tests.broker.bmq.store.writing import KEY, Partition
from tests.families import examples


class Place:
    """A message's location, as known to the queue engine."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


def alive_in(partition: Partition) -> tuple[dict[bytes, Place], set[bytes]]:
    recovered = recover(partition.files, partition.files.ends)
    return {m.queue_key + m.guid: Place(m.offset) for m in recovered.messages}, set(recovered.queues)


def content(files: PartitionFiles | None) -> list[bytes]:
    assert files is not None
    ends = files.ends
    return [
        bytes(file.buffer[:end])
        for file, end in ((files.journal, ends.journal), (files.data, ends.data), (files.qlist, ends.qlist))
    ]


def rolled(partition: Partition, journal: JournalRows | None, timestamp: str) -> list[bytes]:
    alive, queues = alive_in(partition)
    plan = Rollover(partition.files, alive, queues, journal)
    return content(plan.copy(0, timestamp, LIMITS, 2))


def moved(partition: Partition, journal: JournalRows | None, timestamp: str, rows: int) -> list[bytes]:
    alive, queues = alive_in(partition)
    fresh = PartitionFiles.create(partition.directory, 0, timestamp, LIMITS)
    assert fresh is not None
    moving = Moving(partition.files, fresh, alive.get, queues, 0, journal=journal)
    while moving.rows_left:
        assert moving.advance(rows, 1 << 20)
    return content(fresh)


def recovered(partition: Partition, journal: JournalRows | None, rows: int) -> object:
    recovery = SlicedRecovery(partition.files, journal=journal)
    messages = []
    while not recovery.is_read:
        recovery.advance(rows)
    while not recovery.is_told:
        messages += recovery.messages(rows)
    return messages, {key: queue.apps for key, queue in recovery.queues.items()}


Steps = list[tuple[tuple[str, *tuple[object, ...]], int]]


def possible(steps: Steps) -> Steps:
    """Leave out automatic confirms that no message follows: a primary writes them right before their message."""
    found: Steps = []
    for step in reversed(steps):
        if not is_automatic(step[0]) or (found and (found[-1][0][0] == "post" or is_automatic(found[-1][0]))):
            found.append(step)
    return found[::-1]


def is_automatic(step: tuple[str, *tuple[object, ...]]) -> bool:
    return step[0] == "confirm" and step[-1] == ConfirmReason.AUTO_CONFIRMED


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieve, "PART_ROWS", 3)
    monkeypatch.setattr(sieve, "CHUNK_ROWS", 5)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(STEP, st.integers(0, 2)), max_size=60), st.integers(1, 9))
def test_sifted_journal_has_the_same_live_messages(steps: Steps, rows: int) -> None:
    partition, sifting = Partition(limits=LIMITS).create().create(KEYS[1]), JournalSieve()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sieve, "PART_ROWS", 3)
        patch.setattr(sieve, "CHUNK_ROWS", 5)
        for step, parts in possible(steps):
            take_step(partition, step)
            for _ in range(parts):
                sifting.advance(partition.files)
        # Some records have yet to be looked at, and then none.
        for number, last in enumerate((5, 0)):
            left = sifting.rows(partition.files, last)
            assert rolled(partition, left, f"20261121_0512{number}1") == rolled(
                partition, None, f"20261121_0512{number}2"
            )
            assert moved(partition, left, f"20261121_0512{number}3", rows) == moved(
                partition, None, f"20261121_0512{number}4", rows
            )
            assert recovered(partition, left, rows) == recovered(partition, None, rows)


def sifted(partition: Partition) -> JournalSieve:
    found = JournalSieve()
    while found.advance(partition.files):
        """Another part."""
    return found


@pytest.mark.usefixtures("small_parts")
def test_messages_that_are_gone_are_left_out_with_all_that_is_said_of_them() -> None:
    partition = Partition().create()
    for number in range(40):
        partition.post(number).confirm(number, "foo").confirm(number, "bar")
        if number > 1:
            partition.delete(number - 2)
    # The queue, and the records of two messages.
    assert len(sifted(partition).rows(partition.files)) == 1 + 2 * 3


@pytest.mark.usefixtures("small_parts")
def test_of_the_last_records_all_are_there() -> None:
    partition = Partition().create().post(1).delete(1).sync_point()
    assert len(sifted(partition).rows(partition.files, 2)) == 1 + 1 + 2
    # Unless they were looked at already.
    whole = len(JournalRows(partition.files))
    found = JournalSieve()
    found.rows(partition.files)
    assert len(found.rows(partition.files, 2)) == whole


@pytest.mark.usefixtures("small_parts")
def test_messages_restored_by_a_cut_are_found_again() -> None:
    partition = Partition().create().post(1).post(2)
    end = partition.files.journal_end
    found = sifted(partition.delete(1).post(3).sync_point())
    files = partition.files
    files.journal.buffer[end : files.journal_end] = bytes(files.journal_end - end)
    files.journal_end = end
    found.cut(files)
    assert len(found.rows(files)) == 3


@pytest.mark.usefixtures("small_parts")
def test_another_journal_is_begun_anew() -> None:
    found, other = sifted(Partition().create().post(1).post(2).delete(2)), Partition().create().post(3)
    assert len(found.rows(other.files)) == 2


@pytest.mark.usefixtures("small_parts")
def test_with_too_much_outstanding_all_records_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieve, "CHUNKS_MAX", 2)
    partition = Partition().create().post(100).delete(100)
    for number in range(20):
        partition.post(number)
    assert len(sifted(partition).rows(partition.files)) == len(JournalRows(partition.files))


def test_messages_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sieve._Keys, "hashes", lambda keys: np.zeros(len(keys.guids), np.uint64))
    partition = Partition().create().create(KEYS[1]).post(1).post(1, KEYS[1]).post(2).delete(1).delete(2).post(2)
    partition.confirm(2, "foo", KEY, ConfirmReason.CONFIRMED).operate(QueueOpType.PURGE)
    # Three operations, the message of the other queue, and the second of that GUID with its confirm.
    assert len(JournalSieve().rows(partition.files)) == 3 + 1 + 2


@pytest.mark.parametrize("rows", range(1, 8))
def test_a_confirm_of_itself_is_of_the_message_behind_it_and_of_no_later_one(rows: int) -> None:
    partition = Partition(limits=LIMITS).create()
    for _ in range(2):
        partition.confirm(5, "foo", reason=ConfirmReason.AUTO_CONFIRMED).post(5).operate(QueueOpType.PURGE)
    partition.post(5)
    assert moved(partition, None, "20261121_051201", rows) == rolled(partition, None, "20261121_051202")
    left = JournalSieve().rows(partition.files)
    assert moved(partition, left, "20261121_051203", rows) == rolled(partition, left, "20261121_051204")


def test_a_part_takes_as_long_however_long_the_journal_is() -> None:
    """Constants bound the numbers of records read and compared."""
    found = JournalSieve()
    looked_at: list[int] = []
    partition = Partition(limits=LIMITS).create()
    look_at = found._look_at

    def note(records: np.ndarray[tuple[int], np.dtype[np.void]], end: int) -> None:
        looked_at.append(end - found._row)
        look_at(records, end)

    found._look_at = note  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sieve, "PART_ROWS", 4)
        for number in range(100):
            partition.post(number).delete(number)
        while found.advance(partition.files):
            """Another part."""
    assert set(looked_at) == {4}
    assert len(looked_at) == len(JournalRows(partition.files)) // 4
