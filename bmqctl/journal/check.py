"""Runs the checks of `formats.disk.validate` over the files of a store, and counts what they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bmqctl.journal.files import FileKind, companions, find_files, identify, map_data, read_written
from formats.disk.faults import Fault, Severity, fault
from formats.disk.files import FileSet, FileType, StoreFileName
from formats.disk.validate import FileView, Progress, validate_file, validate_file_set, validate_ledger

__all__ = ["Report", "check_path"]


@dataclass(slots=True)
class Report:
    """What was checked and found; `faults` keeps the first `limit`, `counts` counts all by severity."""

    limit: int
    files: list[str] = field(default_factory=list)
    records: int = 0
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def errors(self) -> int:
        return self.counts[Severity.ERROR]

    @property
    def warnings(self) -> int:
        return self.counts[Severity.WARNING]

    def add(self, found: Iterable[Fault]) -> None:
        for one in found:
            self.counts[one.severity] += 1
            if len(self.faults) < self.limit:
                self.faults.append(one)


def check_path(path: Path, limit: int, on_progress: Progress) -> Report:
    """Check a store directory, the file set that a file belongs to, or a file by itself.

    NotAStoreFile if `path` is neither. Reads the journal before the files that it refers to: a broker that is
    writing them has written those parts by then.
    """
    report = Report(limit)
    if path.is_dir():
        found = find_files(path)
        any_qlist = any(files.qlist for files in found.sets)
        for files in found.sets:
            _check_set(report, path, files, any_qlist, on_progress)
        for name in found.ledgers:
            _check_ledger(report, path / name)
        return report
    kind = identify(path)
    if kind is FileKind.LEDGER:
        _check_ledger(report, path)
        return report
    files_beside = companions(path)
    if files_beside is not None and files_beside.journal is not None:
        _check_set(report, path.parent, files_beside, files_beside.qlist is not None, on_progress)
    else:
        _check_alone(report, path, kind.value, on_progress)
    return report


def _check_set(report: Report, directory: Path, files: FileSet, wants_qlist: bool, on_progress: Progress) -> None:
    """`wants_qlist`: a broker may run without QLIST files, but then all sets of a store lack them."""
    for file_type, name in (
        (FileType.DATA, files.data),
        (FileType.JOURNAL, files.journal),
        (FileType.QLIST, files.qlist),
    ):
        if name is None and (file_type is not FileType.QLIST or wants_qlist):
            missing = str(StoreFileName(files.partition_id, files.timestamp, file_type))
            report.add([fault("set-incomplete", missing, 0, "is missing")])
    if files.journal is None:
        for file_type, name in ((FileType.DATA, files.data), (FileType.QLIST, files.qlist)):
            if name is not None:
                _check_alone(report, directory / name, file_type, on_progress)
        return
    journal = _view(report, directory / files.journal)
    data = _view(report, directory / files.data) if files.data is not None else None
    qlist = _view(report, directory / files.qlist) if files.qlist is not None else None
    report.add(validate_file_set(journal, data, qlist, on_progress=_counting(report, on_progress)))


def _check_alone(report: Report, path: Path, file_type: FileType, on_progress: Progress) -> None:
    report.add(validate_file(_view(report, path), file_type, on_progress=_counting(report, on_progress)))


def _check_ledger(report: Report, path: Path) -> None:
    report.add(validate_ledger(_view(report, path)))


def _view(report: Report, path: Path) -> FileView:
    report.files.append(str(path))
    return FileView(path.name, map_data(path) if path.suffix == FileType.DATA.extension else read_written(path))


def _counting(report: Report, on_progress: Progress) -> Progress:
    before = report.records

    def count(done: int, total: int) -> None:
        report.records = before + done
        on_progress(done, total)

    return count
