"""Recovery in slices finds what recovery at once does, however long the slices are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.store.recovery import Recovered, recover
from broker.bmq.store.sliced_recovery import SlicedRecovery
from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag
from tests.broker.bmq.store.sliced_recovery_rig import KEYS, LIMITS, STEP, sorted_gone, take_step
from tests.broker.bmq.store.writing import KEY, Partition
from tests.families import examples


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
    ended: dict[bytes, bytearray] = {}
    for key, guids in recovery.ended:
        ended.setdefault(key, bytearray()).extend(guids)
    return Recovered(recovery.queues, messages, 0, 0, 0, 0, gone, recovery.timestamp, ended)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, max_size=60), st.integers(1, 9))
def test_it_finds_the_same(steps: list[tuple[str, *tuple[object, ...]]], rows: int) -> None:
    partition = Partition(limits=LIMITS).create().create(KEYS[1])
    for step in steps:
        take_step(partition, step)
    found, wanted = slowly(partition, rows), recover(partition.files, partition.files.ends)
    assert found.messages == wanted.messages
    assert found.queues == wanted.queues
    assert sorted_gone(found.gone) == sorted_gone(wanted.gone)
    assert found.ended == wanted.ended
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
