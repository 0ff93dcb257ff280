"""The files of a store that a job reads: per partition the file set that a broker would recover from."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import NamedTuple

from formats.disk.files import FileSet, FileType, group_file_sets, open_file, recovery_set, rollover_finished
from formats.disk.recover import JournalExtent, journal_extent
from formats.errors import FormatError

__all__ = ["Partition", "StoreError", "find_ledgers", "find_partitions", "map_file"]

VALIDATE = "`bmqctl journal validate` shows what is wrong"


class StoreError(Exception):
    """A store that cannot be read; the message is one line."""


class Partition(NamedTuple):
    """One partition's files and the written part of its journal; `qlist` is None where the store keeps none."""

    partition_id: int
    journal: Path
    data: Path
    qlist: Path | None
    extent: JournalExtent


def map_file(path: Path) -> memoryview:
    """The file's bytes, mapped for reading; unmapped when the last view of them is gone. An empty file gives none."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def find_partitions(store: Path) -> list[Partition]:
    """The partitions of the store in directory `store`, by id; StoreError if there is none or one cannot be opened."""
    if not store.is_dir():
        raise StoreError(f"{store}: {'not a directory' if store.exists() else 'no such directory'}")
    by_partition: dict[int, list[FileSet]] = {}
    for files in group_file_sets(path.name for path in store.iterdir()):
        if files.journal is not None and files.data is not None:
            by_partition.setdefault(files.partition_id, []).append(files)
    if not by_partition:
        raise StoreError(_nothing_in(store))
    return [_open(store, sets) for _, sets in sorted(by_partition.items())]


def find_ledgers(store: Path) -> list[Path]:
    """The cluster-state ledgers of the store, oldest first."""
    return sorted(store.glob("*.bmq_csl"))


def _nothing_in(store: Path) -> str:
    below = sorted(path.parent for pattern in ("*/*", "*/*/*") for path in store.glob(f"{pattern}.bmq_journal"))
    hint = f"; did you mean {below[0]}?" if below else ""
    return f"{store}: no journal with its data file (bmq_<partition>.<time>.bmq_journal, .bmq_data) in it{hint}"


def _open(store: Path, sets: list[FileSet]) -> Partition:
    """The one of `sets` (oldest first) that a broker would recover from, opened."""
    chosen = recovery_set(sets, lambda files: _is_finished(store, files))
    assert chosen.journal is not None
    assert chosen.data is not None
    journal, data = store / chosen.journal, store / chosen.data
    try:
        path = journal
        extent = journal_extent(map_file(journal))
        path = data
        open_file(map_file(data), FileType.DATA)
    except FormatError as fault:
        raise StoreError(f"{path}: {fault}; {VALIDATE}") from None
    except OSError as fault:
        raise StoreError(f"{path}: {fault.strerror}") from None
    return Partition(chosen.partition_id, journal, data, store / chosen.qlist if chosen.qlist else None, extent)


def _is_finished(store: Path, files: FileSet) -> bool:
    assert files.journal is not None
    try:
        return rollover_finished(map_file(store / files.journal))
    except (FormatError, OSError):
        return False
