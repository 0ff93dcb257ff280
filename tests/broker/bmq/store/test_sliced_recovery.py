"""Recovery in slices finds what recovery at once does, however long the slices are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.store.partition_files import PartitionLimits
from broker.bmq.store.recovery import Recovered, recover
from broker.bmq.store.sliced_recovery import SlicedRecovery
from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag, QueueOpType
from tests.broker.bmq.store.writing import APP_KEYS, KEY, Partition

KEYS = (KEY, b"other")
LIMITS = PartitionLimits(journal=64 << 10, data=64 << 10, qlist=64 << 10)

NUMBER = st.integers(0, 7)
QUEUE = st.sampled_from(KEYS)
APP = st.sampled_from(tuple(APP_KEYS))
APP_OR_ALL = st.sampled_from(("", *APP_KEYS))
STEP = st.one_of(
    st.tuples(st.just("post"), NUMBER, QUEUE, st.integers(1, 3)),
    st.tuples(st.just("post"), NUMBER, QUEUE, st.integers(1, 3)),
    st.tuples(st.just("confirm"), NUMBER, APP, QUEUE, st.sampled_from(ConfirmReason)),
    st.tuples(st.just("confirm"), NUMBER, APP, QUEUE, st.just(ConfirmReason.CONFIRMED)),
    st.tuples(st.just("delete"), NUMBER, QUEUE, st.sampled_from(DeletionRecordFlag)),
    st.tuples(st.just("create"), QUEUE, st.just(("foo", "bar")), st.booleans()),
    st.tuples(st.just("operate"), st.just(QueueOpType.PURGE), QUEUE, APP_OR_ALL),
    st.tuples(st.just("operate"), st.just(QueueOpType.DELETION), QUEUE, APP_OR_ALL),
    st.tuples(st.just("refuse"), QUEUE, st.integers(1, 20)),
)


def sorted_gone(gone: dict[bytes, bytes]) -> dict[bytes, list[bytes]]:
    return {key: sorted(guids[at : at + 16] for at in range(0, len(guids), 16)) for key, guids in gone.items()}


def slowly(partition: Partition, rows: int) -> Recovered:
    recovery = SlicedRecovery(partition.files, remembers=True)
    messages = []
    while not recovery.is_read:
        recovery.advance(rows)
    while not recovery.is_told:
        messages += recovery.messages(rows)
    gone: dict[bytes, bytes] = {}
    for key, guids in recovery.gone:
        gone[key] = gone.get(key, b"") + guids
    return Recovered(recovery.queues, messages, 0, 0, 0, 0, gone, recovery.timestamp)


def take_step(partition: Partition, step: tuple[str, *tuple[object, ...]]) -> None:
    """Write the record that a step says."""
    what, *arguments = step
    if what == "post":
        number, key, ref_count = arguments
        partition.post(number, key, ref_count)  # type: ignore[arg-type]
    elif what == "refuse":
        key, refused = arguments
        partition.purge(key, refused=refused)  # type: ignore[arg-type]
    elif what == "delete":
        number, key, flag = arguments
        partition.delete(number, key, flag)  # type: ignore[arg-type]
    else:
        getattr(partition, what)(*arguments)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=60), st.integers(1, 9))
def test_it_finds_the_same(steps: list[tuple[str, *tuple[object, ...]]], rows: int) -> None:
    partition = Partition(limits=LIMITS).create().create(KEYS[1])
    for step in steps:
        take_step(partition, step)
    found, wanted = slowly(partition, rows), recover(partition.files, partition.files.ends)
    assert found.messages == wanted.messages
    assert found.queues == wanted.queues
    assert sorted_gone(found.gone) == sorted_gone(wanted.gone)
    assert found.timestamp == wanted.timestamp


@pytest.mark.parametrize("rows", range(1, 10))
def test_confirms_before_a_deletion_are_of_no_later_message_of_that_guid(rows: int) -> None:
    """A message that was refused, and that its producer posts again."""
    partition = Partition(limits=LIMITS).create().create(KEYS[1])
    for again in (False, True):
        partition.post(0, KEY, 1)
        if not again:
            partition.confirm(0, "foo", KEY, ConfirmReason.AUTO_CONFIRMED)
            partition.delete(0, KEY, DeletionRecordFlag.NO_SC_QUORUM)
    found, wanted = slowly(partition, rows), recover(partition.files, partition.files.ends)
    assert len(wanted.messages) == 1
    assert found.messages == wanted.messages
