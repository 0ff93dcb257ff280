"""`bmqctl journal validate`: whether the files of a store hold what was written to them."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated

import typer

from bmqctl.cli.files.printing import stopped_by
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
from bmqctl.stores.blazingmq.read.fault_report import Report
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.rocketmq.read.files import is_store
from formats.bmq.stores.faults import Fault, fault

__all__ = ["validate"]


def validate(
    path: Annotated[Path, typer.Argument(help="A store's directory, or one of its files.", show_default=False)],
    output: Output = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json: one object.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Print at most this many faults; all are counted.")] = 100,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="A folder of BlazingMQ's files: check that it has all partitions.", show_default=False),
    ] = None,
) -> None:
    """Check the files of a store: headers, every record, every payload's checksum, all references between files.

    A store of RocketMQ is checked as a whole: the records of the commit log with their checksums, each consume queue's
    entries against their records and the other way round, numbers in sequence, the index with its slots and chains, the
    checkpoint, the epochs, and the offsets in the folder config. It may be in use.

    In a directory all partitions are checked, and their agreement with the cluster-state ledger on queues, apps and
    leases; with --config also that a broker's configuration has all of them. A single file is checked together with the
    files that belong to it. Each fault is printed with its file, its offset and an advice. A warning is something that
    a crash may leave behind, such as an unfinished last record; it affects the exit code only with `--strict`. A broker
    that is writing may cause the same warnings: a store in use can be checked.

    `bmqctl journal repair` makes an intact store of the undamaged part of a damaged one. Payloads and the ledger have
    checksums, the rest has none: formats/bmq/disk/CHECKSUMS.md lists the faults that can be detected.

    With --output jsonl or csv each fault is a row; --output json has the counts, too.

    Examples:

        bmqctl journal validate store/

        bmqctl journal validate store/bmq_0.20261121_051104.bmq_journal

        bmqctl journal validate --json --strict store/ | jq -r '.faults[].code'

        bmqctl journal validate /var/lib/bmq --config /etc/bmq

        bmqctl journal validate /var/lib/bmqctl/rocketmq

    Exit codes: 0 if there are no faults; 1 if there are; 2 if there is no store.
    """
    from bmqctl.stores.blazingmq.read.check import check_path
    from bmqctl.stores.rocketmq.check.check import check_log_store

    try:
        with stopped_by("journal validate", path), LateProgress("checking records") as on_progress:
            report = (check_log_store if is_store(path) else check_path)(path, limit, on_progress)
    except NotAStoreFile as error:
        refuse("journal validate", str(error))
    if config is not None:
        _check_configuration(report, path, config)
    with until_reader_leaves():
        wanted = wanted_format(output, as_json)
        if wanted is OutputFormat.TABLE:
            _print_report(report)
        else:
            print_report(_as_json(report), [asdict(found) for found in report.faults], _FAULT_KEYS, wanted)
    if report.errors or (strict and report.warnings):
        raise typer.Exit(EXIT_FAULTS)


def _check_configuration(report: Report, path: Path, config: Path) -> None:
    """Note partitions of the store that a configuration lacks."""
    # The readers of configurations take a third of a second to import.
    from bmqctl.systems.config_reading import faults_with_store

    if not config.is_dir() or not path.is_dir():
        refuse("journal validate", f"--config {config}: name a folder of BlazingMQ's files, and a store's directory")
    for found in faults_with_store(config, path):
        report.note(fault("partition-unserved", found.file, 0, f"{found.place} {found.problem}"))


def _as_json(report: Report) -> dict[str, object]:
    return {
        "files": report.files,
        "records": report.records,
        "errors": report.errors,
        "warnings": report.warnings,
        "counts": dict(sorted(report.counts.items())),
        "faults": [asdict(found) for found in report.faults],
    }


_FAULT_KEYS = [field.name for field in fields(Fault)]
_FAULT_COLUMNS = [
    Column("severity", "severity", 8),
    Column("offset", "offset", 12, right=True),
    Column("code", "code", 24),
    Column("reason", "reason"),
]


def _print_report(report: Report) -> None:
    from bmqctl.common.tables import ResultConsole

    console = ResultConsole()
    for file in dict.fromkeys(found.file for found in report.faults):
        print_table((asdict(found) for found in report.faults if found.file == file), _FAULT_COLUMNS, console, file)
        console.print()
    for code, count in sorted(report.counts.items()):
        console.print(f"{code} ({count}): {report.catalogue[code].advice}")
    hidden = report.errors + report.warnings - len(report.faults)
    if hidden:
        console.print(f"{hidden} more faults are not shown (--limit)")
    console.print(
        f"{report.errors} errors and {report.warnings} warnings in {len(report.files)} files "
        f"with {report.records} {report.unit}"
    )
