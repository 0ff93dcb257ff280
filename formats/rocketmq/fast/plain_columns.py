"""Many plain records of a commit log at once, in columns, with the results of `plain_records`.

Each record takes a fraction of the time; each call has a fixed cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from formats.rocketmq.fast.property_columns import PropertyColumns, Values
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY
from formats.rocketmq.files.index import IndexKeys
from formats.rocketmq.files.record import BLANK_BYTES_MIN, RECORD_FRONT, Magic
from formats.rocketmq.flags import TRANSACTION_MASK, SystemFlag
from formats.rocketmq.java import to_index_hashes
from formats.rocketmq.lite import LITE_TOPIC
from formats.schema import columns_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MANY", "PlainColumns", "QueueColumns", "read_columns"]

# With fewer records `plain_records` is faster.
MANY: Final = 100
# Records that begin later are not read: this bounds the memory, and the time for which others wait.
BYTES_MAX: Final = 2 << 20

_V1: Final = int(Magic.V1)
_OTHER: Final = int(TRANSACTION_MASK | SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)
_CRC_MASK: Final = 0x7FFFFFFF
_FRONT_BYTES: Final = RECORD_FRONT.size
_LENGTH_BYTES: Final = 2
_head = RECORD_FRONT.partial("size", "magic", "system_flags").unpack_from
_COLUMNS: Final = ("body_crc", "queue_id", "queue_offset", "physical_offset", "stored_ms", "body_size")
# Delayed messages have a due time in their queue, and messages of lite topics are in a second queue.
_ELSEWHERE: Final = (b"DELAY", LITE_TOPIC.encode())


class QueueColumns(NamedTuple):
    """The records of one queue: `length` of them from queue offset `first` on, `size` bytes of the log.

    `topic` is the records' topic field, with its length in front. `entries` are consume queue entries, `times` the
    storing times.
    """

    topic: bytes
    queue_id: int
    first: int
    length: int
    size: int
    entries: bytes
    times: NDArray[np.int64]

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield offset, size, tags code and storing time of each record."""
        entries = CONSUME_QUEUE_ENTRY.words.iter_unpack(self.entries)
        for (offset, size, tags_code), stored_ms in zip(entries, self.times.tolist(), strict=True):
            yield offset, size, tags_code, stored_ms


class PlainColumns(NamedTuple):
    """Consecutive plain records, `size` bytes of them; `stored_ms` is the storing time of the last one.

    The queues are in the order of their first records. `is_whole` is True if no other record may be plain.
    """

    size: int
    stored_ms: int
    queues: list[QueueColumns]
    keys: IndexKeys
    is_whole: bool


class _Places(NamedTuple):
    """Records in the data: where their parts begin, and their fronts."""

    starts: NDArray[np.int64]
    topics: NDArray[np.int64]
    properties: NDArray[np.int64]
    ends: NDArray[np.int64]
    fronts: NDArray[Any]

    def head(self, count: int) -> _Places:
        return _Places(*(column[:count] for column in self))


class _Grouped(NamedTuple):
    """Records by queue.

    `topics` are the fields of the topics; `topic_of` has the number of each record's, or is None if there is only one.
    `order` has the records queue by queue; `begins` is where in it each queue begins. The first `kept` records follow
    each other in their queues.
    """

    topics: list[bytes]
    topic_of: NDArray[np.intp] | None
    order: NDArray[np.intp]
    begins: NDArray[np.intp]
    kept: int


def read_columns(data: memoryview, offset: int, file_size: int, size_max: int) -> PlainColumns | None:
    """Read the plain records at the front of `data`, which begins at `offset` of a log.

    They end before a record that has a fault, is kept elsewhere, or does not follow its predecessor in the queue.
    Returns None if too few may be plain. The log has files of `file_size` bytes, and records of at most `size_max`.
    """
    starts = _walk(data, file_size - offset % file_size - BLANK_BYTES_MIN)
    count = len(starts) - 1
    if count < MANY:
        return None
    text = bytes(data[: starts[-1]])
    places = _sound(text, starts, offset, size_max)
    places = places.head(_sound_bodies(data, places))
    grouped = _group(text, places)
    properties = PropertyColumns(_pieces(text, places.properties, places.ends))
    kept = min((grouped.kept, *(at for name in _ELSEWHERE if (at := properties.first_with(name)) is not None)))
    if kept < len(places.starts):
        places = places.head(kept)
        grouped = _group(text, places)
        properties = PropertyColumns(_pieces(text, places.properties, places.ends))
    return _columns(places, offset, grouped, properties, count)


def _walk(data: memoryview, end: int) -> list[int]:
    """Return the beginnings of consecutive records that may be plain, and their end, which is at most `end`."""
    end = min(end, len(data))
    last = min(end, BYTES_MAX) - _FRONT_BYTES
    at = 0
    starts = [0]
    while at < last:
        size, magic, flags = _head(data, at)
        at += size
        if magic != _V1 or flags & _OTHER or size <= _FRONT_BYTES or at > end:
            break
        starts.append(at)
    return starts


def _leading(is_so: NDArray[np.bool_]) -> int:
    return len(is_so) if is_so.all() else int(is_so.argmin())


def _sound(text: bytes, bounds: list[int], offset: int, size_max: int) -> _Places:
    """Keep the records whose parts fill them and that give their own offset."""
    import numpy as np

    units = np.frombuffer(text, np.uint8)
    edges = np.array(bounds, np.int64)
    starts, ends = edges[:-1], edges[1:]
    # A view of every byte as the start of a front.
    fronts = np.ndarray(len(text) - _FRONT_BYTES + 1, f"V{_FRONT_BYTES}", text, 0, (1,))[starts].view(_front_dtype())
    body_sizes = fronts["body_size"]
    topics = starts + _FRONT_BYTES + body_sizes
    is_sound = (body_sizes >= 0) & (topics < ends) & (ends - starts <= size_max)
    is_sound &= fronts["physical_offset"] == starts + offset
    # Unsound records may name any place: do not look there.
    topics[~is_sound] = 0
    properties = topics + 1 + units[topics] + 2
    is_sound &= properties <= ends
    properties[~is_sound] = 2
    is_sound &= properties + units[properties - 2].astype(np.int64) * 256 + units[properties - 1] == ends
    return _Places(starts, topics, properties, ends, fronts).head(_leading(is_sound))


@lru_cache(maxsize=1)
def _front_dtype() -> np.dtype[Any]:
    return columns_dtype(RECORD_FRONT.places(0, **{name: name for name in _COLUMNS}), _FRONT_BYTES)


def _sound_bodies(data: memoryview, places: _Places) -> int:
    """Count the records at the front whose bodies match their checksums."""
    import numpy as np

    begins, ends = (places.starts + _FRONT_BYTES).tolist(), places.topics.tolist()
    found = np.array([crc32(data[begin:end]) for begin, end in zip(begins, ends, strict=True)], np.uint32)
    return _leading(found & np.uint32(_CRC_MASK) == places.fronts["body_crc"])


def _pieces(text: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[bytes]:
    return [text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _group(text: bytes, places: _Places) -> _Grouped:
    import numpy as np

    topics, topic_of, kept = _topics(text, places)
    queues = places.fronts["queue_id"].astype(np.int64)
    if topic_of is not None:
        queues += topic_of << 32
    order = np.argsort(queues, kind="stable")
    queues, offsets = queues[order], places.fronts["queue_offset"].astype(np.int64)[order]
    is_other = queues[1:] != queues[:-1]
    begins = np.append(0, np.flatnonzero(is_other) + 1)[: len(queues)]
    is_next = is_other | (offsets[1:] - offsets[:-1] == 1)
    if not is_next.all():
        kept = min(kept, int(order[1:][~is_next].min()))
    return _Grouped(topics, topic_of, order, begins, kept)


def _topics(text: bytes, places: _Places) -> tuple[list[bytes], NDArray[np.intp] | None, int]:
    """Find the topics of `_Grouped`, and the number of records before the first whose topic is not UTF-8."""
    import numpy as np

    count = len(places.starts)
    ends = places.properties - _LENGTH_BYTES
    if count and (ends - places.topics == (size := int(ends[0] - places.topics[0]))).all():
        first = text[int(places.topics[0]) : int(ends[0])]
        fields = np.ndarray(len(text) - size + 1, f"V{size}", text, 0, (1,))[places.topics].view(np.uint8)
        if (fields.reshape(-1, size) == np.frombuffer(first, np.uint8)).all():
            return [first], None, count if _is_text(first) else 0
    found = _pieces(text, places.topics, ends)
    numbers = {field: number for number, field in enumerate(dict.fromkeys(found))}
    kept = min((count, *(found.index(field) for field in numbers if not _is_text(field))))
    return list(numbers), np.fromiter(map(numbers.__getitem__, found), np.intp, count), kept


def _is_text(field: bytes) -> bool:
    try:
        field[1:].decode()
    except UnicodeDecodeError:
        return False
    return True


def _columns(places: _Places, offset: int, grouped: _Grouped, properties: PropertyColumns, count: int) -> PlainColumns:
    import numpy as np

    sizes = places.ends - places.starts
    offsets = places.starts + offset
    times = places.fronts["stored_ms"].astype(np.int64)
    tags = properties.values(b"TAGS")
    entries = np.empty(len(sizes), CONSUME_QUEUE_ENTRY.dtype)
    entries["physical_offset"], entries["size"] = offsets[grouped.order], sizes[grouped.order]
    entries["tags_code"] = 0
    if len(tags):
        codes = np.zeros(len(sizes), np.int64)
        codes[tags.records] = properties.hashes(tags).view(np.int32)
        entries["tags_code"] = codes[grouped.order]
    records, hashes = _keys(grouped, properties, tags)
    keys = IndexKeys(to_index_hashes(hashes), offsets[records], times[records])
    queues = _queues(places, grouped, entries, times)
    size, stored_ms = (int(places.ends[-1]), int(times[-1])) if len(sizes) else (0, 0)
    return PlainColumns(size, stored_ms, queues, keys, len(sizes) == count)


def _keys(grouped: _Grouped, properties: PropertyColumns, tags: Values) -> tuple[NDArray[np.intp], NDArray[np.uint32]]:
    """Return the record's number and the hash of each key of the index, in order."""
    import numpy as np

    fronts = [b"%b#" % topic[1:] for topic in grouped.topics]
    found = [
        (each.records, properties.hashes(each, fronts, grouped.topic_of))
        for each in (properties.values(b"UNIQ_KEY"), properties.split(properties.values(b"KEYS")))
        if len(each)
    ]
    if len(tags):
        tag_fronts = [b"%bT#" % front for front in fronts]
        found.append((tags.records, properties.hashes(tags, tag_fronts, grouped.topic_of)))
    if len(found) == 1:
        return found[0]
    records = np.concatenate([records for records, _ in found] or [np.zeros(0, np.intp)])
    hashes = np.concatenate([hashes for _, hashes in found] or [np.zeros(0, np.uint32)])
    # Stable: the keys of one record keep their order.
    order = np.argsort(records, kind="stable")
    return records[order], hashes[order]


def _queues(places: _Places, grouped: _Grouped, entries: NDArray[Any], times: NDArray[np.int64]) -> list[QueueColumns]:
    found = []
    times = times[grouped.order]
    begins = grouped.begins.tolist()
    firsts = grouped.order[grouped.begins].tolist()
    for first, begin, end in sorted(zip(firsts, begins, [*begins[1:], len(entries)], strict=False)):
        topic = 0 if grouped.topic_of is None else int(grouped.topic_of[first])
        front = places.fronts[first]
        part = entries[begin:end]
        found.append(
            QueueColumns(
                grouped.topics[topic],
                int(front["queue_id"]),
                int(front["queue_offset"]),
                end - begin,
                int(part["size"].sum()),
                part.tobytes(),
                times[begin:end],
            )
        )
    return found
