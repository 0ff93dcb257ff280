"""`bmqctl journal repair` on a store of RocketMQ."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

from bmqctl.cli.files.printing import size_text
from bmqctl.common.render import Column, print_table, refuse
from bmqctl.common.tables import ResultConsole
from bmqctl.stores.rocketmq.build import read_build_options
from bmqctl.stores.rocketmq.build_files import StoreSizes
from bmqctl.stores.rocketmq.lines import BadMessage
from bmqctl.stores.rocketmq.repair.parts import RepairReport

__all__ = ["print_repaired", "sizes_of"]

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


def sizes_of(config: Path | None) -> StoreSizes | None:
    """Read the sizes of files from a broker's configuration; exit with code 2 if it cannot be read."""
    if config is None:
        return None
    try:
        return read_build_options(config).sizes
    except BadMessage as error:
        refuse(COMMAND, f"--config {error}")
    except OSError as error:
        refuse(COMMAND, f"--config {config}: {error.strerror or error}")


def print_repaired(report: RepairReport, limit: int) -> None:
    """Print the account of a repair, at most `limit` lines of each table."""
    console = ResultConsole()
    for title, notes in (("left out", report.left_out), ("restored", report.restored)):
        if notes:
            print_table(map(asdict, notes[:limit]), _COLUMNS, console, title)
            console.print()
        if len(notes) > limit:
            console.print(f"{len(notes) - limit} more lines are not shown (--limit, --output json)")
    console.print(
        f"commit log: {size_text(report.end - report.begin)}, offsets {report.begin} to {report.end}, "
        f"{report.records} records; {report.queues} queues and {report.index_files} index files rebuilt"
    )
    console.print(f"{report.out}: {report.errors} errors and {report.warnings} warnings")
    for code, count in report.counts.items():
        console.print(f"  {code}: {count}")
