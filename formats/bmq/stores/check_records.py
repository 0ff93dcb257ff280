"""Faults of single journal records: their shape, their order, the values of their fields.

Works on whole columns of scanned chunks (`formats.bmq.disk.journal.scan`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import (
    ANY_RECORD,
    JOURNAL_OP_RECORD,
    LAYOUTS,
    RECORD_MAGIC,
    JournalOpType,
    QueueOpType,
    RecordType,
    SyncPointType,
)
from formats.bmq.stores.faults import Fault, fault
from formats.schema import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Chunk", "Order", "check_fields", "check_order", "check_shape"]

TIMESTAMP_MIN = 1_262_304_000  # 2010-01-01
TIMESTAMP_MAX = 4_102_444_800  # 2100-01-01
CLOCK_STEP_S_MAX = 600
COMPRESSION_MAX = 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records: `index` is the first one's place in the journal, `offset` its bytes."""

    file: str
    index: int
    offset: int
    records: NDArray[Any]

    def offset_of(self, position: int) -> int:
        return self.offset + position * JOURNAL_RECORD_SIZE

    def fault(self, code: str, position: int, reason: str) -> Fault:
        return fault(code, self.file, self.offset_of(int(position)), reason)


def check_shape(chunk: Chunk, good: NDArray[Any]) -> Iterator[Fault]:
    """Yield unreadable records, and set their `good` (bool of shape (n,)) to False."""
    records = chunk.records
    kinds = ANY_RECORD.column(records, "type")
    magic = records["magic"] == RECORD_MAGIC
    typed = (kinds >= RecordType.MESSAGE) & (kinds <= RecordType.JOURNAL_OP)
    numbered = (records["primary_lease_id"] != 0) & (ANY_RECORD.column(records, "sequence_number") != 0)
    good[:] = magic & typed & numbered
    for position in _where(~good):
        if not magic[position]:
            yield chunk.fault("record-magic", position, f"{int(records['magic'][position]):#010x} is not '*rEc'")
        elif not typed[position]:
            yield chunk.fault("record-type", position, f"{int(kinds[position])} is no record type")
        else:
            yield chunk.fault("record-numbers", position, "lease id or sequence number is 0")


class Order:
    """The last record's numbers, carried from chunk to chunk.

    `rolled_over` is True up to the first sync point: a rollover copied these records, and their sequence numbers may
    have gaps.
    """

    def __init__(self) -> None:
        self.rolled_over = True
        self._index = -1
        self._lease_id = 0
        self._sequence_number = 0
        self._timestamp = 0

    def advance(
        self, indexes: NDArray[Any], leases: NDArray[Any], numbers: NDArray[Any], times: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The columns of each record's predecessor; without one, the record precedes itself by one."""
        import numpy as np

        first = self._index < 0
        if first:
            self._index, self._lease_id = int(indexes[0]) - 1, int(leases[0])
            self._sequence_number, self._timestamp = int(numbers[0]) - 1, int(times[0])
        columns = (
            np.concatenate([[self._index], indexes[:-1]]),
            np.concatenate([[self._lease_id], leases[:-1]]),
            np.concatenate([[self._sequence_number], numbers[:-1]]),
            np.concatenate([[self._timestamp], times[:-1]]),
        )
        self._index, self._lease_id = int(indexes[-1]), int(leases[-1])
        self._sequence_number, self._timestamp = int(numbers[-1]), int(times[-1])
        return columns


def check_order(chunk: Chunk, good: NDArray[Any], order: Order) -> Iterator[Fault]:
    """Yield records out of order: lease ids never fall, and within a lease sequence numbers rise by one.

    In rolled-over records they only rise. An unreadable record leaves a hole of its width, which is no fault of its
    neighbours.
    """
    import numpy as np

    positions = np.flatnonzero(good)
    if not len(positions):
        return
    records = chunk.records[positions]
    leases = ANY_RECORD.column(records, "primary_lease_id").astype(np.int64)
    numbers = ANY_RECORD.column(records, "sequence_number").astype(np.int64)
    times = np.minimum(ANY_RECORD.column(records, "timestamp"), np.uint64(1 << 62)).astype(np.int64)
    before, last_leases, last_numbers, last_times = order.advance(positions + chunk.index, leases, numbers, times)

    sync_points = np.flatnonzero(
        (ANY_RECORD.column(records, "type") == RecordType.JOURNAL_OP)
        & (records.view(JOURNAL_OP_RECORD.dtype)["journal_op_type"] == JournalOpType.SYNCPOINT)
    )
    rolled_over = np.zeros(len(positions), bool)
    if order.rolled_over:
        rolled_over[: int(sync_points[0]) + 1 if len(sync_points) else None] = True
        order.rolled_over = not len(sync_points)

    same_lease = leases == last_leases
    rise = numbers - last_numbers
    wanted = positions + chunk.index - before
    repeated = same_lease & (rise <= 0)
    gap = same_lease & ~repeated & ~rolled_over & (rise != wanted)
    late_start = (leases > last_leases) & ~rolled_over & (numbers > wanted)
    for at in _where(leases < last_leases):
        reason = f"lease id {leases[at]} after {last_leases[at]}"
        yield chunk.fault("lease-backwards", positions[at], reason)
    for at in _where(repeated):
        reason = f"sequence number {numbers[at]} after {last_numbers[at]}"
        yield chunk.fault("sequence-repeated", positions[at], reason)
    for at in _where(gap):
        reason = f"sequence number {numbers[at]} after {last_numbers[at]}, expected {last_numbers[at] + wanted[at]}"
        yield chunk.fault("sequence-gap", positions[at], reason)
    for at in _where(late_start):
        reason = f"lease id {leases[at]} starts with sequence number {numbers[at]}"
        yield chunk.fault("lease-start", positions[at], reason)
    implausible = (times < TIMESTAMP_MIN) | (times > TIMESTAMP_MAX)
    for at in _where(implausible):
        yield chunk.fault("timestamp-implausible", positions[at], f"{times[at]} s since the epoch")
    for at in _where((last_times - times > CLOCK_STEP_S_MAX) & ~implausible & (last_times <= TIMESTAMP_MAX)):
        yield chunk.fault(
            "timestamp-backwards", positions[at], f"{last_times[at] - times[at]} s before its predecessor"
        )


_RESERVED = {
    kind: [name for name in layout.cls._fields if name.startswith("reserved")] for kind, layout in LAYOUTS.items()
}


def check_fields(chunk: Chunk, kind: RecordType, records: NDArray[Any], positions: NDArray[Any]) -> Iterator[Fault]:
    """Yield values outside the range of their fields; `records` are those of `kind`, at `positions` of the chunk."""
    layout = LAYOUTS[kind]
    for name in _RESERVED[kind]:
        yield from _reserved(chunk, layout, records, positions, name)
    if kind is RecordType.JOURNAL_OP:
        yield from _check_journal_op(chunk, layout, records, positions)
        return
    if kind is RecordType.QUEUE_OP:
        yield from _check_queue_op(chunk, layout, records, positions)
    else:
        for at in _where(~_nonzero(layout, records, "guid")):
            yield chunk.fault("field-invalid", positions[at], f"{layout.name}.guid is unset")
    for at in _where(~_nonzero(layout, records, "queue_key")):
        yield chunk.fault("field-invalid", positions[at], f"{layout.name}.queue_key is null")
    if kind is RecordType.MESSAGE:
        yield from _check_message(chunk, layout, records, positions)
    elif kind is RecordType.CONFIRM:
        yield from _unexpected(chunk, layout, records, positions, "reason", _CONFIRM_REASONS, "field-unknown")
    elif kind is RecordType.DELETION:
        yield from _unexpected(chunk, layout, records, positions, "deletion_flag", _DELETION_FLAGS, "field-unknown")


def _check_journal_op(
    chunk: Chunk, layout: Layout[Any], records: NDArray[Any], positions: NDArray[Any]
) -> Iterator[Fault]:
    yield from _reserved(chunk, layout, records, positions, "flags")
    operation = layout.column(records, "journal_op_type")
    sync_point = operation == JournalOpType.SYNCPOINT
    for at in _where(~sync_point):
        yield chunk.fault("journal-op-unknown", positions[at], f"journal_op_type {operation[at]}")
    yield from _unexpected(
        chunk, layout, records[sync_point], positions[sync_point], "sync_point_type", _SYNC_POINT_TYPES
    )


def _check_queue_op(
    chunk: Chunk, layout: Layout[Any], records: NDArray[Any], positions: NDArray[Any]
) -> Iterator[Fault]:
    import numpy as np

    yield from _reserved(chunk, layout, records, positions, "flags")
    yield from _unexpected(chunk, layout, records, positions, "queue_op_type", _QUEUE_OP_TYPES)
    making = np.isin(layout.column(records, "queue_op_type"), (QueueOpType.CREATION, QueueOpType.ADDITION))
    for name in ("app_key", "start_primary_lease_id", "start_sequence_number"):
        for at in _where(_nonzero(layout, records, name) & making):
            yield chunk.fault("reserved-not-zero", positions[at], f"{layout.name}.{name} of a created queue")
    for at in _where(_nonzero(layout, records, "queue_uri_record_offset_words") & ~making):
        reason = f"{layout.name}.queue_uri_record_offset_words where no queue is created"
        yield chunk.fault("reserved-not-zero", positions[at], reason)


def _check_message(
    chunk: Chunk, layout: Layout[Any], records: NDArray[Any], positions: NDArray[Any]
) -> Iterator[Fault]:
    compression = layout.column(records, "compression")
    for at in _where(compression > COMPRESSION_MAX):
        # Consumers could not read the message.
        yield chunk.fault("field-invalid", positions[at], f"{layout.name}.compression is {compression[at]}")
    for at in _where((layout.column(records, "ref_count_low") == 0) & (records["ref_count_high"] == 0)):
        yield chunk.fault("field-unknown", positions[at], f"{layout.name}.ref_count is 0")
    yield from _reserved(chunk, layout, records, positions, "file_key")


def _reserved(
    chunk: Chunk, layout: Layout[Any], records: NDArray[Any], positions: NDArray[Any], name: str
) -> Iterator[Fault]:
    for at in _where(_nonzero(layout, records, name)):
        yield chunk.fault("reserved-not-zero", positions[at], f"{layout.name}.{name}")


_SYNC_POINT_TYPES = (SyncPointType.REGULAR, SyncPointType.ROLLOVER)
_QUEUE_OP_TYPES = (QueueOpType.PURGE, QueueOpType.CREATION, QueueOpType.DELETION, QueueOpType.ADDITION)
_CONFIRM_REASONS = (0, 1, 2, 3)
_DELETION_FLAGS = (0, 1, 2, 4)


def _unexpected(
    chunk: Chunk,
    layout: Layout[Any],
    records: NDArray[Any],
    positions: NDArray[Any],
    name: str,
    values: tuple[int, ...],
    code: str = "field-invalid",
) -> Iterator[Fault]:
    import numpy as np

    column = layout.column(records, name)
    for at in _where(~np.isin(column, values)):
        yield chunk.fault(code, positions[at], f"{layout.name}.{name} is {column[at]}")


def _nonzero(layout: Layout[Any], records: NDArray[Any], name: str) -> NDArray[Any]:
    import numpy as np

    column = layout.column(records, name)
    if column.dtype.kind == "V":
        size = column.dtype.itemsize
        return np.asarray(np.ascontiguousarray(column).view(np.uint8).reshape(len(records), size).any(axis=1))
    return column.astype(bool)


def _where(mask: NDArray[Any]) -> list[int]:
    positions: list[int] = mask.nonzero()[0].tolist()
    return positions
