"""Filters of the records that a dump prints.

A record passes if it matches a value of each filter. Ranges also bound the part of the file that is read (`places`):
exactly for offsets, by bisection for sequence numbers, and with a margin of an hour for times, since a new primary's
clock may be slow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.chunks import Chunk, Part
from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.reader import JournalReader
from bmqctl.stores.blazingmq.read.times import CLOCK_SLACK_S
from bmqctl.stores.blazingmq.read.wanted import BadFilter, Wanted, parse_key
from formats.bmq.disk.journal import ANY_RECORD, Record, RecordType
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.stores.outcomes import MessageOutcome

__all__ = [
    "Filters",
    "Ranges",
    "Selector",
    "number_above",
    "places",
]

WITH_GUID = frozenset({RecordType.MESSAGE, RecordType.CONFIRM, RecordType.DELETION})
WITH_QUEUE = WITH_GUID | {RecordType.QUEUE_OP}
WITH_APP = frozenset({RecordType.CONFIRM, RecordType.QUEUE_OP})


@dataclass(frozen=True)
class Ranges:
    """Bounds of times (seconds), numbers and offsets (bytes), and single records.

    `*_gt` and `*_lt` are exclusive, `since` is inclusive, `until` exclusive.
    """

    since: int | None = None
    until: int | None = None
    seqnum_gt: RecordNumber | None = None
    seqnum_lt: RecordNumber | None = None
    offset_gt: int | None = None
    offset_lt: int | None = None
    seqnums: frozenset[RecordNumber] = frozenset()
    offsets: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise BadFilter("--since must be before --until")
        if self.seqnum_gt is not None and self.seqnum_lt is not None and self.seqnum_gt >= self.seqnum_lt:
            raise BadFilter("--seqnum-gt must be below --seqnum-lt")
        if self.offset_gt is not None and self.offset_lt is not None and self.offset_gt >= self.offset_lt:
            raise BadFilter("--offset-gt must be below --offset-lt")
        exact = [name for name, given in (("--seqnum", self.seqnums), ("--offset", self.offsets)) if given]
        if exact and (self.has_range or self._has_others or len(exact) > 1):
            raise BadFilter(f"{exact[0]} names single records: it cannot be combined with other filters")

    @property
    def has_range(self) -> bool:
        bounds = (self.since, self.until, self.seqnum_gt, self.seqnum_lt, self.offset_gt, self.offset_lt)
        return any(bound is not None for bound in bounds)

    @property
    def is_exact(self) -> bool:
        """True if single records are requested."""
        return bool(self.seqnums or self.offsets)

    @property
    def _has_others(self) -> bool:
        return False

    def holds(self, number: RecordNumber, offset: int, timestamp: int) -> bool:
        return (
            (self.since is None or timestamp >= self.since)
            and (self.until is None or timestamp < self.until)
            and (self.seqnum_gt is None or number > self.seqnum_gt)
            and (self.seqnum_lt is None or number < self.seqnum_lt)
            and (self.offset_gt is None or offset > self.offset_gt)
            and (self.offset_lt is None or offset < self.offset_lt)
            and (not self.seqnums or number in self.seqnums)
            and (not self.offsets or offset in self.offsets)
        )


@dataclass(frozen=True)
class Filters(Ranges):
    """Filters of a journal; `queues` and `apps` are names or keys."""

    types: frozenset[RecordType] = frozenset()
    guids: frozenset[bytes] = frozenset()
    queues: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    status: MessageOutcome | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.apps and self.status not in (None, MessageOutcome.OUTSTANDING):
            raise BadFilter(f"--app goes with --outstanding, not with --{self.status.word}: see --type confirm --app")
        for option, given, has in (
            (f"--{self.status.word}" if self.status else "", self.status, WITH_GUID),
            ("--guid", self.guids, WITH_GUID),
            ("--queue", self.queues, WITH_QUEUE),
            ("--app", self.apps, WITH_APP if self.status is None else WITH_GUID),
        ):
            if given and self.types and not self.types & has:
                raise BadFilter(f"{option}: only records of type {_listed(has)} have it, and --type excludes them")

    @property
    def _has_others(self) -> bool:
        return bool(self.types or self.guids or self.queues or self.apps or self.status)


def _listed(types: Collection[RecordType]) -> str:
    return ", ".join(kind.name.lower().replace("_", "-") for kind in sorted(types))


def places(reader: JournalReader, filters: Filters) -> tuple[int, int | None]:
    """The first slot to read, and the one after the last (None: to the end)."""
    starts, ends = [0], []
    if filters.offset_gt is not None:
        starts.append(reader.index_of(filters.offset_gt + 1))
    if filters.offset_lt is not None:
        ends.append(reader.index_of(filters.offset_lt))
    if filters.offsets:
        starts.append(reader.index_of(min(filters.offsets)))
        ends.append(reader.index_of(max(filters.offsets)) + 1)
    low, high = filters.seqnum_gt, filters.seqnum_lt
    if low is not None:
        starts.append(reader.find(lambda record: _number(record) > low))
    if high is not None:
        ends.append(reader.find(lambda record: _number(record) >= high))
    if filters.seqnums:
        first, last = min(filters.seqnums), max(filters.seqnums)
        starts.append(reader.find(lambda record: _number(record) >= first))
        ends.append(reader.find(lambda record: _number(record) > last))
    if filters.since is not None:
        since = filters.since - CLOCK_SLACK_S
        starts.append(reader.find(lambda record: record.timestamp >= since))
    if filters.until is not None:
        until = filters.until + CLOCK_SLACK_S
        ends.append(reader.find(lambda record: record.timestamp >= until))
    return max(starts), min(ends, default=None)


def _number(record: Record) -> RecordNumber:
    return RecordNumber.of(record)


@dataclass
class Selector:
    """Applies filters to a journal's chunks. `unseen` are the GUIDs, numbers and offsets not found yet."""

    filters: Filters
    names: QueueNames
    unseen: set[Wanted] = field(default_factory=set)
    _version: int = -1
    _queue_keys: frozenset[bytes] = frozenset()
    _app_keys: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        self.unseen |= self.filters.guids | self.filters.seqnums | self.filters.offsets

    def select(self, chunk: Chunk) -> Chunk:
        """Select the records that pass, and faults unless single records are requested."""
        filters = self.filters
        if filters.types:
            chunk = chunk.where(np.isin(chunk.kinds, [int(kind) for kind in filters.types]))
        chunk = self._in_range(chunk)
        if filters.queues or filters.apps:
            self._resolve()
        if filters.queues:
            chunk = chunk.where(_having(chunk, "queue_key", WITH_QUEUE, self._queue_keys))
        if filters.apps and filters.status is None:
            chunk = chunk.where(_having(chunk, "app_key", WITH_APP, self._app_keys))
        if filters.guids:
            chunk = chunk.where(_having(chunk, "guid", WITH_GUID, filters.guids))
            for part in chunk.parts():
                if part.kind in WITH_GUID:
                    self.unseen.difference_update(part.column("guid").tolist())
        return self._exact(chunk)

    def _in_range(self, chunk: Chunk) -> Chunk:
        filters = self.filters
        if not filters.has_range:
            return chunk
        wanted = np.ones(len(chunk), np.bool_)
        offset = chunk.offset
        if filters.offset_gt is not None:
            wanted &= offset > filters.offset_gt
        if filters.offset_lt is not None:
            wanted &= offset < filters.offset_lt
        if filters.since is not None:
            wanted &= chunk.records["timestamp"] >= filters.since
        if filters.until is not None:
            wanted &= chunk.records["timestamp"] < filters.until
        if filters.seqnum_gt is not None:
            wanted &= number_above(chunk, filters.seqnum_gt)
        if filters.seqnum_lt is not None:
            wanted &= ~number_above(chunk, filters.seqnum_lt) & ~_is(chunk, filters.seqnum_lt)
        return chunk.where(wanted)

    def _exact(self, chunk: Chunk) -> Chunk:
        if self.filters.offsets:
            chunk = chunk.without_faults()
            chunk = chunk.where(np.isin(chunk.offset, list(self.filters.offsets)))
            self.unseen.difference_update(chunk.offset.tolist())
        if self.filters.seqnums:
            chunk = chunk.without_faults()
            wanted = np.zeros(len(chunk), np.bool_)
            for number in self.filters.seqnums:
                found = _is(chunk, number)
                if found.any():
                    self.unseen.discard(number)
                    wanted |= found
            chunk = chunk.where(wanted)
        return chunk

    def _resolve(self) -> None:
        """Look up the keys of the queues and apps, which the records may have named."""
        if self._version == self.names.version:
            return
        self._version = self.names.version
        names = set(self.filters.queues)
        self._queue_keys = frozenset(
            [key for key, uri in self.names.uris.items() if uri in names]
            + [key for key in map(parse_key, self.filters.queues) if key is not None]
        )
        ids = set(self.filters.apps)
        self._app_keys = frozenset(
            [app_key for (_, app_key), app_id in self.names.app_ids.items() if app_id in ids]
            + [key for key in map(parse_key, self.filters.apps) if key is not None]
        )


def _having(chunk: Chunk, name: str, kinds: Collection[int], values: Collection[bytes]) -> NDArray[np.bool_]:
    wanted = np.zeros(len(chunk), np.bool_)
    for part in chunk.parts():
        if part.kind in kinds:
            wanted[part.rows] = _is_in(part, name, values)
    return wanted


def _is_in(part: Part, name: str, values: Collection[bytes]) -> list[bool]:
    return [value in values for value in part.column(name).tolist()]


def _columns(chunk: Chunk) -> tuple[NDArray[Any], NDArray[Any]]:
    return (ANY_RECORD.column(chunk.records, "primary_lease_id"), ANY_RECORD.column(chunk.records, "sequence_number"))


def number_above(chunk: Chunk, number: RecordNumber) -> NDArray[np.bool_]:
    lease_ids, sequence_numbers = _columns(chunk)
    above: NDArray[np.bool_] = (lease_ids > number.primary_lease_id) | (
        (lease_ids == number.primary_lease_id) & (sequence_numbers > number.sequence_number)
    )
    return above


def _is(chunk: Chunk, number: RecordNumber) -> NDArray[np.bool_]:
    lease_ids, sequence_numbers = _columns(chunk)
    same: NDArray[np.bool_] = (lease_ids == number.primary_lease_id) & (sequence_numbers == number.sequence_number)
    return same
