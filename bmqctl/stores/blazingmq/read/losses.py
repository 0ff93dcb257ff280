"""The losses of a store of BlazingMQ, as far as its journals and the names of its files show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.files import companions, find_files, missing_journals, read_written, recovery_sets
from bmqctl.stores.blazingmq.read.scan import JournalScan
from formats.bmq.disk.columns import sound_kinds
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileSet
from formats.bmq.disk.journal import JournalOpRecord, decode_record
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.stores.recover import iter_qlist
from formats.errors import FormatError

__all__ = ["file_losses", "lose_cut", "lose_hidden", "record_losses"]


def file_losses(path: Path) -> Account:
    """Account for the files from which a broker would recover the store `path`: missing ones, and hidden records.

    A journal is read by itself: no file is missing. Raises `NotAStoreFile` and `OSError`.
    """
    account = Account()
    for name in missing_journals(path) if path.is_dir() else ():
        account.lose(f"{path / name}: is missing", 0, is_missing=True)
    for directory, files in _sets(path):
        with suppress(FormatError), JournalScan(directory / str(files.journal)) as scan:
            lose_hidden(account, scan)
            lose_cut(account, scan, files)
        if files.data is None and path.is_dir():
            account.lose(f"{directory / str(files.journal)}: has no DATA file", 0, is_missing=True)
    return account


def lose_hidden(account: Account, scan: JournalScan) -> None:
    """Account for the records after the end of a journal, which a broker would not recover."""
    end, count = scan.extent.end, scan.record_end() - scan.extent.record_count
    if count > 0:
        where = f"{scan.path}: no record at offset {end}, in front of others"
        account.lose(where, count * JOURNAL_RECORD_SIZE, count=count)


def lose_cut(account: Account, scan: JournalScan, files: FileSet) -> None:
    """Account for the ends of the files beside a journal: its last sync point states how long they were."""
    at = scan.extent.last_sync_point_offset
    if at is None:
        return
    point = decode_record(scan.read(at, JOURNAL_RECORD_SIZE))
    assert isinstance(point, JournalOpRecord)
    for name, size in (
        (files.data, point.data_file_offset_dwords * DWORD),
        (files.qlist, point.qlist_file_offset_words * WORD),
    ):
        file = None if name is None else scan.path.with_name(name)
        if file is not None and file.exists() and file.stat().st_size < size:
            found = file.stat().st_size
            account.lose(f"{file}: ends at {found}, and had {size} bytes", size - found, is_missing=True)


def record_losses(path: Path) -> Account:
    """Account for all records of the journals, for QLIST files, and for the files, like `file_losses`.

    Of a file, with those beside it that are of its file set.
    """
    account = file_losses(path)
    for directory, files in _sets(path):
        journal = directory / str(files.journal)
        try:
            with JournalScan(journal) as scan:
                _read(account, scan)
        except FormatError as error:
            account.lose(f"{journal}: {error}", journal.stat().st_size)
        if files.qlist is not None:
            _read_qlist(account, directory / files.qlist)
    return account


def _sets(path: Path) -> Iterator[tuple[Path, FileSet]]:
    if path.is_dir():
        if any(files.journal for files in find_files(path).sets):
            yield from ((path, files) for files in recovery_sets(path).values())
        return
    files = companions(path)
    if files is not None and files.journal is not None:
        yield path.parent, files


def _read(account: Account, scan: JournalScan) -> None:
    total, seen = scan.extent.record_count, 0
    for chunk in scan.chunks(0, total):
        kinds = sound_kinds(chunk.records)
        seen += len(kinds)
        sound = int(np.count_nonzero(kinds))
        account.read(sound, sound * JOURNAL_RECORD_SIZE)
        if sound < len(kinds):
            offset = chunk.offset + int(np.flatnonzero(kinds == 0)[0]) * JOURNAL_RECORD_SIZE
            count = len(kinds) - sound
            account.lose(f"{scan.path}: no record at offset {offset}", count * JOURNAL_RECORD_SIZE, count=count)
    if seen < total:
        count = total - seen
        account.lose(f"{scan.path}: zeros in place of {count} records", count * JOURNAL_RECORD_SIZE, count=count)


def _read_qlist(account: Account, path: Path) -> None:
    content = read_written(path)
    try:
        for _ in iter_qlist(content):
            pass
    except FormatError as error:
        account.lose(f"{path}: {error}", len(content) - error.offset)
