"""Columns of commit log records as Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bmqctl.pipeline.rocketmq.property_items import PropertyItems, joined_bytes, key_lists
from bmqctl.pipeline.source.arrays import TIMESTAMP, TIMESTAMP_MAX_S, Labels, hex_array
from bmqctl.stores.rocketmq.dump.rows import host_text
from bmqctl.stores.rocketmq.read.records import LogRecords
from bmqctl.stores.rocketmq.read.topics import kind_of
from formats.rocketmq.files.epochs import EpochEntry
from formats.rocketmq.flags import TRANSACTION_MASK, CompressionType, SystemFlag, Transaction, compression_of

__all__ = ["RecordColumns", "times_of_ms"]

_HOST_V6: Final = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)
_HOST_BYTES: Final = 8
_COMPRESSION_BITS: Final = int(SystemFlag.COMPRESSED) | 0b111 << 8


class RecordColumns:
    """Makes the columns of a broker's records."""

    def __init__(self, broker: str, epochs: Sequence[EpochEntry]) -> None:
        self._broker = broker
        self._epoch_starts = np.array([epoch.start_offset for epoch in epochs], np.int64)
        self._epoch_numbers = np.array([epoch.epoch for epoch in epochs], np.int64)
        self._transactions = Labels(lambda flags: Transaction(flags).name.lower())
        self._compressions = Labels(_compression)
        self._hosts = Labels(lambda host: host_text(host.to_bytes(_HOST_BYTES, "big")))

    def arrays(self, records: LogRecords, fields: pa.Schema) -> dict[str, pa.Array]:
        made = _Made(records)
        return {field.name: self._array(made, field.name, field.type) for field in fields if field.name in _MAKERS}

    def _array(self, made: _Made, name: str, kind: pa.DataType) -> pa.Array:
        return _MAKERS[name](self, made, kind)

    def broker(self, made: _Made, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(self._broker, kind), len(made.records))

    def epoch(self, made: _Made, kind: pa.DataType) -> pa.Array:
        at = np.searchsorted(self._epoch_starts, made.records.offsets, "right") - 1
        if not len(self._epoch_starts):
            return pa.nulls(len(at), kind)
        return pa.array(self._epoch_numbers[np.maximum(at, 0)], kind, mask=at < 0)

    def born_host(self, made: _Made, kind: pa.DataType) -> pa.Array:
        numbers = made.host_numbers("born_host")
        return _texts(made.records.born_hosts) if numbers is None else self._hosts.take(numbers)

    def store_host(self, made: _Made, kind: pa.DataType) -> pa.Array:
        numbers = made.host_numbers("store_host")
        return _texts(made.records.store_hosts) if numbers is None else self._hosts.take(numbers)

    def transaction(self, made: _Made, kind: pa.DataType) -> pa.Array:
        return self._transactions.take((made.records.flags & TRANSACTION_MASK).astype(np.uint64))

    def compression(self, made: _Made, kind: pa.DataType) -> pa.Array:
        return self._compressions.take((made.records.flags & _COMPRESSION_BITS).astype(np.uint64))


class _Made:
    """Records, and the columns from which others are derived."""

    def __init__(self, records: LogRecords) -> None:
        self.records = records
        self._items: PropertyItems | None = None
        self._topics: pa.DictionaryArray | None = None

    @property
    def items(self) -> PropertyItems:
        if self._items is None:
            self._items = PropertyItems(self.records)
        return self._items

    @property
    def topics(self) -> pa.DictionaryArray:
        if self._topics is None:
            records = self.records
            content, offsets = joined_bytes(records.data, records.topic_at, records.topic_sizes)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
            encoded = pa.Array.from_buffers(pa.binary(), len(records), buffers).dictionary_encode()
            texts = [topic.decode(errors="replace") for topic in encoded.dictionary.to_pylist()]
            self._topics = pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.string()))
        return self._topics

    def of_topics(self, label: Callable[[str], str]) -> pa.Array:
        texts = pa.array([label(topic) for topic in self.topics.dictionary.to_pylist()], pa.string())
        return pa.repeat(texts[0], len(self.records)) if len(texts) == 1 else texts.take(self.topics.indices)

    def host_numbers(self, name: str) -> NDArray[np.uint64] | None:
        """Return packed hosts as numbers; None if some are of IPv6."""
        if (self.records.flags & _HOST_V6).any():
            return None
        packed = np.ascontiguousarray(self.records.fronts[name])
        return packed.view(">u8").astype(np.uint64)

    def offset_ids(self) -> pa.Array:
        records = self.records
        hosts = self.host_numbers("store_host")
        if hosts is None:
            pairs = zip(records.store_hosts, records.offsets.tolist(), strict=True)
            return pa.array([f"{host.hex().upper()}{offset:016X}" for host, offset in pairs], pa.string())
        ids = np.empty((len(records), 2), ">u8")
        ids[:, 0] = hosts
        ids[:, 1] = records.offsets
        return hex_array(ids.view("V16").reshape(-1))


def times_of_ms(milliseconds: NDArray[Any]) -> pa.Array:
    """Convert milliseconds since the epoch to timestamps; null beyond Spark's range."""
    wild = (milliseconds < 0) | (milliseconds > TIMESTAMP_MAX_S * 1000)
    return pa.array(np.where(wild, 0, milliseconds) * 1000, pa.int64(), mask=wild).view(TIMESTAMP)


def _ids(made: _Made) -> pa.Array:
    found = made.items.column("UNIQ_KEY")
    return pc.coalesce(found, made.offset_ids()) if found.null_count else found


def _texts(packed: list[bytes]) -> pa.Array:
    encoded = pa.array(packed, pa.binary()).dictionary_encode()
    texts = pa.array([host_text(host) for host in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _compression(flags: int) -> str:
    try:
        found = compression_of(flags)
    except ValueError:
        return "unknown"
    return "none" if found is None else CompressionType(found).name.lower()


Maker = Callable[[RecordColumns, _Made, pa.DataType], pa.Array]


def _number(read: Callable[[LogRecords], NDArray[Any]]) -> Maker:
    return lambda columns, made, kind: pa.array(read(made.records).astype(kind.to_pandas_dtype(), copy=False), kind)


def _front(name: str) -> Maker:
    return _number(lambda records: records.front(name))


def _property(name: str) -> Maker:
    return lambda columns, made, kind: made.items.column(name)


_MAKERS: Final[dict[str, Maker]] = {
    "broker": RecordColumns.broker,
    "topic": lambda columns, made, kind: made.topics.cast(kind),
    "kind": lambda columns, made, kind: made.of_topics(lambda topic: kind_of(topic).value),
    "queue_id": _front("queue_id"),
    "queue_offset": _front("queue_offset"),
    "offset": _number(lambda records: records.offsets),
    "size": _number(lambda records: records.sizes),
    "epoch": RecordColumns.epoch,
    "id": lambda columns, made, kind: _ids(made),
    "offset_id": lambda columns, made, kind: made.offset_ids(),
    "keys": lambda columns, made, kind: key_lists(made.items.column("KEYS")).cast(kind),
    "tags": _property("TAGS"),
    "properties": lambda columns, made, kind: made.items.map(kind),
    "flag": _front("flag"),
    "system_flags": _number(lambda records: records.flags),
    "born_time": lambda columns, made, kind: times_of_ms(made.records.front("born_ms")),
    "store_time": lambda columns, made, kind: times_of_ms(made.records.stored_ms),
    "born_host": RecordColumns.born_host,
    "store_host": RecordColumns.store_host,
    "reconsume_times": _number(lambda records: records.reconsume_times),
    "transaction": RecordColumns.transaction,
    "prepared_transaction_offset": _number(lambda records: records.prepared_transaction_offsets),
    "compression": RecordColumns.compression,
    "body_size": _number(lambda records: records.body_sizes),
    "body_crc": _front("body_crc"),
}
