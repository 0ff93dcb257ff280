"""The columns of a dump: one declaration for each kind of record, from which all outputs derive.

`Number` and `Hex` columns are fields of the record. `Derived` columns, such as a queue's name, are computed from a few
fields, once for all records that share them. None means that a record has no such column.

`journal_columns` declares our output, `reference.reference_columns` the reference tool's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.chunks import FAULT, Chunk, Part
from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.times import iso_time
from formats.bmq.disk.journal import (
    ConfirmReason,
    DeletionRecordFlag,
    JournalOpType,
    QueueOpType,
    RecordType,
    SyncPointType,
)
from formats.bmq.disk.keys import NULL_KEY, hex_of
from formats.bmq.padding import DWORD, WORD

__all__ = [
    "Column",
    "Columns",
    "Constant",
    "Derived",
    "Hex",
    "Kind",
    "Number",
    "Row",
    "Value",
    "column_order",
    "flags_of",
    "journal_columns",
    "name_of",
    "rows_of",
]

Row = dict[str, Any]
Value = str | int | dict[str, Any] | list[dict[str, str]] | None

COMPRESSION = {0: "NONE", 1: "ZLIB"}


class Kind(Enum):
    """The type of a column's values."""

    NUMBER = "number"
    TEXT = "text"
    TIME = "time"
    JSON = "json"


class Column(NamedTuple):
    name: str
    kind: Kind = Kind.TEXT


@dataclass(frozen=True)
class Number:
    """An integer field times `unit`; with `low`, one that is split into two fields."""

    name: str
    field: str
    unit: int = 1
    low: str | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return (Column(self.name, Kind.NUMBER),)

    def read(self, part: Part) -> NDArray[Any]:
        values = part.column(self.field)
        if self.low is not None:
            width = part.layout.field_bits[self.low]
            return values.astype(np.int64) << width | part.column(self.low).astype(np.int64)
        return values if self.unit == 1 else values.astype(np.int64) * self.unit


@dataclass(frozen=True)
class Hex:
    """Raw bytes, in upper-case hex."""

    name: str
    field: str

    @property
    def columns(self) -> tuple[Column, ...]:
        return (Column(self.name),)

    def read(self, part: Part) -> NDArray[Any]:
        """ASCII digits, dtype S."""
        values = part.column(self.field)
        digits = values.tobytes().hex().upper().encode()
        return np.frombuffer(digits, f"S{2 * values.dtype.itemsize}")


@dataclass(frozen=True)
class Derived:
    """Columns that `derive` computes from `fields`.

    `shared` means that caching pays: many records have the same values.
    """

    columns: tuple[Column, ...]
    fields: tuple[str, ...]
    derive: Callable[..., tuple[Value, ...]]
    shared: bool = True

    def keys(self, part: Part) -> list[Any]:
        read = [part.column(field).tolist() for field in self.fields]
        return read[0] if len(read) == 1 else list(zip(*read, strict=True))

    def values(self, key: Any) -> tuple[Value, ...]:
        return self.derive(key) if len(self.fields) == 1 else self.derive(*key)


@dataclass(frozen=True)
class Constant:
    """A column with one value for all records of the kind."""

    name: str
    value: str

    @property
    def columns(self) -> tuple[Column, ...]:
        return (Column(self.name),)


Columns = Number | Hex | Derived | Constant


def journal_columns(
    names: QueueNames, with_partition: bool = False, more: tuple[Derived, ...] = ()
) -> dict[int, tuple[Columns, ...]]:
    """The columns of each kind of record and of faults, in order; `more` are additional ones of messages."""
    place: tuple[Columns, ...] = (Number("index", "index"), Number("offset", "offset"))
    if with_partition:
        place = (Number("partition_id", "partition_id"), *place)
    numbers = (
        Number("primary_lease_id", "primary_lease_id"),
        Number("sequence_number", "sequence_number"),
        Derived((Column("timestamp", Kind.NUMBER), Column("time", Kind.TIME)), ("timestamp",), _times),
    )
    queue = Derived(
        (Column("queue_key"), Column("queue_uri")), ("queue_key",), lambda key: (hex_of(key), names.uris.get(key))
    )
    app = Derived(
        (Column("app_key"), Column("app_id")),
        ("queue_key", "app_key"),
        lambda queue_key, app_key: (
            (None, None) if app_key == NULL_KEY else (hex_of(app_key), names.app_ids.get((queue_key, app_key)))
        ),
    )
    apps = Derived(
        (Column("apps", Kind.JSON),),
        ("queue_key", "queue_op_type", "queue_uri_record_offset_words"),
        lambda *fields: (names.apps(*fields),),
    )
    guid = Hex("guid", "guid")

    def of(kind: RecordType, *own: Columns) -> tuple[Columns, ...]:
        return (*place, Constant("type", kind.name), *numbers, *own)

    return {
        FAULT: (*place, Derived((Column("fault"),), ("fault",), lambda text: (text,), shared=False)),
        RecordType.MESSAGE: of(
            RecordType.MESSAGE,
            queue,
            guid,
            Number("ref_count", "ref_count_high", low="ref_count_low"),
            _code("compression", "compression", lambda code: COMPRESSION.get(code, code)),
            Number("data_offset", "message_offset_dwords", DWORD),
            Number("crc32c", "crc32c"),
            *more,
        ),
        RecordType.CONFIRM: of(
            RecordType.CONFIRM, queue, app, guid, _code("reason", "reason", lambda code: flags_of(ConfirmReason, code))
        ),
        RecordType.DELETION: of(
            RecordType.DELETION,
            queue,
            guid,
            _code("deletion_flag", "deletion_flag", lambda code: flags_of(DeletionRecordFlag, code)),
        ),
        RecordType.QUEUE_OP: of(RecordType.QUEUE_OP, queue, app, _QUEUE_OP, apps),
        RecordType.JOURNAL_OP: of(
            RecordType.JOURNAL_OP,
            _code("journal_op_type", "journal_op_type", lambda code: name_of(JournalOpType, code)),
            _code("sync_point_type", "sync_point_type", lambda code: name_of(SyncPointType, code)),
            Number("sync_point_primary_lease_id", "sync_point_primary_lease_id"),
            Number("sync_point_sequence_number", "sync_point_sequence_number"),
            Number("primary_node_id", "primary_node_id"),
            Number("data_file_offset", "data_file_offset_dwords", DWORD),
            Number("qlist_file_offset", "qlist_file_offset_words", WORD),
        ),
    }


def column_order(columns: Mapping[int, tuple[Columns, ...]]) -> list[Column]:
    """The distinct columns of all kinds, for outputs whose rows all have the same columns."""
    found: dict[str, Column] = {}
    # Most kinds' columns come first, faults last.
    for kind in sorted(columns, key=_ORDER.index):
        for group in columns[kind]:
            for column in group.columns:
                found.setdefault(column.name, column)
    return list(found.values())


_ORDER = (
    RecordType.CONFIRM,
    RecordType.MESSAGE,
    RecordType.DELETION,
    RecordType.QUEUE_OP,
    RecordType.JOURNAL_OP,
    FAULT,
)


def rows_of(chunk: Chunk, columns: Mapping[int, tuple[Columns, ...]]) -> list[Row]:
    rows: list[Row] = [{} for _ in range(len(chunk))]
    for part in chunk.parts():
        here = [rows[at] for at in part.rows.tolist()]
        for group in columns[part.kind]:
            _fill(here, group, part)
    return rows


def _fill(rows: list[Row], group: Columns, part: Part) -> None:
    if isinstance(group, Derived):
        known: dict[Any, tuple[Value, ...]] = {}
        for row, key in zip(rows, group.keys(part), strict=True):
            if key not in known:
                known[key] = group.values(key)
            row.update((c.name, value) for c, value in zip(group.columns, known[key], strict=True) if value is not None)
        return
    for row, value in zip(rows, _plain(group, part), strict=True):
        row[group.name] = value


def _plain(group: Number | Hex | Constant, part: Part) -> Iterable[Any]:
    if isinstance(group, Constant):
        return repeat(group.value, len(part.rows))
    values = group.read(part).tolist()
    return (digits.decode() for digits in values) if isinstance(group, Hex) else values


def _code(name: str, field: str, meaning: Callable[[int], str | int]) -> Derived:
    return Derived((Column(name),), (field,), lambda code: (meaning(code),))


def _times(seconds: int) -> tuple[int, str | None]:
    return seconds, iso_time(seconds)


def _queue_op(kind: int, offset_words: int, lease_id: int, sequence_number: int) -> tuple[Value, ...]:
    names_queue = kind in (QueueOpType.CREATION, QueueOpType.ADDITION)
    start = (lease_id, sequence_number) if lease_id else (None, None)
    return (name_of(QueueOpType, kind), offset_words * WORD if names_queue else None, *start)


_QUEUE_OP = Derived(
    (
        Column("queue_op_type"),
        Column("qlist_offset", Kind.NUMBER),
        Column("start_primary_lease_id", Kind.NUMBER),
        Column("start_sequence_number", Kind.NUMBER),
    ),
    ("queue_op_type", "queue_uri_record_offset_words", "start_primary_lease_id", "start_sequence_number"),
    _queue_op,
)


def name_of(kind: type[IntEnum], value: int) -> str | int:
    """A code's name, or the number if it has none."""
    return kind(value).name if value in kind._value2member_map_ else value


def flags_of(kind: type[IntFlag], value: int) -> str | int:
    """Names of the flags set, or the number if one has no name."""
    return (kind(value).name or "NONE") if not value & ~_mask(kind) else value


def _mask(kind: Iterable[IntFlag]) -> int:
    known = 0
    for member in kind:
        known |= member
    return known
