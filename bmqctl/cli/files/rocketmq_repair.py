"""`bmqctl journal repair` on a store of RocketMQ."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

import typer

from bmqctl.cli.files.notes import note_keys, note_rows
from bmqctl.cli.files.printing import size_text
from bmqctl.common.render import (
    EXIT_FAULTS,
    Column,
    LateProgress,
    OutputFormat,
    ResultConsole,
    print_report,
    print_table,
    refuse,
    until_reader_leaves,
)
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.rocketmq.build import read_build_options
from bmqctl.stores.rocketmq.build_files import StoreSizes
from bmqctl.stores.rocketmq.lines import BadMessage
from bmqctl.stores.rocketmq.repair.parts import Note, Refused, RepairReport
from bmqctl.stores.rocketmq.repair.repair import repair_log_store

__all__ = ["repair_log"]

COMMAND: Final = "journal repair"

_COLUMNS: Final = [
    Column("offset", "offset", 14, right=True),
    Column("size", "size", 10, right=True),
    Column("what", "what", 12),
    Column("topic", "topic", 24),
    Column("queue_id", "queue", 5, right=True),
    Column("number", "number", 10, right=True),
    Column("reason", "reason"),
]


def repair_log(path: Path, out: Path, config: Path | None, wanted: OutputFormat, limit: int) -> None:
    """Repair a store, and print the account; end the program with 1 if something was left out."""
    bars: dict[str, LateProgress] = {}

    def on_progress(what: str, done: int, total: int) -> None:
        if what not in bars:
            for bar in bars.values():
                bar.__exit__(None, None, None)
            bars[what] = LateProgress(what)
        bars[what](done, total)

    try:
        report = repair_log_store(path, out, _sizes(config), on_progress)
    except (NotAStoreFile, Refused) as error:
        refuse(COMMAND, str(error))
    except OSError as error:
        refuse(COMMAND, f"{error.filename or out}: {error.strerror or error}")
    finally:
        for bar in bars.values():
            bar.__exit__(None, None, None)
    with until_reader_leaves():
        if wanted is OutputFormat.TABLE:
            _print(report, limit)
        else:
            print_report(report.as_json(), note_rows(report.left_out, report.restored), note_keys(Note), wanted)
    if report.errors or report.left_out:
        raise typer.Exit(EXIT_FAULTS)


def _sizes(config: Path | None) -> StoreSizes | None:
    if config is None:
        return None
    try:
        return read_build_options(config).sizes
    except BadMessage as error:
        refuse(COMMAND, f"--config {error}")
    except OSError as error:
        refuse(COMMAND, f"--config {config}: {error.strerror or error}")


def _print(report: RepairReport, limit: int) -> None:
    console = ResultConsole()
    for title, notes in (("left out", report.left_out), ("restored", report.restored)):
        if notes:
            print_table(map(_row, notes[:limit]), _COLUMNS, console, title)
            console.print()
        if len(notes) > limit:
            console.print(f"{len(notes) - limit} more lines are not shown (--limit, --output json)")
    console.print(
        f"commit log: {size_text(report.end - report.begin)}, offsets {report.begin} to {report.end}, "
        f"{report.records} records; {report.queues} queues and {report.index_files} index files made again"
    )
    console.print(f"{report.out}: {report.errors} errors and {report.warnings} warnings")
    for code, count in report.counts.items():
        console.print(f"  {code}: {count}")


def _row(note: Note) -> dict[str, object]:
    return asdict(note)
