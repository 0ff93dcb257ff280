"""Queue entries and index keys, derived from a log's records in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.rocketmq.read.records import LogRecords, Numbers
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC, TopicKind, kind_of
from formats.rocketmq.fast.property_columns import PropertyColumns
from formats.rocketmq.flags import TRANSACTION_MASK, SystemFlag, Transaction
from formats.rocketmq.java import string_hash, to_index_hashes
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.properties import decode_properties

__all__ = ["Bits", "Columns", "Keys", "QueueKeys", "Rows", "joined", "read_columns", "read_rows", "sound_bodies"]

_CRC_MASK: Final = 0x7FFFFFFF
_PREPARED: Final = int(Transaction.PREPARED)
_ROLLBACK: Final = int(Transaction.ROLLBACK)
_BATCH: Final = int(SystemFlag.INNER_BATCH)
_BRANCHES: Final = "INNER_MULTI_DISPATCH"
_BRANCH_OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"
_BRANCH_MARK: Final = b"INNER_MULTI_DISPATCH\1"
_BRANCH_PREFIX: Final = "%LMQ%"
_OFFSET_MAX: Final = 10**16 - 1
_QUEUE_BITS: Final = 32
# Longer than any delay level.
_DELAY_MS_MAX: Final = 10 * 366 * 86_400_000

Bits = NDArray[np.bool_]


class QueueKeys:
    """Numbers the queues in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.topics: list[str] = []
        self._delay = self.topic(DELAY_TOPIC.encode())

    def topic(self, name: bytes) -> int:
        """The number of a topic. Names that are not UTF-8 are decoded as Java decodes them."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.topics)
            self.topics.append(name.decode(errors="replace"))
        return number

    def key(self, topic: str, queue_id: int) -> int:
        return self.topic(topic.encode(errors="surrogateescape")) << _QUEUE_BITS | queue_id & 0xFFFFFFFF

    def queue(self, key: int) -> tuple[str, int]:
        queue_id = key & 0xFFFFFFFF
        return self.topics[key >> _QUEUE_BITS], queue_id - (queue_id >> 31 << _QUEUE_BITS)

    def is_delay(self, keys: Numbers) -> Bits:
        found: Bits = keys >> _QUEUE_BITS == self._delay
        return found


class Keys(NamedTuple):
    """Message keys in log order: `index_hash`, the message's offset and its storing time.

    `is_tag` marks tags, which the index contains since version 5.4.
    """

    hashes: NDArray[np.uint32]
    offsets: Numbers
    times: Numbers
    is_tag: Bits

    def __len__(self) -> int:
        return len(self.hashes)

    def where(self, wanted: NDArray[Any] | slice) -> Keys:
        hashes, offsets, times, is_tag = self
        return Keys(hashes[wanted], offsets[wanted], times[wanted], is_tag[wanted])


class Rows(NamedTuple):
    """Consume queue entries, a row each; `queues` are numbers of `QueueKeys`.

    A record has a second row for a second queue, and none if no queue has it. `codes` of delayed messages are 0: their
    entries have the due time instead.
    """

    queues: Numbers
    numbers: Numbers
    offsets: Numbers
    sizes: Numbers
    codes: Numbers
    times: Numbers

    def where(self, wanted: NDArray[Any] | slice) -> Rows:
        queues, numbers, offsets, sizes, codes, times = self
        return Rows(queues[wanted], numbers[wanted], offsets[wanted], sizes[wanted], codes[wanted], times[wanted])

    def has_codes(self, found: Numbers, is_delay: bool) -> Bits:
        matches: Bits = found == self.codes
        if is_delay:
            matches = (found >= self.times) & (found <= self.times + _DELAY_MS_MAX)
        return matches


class Columns(NamedTuple):
    """Queue entries and index keys of records, in log order."""

    rows: Rows
    keys: Keys

    def __len__(self) -> int:
        return len(self.rows.queues)


def joined(parts: Sequence[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([np.array(part.rows) for part in parts], axis=1)
    keys = (part.keys for part in parts)
    hashes, offsets, times, is_tag = (np.concatenate(column) for column in zip(*keys, strict=True))
    return Columns(Rows(*rows), Keys(hashes, offsets, times, is_tag))


def sound_bodies(records: LogRecords) -> Bits:
    data = records.data
    begins, ends = records.body_at.tolist(), (records.body_at + records.body_sizes).tolist()
    found = np.array([crc32(data[begin:end]) for begin, end in zip(begins, ends, strict=True)], np.uint32)
    matches: Bits = (found & np.uint32(_CRC_MASK)) == records.fronts["body_crc"]
    return matches


def read_columns(records: LogRecords, queue_keys: QueueKeys) -> Columns:
    found = _Properties(records)
    keys = _keys(records, found)
    parts = records.flags & TRANSACTION_MASK
    if (parts == _ROLLBACK).any():
        keys = keys.where(~np.isin(keys.offsets, records.offsets[parts == _ROLLBACK]))
    return Columns(_rows(records, found, queue_keys), keys)


def read_rows(records: LogRecords, queue_keys: QueueKeys) -> Rows:
    return _rows(records, _Properties(records), queue_keys)


class _Properties:
    """Topics, properties and the places of tags, from which the columns are made."""

    def __init__(self, records: LogRecords) -> None:
        self.topics, self.topic_of = _topics(records)
        self.texts = records.properties()
        self.columns = PropertyColumns(self.texts)
        self.tags = self.columns.values(b"TAGS")


def _rows(records: LogRecords, found: _Properties, queue_keys: QueueKeys) -> Rows:
    queues = _queues(records, found.topics, found.topic_of, queue_keys)
    codes = np.zeros(len(records), np.int64)
    codes[found.tags.records] = found.columns.hashes(found.tags).view(np.int32)
    codes[queue_keys.is_delay(queues)] = 0
    rows = Rows(queues, records.front("queue_offset"), records.offsets, records.sizes, codes, records.stored_ms)
    in_none = _in_none(records)
    if in_none.any():
        rows = rows.where(~in_none)
    more = list(_branches(records, found.texts, found.topics, found.topic_of, queue_keys))
    return _with_branches(rows, more) if more else rows


def _in_none(records: LogRecords) -> Bits:
    parts = records.flags & TRANSACTION_MASK
    found: Bits = (parts == _PREPARED) | (parts == _ROLLBACK) | (records.flags & _BATCH != 0)
    return found


def _queues(records: LogRecords, topics: list[bytes], topic_of: NDArray[np.intp], queue_keys: QueueKeys) -> Numbers:
    numbers = np.array([queue_keys.topic(name) for name in topics], np.int64)
    found: Numbers = numbers[topic_of] << _QUEUE_BITS | records.front("queue_id") & 0xFFFFFFFF
    return found


def _topics(records: LogRecords) -> tuple[list[bytes], NDArray[np.intp]]:
    found = records.topics()
    places = {name: place for place, name in enumerate(dict.fromkeys(found))}
    return list(places), np.fromiter(map(places.__getitem__, found), np.intp, len(found))


def _keys(records: LogRecords, read: _Properties) -> Keys:
    properties, tags, topic_of = read.columns, read.tags, read.topic_of
    fronts = [b"%b#" % topic.decode(errors="replace").encode() for topic in read.topics]
    found: list[tuple[NDArray[np.intp], NDArray[np.uint32], bool]] = []
    keys = (properties.values(b"UNIQ_KEY"), properties.split(properties.values(b"KEYS")))
    found += [(values.records, properties.hashes(values, fronts, topic_of), False) for values in keys if len(values)]
    if len(tags):
        found.append((tags.records, properties.hashes(tags, [b"%bT#" % front for front in fronts], topic_of), True))
    places = np.concatenate([places for places, _, _ in found] or [np.zeros(0, np.intp)])
    hashes = np.concatenate([hashes for _, hashes, _ in found] or [np.zeros(0, np.uint32)])
    is_tag = np.concatenate([np.full(len(places), tag) for places, _, tag in found] or [np.zeros(0, np.bool_)])
    # Keep this order within a record.
    order = np.argsort(places, kind="stable")
    places = places[order]
    return Keys(to_index_hashes(hashes[order]), records.offsets[places], records.stored_ms[places], is_tag[order])


def _branches(
    records: LogRecords, texts: Iterable[bytes], topics: list[bytes], topic_of: NDArray[np.intp], queue_keys: QueueKeys
) -> Iterator[tuple[int, ...]]:
    """Yield the entries in second queues: of lite topics, and of others that a record names with its offset there.

    Copies in the broker's own topics have none. Source: MultiDispatchUtils.
    """
    is_open = [kind_of(topic.decode(errors="replace")) is TopicKind.ORDINARY for topic in topics]
    for place, text in enumerate(texts):
        if _BRANCH_MARK not in text or not is_open[topic_of[place]]:
            continue
        properties = decode_properties(text)
        offset, size = int(records.offsets[place]), int(records.sizes[place])
        code = string_hash(properties["TAGS"]) if properties.get("TAGS") else 0
        names = properties.get(_BRANCHES, "").split(",")
        numbers = properties.get(_BRANCH_OFFSETS, "").split(",")
        if len(names) != len(numbers):
            continue
        for name, digits in zip(names, numbers, strict=True):
            number = read_digits(digits, _OFFSET_MAX)
            if name.startswith(_BRANCH_PREFIX) and number is not None:
                yield queue_keys.key(name, 0), number, offset, size, code, int(records.stored_ms[place])


def _with_branches(rows: Rows, more: list[tuple[int, ...]]) -> Rows:
    both = np.concatenate((np.array(rows), np.array(more, np.int64).T), axis=1)
    return Rows(*both[:, np.argsort(both[2], kind="stable")])
