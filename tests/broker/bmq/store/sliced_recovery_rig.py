"""Journals of any records, for tests of recovery in slices."""

from __future__ import annotations

from hypothesis import strategies as st

from broker.bmq.store.partition_files import PartitionLimits
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
