"""Repair of a damaged store: writes its sound parts to a new directory, and only reads the damaged store."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from bmqctl.stores.blazingmq.read.check import check_path
from bmqctl.stores.blazingmq.read.files import NotAStoreFile, StoreFiles, find_files, recovery_sets
from bmqctl.stores.blazingmq.read.source import FileSource
from bmqctl.stores.blazingmq.repair.order import Order, find_order
from bmqctl.stores.blazingmq.repair.parts import Damaged, Plan
from bmqctl.stores.blazingmq.repair.plan import Planner
from bmqctl.stores.blazingmq.repair.queues import QueueWitnesses
from bmqctl.stores.blazingmq.repair.report import Mode, Note, RepairReport
from bmqctl.stores.blazingmq.repair.write import write_partition
from formats.bmq.control import ber
from formats.bmq.control.messages_cluster import (
    AppIdInfo,
    ClusterMessage,
    LeaderAdvisory,
    LeaderAdvisoryCommit,
    LeaderMessageSequence,
    PartitionPrimaryInfo,
    QueueInfo,
)
from formats.bmq.disk.files import (
    HEADERS_SIZE_MAX,
    JOURNAL_RECORD_SIZE,
    FileSet,
    FileType,
    StoreFileName,
    initial_bytes,
    open_file,
    rollover_finished,
)
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, initial_ledger_bytes, parse_ledger_file_name
from formats.bmq.stores.check_ledger import LedgerState, check_agreement, check_ledger
from formats.bmq.stores.faults import Fault, Severity
from formats.bmq.stores.source import Source
from formats.bmq.stores.validate import SetChecker, check_file_set
from formats.errors import FormatError

__all__ = ["Refused", "repair_store"]

Progress = Callable[[str, int, int], None]
"""Callback with the current stage, the steps done, and the steps in total."""

T = TypeVar("T")
UNFINISHED = ".unfinished"
KINDS = (FileType.JOURNAL, FileType.DATA, FileType.QLIST)


class Refused(Exception):
    """Refusal of a repair; the text is the reason, in one line."""


def repair_store(source: Path, out: Path, mode: Mode | None, on_progress: Progress) -> RepairReport:
    """Write the sound parts of the store in `source` to `out`. Raises NotAStoreFile or Refused if that is impossible.

    With `mode` None the store counts as the only copy, unless more than one node was primary.
    """
    _check_place(source, out)
    with ExitStack() as stack:
        repair = _Repair(source, out, find_files(source), stack, on_progress)
        repair.plan()
        return repair.write(repair.choose(mode))


def _check_place(source: Path, out: Path) -> None:
    if not source.is_dir():
        raise NotAStoreFile(f"{source} is not a directory: name the directory of the store")
    inside, around = out.resolve(), source.resolve()
    if inside == around or around in inside.parents:
        raise Refused(f"{out} is inside the damaged store, which is not changed: name another directory")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Refused(f"{out} exists and is not empty: name a new directory")


@dataclass(slots=True)
class _Part:
    files: FileSet
    damaged: Damaged
    plan: Plan
    notes: list[Note] = field(default_factory=list)


class _Repair:
    """One run; files stay open until `stack` closes them."""

    def __init__(self, source: Path, out: Path, found: StoreFiles, stack: ExitStack, on_progress: Progress) -> None:
        self._source = source
        self._out = out
        self._work = out / UNFINISHED
        self._found = found
        self._stack = stack
        self._on_progress = on_progress
        self._report = RepairReport(str(source), str(out), Mode.ALONE)
        self._ledger = LedgerState()
        self._ledger_file: Source | None = None
        self._ledger_faults: list[Fault] = []
        self._parts: list[_Part] = []
        self._files: list[FileSource] = []

    # -- reading

    def plan(self) -> None:
        """Read everything, and decide which records to keep if this is the only copy."""
        self._read_ledgers()
        in_use: dict[int, FileSet] = {}
        if any(files.journal is not None for files in self._found.sets):
            in_use = recovery_sets(self._source)
        for files in self._found.sets:
            chosen = in_use.get(files.partition_id)
            if files == chosen:
                self._parts.append(self._plan_part(files))
                continue
            reason = (
                "a broker would not use it: its files are outdated, or an interrupted rollover left them incomplete"
            )
            if chosen is None:
                reason = "its JOURNAL is missing, without which the other files cannot be interpreted"
            for name in (files.journal, files.data, files.qlist):
                if name is not None:
                    self._leave_file(name, reason)

    def _open(self, name: str) -> FileSource:
        file = self._stack.enter_context(FileSource(self._source / name))
        self._files.append(file)
        return file

    def _leave_file(self, name: str, reason: str) -> None:
        size = (self._source / name).stat().st_size
        self._report.left_out.append(Note(name, 0, size, "FILE", reason))

    def _read_ledgers(self) -> None:
        """Read the ledgers. The newest one with contents is in use; names sort by time."""
        for name in reversed(self._found.ledgers):
            if self._ledger_file is not None:
                self._leave_file(name, "a newer ledger replaces it")
                continue
            ledger = self._open(name)
            faults, state = _run(check_ledger(ledger))
            if state.named or state.leases or name == self._found.ledgers[0]:
                self._ledger_file, self._ledger, self._ledger_faults = ledger, state, faults
            else:
                self._leave_file(name, "it holds no readable record")

    def _plan_part(self, files: FileSet) -> _Part:
        assert files.journal is not None
        notes: list[Note] = []
        sources: dict[FileType, FileSource | None] = {}
        for kind, name in zip(KINDS, (files.journal, files.data, files.qlist), strict=True):
            sources[kind] = None if name is None else self._open(name)
            if name is None:
                missing = str(StoreFileName(files.partition_id, files.timestamp, kind))
                notes.append(Note(missing, 0, 0, "FILE", "it was missing: recreated"))
            else:
                notes += self._check_header(sources[kind], kind, files.partition_id)
        journal = sources[FileType.JOURNAL]
        assert journal is not None
        damaged = Damaged(
            files.partition_id,
            journal,
            sources[FileType.DATA],
            sources[FileType.QLIST],
            len(initial_bytes(FileType.JOURNAL, 0)),
            len(initial_bytes(FileType.DATA, 0)),
            _is_rolled_over(journal),
        )
        order = find_order(journal, damaged.first_record_offset, self._progress(f"reading {journal.name}"))
        return _Part(files, damaged, self._plan_order(damaged, order), notes)

    def _plan_order(self, damaged: Damaged, order: Order) -> Plan:
        qlist = damaged.qlist
        content = memoryview(b"") if qlist is None else qlist.read(0, qlist.size)
        first = len(initial_bytes(FileType.QLIST, 0))
        witnesses = QueueWitnesses(damaged.partition_id, content, first, self._ledger)
        planner = Planner(damaged, order, witnesses, self._ledger)
        return planner.plan(self._progress(f"examining {damaged.journal.name}"))

    def _check_header(self, file: FileSource | None, kind: FileType, partition_id: int) -> Iterator[Note]:
        assert file is not None
        expected = initial_bytes(kind, partition_id)
        try:
            opened = open_file(file.read(0, HEADERS_SIZE_MAX), kind)
            if opened.first_record_offset != len(expected):
                raise FormatError("header_words", 8, f"headers of {opened.first_record_offset} bytes")
            if opened.file.partition_id != partition_id:
                raise FormatError(
                    "FileHeader.partition_id", 20, f"{opened.file.partition_id}, by its name {partition_id}"
                )
        except FormatError as error:
            yield Note(file.name, 0, len(expected), "HEADER", f"restored from the file's name: {error}")

    def _progress(self, what: str) -> Callable[[int, int], None]:
        return lambda done, total: self._on_progress(what, done, total)

    # -- choosing

    def choose(self, mode: Mode | None) -> Mode:
        nodes = set(self._ledger.primaries.values()).union(*(part.plan.primary_nodes for part in self._parts))
        if mode is None and len(nodes) > 1:
            raise Refused(
                f"nodes {', '.join(map(str, sorted(nodes)))} were primary, so others may have the data: use --replica "
                "to keep the records before the damage and get the rest from them, or --alone if this is the only copy"
            )
        return mode or Mode.ALONE

    # -- writing

    def write(self, mode: Mode) -> RepairReport:
        """Write and check the files in a subdirectory, and move them into place when all are complete.

        A killed repair leaves only that subdirectory, and nothing that looks like a store.
        """
        self._report.mode = mode
        created = not self._out.exists()
        try:
            self._work.mkdir(parents=True)
            checked = [each for part in self._parts if (each := self._write_part(part, mode)) is not None]
            self._write_ledger(checked, mode)
            self._note_unreadable()
            self._check()
            for path in sorted(self._work.iterdir()):
                path.rename(self._out / path.name)
            self._work.rmdir()
        except BaseException:
            self._clear(created)
            raise
        return self._report

    def _note_unreadable(self) -> None:
        for file in self._files:
            for offset, size in sorted(set(file.unreadable)):
                self._report.left_out.append(Note(file.name, offset, size, "BYTES", "the disk cannot read them"))

    def _check(self) -> None:
        if any(self._work.iterdir()):
            checked = check_path(self._work, 0, self._progress("checking the result"))
            self._report.errors, self._report.warnings = checked.errors, checked.warnings
            self._report.counts = dict(sorted(checked.counts.items()))

    def _clear(self, created: bool) -> None:
        if not self._work.is_dir():
            return
        for path in self._work.iterdir():
            path.unlink()
        self._work.rmdir()
        if created:
            self._out.rmdir()

    def _write_part(self, part: _Part, mode: Mode) -> SetChecker | None:
        plan = part.plan
        if mode is Mode.REPLICA:
            if plan.first_damage is not None:
                plan = self._cut(part)
            if plan.first_sync_point is None and part.plan.order.places:
                # A journal without one would need one more record.
                reason = "no intact records up to its first sync point: the other nodes send the whole partition"
                for name in (part.files.journal, part.files.data, part.files.qlist):
                    if name is not None:
                        self._leave_file(name, reason)
                return None
        names = {kind: str(StoreFileName(part.files.partition_id, part.files.timestamp, kind)) for kind in KINDS}
        progress = self._progress(f"writing {names[FileType.JOURNAL]}")
        report = write_partition(part.damaged, plan, self._work, names, progress)
        report.restored = part.notes + report.restored
        self._report.partitions.append(report)
        journal, data, qlist = (self._stack.enter_context(FileSource(self._work / names[kind])) for kind in KINDS)
        _, checked = _run(check_file_set(journal, data, qlist))
        return checked

    def _cut(self, part: _Part) -> Plan:
        whole, damaged = part.plan, part.damaged
        cut = whole.first_damage
        assert cut is not None
        runs = [run._replace(length=min(run.length, cut - run.start)) for run in whole.order.runs if run.start < cut]
        offset = damaged.first_record_offset + cut * JOURNAL_RECORD_SIZE
        plan = self._plan_order(damaged, Order(cut, cut, runs))
        note = Note(
            damaged.journal.name,
            offset,
            (whole.order.end - cut) * JOURNAL_RECORD_SIZE,
            "RECORDS",
            f"{whole.order.end - cut} places from the first damage on",
        )
        cause = next((each for each in (*whole.left_out, *whole.restored) if each.offset == offset), None)
        if cause is not None:
            note = replace(
                cause, size=note.size, what=note.what, reason=f"{note.reason} ({cause.what}: {cause.reason})"
            )
        plan.left_out = [note]
        return plan

    def _last_second(self) -> int:
        return max((part.plan.timestamp for part in self._parts), default=0)

    def _write_ledger(self, partitions: list[SetChecker], mode: Mode) -> None:
        """Write the ledger: unchanged if sound, otherwise rebuilt from the partitions, or left to other nodes."""
        file = self._ledger_file
        if file is None:
            return
        name = parse_ledger_file_name(file.name)
        assert name is not None
        errors = [each for each in self._ledger_faults if each.severity is Severity.ERROR]
        if mode is Mode.ALONE and not errors:
            found = list(check_agreement(self._ledger, partitions))
            # Keep the state after a stop between two writes, unless the repair changes it anyway.
            changed = bool(self._report.left_out) or any(
                each.left_out or each.restored or each.added for each in self._report.partitions
            )
            errors = [each for each in found if changed or each.severity is Severity.ERROR]
        if not errors:
            content = bytes(file.read(0, self._ledger.end))
            if file.size > self._ledger.end and any(file.read(self._ledger.end, file.size - self._ledger.end)):
                size = file.size - self._ledger.end
                self._report.left_out.append(Note(file.name, self._ledger.end, size, "RECORDS", "an unfinished record"))
        elif mode is Mode.REPLICA:
            reason = f"{errors[0].code} at {errors[0].offset}: {errors[0].reason}; the leader sends the rest again"
            self._leave_file(file.name, reason)
            return
        else:
            content = initial_ledger_bytes(name.log_id) + _snapshot(self._ledger, partitions, self._last_second())
            reason = f"recreated from the partitions: {errors[0].code} at {errors[0].offset}: {errors[0].reason}"
            self._report.restored.append(Note(file.name, 0, file.size, "FILE", reason))
        with (self._work / file.name).open("xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())


def _snapshot(ledger: LedgerState, partitions: list[SetChecker], timestamp: int) -> bytes:
    """Encode a committed snapshot of the partitions' state, under a term of its own."""
    term = ledger.term + 1
    advised = LeaderMessageSequence(elector_term=term, sequence_number=1)
    committing = LeaderMessageSequence(elector_term=term, sequence_number=2)
    primaries = []
    for each in partitions:
        lease = max((*each.leases, ledger.leases.get(each.partition_id, 0)))
        node_id = ledger.primaries.get((each.partition_id, lease))
        if node_id is None:
            node_id = each.primaries[max(each.primaries)][0] if each.primaries else 0
        primaries.append(
            PartitionPrimaryInfo(partition_id=each.partition_id, primary_node_id=node_id, primary_lease_id=lease)
        )
    advisory = LeaderAdvisory(
        sequence_number=advised,
        partitions=tuple(primaries),
        queues=tuple(
            QueueInfo(
                uri=queue.uri or "",
                key=queue.queue_key,
                partition_id=each.partition_id,
                app_ids=tuple(AppIdInfo(app_id=app_id, app_key=key) for app_id, key in queue.apps.items()),
            )
            for each in partitions
            for queue in each.queues.values()
        ),
    )
    commit = LeaderAdvisoryCommit(sequence_number=committing, sequence_number_committed=advised)
    return b"".join(
        build_ledger_record(kind, term, number, timestamp, ber.encode(ClusterMessage(choice=choice)))
        for kind, number, choice in ((LedgerRecordType.SNAPSHOT, 1, advisory), (LedgerRecordType.COMMIT, 2, commit))
    )


def _is_rolled_over(journal: Source) -> bool:
    try:
        return rollover_finished(journal.read(0, HEADERS_SIZE_MAX))
    except FormatError:
        return False


def _run(checker: Generator[Fault, None, T]) -> tuple[list[Fault], T]:
    faults = []
    while True:
        try:
            faults.append(next(checker))
        except StopIteration as end:
            return faults, end.value
