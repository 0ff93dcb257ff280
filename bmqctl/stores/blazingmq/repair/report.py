"""The report of a repair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Mode", "Note", "PartitionReport", "RepairReport"]


class Mode(StrEnum):
    """The extent of a repair.

    With `alone` the store is the only copy, and everything sound is kept. With `replica`, only records before the first
    damage are kept, and other nodes supply the rest.
    """

    ALONE = "alone"
    REPLICA = "replica"


@dataclass(frozen=True, slots=True)
class Note:
    """A part of the store that was left out, or kept with a part restored.

    `offset` and `size` are in bytes of the damaged store's `file`; `what` is a record type, FILE, HEADER, PAYLOAD
    (bytes of DATA), RECORDS (slots without a readable record), or BYTES (unreadable on the disk). `number` is "lease
    id:sequence number".
    """

    file: str
    offset: int
    size: int
    what: str
    reason: str
    number: str | None = None
    guid: str | None = None
    queue_key: str | None = None
    queue_uri: str | None = None


@dataclass(slots=True)
class PartitionReport:
    """The report on one partition.

    `records` counts kept ones by type; `sync_points_dropped` counts sync points that a rollover did not copy.
    """

    partition_id: int
    files: tuple[str, ...] = ()
    records: dict[str, int] = field(default_factory=dict)
    outstanding: int = 0
    sync_points_dropped: int = 0
    added: list[Note] = field(default_factory=list)
    left_out: list[Note] = field(default_factory=list)
    restored: list[Note] = field(default_factory=list)


@dataclass(slots=True)
class RepairReport:
    """The report of a repair; `left_out` and `restored` concern files outside partitions."""

    source: str
    out: str
    mode: Mode
    partitions: list[PartitionReport] = field(default_factory=list)
    left_out: list[Note] = field(default_factory=list)
    restored: list[Note] = field(default_factory=list)
    errors: int = 0
    warnings: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def all_left_out(self) -> Iterator[Note]:
        yield from self.left_out
        for partition in self.partitions:
            yield from partition.left_out

    def all_restored(self) -> Iterator[Note]:
        yield from self.restored
        for partition in self.partitions:
            yield from partition.restored
            yield from partition.added

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
