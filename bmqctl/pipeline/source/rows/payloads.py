"""The table `payloads`: messages as they were posted, inflated, with their properties; decoded if a schema is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from numpy.typing import NDArray

from bmqctl.pipeline.source.arrays import Labels, code_labels, hex_array, integers, times
from bmqctl.pipeline.source.decoding.decode import Decoder, decoder_of
from bmqctl.pipeline.source.names import key_text
from bmqctl.pipeline.source.options import ReadOptions
from bmqctl.pipeline.source.plan import Part
from bmqctl.pipeline.source.pushdown import Bounds
from bmqctl.pipeline.source.rows.properties import PROPERTIES_TYPE, property_items
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.pipeline.source.walk import DataFiles, select, walk
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.payload import Payload, parse_payload
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX, CompressionAlgorithm
from formats.bmq.disk.columns import key_numbers
from formats.bmq.disk.data import parse_data_record
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import MESSAGE_RECORD, RecordType
from formats.bmq.padding import DWORD
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["payload_batches"]

BYTES_PER_BATCH = 16 << 20
"""The size of inflated payloads at which a batch ends, with the message that reaches it."""


def payload_batches(
    part: Part, options: ReadOptions, schema: pa.Schema, bounds: Bounds, account: Account
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each message's record; `fault` is the reason for a missing payload, or raises StoreError
    (failfast).
    """
    rows = PayloadRows(part, options, schema, account)
    for chunk, sound in walk(part, options, account):
        kinds = select(chunk, sound, part.names, bounds)
        at = np.flatnonzero(kinds == RecordType.MESSAGE)
        if len(at):
            messages = chunk.records[at].view(MESSAGE_RECORD.dtype)
            offsets = part.journals[chunk.journal].first_record_offset + (chunk.place + at) * JOURNAL_RECORD_SIZE
            yield from rows.batches(messages, offsets, chunk.journal)


class PayloadRows:
    """Makes rows of `payloads`, of the columns in `schema`."""

    def __init__(self, part: Part, options: ReadOptions, schema: pa.Schema, account: Account) -> None:
        self._part = part
        self._failfast = options.failfast
        self._schema = schema
        self._files = DataFiles(part.journals, options, account)
        self._keys = Labels(key_text)
        self._uris = Labels(part.names.uris.get)
        self._compressions = code_labels(CompressionAlgorithm)
        self._decoder: Decoder | None = decoder_of(options)

    def batches(self, messages: NDArray[Any], offsets: NDArray[Any], journal: int) -> Iterator[pa.RecordBatch]:
        data = self._files.of(journal)
        found: list[Payload | str] = []
        start = size = 0
        where = (MESSAGE_RECORD.column(messages, name).tolist() for name in _WHERE)
        for at, compression, checksum in zip(*where, strict=True):
            one = self._read(data, at * DWORD, compression, checksum, journal)
            found.append(one)
            size += 0 if isinstance(one, str) else one.size
            if size >= BYTES_PER_BATCH:
                end = start + len(found)
                yield self._batch(messages[start:end], offsets[start:end], found)
                found, start, size = [], end, 0
        if found:
            yield self._batch(messages[start:], offsets[start:], found)

    def _read(self, data: Buffer, offset: int, compression: int, checksum: int, journal: int) -> Payload | str:
        try:
            if not len(data):
                raise FormatError("DATA", 0, "there is no file, or an empty one")
            record = parse_data_record(data, offset)
            stored = record.app_data(data)
            if crc32c(stored) != checksum:
                raise FormatError("MessageRecord.crc32c", offset, f"{checksum:#010x}, computed {crc32c(stored):#010x}")
            return parse_payload(stored, record.header, compression, DECOMPRESSED_SIZE_MAX)
        except FormatError as error:
            if self._failfast:
                raise StoreError(f"{self._files.path(journal)}: the message at offset {offset}: {error}") from None
            self._files.lose(journal, np.array([offset]), 0, f"the message at offset {offset}: {error}")
            return str(error)

    def _batch(self, messages: NDArray[Any], offsets: NDArray[Any], found: list[Payload | str]) -> pa.RecordBatch:
        count = len(found)
        queues = key_numbers(messages, MESSAGE_RECORD, "queue_key")
        read = [None if isinstance(one, str) else one for one in found]
        payloads = [one and one.head for one in read]
        made: dict[str, Any] = {
            "partition_id": pa.array(np.full(count, self._part.partition_id, np.int32)),
            "queue_uri": self._uris.take(queues),
            "queue_key": self._keys.take(queues),
            "guid": hex_array(messages["guid"]),
            "arrival_time": times(MESSAGE_RECORD.column(messages, "timestamp")),
            "compression": self._compressions.take(MESSAGE_RECORD.column(messages, "compression").astype(np.uint64)),
            "schema_id": pa.array([one and one.schema_id for one in read], pa.int32()),
            "properties": pa.array([one and property_items(one.properties) for one in read], PROPERTIES_TYPE),
            "payload_size": pa.array([one and one.size for one in read], pa.int64()),
            "payload": pa.array(payloads, pa.binary()),
            "fault": pa.array([one if isinstance(one, str) else None for one in found], pa.string()),
            "journal_offset": pa.array(offsets),
        }
        for name in ("primary_lease_id", "sequence_number"):
            made[name] = integers(MESSAGE_RECORD.column(messages, name), pa.int64())
        if self._decoder is not None:
            made["value"], made["value_fault"] = self._decoder.columns(payloads)
        return pa.RecordBatch.from_arrays([made[name] for name in self._schema.names], schema=self._schema)


_WHERE = ("message_offset_dwords", "compression", "crc32c")
