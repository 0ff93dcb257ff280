"""The losses of a BlazingMQ store, as far as its journals and file names show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from bmqctl.common.regular import regular_size
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.files import companions, find_files, missing_journals, read_written, recovery_sets
from bmqctl.stores.blazingmq.read.scan import JournalScan
from formats.bmq.disk.columns import sound_kinds
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileSet, FileType, initial_bytes, open_file
from formats.bmq.disk.journal import JournalOpRecord, decode_record
from formats.bmq.disk.padding import DWORD, WORD
from formats.bmq.disk.qlist import QUEUE_RECORD_HEADER
from formats.bmq.stores.recover import iter_qlist
from formats.errors import FormatError

__all__ = ["file_losses", "lose_hidden", "lose_qlist", "lose_sizes", "record_losses", "sizes_stated", "wants_qlist"]

_QLIST_HEADERS: Final = len(initial_bytes(FileType.QLIST, 0))


def file_losses(path: Path) -> Account:
    """Account for missing files and hidden records in the files from which a broker would recover the store `path`.

    For a single journal no file counts as missing. Raises `NotAStoreFile` and `OSError`.
    """
    account = Account()
    for name in missing_journals(path) if path.is_dir() else ():
        account.lose(f"{path / name}: is missing", 0, is_missing=True)
    for directory, files in _sets(path):
        with suppress(FormatError), JournalScan(directory / str(files.journal)) as scan:
            lose_hidden(account, scan)
            lose_sizes(account, scan, files, by_itself=not path.is_dir())
    return account


def lose_hidden(account: Account, scan: JournalScan) -> None:
    """Account for records after a journal's end, which a broker would not recover."""
    end, count = scan.extent.end, scan.record_end() - scan.extent.record_count
    if count > 0:
        where = f"{scan.path}: no record at offset {end}, in front of others"
        account.lose(where, count * JOURNAL_RECORD_SIZE, count=count)


def sizes_stated(scan: JournalScan) -> tuple[int, int]:
    """The sizes of DATA and QLIST, in bytes, that a journal's last sync point states; zeros without one."""
    at = scan.extent.last_sync_point_offset
    if at is None:
        return 0, 0
    point = decode_record(scan.read(at, JOURNAL_RECORD_SIZE))
    assert isinstance(point, JournalOpRecord)
    return point.data_file_offset_dwords * DWORD, point.qlist_file_offset_words * WORD


def wants_qlist(scan: JournalScan) -> bool:
    """Return whether a journal should have a QLIST file.

    Brokers may run without them; then no file set has one, and sync points state no size for it.
    """
    return sizes_stated(scan)[1] > 0 or any(scan.path.parent.glob(f"*{FileType.QLIST.extension}"))


def lose_sizes(account: Account, scan: JournalScan, files: FileSet, *, by_itself: bool = False) -> None:
    """Account for a file beside a journal that is missing or cut.

    With `by_itself` no file counts as missing.
    """
    data, qlist = sizes_stated(scan)
    for name, size, kind in ((files.data, data, FileType.DATA), (files.qlist, qlist, FileType.QLIST)):
        if name is None:
            if not by_itself and (kind is FileType.DATA or wants_qlist(scan)):
                account.lose(f"{scan.path}: has no {kind.name} file", size, is_missing=True)
            continue
        file = scan.path.with_name(name)
        found = regular_size(file)
        if found < size:
            account.lose(f"{file}: ends at {found}, and had {size} bytes", size - found, is_missing=True)


def record_losses(path: Path) -> Account:
    """Account for all journal records and QLIST files, and files as `file_losses` does; a file with its file set."""
    account = file_losses(path)
    for directory, files in _sets(path):
        journal, stated = directory / str(files.journal), 0
        try:
            with JournalScan(journal) as scan:
                _read(account, scan)
                _, stated = sizes_stated(scan)
        except FormatError as error:
            account.lose(f"{journal}: {error}", journal.stat().st_size)
        if files.qlist is not None:
            lose_qlist(account, directory / files.qlist, stated)
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


def lose_qlist(account: Account, path: Path, stated: int) -> None:
    """Account for a QLIST file's first damaged record and the rest of the file.

    `stated` is the size according to the journal. `lose_sizes` accounts for a record that ends after the file, but
    within this size.
    """
    content, size, at = read_written(path), regular_size(path), 0
    try:
        at = open_file(content, FileType.QLIST).first_record_offset
        for record in iter_qlist(content):
            at = record.end
        text = "zeros in place of records" if at < min(stated, size) else None
    except FormatError as error:
        text = None if size < _least_end(content, at) <= stated else str(error)
    if text is not None:
        account.lose(f"{path}: {text}", max(len(content), min(stated, size)) - at)


def _least_end(content: bytearray, at: int) -> int:
    """The end of the headers or record at `at` of a QLIST file, or of its header if that is cut."""
    if at == 0:
        return _QLIST_HEADERS
    if at + QUEUE_RECORD_HEADER.size > len(content):
        return at + QUEUE_RECORD_HEADER.size
    words: int = QUEUE_RECORD_HEADER.unpack(content, at).queue_record_words
    return at + words * WORD
