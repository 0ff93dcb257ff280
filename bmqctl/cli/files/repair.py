"""`bmqctl journal repair`: a sound store from what is sound in a damaged one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from bmqctl.cli.arguments import given_options
from bmqctl.common.render import (
    EXIT_FAULTS,
    Column,
    LateProgress,
    Output,
    OutputFormat,
    print_report,
    print_table,
    refuse,
    until_reader_leaves,
    wanted_format,
)
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.blazingmq.repair.report import Mode, Note, RepairReport
from bmqctl.stores.rocketmq.read.files import is_store
from bmqctl.stores.rocketmq.repair.parts import Note as LogNote
from bmqctl.stores.rocketmq.repair.parts import Refused as LogRefused
from bmqctl.stores.rocketmq.repair.parts import RepairReport as LogReport

if TYPE_CHECKING:
    from bmqctl.common.tables import ResultConsole

__all__ = ["repair"]

R = TypeVar("R")
OnProgress = Callable[[str, int, int], None]


def repair(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(help="The directory of the damaged store. It is not changed.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", help="New directory for the repaired store.")],
    replica: Annotated[
        bool | None,
        typer.Option(
            "--replica/--alone",
            help="Other nodes have the data: keep the records before the damage. Or: this is the only copy: keep all.",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json: the report.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Print at most this many lines of each table.")] = 100,
    config: Annotated[
        Path | None,
        typer.Option(help="RocketMQ: configuration file of the broker, for the sizes of files.", show_default=False),
    ] = None,
) -> None:
    """Copy the undamaged part of a store to a new directory, and report everything that was left out.

    In a store of RocketMQ every sound record of the commit log stays where it is, byte for byte. Where one is damaged,
    its place in its queue gets a record without a body and with the property BMQCTL_LOST, and the rest of the place is
    filled. Consume queues, index and checkpoint are rebuilt from the log; offsets of groups after the ends of
    queues are set back, and epochs after the end of the log left out. --config is needed only where the files do not
    show their sizes; the other options, and what follows, are for stores of BlazingMQ.

    The damaged store is never changed, and must not be in use: stop its node first. The result is checked like by
    `journal validate`; keep the damaged store, put the result in its place, and start the node.

    --alone keeps every message whose record, payload and queue are intact, wherever the damage is, with its confirms.
    Whatever the rest of the store implies is restored: headers, numbers, and queues that QLIST or the ledger names.
    Nothing is renumbered: each record keeps its lease id and sequence number. If numbers are missing, the journal gets
    the form of one that has just been rolled over, where gaps are allowed, with one sync point after them. A confirm or
    deletion that cannot be read is lost: its message may be delivered again.

    --replica is for a node of a cluster whose other nodes have the data. A store with gaps would claim records that it
    lacks, and the other nodes would never send them. So the store is cut before the first damage, and no record is
    added: no number stands for different records on two replicas, and the cluster sends the rest when the node joins.
    Do not put the result of --alone into a cluster that still has another copy.

    Without either option, the store is treated as the only copy, unless it shows that several nodes were primary.

    Examples:

        bmqctl journal repair store/ --out repaired/

        bmqctl journal repair store/ --out repaired/ --replica

        bmqctl journal repair store/ --out repaired/ --json | jq -r '.partitions[].left_out[] | [.guid, .reason] | @tsv'

        bmqctl journal repair store/ --out repaired/ --output csv > left-out.csv

        bmqctl journal repair rocketmq-data --out repaired

    With --output json the report is one JSON value; with jsonl or csv each thing that was left out, or restored, is a
    line.

    Exit codes: 0 if nothing was left out; 1 if something was; 2 if nothing could be done.
    """
    from bmqctl.cli.files.rocketmq_repair import print_repaired, sizes_of
    from bmqctl.stores.blazingmq.repair.repair import repair_store
    from bmqctl.stores.rocketmq.repair.repair import repair_log_store

    wanted = wanted_format(output, as_json)
    if is_store(path):
        for option in given_options(context, ("replica",)):
            refuse("journal repair", f"{path} is a store of RocketMQ, and {option} is for those of BlazingMQ")
        found = _repaired(out, partial(repair_log_store, path, out, sizes_of(config)))
        _end(found, found.left_out, found.restored, LogNote, partial(print_repaired, found, limit), wanted)
        return
    for option in given_options(context, ("config",)):
        refuse("journal repair", f"{path} is no store of RocketMQ, and {option} is for those")
    mode = None if replica is None else Mode.REPLICA if replica else Mode.ALONE
    report = _repaired(out, partial(repair_store, path, out, mode))
    left_out, restored = list(report.all_left_out()), report.all_restored()
    _end(report, left_out, restored, Note, partial(_print_report, report, limit), wanted)


def _repaired(out: Path, work: Callable[[OnProgress], R]) -> R:
    """Repair a store, with a bar for each step; exit with code 2 if nothing can be done."""
    from bmqctl.stores.blazingmq.repair.repair import Refused

    bars: dict[str, LateProgress] = {}

    def on_progress(what: str, done: int, total: int) -> None:
        if what not in bars:
            for bar in bars.values():
                bar.__exit__(None, None, None)
            bars[what] = LateProgress(what)
        bars[what](done, total)

    try:
        return work(on_progress)
    except (NotAStoreFile, Refused, LogRefused) as error:
        refuse("journal repair", str(error))
    except OSError as error:
        refuse("journal repair", f"{error.filename or out}: {error.strerror or error}")
    finally:
        for bar in bars.values():
            bar.__exit__(None, None, None)


def _end(
    report: RepairReport | LogReport,
    left_out: Sequence[Any],
    restored: Iterable[Any],
    kind: type[Any],
    show: Callable[[], None],
    wanted: OutputFormat,
) -> None:
    """Print the account; exit with code 1 if something was left out."""
    with until_reader_leaves():
        if wanted is OutputFormat.TABLE:
            show()
        else:
            print_report(report.as_json(), _note_rows(left_out, restored), _note_keys(kind), wanted)
    if report.errors or left_out:
        raise typer.Exit(EXIT_FAULTS)


_NOTE_COLUMNS = [
    Column("offset", "offset", 12, right=True),
    Column("size", "size", 10, right=True),
    Column("what", "what", 10),
    Column("number", "number", 12),
    Column("guid", "guid", 32),
    Column("queue_uri", "queue", 40),
    Column("reason", "reason"),
]


def _print_report(report: RepairReport, limit: int) -> None:
    from bmqctl.common.tables import ResultConsole

    console = ResultConsole()
    _print_notes(console, "left out", list(report.all_left_out()), limit)
    _print_notes(console, "restored", list(report.all_restored()), limit)
    for partition in report.partitions:
        kept = ", ".join(f"{count} {name}" for name, count in partition.records.items()) or "nothing"
        console.print(f"partition {partition.partition_id}: kept {kept}; {partition.outstanding} messages outstanding")
        if partition.sync_points_dropped:
            console.print(
                f"  {partition.sync_points_dropped} sync points not carried over: numbers after them are missing"
            )
    console.print(f"{report.out}: {report.errors} errors and {report.warnings} warnings (--{report.mode})")
    for code, count in report.counts.items():
        console.print(f"  {code}: {count}")


def _print_notes(console: ResultConsole, title: str, notes: list[Note], limit: int) -> None:
    shown = notes[:limit]
    for file in dict.fromkeys(note.file for note in shown):
        rows: Iterable[dict[str, object]] = (asdict(note) for note in shown if note.file == file)
        print_table(rows, _NOTE_COLUMNS, console, f"{title}: {file}")
        console.print()
    if len(notes) > limit:
        console.print(f"{len(notes) - limit} more lines are not shown (--limit, --output json)")


def _note_rows(
    left_out: Iterable[Note] | Iterable[LogNote], restored: Iterable[Note] | Iterable[LogNote]
) -> Iterator[dict[str, Any]]:
    for outcome, notes in (("left_out", left_out), ("restored", restored)):
        for note in notes:
            yield {"outcome": outcome, **asdict(note)}


def _note_keys(kind: type[Note] | type[LogNote]) -> list[str]:
    return ["outcome", *(field.name for field in fields(kind))]
