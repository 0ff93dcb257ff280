"""`bmqctl journal dump` of BlazingMQ: the records of a file, or of all journals of a store."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO

import typer

from bmqctl.cli.arguments import given_options
from bmqctl.cli.files import rocketmq_dump
from bmqctl.cli.files.dump_options import DumpOptions
from bmqctl.cli.files.ledger_printing import dump_ledger, ledger_types
from bmqctl.cli.files.printing import (
    choose_output,
    has_left,
    missing,
    open_stream,
    quiet_on_terminal,
    stopped_by,
    until_signal,
    with_progress,
)
from bmqctl.common.refusal import say
from bmqctl.common.render import EXIT_FAULTS, LateProgress, refuse
from bmqctl.stores.blazingmq.dump.dump import (
    DumpReport,
    Journal,
    PayloadPlan,
    Printer,
    check_names,
    dump_journals,
    open_journal,
)
from bmqctl.stores.blazingmq.dump.follow import Follower
from bmqctl.stores.blazingmq.dump.formats import DumpFormat
from bmqctl.stores.blazingmq.dump.ledger import LedgerFilters
from bmqctl.stores.blazingmq.dump.output import ArrowSink, LineSink, PrettySink, Sink, TableSink, write_rows
from bmqctl.stores.blazingmq.dump.rows import (
    DATA_COLUMNS,
    DATA_TABLE,
    QLIST_COLUMNS,
    QLIST_TABLE,
    data_rows,
    qlist_rows,
)
from bmqctl.stores.blazingmq.read.columns import Row
from bmqctl.stores.blazingmq.read.files import (
    FileKind,
    NotAStoreFile,
    find_files,
    identify,
    read_written,
    recovery_sets,
)
from bmqctl.stores.blazingmq.read.filters import Filters
from bmqctl.stores.blazingmq.read.losses import file_losses
from bmqctl.stores.blazingmq.read.wanted import PayloadForm
from formats.bmq.disk.journal import RecordType
from formats.bmq.stores.queues import NamedByLedgers, read_ledgers
from formats.errors import FormatError

__all__ = ["dump"]

COMMAND = "journal dump"
POLL_INTERVAL_S = 0.2


def dump(context: typer.Context, path: Path, given: DumpOptions) -> None:
    """Print the records of a store or a file of it."""
    for option in given_options(context, rocketmq_dump.OWN_OPTIONS):
        refuse(COMMAND, f"{path} is no store of RocketMQ, and {option} is for these")
    kind = FileKind.JOURNAL if path.is_dir() else identify(path)
    chosen = choose_output(COMMAND, given.output, given.out)
    if kind is not FileKind.JOURNAL:
        _refuse_journal_options(context, path, kind)
        if kind is FileKind.LEDGER:
            filters = LedgerFilters(types=ledger_types(given.types), from_begin=True)
            dump_ledger(COMMAND, path, filters, chosen, given.out, given.limit)
        else:
            _dump_rows(path, kind, chosen, given.out, given.limit)
        return
    request = _Request(
        wanted=given.filters(),
        journals=_journals(path, given.partition),
        is_store=path.is_dir(),
        chosen=chosen,
        out=given.out,
        limit=given.limit,
        payloads=_payload_plan(given.payload, given.payload_limit, given.data_file),
        in_ledger=None if given.csl_file is None else _names_in(given.csl_file),
    )
    if given.follow:
        _follow(request)
    else:
        _dump_to_the_end(request, _say_missing(path))


@dataclass(frozen=True)
class _Request:
    """A request to print: the journals, the records wanted, and the format."""

    journals: list[Path]
    is_store: bool
    wanted: Filters
    chosen: DumpFormat
    out: Path | None
    limit: int | None
    payloads: PayloadPlan | None
    in_ledger: NamedByLedgers | None

    def open_journal(self, path: Path, stack: ExitStack) -> Journal:
        return open_journal(path, self.in_ledger, self.payloads, stack)

    def sink(self, stream: IO[bytes]) -> Sink:
        if self.chosen is DumpFormat.TABLE:
            return TableSink(self.is_store)
        if self.chosen in (DumpFormat.JSON_LINE, DumpFormat.CSV):
            return LineSink(stream, self.is_store, as_csv=self.chosen is DumpFormat.CSV)
        if self.chosen is DumpFormat.JSON_PRETTY:
            return PrettySink(stream, self.counted)
        return ArrowSink(stream, self.is_store, parquet=self.chosen is DumpFormat.PARQUET)

    @property
    def counted(self) -> set[RecordType]:
        """The kinds that the reference's tool counts: messages, but not their confirms and deletions."""
        if self.wanted.is_exact:
            return {kind for kind in RecordType if kind}
        return set(self.wanted.types) or {RecordType.MESSAGE, RecordType.QUEUE_OP, RecordType.JOURNAL_OP}


def _say_missing(path: Path) -> bool:
    """Name what the files of a store have lost, as far as journals and names show; return whether there is any."""
    account = file_losses(path)
    for place in account.places:
        say(COMMAND, f"{place}: bmqctl journal validate {path} shows what is left")
    return not account.is_sound


def _dump_to_the_end(request: _Request, is_missing: bool) -> None:
    if request.chosen is DumpFormat.JSON_PRETTY and len(request.journals) > 1:
        refuse(COMMAND, "--output json-pretty prints one journal, like the reference's tool: add --partition")
    with ExitStack() as stack:
        journals = []
        for path in request.journals:
            with stopped_by(COMMAND, path):
                try:
                    journals.append(request.open_journal(path, stack))
                except FormatError as error:
                    # The other partitions of a store are sound.
                    if len(request.journals) == 1:
                        raise
                    say(COMMAND, f"left out: {path}: {error}")
                    is_missing = True
        check_names(journals, request.wanted)
        stream = stack.enter_context(open_stream(COMMAND, request.out))
        sink = request.sink(stream)
        on_fault = _say_fault if request.chosen is DumpFormat.JSON_PRETTY else None
        printer = Printer(sink, request.wanted, request.limit, on_fault)
        with LateProgress("reading records") as on_progress:
            report = dump_journals(journals, request.wanted, printer, quiet_on_terminal(on_progress, request.out))
        sink.close(report.unseen)
    report.damaged |= is_missing
    _exit(report)


def _follow(request: _Request) -> None:
    """Print new records until a signal or the limit."""
    wanted, chosen = request.wanted, request.chosen
    if chosen.is_columnar or chosen is DumpFormat.JSON_PRETTY:
        refuse(COMMAND, f"--follow does not end, but --output {chosen} needs an end: use json-line, csv or table")
    if wanted.status is not None:
        refuse(COMMAND, f"--{wanted.status.word} is only known at the end: it cannot be combined with --follow")
    if wanted.is_exact or any(end is not None for end in (wanted.until, wanted.seqnum_lt, wanted.offset_lt)):
        refuse(COMMAND, "--follow prints new records: it cannot be combined with an upper bound or with single records")
    with until_signal() as stop, ExitStack() as stack:
        followers = [stack.enter_context(Follower(path, wanted, request.open_journal)) for path in request.journals]
        stream = stack.enter_context(open_stream(COMMAND, request.out))
        # An offset applies to one file: it gives the start, but says nothing about the files that follow.
        printer = Printer(request.sink(stream), replace(wanted, offset_gt=None), request.limit)
        told: Journal | None = None
        while not stop.is_set():
            for journal, chunk in chain.from_iterable(follower.poll() for follower in followers):
                if journal is not told:
                    printer.begin(journal)
                    told = journal
                printer.print(chunk)
                if printer.is_done:
                    return
            stream.flush()
            stop.wait(POLL_INTERVAL_S)
            if has_left(stream):
                raise BrokenPipeError


def _payload_plan(form: PayloadForm | None, limit: int, data_file: Path | None) -> PayloadPlan | None:
    if data_file is not None and identify(data_file) is not FileKind.DATA:
        raise NotAStoreFile(f"--data-file: {data_file} is a {identify(data_file)}, not a {FileKind.DATA}")
    if form is None and data_file is not None:
        refuse(COMMAND, "--data-file is only used with --payload: add --payload")
    if form is PayloadForm.STORED:
        refuse(COMMAND, "--payload stored is for stores of RocketMQ: use hex")
    return None if form is None else PayloadPlan(form, limit, data_file)


def _journals(path: Path, partition: int | None) -> list[Path]:
    if not path.is_dir():
        if partition is not None:
            refuse(COMMAND, f"--partition is for the directory of a store; {path} has only one partition")
        return [path]
    sets = recovery_sets(path)
    older = sum(files.journal is not None for files in find_files(path).sets) - len(sets)
    if older:
        say(COMMAND, f"{older} older journals in {path} skipped: to dump one, give its path")
    if partition is not None and partition not in sets:
        listed = ", ".join(map(str, sorted(sets)))
        refuse(COMMAND, f"--partition {partition}: {path} has {listed}")
    chosen = sets if partition is None else {partition: sets[partition]}
    return [path / files.journal for _, files in sorted(chosen.items()) if files.journal is not None]


def _names_in(csl_file: Path) -> NamedByLedgers:
    kind = identify(csl_file)
    if kind is not FileKind.LEDGER:
        raise NotAStoreFile(f"--csl-file: {csl_file} is a {kind}, not a {FileKind.LEDGER}")
    return read_ledgers([read_written(csl_file)])


def _say_fault(path: Path, offset: int, fault: str) -> None:
    say(COMMAND, f"{path}: no record at offset {offset}: {fault}")


def _exit(report: DumpReport) -> None:
    for each in sorted(report.unseen, key=str):
        say(COMMAND, missing(each))
    if report.payload_faults:
        say(COMMAND, f"{report.payload_faults} payloads could not be read: see bmqctl journal validate")
    if report.damaged or report.unseen or report.payload_faults:
        raise typer.Exit(EXIT_FAULTS)


def _refuse_journal_options(context: typer.Context, path: Path, kind: FileKind) -> None:
    """Exit with one line for an option that does not apply to this kind of file."""
    fits = {"path", "output", "out", "limit"} | ({"types"} if kind is FileKind.LEDGER else set())
    for option in given_options(context, {p.name or "" for p in context.command.params} - fits):
        if kind is FileKind.LEDGER:
            refuse(COMMAND, f"{path} is a {kind}, {option} is for journals: run bmqctl journal ledger dump {path}")
        if option == "--type":
            refuse(COMMAND, f"--type: the records of a {kind} are all of one type")
        refuse(COMMAND, f"{path} is a {kind}, {option} is for journals: name the .bmq_journal file beside it")


def _dump_rows(path: Path, kind: FileKind, chosen: DumpFormat, out: Path | None, limit: int | None) -> None:
    if chosen is DumpFormat.JSON_PRETTY:
        refuse(COMMAND, f"--output json-pretty is for journals and ledgers; {path} is a {kind}")
    is_data = kind is FileKind.DATA
    rows = data_rows(path) if is_data else qlist_rows(path)
    if not is_data and chosen is DumpFormat.TABLE:
        rows = map(_with_listed_apps, rows)
    columns, table = (DATA_COLUMNS, DATA_TABLE) if is_data else (QLIST_COLUMNS, QLIST_TABLE)
    size = path.stat().st_size
    with open_stream(COMMAND, out) as stream, LateProgress("reading records") as on_progress:
        seen = with_progress(rows, size, quiet_on_terminal(on_progress, out))
        write_rows(islice(seen, limit), columns, chosen, stream, table)


def _with_listed_apps(row: Row) -> Row:
    return {**row, "apps": ", ".join(f"{app['app_id']} {app['app_key']}" for app in row["apps"])}
