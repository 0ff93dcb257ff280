"""The table `records`: journal records of any kind as Arrow columns, null where a kind lacks the field."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from numpy.typing import NDArray

from bmqctl.pipeline.source.arrays import Labels, code_labels, hex_array, integers, times
from bmqctl.pipeline.source.names import Names, key_text
from bmqctl.pipeline.source.sizes import measure
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.pipeline.source.walk import DataFiles
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.disk.columns import key_numbers
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import (
    ANY_RECORD,
    LAYOUTS,
    ConfirmReason,
    DeletionRecordFlag,
    JournalOpType,
    QueueOpType,
    RecordType,
    SyncPointType,
)
from formats.bmq.guid import GUID_SIZE
from formats.bmq.padding import DWORD, WORD
from formats.bmq.stores.data_columns import Located, locate, plain_sizes
from formats.schema import Buffer

__all__ = ["AppLabels", "RecordColumns", "message_sizes"]

# By column: the kinds that have it, the field of the record, and the bytes in a unit.
_NUMBERS: dict[str, tuple[RecordType, str, int]] = {
    "crc32c": (RecordType.MESSAGE, "crc32c", 1),
    "message_offset": (RecordType.MESSAGE, "message_offset_dwords", DWORD),
    "queue_uri_record_offset": (RecordType.QUEUE_OP, "queue_uri_record_offset_words", WORD),
    "start_primary_lease_id": (RecordType.QUEUE_OP, "start_primary_lease_id", 1),
    "start_sequence_number": (RecordType.QUEUE_OP, "start_sequence_number", 1),
    "sync_point_primary_lease_id": (RecordType.JOURNAL_OP, "sync_point_primary_lease_id", 1),
    "sync_point_sequence_number": (RecordType.JOURNAL_OP, "sync_point_sequence_number", 1),
    "primary_node_id": (RecordType.JOURNAL_OP, "primary_node_id", 1),
    "data_file_offset": (RecordType.JOURNAL_OP, "data_file_offset_dwords", DWORD),
    "qlist_file_offset": (RecordType.JOURNAL_OP, "qlist_file_offset_words", WORD),
}
_CODES: dict[str, tuple[RecordType, str, type[IntEnum | IntFlag]]] = {
    "compression": (RecordType.MESSAGE, "compression", CompressionAlgorithm),
    "confirm_reason": (RecordType.CONFIRM, "reason", ConfirmReason),
    "deletion_flag": (RecordType.DELETION, "deletion_flag", DeletionRecordFlag),
    "queue_op_type": (RecordType.QUEUE_OP, "queue_op_type", QueueOpType),
    "journal_op_type": (RecordType.JOURNAL_OP, "journal_op_type", JournalOpType),
    "sync_point_type": (RecordType.JOURNAL_OP, "sync_point_type", SyncPointType),
}
_OF_ANY = ("primary_lease_id", "sequence_number")
_SIZES = ("stored_size", "properties_size", "payload_size")
_WITH_GUID = (RecordType.MESSAGE, RecordType.CONFIRM, RecordType.DELETION)
_WITH_QUEUE = (*_WITH_GUID, RecordType.QUEUE_OP)
_WITH_APP = (RecordType.CONFIRM, RecordType.QUEUE_OP)


class RecordColumns:
    """Makes batches of one partition's records, with the columns in `schema`."""

    def __init__(self, schema: pa.Schema, partition_id: int, names: Names) -> None:
        self._schema = schema
        self._partition_id = partition_id
        self._types = code_labels(RecordType)
        self._codes = {name: code_labels(kind) for name, (_, _, kind) in _CODES.items()}
        self._keys = Labels(key_text)
        self._uris = Labels(names.uris.get)
        self._app_ids = AppLabels(names)

    def batch(
        self,
        offsets: NDArray[Any],
        records: NDArray[Any],
        kinds: NDArray[Any],
        files: DataFiles,
        journal: int,
    ) -> pa.RecordBatch:
        """Make the rows of sound `records` (shape (n,), `ANY_RECORD.dtype`) at journal offsets `offsets`.

        The journal's DATA file gives the sizes of messages. Raises StoreError (failfast) for a message that is not in
        it.
        """
        rows = _Rows(records, kinds, files, journal)
        arrays = [self._array(field, rows, offsets) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, rows: _Rows, offsets: NDArray[Any]) -> pa.Array:
        name, count = field.name, len(rows.records)
        if name == "partition_id":
            return pa.array(np.full(count, self._partition_id, np.int32), field.type)
        if name == "offset":
            return pa.array(offsets, field.type)
        if name == "type":
            return self._types.take(rows.kinds.astype(np.uint64))
        if name == "timestamp":
            return times(ANY_RECORD.column(rows.records, name))
        if name in _OF_ANY:
            return integers(ANY_RECORD.column(rows.records, name), field.type)
        if name in _NUMBERS:
            kind, source, unit = _NUMBERS[name]
            at, found = rows.of(kind)
            if not len(at):
                return pa.nulls(count, field.type)
            return integers(LAYOUTS[kind].column(found, source).astype(np.int64) * unit, field.type, at, count)
        if name in _CODES:
            kind, source, _ = _CODES[name]
            at, found = rows.of(kind)
            if not len(at):
                return pa.nulls(count, field.type)
            return self._codes[name].take(LAYOUTS[kind].column(found, source).astype(np.uint64), at, count)
        if name == "ref_count":
            at, found = rows.of(RecordType.MESSAGE)
            layout = LAYOUTS[RecordType.MESSAGE]
            high, low = (layout.column(found, f"ref_count_{part}").astype(np.int64) for part in ("high", "low"))
            return integers(high << 12 | low, field.type, at, count)
        if name in _SIZES:
            return rows.sizes()[_SIZES.index(name)]
        return self._name(name, rows, count)

    def _name(self, name: str, rows: _Rows, count: int) -> pa.Array:
        if name == "guid":
            at, guids = rows.guids()
            return hex_array(guids, at, count)
        if name in ("queue_key", "queue_uri"):
            at, keys = rows.keys("queue_key", _WITH_QUEUE)
            return (self._keys if name == "queue_key" else self._uris).take(keys, at, count)
        at, apps = rows.keys("app_key", _WITH_APP)
        queues = rows.keys("queue_key", _WITH_APP)[1]
        # The null key means no app: the record is about a whole queue.
        some = np.flatnonzero(apps)
        if name == "app_key":
            return self._keys.take(apps[some], at[some], count)
        return self._app_ids.take(queues[some], apps[some], at[some], count)


class AppLabels:
    """Ids of apps, by queue key and app key."""

    def __init__(self, names: Names) -> None:
        self._pairs: dict[tuple[int, int], int] = {}
        self._ids = names.app_ids()
        self._found: list[str | None] = []
        self._labels = Labels(lambda number: self._found[number])

    def take(
        self, queues: NDArray[Any], apps: NDArray[Any], rows: NDArray[Any] | None = None, count: int = 0
    ) -> pa.Array:
        """Look up labels like `Labels.take`; an app without a name has no id."""
        return self._labels.take(self._number(queues, apps), rows, count)

    def _number(self, queues: NDArray[Any], apps: NDArray[Any]) -> NDArray[Any]:
        # An app's key, derived from its queue and id, identifies any app but the default one.
        mixed = queues * np.uint64(0x9E3779B97F4A7C15) ^ apps
        _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
        numbers = []
        for pair in zip(queues[first].tolist(), apps[first].tolist(), strict=True):
            if pair not in self._pairs:
                self._pairs[pair] = len(self._found)
                self._found.append(self._ids.get(pair))
            numbers.append(self._pairs[pair])
        return np.array(numbers, np.uint64)[inverse] if numbers else np.zeros(0, np.uint64)


def _guid_offset(kind: int) -> int:
    fields = LAYOUTS[kind].dtype.fields
    assert fields is not None
    return int(fields["guid"][1])


class _Rows:
    """Records, with the indexes and typed views of some kinds."""

    def __init__(self, records: NDArray[Any], kinds: NDArray[Any], files: DataFiles, journal: int) -> None:
        self.records = records
        self._files = files
        self._journal = journal
        self.kinds = kinds
        self._of: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._sizes: list[pa.Array] | None = None

    def of(self, kind: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if kind not in self._of:
            at = np.flatnonzero(self.kinds == kind)
            self._of[kind] = at, self.records[at].view(LAYOUTS[kind].dtype)
        return self._of[kind]

    def keys(self, name: str, kinds: Collection[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        found = [self.of(kind) for kind in kinds]
        numbers = [key_numbers(part, LAYOUTS[kind], name) for kind, (_, part) in zip(kinds, found, strict=True)]
        return np.concatenate([at for at, _ in found]), np.concatenate(numbers)

    def guids(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The indexes of records that have a GUID, in order, and the 16 bytes of each GUID."""
        wanted = np.isin(self.kinds, _WITH_GUID)
        guids = np.zeros((len(self.records), GUID_SIZE), np.uint8)
        octets = self.records.view(np.uint8).reshape(len(self.records), JOURNAL_RECORD_SIZE)
        for kind in _WITH_GUID:
            at, _ = self.of(kind)
            start = _guid_offset(kind)
            guids[at] = octets[at, start : start + GUID_SIZE]
        return np.flatnonzero(wanted), guids[wanted].view(f"V{GUID_SIZE}").reshape(-1)

    def sizes(self) -> list[pa.Array]:
        if self._sizes is None:
            at, messages = self.of(RecordType.MESSAGE)
            layout = LAYOUTS[RecordType.MESSAGE]
            offsets = layout.column(messages, "message_offset_dwords").astype(np.int64) * DWORD
            compressions, checksums = (layout.column(messages, name) for name in ("compression", "crc32c"))
            columns = message_sizes(self._files, self._journal, offsets, compressions, checksums)
            count = len(self.records)
            self._sizes = [integers(column[column >= 0], pa.int64(), at[column >= 0], count) for column in columns]
        return self._sizes


def message_sizes(
    files: DataFiles, journal: int, offsets: NDArray[Any], compressions: NDArray[Any], checksums: NDArray[Any]
) -> list[NDArray[Any]]:
    """Measure the messages at `offsets` (int64, bytes): stored, properties and payload; -1 for None.

    Raises StoreError (failfast) for a message that cannot be measured completely.
    """
    data, path = files.of(journal), files.path(journal)
    located = locate(data, offsets)
    properties, payload = plain_sizes(data, located)
    sizes = [np.where(located.sound, located.size, -1), properties, payload]
    for row in np.flatnonzero(compressions != CompressionAlgorithm.NONE).tolist():
        measured = measure(data, int(offsets[row]), int(compressions[row]))
        for column, size in zip(sizes, measured, strict=True):
            column[row] = -1 if size is None else size
    if path is not None:
        for row in np.flatnonzero(np.minimum.reduce(sizes) < 0)[:1].tolist():
            raise StoreError(f"{path}: no intact message at offset {offsets[row]}; `bmqctl journal validate` shows why")
    lost = np.minimum.reduce(sizes) < 0
    if files.account.compares:
        lost |= _differ(data, located, checksums)
    files.lose(journal, offsets[lost], int(located.size[lost].sum()))
    return sizes


def _differ(data: Buffer, located: Located, checksums: NDArray[Any]) -> NDArray[np.bool_]:
    view, found = memoryview(data), np.zeros(len(checksums), np.bool_)
    rows = np.flatnonzero(located.sound)
    places = (column[rows].tolist() for column in (located.start, located.size, checksums))
    for row, start, size, checksum in zip(rows.tolist(), *places, strict=True):
        found[row] = crc32c(view[start : start + size]) != checksum
    return found
