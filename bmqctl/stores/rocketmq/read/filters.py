"""Filters of commit log records.

A record passes if it matches a value of each filter. Ranges also determine which part of the log is read: offsets
directly, times by bisection, with a margin for a new master whose clock is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.times import CLOCK_SLACK_S
from bmqctl.stores.blazingmq.read.wanted import TIME_MAX_S, BadFilter
from bmqctl.stores.rocketmq.read.files import LogFile
from bmqctl.stores.rocketmq.read.records import LogRecords
from bmqctl.stores.rocketmq.read.scan import LogFault, LogScan
from formats.errors import FormatError
from formats.rocketmq.files.index import index_key
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.properties import decode_properties

__all__ = ["LogFilters", "LogSelector", "first_at", "parse_time_ms"]

_SLACK_MS: Final = 1000 * CLOCK_SLACK_S
# Read pieces smaller than this instead of bisecting them.
_PIECE_BYTES: Final = 1 << 24
UNIQUE_ID: Final = "UNIQ_KEY"


@dataclass(frozen=True)
class LogFilters:
    """Filters of messages; `*_gt` and `*_lt` are exclusive, `since` is inclusive, `until` exclusive."""

    topics: frozenset[str] = frozenset()
    queue_ids: frozenset[int] = frozenset()
    ids: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    offset_gt: int | None = None
    offset_lt: int | None = None
    offsets: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise BadFilter("--since must be before --until")
        if self.offset_gt is not None and self.offset_lt is not None and self.offset_gt >= self.offset_lt:
            raise BadFilter("--offset-gt must be below --offset-lt")
        if self.offsets and replace(self, offsets=frozenset()) != LogFilters():
            raise BadFilter("--offset names single records: it cannot be combined with other filters")

    @property
    def has_end(self) -> bool:
        """True if some record is the last that can pass."""
        return bool(self.offsets or self.ids) or self.until_ms is not None or self.offset_lt is not None

    @property
    def has_range(self) -> bool:
        return any(each is not None for each in (self.since_ms, self.until_ms, self.offset_gt, self.offset_lt))

    @property
    def index_keys(self) -> list[str]:
        """The index keys that together cover all matches; empty if there are none."""
        texts = {each for text in self.ids for each in (text, text.upper())} or self.keys
        # Messages without keys have the empty key here, but none in an index.
        return [] if "" in texts else [index_key(topic, text) for topic in self.topics for text in texts]

    def begin(self, files: Sequence[LogFile]) -> int:
        begin = files[0].begin if files else 0
        if self.offset_gt is not None:
            begin = max(begin, self.offset_gt)
        if self.since_ms is not None:
            begin = max(begin, first_at(files, self.since_ms - _SLACK_MS))
        return begin

    def ends_before(self, records: LogRecords, offset: int) -> bool:
        """Return whether no record from this offset on passes; `records` are the last ones before it."""
        if self.offset_lt is not None and offset >= self.offset_lt:
            return True
        until = self.until_ms
        return until is not None and bool(len(records)) and int(records.stored_ms[-1]) >= until + _SLACK_MS

    def passes_fault(self, fault: LogFault) -> bool:
        below = self.offset_lt is None or fault.offset < self.offset_lt
        return below and (self.offset_gt is None or fault.offset > self.offset_gt)


@dataclass
class LogSelector:
    """Applies filters to records; `unseen` are the ids not found yet."""

    filters: LogFilters
    unseen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.unseen |= self.filters.ids
        self._places = {found.physical_offset: text for text in self.filters.ids if (found := _offset_id(text))}

    @property
    def places(self) -> list[int]:
        return sorted(self._places)

    def is_at_places(self, records: Sequence[LogRecords]) -> bool:
        found = [index for each in records for index in self._at_places(each)]
        return len(found) == len(self.filters.ids) and not self.unseen

    def select(self, records: LogRecords) -> LogRecords:
        for mask in (_in_range, _in_queues):
            wanted = mask(records, self.filters)
            if wanted is not None and not wanted.all():
                records = records.where(wanted)
        for texts, matches in (
            (self.filters.tags, self._has_tag),
            (self.filters.keys, self._has_key),
            (self.filters.ids, self._has_id),
        ):
            if texts and len(records):
                records = self._matching(records, texts, matches)
        return records

    def _matching(
        self, records: LogRecords, texts: frozenset[str], matches: Callable[[dict[str, str]], bool]
    ) -> LogRecords:
        """Select the records that satisfy `matches`, after a quick search for the texts in their properties."""
        whole = bytes(records.data)
        needles = {each.encode() for text in texts for each in (text, text.upper())}
        needles = {needle for needle in needles if needle in whole}
        found = []
        if needles:
            for index, properties in enumerate(records.properties()):
                if any(needle in properties for needle in needles) and matches(decode_properties(properties)):
                    found.append(index)
        if texts is self.filters.ids and self._places:
            found = sorted({*found, *self._at_places(records)})
        return records.where(np.array(found, np.int64))

    def _has_tag(self, properties: dict[str, str]) -> bool:
        return properties.get("TAGS") in self.filters.tags

    def _has_key(self, properties: dict[str, str]) -> bool:
        return not self.filters.keys.isdisjoint(properties.get("KEYS", "").split(" "))

    def _has_id(self, properties: dict[str, str]) -> bool:
        found = properties.get(UNIQUE_ID)
        known = {text for text in self.filters.ids if found is not None and found in (text, text.upper())}
        self.unseen -= known
        return bool(known)

    def _at_places(self, records: LogRecords) -> list[int]:
        found = []
        for index in np.flatnonzero(np.isin(records.offsets, list(self._places))).tolist():
            offset = int(records.offsets[index])
            text = self._places[offset]
            if text.upper() == f"{records.store_hosts[index].hex().upper()}{offset:016X}":
                found.append(index)
                self.unseen.discard(text)
        return found


def _in_range(records: LogRecords, filters: LogFilters) -> NDArray[np.bool_] | None:
    masks = []
    if filters.offset_gt is not None:
        masks.append(records.offsets > filters.offset_gt)
    if filters.offset_lt is not None:
        masks.append(records.offsets < filters.offset_lt)
    if filters.since_ms is not None:
        masks.append(records.stored_ms >= filters.since_ms)
    if filters.until_ms is not None:
        masks.append(records.stored_ms < filters.until_ms)
    return np.logical_and.reduce(masks) if masks else None


def _in_queues(records: LogRecords, filters: LogFilters) -> NDArray[np.bool_] | None:
    if not filters.topics and not filters.queue_ids:
        return None
    wanted = np.ones(len(records), np.bool_)
    if filters.queue_ids:
        wanted &= np.isin(records.front("queue_id"), list(filters.queue_ids))
    if filters.topics:
        of_topics = np.zeros(len(records), np.bool_)
        for topic in filters.topics:
            of_topics |= _of_topic(records, topic.encode(errors="surrogateescape"))
        wanted &= of_topics
    return wanted


def _of_topic(records: LogRecords, topic: bytes) -> NDArray[np.bool_]:
    wanted: NDArray[np.bool_] = records.topic_sizes == len(topic)
    rows = np.flatnonzero(wanted)
    if len(rows) and topic:
        source = np.frombuffer(records.data, np.uint8)
        texts = np.lib.stride_tricks.sliding_window_view(source, len(topic))[records.topic_at[rows]]
        wanted[rows] = (texts == np.frombuffer(topic, np.uint8)).all(axis=1)
    return wanted


def _offset_id(text: str) -> OffsetId | None:
    try:
        return OffsetId.parse(text)
    except FormatError:
        return None


def first_at(files: Sequence[LogFile], stored_ms: int) -> int:
    """An offset before the first record stored at or after this time, found by bisection."""
    if not files:
        return 0
    low, high = files[0].begin, files[-1].end
    while high - low > _PIECE_BYTES:
        middle = (low + high) // 2
        found = next((chunk.records for chunk in LogScan(files, middle).chunks() if len(chunk.records)), None)
        if found is not None and int(found.stored_ms[0]) < stored_ms:
            low = middle
        else:
            high = middle
    return low


def parse_time_ms(text: str) -> int:
    """Parse seconds since the epoch, or ISO 8601 (UTC by default), to milliseconds, rounded up."""
    try:
        if (seconds := read_digits(text, TIME_MAX_S // 1000)) is not None:
            return seconds * 1000
        time = datetime.fromisoformat(text)
        micros = round(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1_000_000)
    except (ValueError, OverflowError):
        raise BadFilter(f"{text!r} is not a time: write 2026-11-21T05:11:04, or seconds since 1970") from None
    return -(-micros // 1000)
