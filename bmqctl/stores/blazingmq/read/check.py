"""Validation of a store's files by `formats.bmq.stores.validate`, with counts of the faults."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from bmqctl.stores.blazingmq.read.fault_report import Report
from bmqctl.stores.blazingmq.read.files import FileKind, companions, find_files, identify, recovery_sets
from bmqctl.stores.blazingmq.read.losses import wants_qlist
from bmqctl.stores.blazingmq.read.scan import JournalScan
from bmqctl.stores.blazingmq.read.settling import settling
from bmqctl.stores.blazingmq.read.source import FileSource
from formats.bmq.disk.files import FileSet, FileType, StoreFileName
from formats.bmq.stores.check_ledger import LedgerState, check_agreement, check_ledger
from formats.bmq.stores.faults import fault
from formats.bmq.stores.validate import Progress, SetChecker, check_file_set, validate_file
from formats.errors import FormatError

__all__ = ["Report", "check_path"]


def check_path(path: Path, limit: int, on_progress: Progress) -> Report:
    """Check a store directory, the file set of a file, or a single file.

    Raises NotAStoreFile if `path` is none of these. Only in a directory is the ledger checked, against the file sets
    from which a broker would recover.
    """
    report = Report(limit)
    if path.is_dir():
        _check_store(report, path, on_progress)
        return report
    kind = identify(path)
    if kind is FileKind.LEDGER:
        _check_ledger(report, path)
        return report
    files_beside = companions(path)
    if files_beside is not None and files_beside.journal is not None:
        _check_set(report, path.parent, files_beside, on_progress, by_itself=True)
    else:
        _check_alone(report, path, kind.value, on_progress)
    return report


def _check_store(report: Report, path: Path, on_progress: Progress) -> None:
    found = find_files(path)
    in_use = recovery_sets(path) if any(files.journal for files in found.sets) else {}
    partitions = []
    for files in found.sets:
        checked = _check_set(report, path, files, on_progress)
        if checked is not None and in_use[files.partition_id] == files:
            partitions.append(checked)
    for name in found.ledgers:
        state = _check_ledger(report, path / name)
        # Names sort by time: the last ledger is in use.
        if name == found.ledgers[-1]:
            report.add(check_agreement(state, partitions))


def _check_set(
    report: Report, directory: Path, files: FileSet, on_progress: Progress, *, by_itself: bool = False
) -> SetChecker | None:
    """Check a file set. With `by_itself`, QLIST may be absent."""
    for file_type, name in (
        (FileType.DATA, files.data),
        (FileType.JOURNAL, files.journal),
        (FileType.QLIST, files.qlist),
    ):
        if name is None and (file_type is not FileType.QLIST or (not by_itself and _wants_qlist(directory, files))):
            missing = str(StoreFileName(files.partition_id, files.timestamp, file_type))
            report.add([fault("set-incomplete", missing, 0, "is missing")])
    if files.journal is None:
        for file_type, name in ((FileType.DATA, files.data), (FileType.QLIST, files.qlist)):
            if name is not None:
                _check_alone(report, directory / name, file_type, on_progress)
        return None
    with ExitStack() as stack:
        journal, data, qlist = (
            None if name is None else stack.enter_context(_open(report, directory / name))
            for name in (files.journal, files.data, files.qlist)
        )
        assert journal is not None
        counting = _counting(report, on_progress)
        checked = report.take(check_file_set(journal, data, qlist, on_progress=counting, settle=settling()))
        for file in (journal, data, qlist):
            if file is not None:
                _note_unreadable(report, file)
        return checked


def _wants_qlist(directory: Path, files: FileSet) -> bool:
    if files.journal is not None:
        # Its own check reports damage.
        with suppress(FormatError), JournalScan(directory / files.journal) as scan:
            return wants_qlist(scan)
    return any(directory.glob(f"*{FileType.QLIST.extension}"))


def _check_alone(report: Report, path: Path, file_type: FileType, on_progress: Progress) -> None:
    with _open(report, path) as file:
        report.add(validate_file(file, file_type, on_progress=_counting(report, on_progress)))
        _note_unreadable(report, file)


def _check_ledger(report: Report, path: Path) -> LedgerState:
    with _open(report, path) as file:
        state = report.take(check_ledger(file))
        _note_unreadable(report, file)
        return state


def _note_unreadable(report: Report, file: FileSource) -> None:
    report.add(
        fault("unreadable", file.name, offset, f"{size} bytes cannot be read from the disk: treated as zeros")
        for offset, size in file.unreadable
    )


def _open(report: Report, path: Path) -> FileSource:
    report.files.append(str(path))
    return FileSource(path)


def _counting(report: Report, on_progress: Progress) -> Progress:
    before = report.records

    def count(done: int, total: int) -> None:
        report.records = before + done
        on_progress(done, total)

    return count
