"""Tasks of `bmqctl spark-verify`: read files of an export, or parts of the store, and sum up the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bmqctl.pipeline.export.checksums import add_checksums, row_hashes
from bmqctl.pipeline.export.manifest import WrittenFile
from bmqctl.pipeline.export.table_files import read_table
from bmqctl.pipeline.export.write_tasks import TableShape, hashed_columns
from bmqctl.pipeline.reading import POSITION, Subject
from bmqctl.stores.blazingmq.read.account import Account

__all__ = [
    "SEGMENT_RECORDS",
    "CheckFile",
    "FileCheck",
    "ReadRows",
    "Rows",
    "Segments",
    "Sums",
    "check_file",
    "joined",
    "read_rows",
]

SEGMENT_RECORDS = 1 << 14
"""Sequence numbers that one sum of checksums covers."""

Segments = dict[tuple[int, int, int], tuple[int, int]]
"""Count and checksum of rows by (partition id, lease id, sequence number // `SEGMENT_RECORDS`)."""

_EMPTY = (0, 0)


class Sums:
    """Counts and checksums by segment."""

    def __init__(self) -> None:
        self.segments: Segments = {}

    def add(self, positions: NDArray[Any], hashes: NDArray[Any]) -> None:
        segments = _segments_of(positions)
        keys, inverse = np.unique(segments, return_inverse=True)
        counts = np.bincount(inverse, minlength=len(keys))
        sums = np.zeros(len(keys), np.uint64)
        np.add.at(sums, inverse, hashes)
        for key, count, total in zip(keys.tolist(), counts.tolist(), sums.tolist(), strict=True):
            self.add_sum(key, count, total)

    def add_all(self, segments: Segments) -> None:
        for key, (count, total) in segments.items():
            self.add_sum(key, count, total)

    def add_sum(self, key: tuple[int, int, int], count: int, total: int) -> None:
        before = self.segments.get(key, _EMPTY)
        self.segments[key] = (before[0] + count, add_checksums(before[1], total))


def _segments_of(positions: NDArray[Any]) -> NDArray[Any]:
    segments = positions.copy()
    segments["sequence_number"] //= SEGMENT_RECORDS
    return segments


@dataclass(frozen=True)
class CheckFile:
    """An export's file, to compare with its entry in the manifest."""

    shape: TableShape
    file: WrittenFile


@dataclass
class FileCheck:
    """The result of checking a file: `fault` is the difference from the manifest in one line, or None."""

    table: str
    path: str
    fault: str | None
    segments: Segments = field(default_factory=dict)


def check_file(task: CheckFile) -> FileCheck:
    shape, file = task.shape, task.file
    digest = hashlib.sha256()
    size = 0
    try:
        for chunk in shape.output.chunks(file.path):
            digest.update(chunk)
            size += len(chunk)
    except FileNotFoundError:
        return FileCheck(shape.name, file.path, "is missing")
    except OSError as error:
        return FileCheck(shape.name, file.path, f"cannot be read: {error}")
    if size != file.bytes:
        return FileCheck(shape.name, file.path, f"has {size:,} bytes, {file.bytes:,} were written")
    if digest.hexdigest() != file.sha256:
        return FileCheck(shape.name, file.path, "has changed since it was written (SHA-256)")
    sums = Sums()
    for batch in read_table(shape.output, file.path, shape.file_format, shape.schema):
        sums.add(shape.subject.positions(batch), row_hashes(batch, hashed_columns(shape.schema)))
    rows = sum(count for count, _ in sums.segments.values())
    total = add_checksums(*(checksum for _, checksum in sums.segments.values()))
    fault = None
    if rows != file.rows:
        fault = f"has {rows:,} rows, the manifest says {file.rows:,}"
    elif total != file.checksum:
        fault = f"its rows have the checksum {total:016x}, the manifest says {file.checksum:016x}"
    return FileCheck(shape.name, file.path, fault, sums.segments)


@dataclass(frozen=True)
class ReadRows:
    """Rows of one part of the store, or of one file: summed up or, for those in `segments`, individual."""

    table: str
    schema: pa.Schema
    subject: Subject
    read: Callable[[Account], Iterator[pa.RecordBatch]]
    segments: frozenset[tuple[int, int, int]] | None = None


@dataclass
class Rows:
    """The rows of one part, and the account of it if it belongs to the store."""

    table: str
    segments: Segments = field(default_factory=dict)
    positions: NDArray[Any] = field(default_factory=lambda: np.zeros(0, POSITION))
    hashes: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.uint64))
    account: Account = field(default_factory=lambda: Account(compares=True))


def read_rows(task: ReadRows) -> Rows:
    """Read the rows; keep only positions and hashes of those in `segments`."""
    rows = Rows(task.table)
    sums = Sums()
    found: list[tuple[NDArray[Any], NDArray[Any]]] = [(rows.positions, rows.hashes)]
    wanted = None if task.segments is None else np.array(sorted(task.segments), POSITION)
    for batch in task.read(rows.account):
        positions = task.subject.positions(batch)
        hashes = row_hashes(batch, hashed_columns(task.schema))
        if wanted is None:
            sums.add(positions, hashes)
        else:
            inside = np.isin(_segments_of(positions), wanted)
            found.append((positions[inside], hashes[inside]))
    rows.segments = sums.segments
    rows.positions, rows.hashes = (np.concatenate(column) for column in zip(*found, strict=True))
    return rows


def joined(parts: Iterable[Rows]) -> tuple[NDArray[Any], NDArray[Any]]:
    both = [(part.positions, part.hashes) for part in parts]
    empty = (np.zeros(0, POSITION), np.zeros(0, np.uint64))
    positions, hashes = zip(empty, *both, strict=True)
    return np.concatenate(positions), np.concatenate(hashes)
