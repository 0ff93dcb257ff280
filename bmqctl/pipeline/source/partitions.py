"""Discovery of the journals in a reader's paths, and their merging into partitions.

A partition is merged from any nodes' stores. A record's number (lease id, sequence number) is the same on every node
and in the next file set after a rollover. A partition's journals are therefore merged by number, and each record is
read from one of them. A single journal needs no comparison.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.common.regular import open_buffered
from bmqctl.pipeline.source.options import FileSets
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.files import companions, is_finished, missing_journals
from bmqctl.stores.blazingmq.read.losses import lose_hidden, lose_qlist, lose_sizes, sizes_stated
from bmqctl.stores.blazingmq.read.scan import JournalScan
from formats.bmq.disk.columns import guid_numbers, sound_kinds
from formats.bmq.disk.files import (
    JOURNAL_RECORD_SIZE,
    FileSet,
    FileType,
    group_file_sets,
    parse_file_name,
    recovery_set,
)
from formats.bmq.disk.journal import ANY_RECORD, LAYOUTS, RecordType
from formats.errors import FormatError

__all__ = ["Journal", "MergedPartition", "Segment", "find_journals", "find_partitions", "find_stores"]

SAMPLES = 64
LEASES_MAX = 1 << 16
SEQUENCE_BITS = 48


@dataclass(frozen=True)
class Journal:
    """A journal that can be opened, with its other files, each None if missing.

    `data_stated` is the size of DATA according to the last sync point, in bytes; 0 without one.
    """

    path: str
    data: str | None
    qlist: str | None
    partition_id: int
    first_record_offset: int
    record_count: int
    data_stated: int


class Segment(NamedTuple):
    """`records` records of one journal from slot `place` on, at `position` and following in the partition."""

    journal: int
    place: int
    records: int
    position: int


@dataclass(frozen=True)
class MergedPartition:
    """The journals of one partition, and the records that make it up, in order of position."""

    partition_id: int
    journals: tuple[Journal, ...]
    segments: tuple[Segment, ...]

    @property
    def record_count(self) -> int:
        return sum(segment.records for segment in self.segments)


def find_stores(paths: Iterable[str]) -> list[Path]:
    """The directories and journal files of `paths`, with patterns expanded. Raises StoreError if there is none."""
    found: dict[Path, None] = {}
    for path in paths:
        name = path.removeprefix("file://")
        if Path(name).exists() or not glob.has_magic(name):
            found[Path(name)] = None
            continue
        matches = [Path(match) for match in _glob(name)]
        matches = [match for match in matches if match.is_dir() or _is_journal(match)]
        if not matches:
            raise StoreError(f"{path}: nothing matches")
        found.update(dict.fromkeys(matches))
    return list(found)


def _glob(pattern: str) -> list[Path]:
    """The paths that match an absolute or relative pattern, in order.

    A directory whose name looks like a pattern matches by name.
    """
    parts = Path(pattern).parts
    fixed = next(
        number for number, part in enumerate(parts) if glob.has_magic(part) and not Path(*parts[: number + 1]).is_dir()
    )
    return sorted(Path(*parts[:fixed]).glob(str(Path(*parts[fixed:]))))


def file_sets_of(path: Path, which: FileSets) -> Iterator[tuple[Path, FileSet]]:
    """Yield (directory, file set) of the journals in `path`. Raises StoreError if there are none."""
    if path.is_file():
        files = companions(path)
        if files is None or not _is_journal(path):
            raise StoreError(f"{path}: not a journal of a store (bmq_<partition>.<time>.bmq_journal)")
        yield path.parent, files
        return
    if not path.is_dir():
        raise StoreError(f"{path}: no such file or directory")
    by_partition: dict[int, list[FileSet]] = {}
    for files in group_file_sets(entry.name for entry in path.iterdir()):
        if files.journal is not None:
            by_partition.setdefault(files.partition_id, []).append(files)
    if not by_partition:
        raise StoreError(f"{path}: no journal (bmq_<partition>.<time>.bmq_journal) in it{_hint(path)}")
    for _, sets in sorted(by_partition.items()):
        # A broker takes no set without its DATA file; if none has one there are at least records.
        sets = [files for files in sets if files.data is not None] or sets
        chosen = sets if which is FileSets.ALL else [recovery_set(sets, lambda files: is_finished(path, files))]
        yield from ((path, files) for files in chosen)


def find_journals(paths: Iterable[str], which: FileSets) -> Iterator[Journal | tuple[Path, FormatError | OSError]]:
    """Yield the journals of `paths`; for a damaged or vanished one, its path and the error.

    Raises StoreError if a file cannot be opened.
    """
    for path in find_stores(paths):
        for directory, files in file_sets_of(path, which):
            assert files.journal is not None
            journal = directory / files.journal
            data, qlist = (name and str(directory / name) for name in (files.data, files.qlist))
            try:
                for other in (data, qlist):
                    if other is not None:
                        open_buffered(Path(other)).close()
                with JournalScan(journal) as scan:
                    data_stated, _ = sizes_stated(scan)
                    yield Journal(
                        str(journal),
                        data,
                        qlist,
                        scan.partition_id,
                        scan.first_record_offset,
                        scan.extent.record_count,
                        data_stated,
                    )
            except (FormatError, FileNotFoundError) as error:
                yield journal, error
            except OSError as error:
                raise StoreError(f"{error.filename}: {error.strerror}") from None


def find_lost_files(paths: Iterable[str], which: FileSets) -> Account:
    account = Account()
    paths = list(paths)
    for found in find_journals(paths, which):
        if isinstance(found, Journal):
            with JournalScan(Path(found.path)) as scan:
                lose_hidden(account, scan)
                lose_sizes(account, scan, companions(scan.path) or FileSet(0, "", None, None, None))
                if found.qlist is not None:
                    lose_qlist(account, Path(found.qlist), sizes_stated(scan)[1])
        else:
            path, error = found
            account.lose(f"{path}: {error}", path.stat().st_size if path.exists() else 0)
    for path in find_stores(paths):
        for name in missing_journals(path):
            account.lose(f"{path / name}: is missing", 0, is_missing=True)
    return account


def find_partitions(journals: Iterable[Journal]) -> list[MergedPartition]:
    """Group journals by partition id. Raises StoreError if those of one id belong to different partitions."""
    by_partition: dict[int, list[Journal]] = {}
    for journal in journals:
        by_partition.setdefault(journal.partition_id, []).append(journal)
    return [_merge(partition_id, found) for partition_id, found in sorted(by_partition.items())]


def _merge(partition_id: int, journals: list[Journal]) -> MergedPartition:
    if len(journals) == 1:
        count = journals[0].record_count
        return MergedPartition(partition_id, tuple(journals), (Segment(0, 0, count, 0),) if count else ())
    # The longest first, which needs no search in the others.
    journals = sorted(journals, key=lambda journal: -journal.record_count)
    runs = [_runs(journal) for journal in journals]
    leases = np.unique(np.concatenate([each["lease"] for each in runs]))
    if len(leases) > LEASES_MAX:
        raise StoreError(f"{journals[0].path}: more than {LEASES_MAX} lease ids in the journals of its partition")
    taken = np.zeros(0, PIECE)
    for number, each in enumerate(runs):
        pieces = np.zeros(len(each), PIECE)
        rank = np.searchsorted(leases, each["lease"]).astype(np.uint64) << np.uint64(SEQUENCE_BITS)
        pieces["start"] = rank + each["sequence_number"]
        pieces["end"] = pieces["start"] + each["count"].astype(np.uint64)
        pieces["place"] = each["place"]
        pieces["journal"] = number
        if number:
            _check_same(journals, taken, pieces)
            pieces = _without(pieces, taken)
        taken = np.sort(np.concatenate([taken, pieces]), order="start", kind="stable")
    return MergedPartition(partition_id, tuple(journals), _segments(taken))


# A run of records with consecutive numbers, and a part of one as comparable numbers.
RUN = np.dtype([("lease", np.uint64), ("sequence_number", np.uint64), ("count", np.int64), ("place", np.int64)])
PIECE = np.dtype([("start", np.uint64), ("end", np.uint64), ("place", np.int64), ("journal", np.int64)])


def _runs(journal: Journal) -> NDArray[Any]:
    found = []
    with JournalScan(Path(journal.path)) as scan:
        for chunk in scan.chunks(0, journal.record_count):
            rows = np.flatnonzero(sound_kinds(chunk.records))
            records = chunk.records[rows]
            lease = ANY_RECORD.column(records, "primary_lease_id").astype(np.uint64)
            sequence = ANY_RECORD.column(records, "sequence_number").astype(np.uint64)
            place = chunk.first + rows
            starts = np.ones(len(rows), np.bool_)
            starts[1:] = (np.diff(lease) != 0) | (np.diff(sequence) != 1) | (np.diff(place) != 1)
            first = np.flatnonzero(starts)
            runs = np.zeros(len(first), RUN)
            runs["lease"], runs["sequence_number"], runs["place"] = lease[first], sequence[first], place[first]
            runs["count"] = np.diff(first, append=len(rows))
            found.append(runs)
    return np.concatenate(found) if found else np.zeros(0, RUN)


def _spans(taken: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    ends = np.maximum.accumulate(taken["end"])
    first = np.ones(len(taken), np.bool_)
    first[1:] = taken["start"][1:] > ends[:-1]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(taken) - 1) if len(taken) else np.zeros(0, np.int64)
    return taken["start"][first], ends[last]


def _without(pieces: NDArray[Any], taken: NDArray[Any]) -> NDArray[Any]:
    starts, ends = _spans(taken)
    if not len(starts):
        return pieces
    at = np.searchsorted(starts, pieces["start"], "right") - 1
    inside = (at >= 0) & (pieces["end"] <= ends[np.maximum(at, 0)])
    left = []
    for start, end, place, journal in pieces[~inside].tolist():
        here = start
        at_span = max(0, int(np.searchsorted(ends, np.uint64(start), "right")))
        while here < end:
            taken_from, taken_to = (int(starts[at_span]), int(ends[at_span])) if at_span < len(starts) else (end, end)
            until = min(end, taken_from)
            if here < until:
                left.append((here, until, place + here - start, journal))
            here = max(here, taken_to)
            at_span += 1
    return np.array(left, PIECE)


def _segments(taken: NDArray[Any]) -> tuple[Segment, ...]:
    count = (taken["end"] - taken["start"]).astype(np.int64)
    first = np.ones(len(taken), np.bool_)
    first[1:] = (taken["journal"][1:] != taken["journal"][:-1]) | (taken["place"][1:] != (taken["place"] + count)[:-1])
    position = np.concatenate([[0], np.cumsum(count)])
    begins = np.flatnonzero(first)
    ends = np.append(begins[1:], len(taken))
    return tuple(
        Segment(int(taken["journal"][a]), int(taken["place"][a]), int(position[b] - position[a]), int(position[a]))
        for a, b in zip(begins.tolist(), ends.tolist(), strict=True)
    )


def _check_same(journals: list[Journal], taken: NDArray[Any], pieces: NDArray[Any]) -> None:
    """Compare some common records. Raises StoreError if most differ: the clusters are different ones."""
    at = np.searchsorted(taken["start"], pieces["start"], "right") - 1
    common = np.flatnonzero((at >= 0) & (pieces["start"] < taken["end"][np.maximum(at, 0)])) if len(taken) else at[:0]
    if not len(common):
        return
    chosen = common[:: max(1, len(common) // SAMPLES)]
    other_path, path = journals[0].path, journals[int(pieces["journal"][0])].path
    differ = seen = 0
    for piece, other in zip(pieces[chosen], taken[at[chosen]], strict=True):
        shared = int(min(piece["end"], other["end"])) - int(piece["start"])
        for step in range(0, shared, max(1, shared // max(1, SAMPLES // len(chosen)))):
            one = _identity(journals[int(piece["journal"])], int(piece["place"]) + step)
            place = int(other["place"]) + int(piece["start"]) - int(other["start"]) + step
            two = _identity(journals[int(other["journal"])], place)
            seen += 1
            differ += one != two
    if differ * 2 > seen:
        raise StoreError(
            f"{path} and {other_path}: different records under the same numbers: these are stores of two clusters"
        )


def _identity(journal: Journal, place: int) -> bytes:
    """The bytes that identify a record: all but offsets in the other files."""
    with JournalScan(Path(journal.path)) as scan:
        offset = journal.first_record_offset + place * JOURNAL_RECORD_SIZE
        record = np.frombuffer(scan.read(offset, JOURNAL_RECORD_SIZE), ANY_RECORD.dtype)
    kind = int(sound_kinds(record)[0])
    head = record.tobytes()[:20]
    if kind not in (RecordType.MESSAGE, RecordType.CONFIRM, RecordType.DELETION):
        return head
    layout = LAYOUTS[kind]
    return head + b"".join(half.tobytes() for half in guid_numbers(record.view(layout.dtype), layout))


def _is_journal(path: Path) -> bool:
    named = parse_file_name(path.name)
    return named is not None and named.file_type is FileType.JOURNAL


def _hint(store: Path) -> str:
    below = sorted(path.parent for pattern in ("*/*", "*/*/*") for path in store.glob(f"{pattern}.bmq_journal"))
    return f"; did you mean {below[0]}, or {store}/*?" if below else ""
