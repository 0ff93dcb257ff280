"""The runner of scripts/benchmark-tools: scan, summary, dump and validate of a generated store.

The best of several runs of a case counts: wall time, and processor time, which says more on a machine with other load.
Its rate is compared with that of a plain read of the file in blocks, and of one numpy pass over the types in memory.
Commands are whole processes, start and imports included.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from bmqctl.stores.blazingmq.read.scan import JournalScan
from bmqctl.stores.rocketmq.read.files import log_files
from bmqctl.stores.rocketmq.read.scan import LogScan
from formats.bmq.disk.columns import count_kinds, sound_kinds
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD
from formats.bmq.stores.lives import Lives
from scripts.bench.large_log import LargeLog, write_large_log
from scripts.bench.large_store import LargeStore, write_store

RUNS = 3
BLOCK_SIZE = 1 << 22

# Prints a command's peak memory in KiB at its end: the kernel's figure for a child starts at its parent's.
COMMAND = """
import atexit, pathlib, sys
from bmqctl.app import main
peak = lambda: pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
atexit.register(lambda: print(peak(), file=sys.stderr))
main()
"""


class Case(NamedTuple):
    """Work on all records of the journal: a function, or the arguments of a `bmqctl journal` command.

    `wanted` is the target, if there is one.
    """

    name: str
    work: Callable[[], object] | list[str]
    wanted: str = ""


class Usage(NamedTuple):
    """The usage of a run; `peak_mib` is known only for commands."""

    wall_s: float
    cpu_s: float
    peak_mib: float | None


def plain_read(path: Path) -> int:
    buffer = bytearray(BLOCK_SIZE)
    total = 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total += count
    return total


def scan_types(journal: Path) -> int:
    with JournalScan(journal) as scan:
        return sum(int(count_kinds(chunk.records).sum()) for chunk in scan.chunks(0, scan.extent.record_count))


def follow_lives(journal: Path) -> int:
    """Count the messages alive at the end."""
    lives = Lives()
    with JournalScan(journal) as scan:
        for chunk in scan.chunks(0, scan.extent.record_count):
            lives.feed(chunk.indexes, chunk.records, sound_kinds(chunk.records))
    return len(lives)


def cases(store: LargeStore) -> list[Case]:
    """List the cases; the others are compared with the first."""
    with JournalScan(store.journal) as scan:
        size = store.records * JOURNAL_RECORD_SIZE
        in_memory = np.frombuffer(scan.read(scan.first_record_offset, size), ANY_RECORD.dtype)
    directory, journal = str(store.directory), str(store.journal)
    return [
        Case("read the journal in blocks", lambda: plain_read(store.journal)),
        Case("one numpy pass over types, in memory", lambda: count_kinds(in_memory)),
        Case("scan and count types", lambda: scan_types(store.journal), "15,000,000 records/s"),
        Case("follow messages from post to deletion", lambda: follow_lives(store.journal)),
        Case("journal summary", ["summary", "--json", directory], "2 s for 1,000,000 messages"),
        Case("journal dump, JSON lines", ["dump", "--output", "json-line", journal], "300,000 records/s"),
        Case("journal validate", ["validate", "--json", directory]),
    ]


def scan_log(directory: Path) -> int:
    return sum(len(chunk.records) for chunk in LogScan(log_files(directory)).chunks())


def log_cases(log: LargeLog, copy: Path) -> list[Case]:
    """List the cases of a RocketMQ store and its copy; the others are compared with the first."""
    directory = str(log.directory)
    return [
        Case("read the commit log in blocks", lambda: sum(map(plain_read, log.files))),
        Case("scan and check the parts", lambda: scan_log(log.directory), "5,000,000 records/s"),
        Case("journal dump, JSON lines", ["dump", "--output", "json-line", directory], "300,000 records/s"),
        Case("journal dump, JSON lines with bodies", ["dump", "--output", "json-line", "--payload", "auto", directory]),
        Case("journal dump, CSV", ["dump", "--output", "csv", directory]),
        Case("journal dump, Arrow stream", ["dump", "--output", "arrow", directory]),
        Case("journal dump of one key", ["dump", "--output", "json-line", "--key", "k0000001", directory]),
        Case("journal summary of what is in no queue", ["summary", "--json", directory]),
        Case("journal diff with an equal copy", ["diff", "--json", directory, str(copy)]),
    ]


def use(work: Callable[[], object] | list[str]) -> Usage:
    started = time.perf_counter()
    if callable(work):
        before = time.process_time()
        work()
        return Usage(time.perf_counter() - started, time.process_time() - before, None)
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "journal", *work], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"benchmark-tools: bmqctl journal {' '.join(work)}: exit code {process.returncode}: {said}")
    return Usage(time.perf_counter() - started, used.ru_utime + used.ru_stime, int(said.split()[-1]) / 1024)


def report(every: list[Case], title: str, records: int) -> Table:
    load = os.getloadavg()[0]
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.title = f"{title}; {os.cpu_count()} processors, load {load:.1f}"
    for title in ("wall s", "CPU s", "records/s of CPU", "x plain read", "peak MiB"):
        table.add_column(title, justify="right")
    table.add_column("case")
    table.add_column("wanted")
    plain: Usage | None = None
    for case in every:
        best = min((use(case.work) for _ in range(RUNS)), key=lambda usage: usage.cpu_s)
        plain = plain or best
        rate = f"{records / max(best.cpu_s, 1e-6):,.0f}"
        ratio = f"{best.cpu_s / max(plain.cpu_s, 1e-6):.1f}"
        peak = "" if best.peak_mib is None else f"{best.peak_mib:.0f}"
        table.add_row(f"{best.wall_s:.3f}", f"{best.cpu_s:.3f}", rate, ratio, peak, case.name, case.wanted)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the storage tools.")
    parser.add_argument("messages", nargs="?", type=int, default=1_000_000, metavar="MESSAGES")
    parser.add_argument("--rocketmq", action="store_true", help="measure those of RocketMQ")
    arguments = parser.parse_args()
    console = Console(width=140)
    if not arguments.rocketmq:
        with tempfile.TemporaryDirectory(prefix="bmqctl-tools-") as directory:
            store = write_store(Path(directory), arguments.messages)
            title = f"{arguments.messages:,} messages, {store.records:,} records"
            console.print(report(cases(store), title, store.records))
        return
    for body_sizes in (range(150, 151), range(60, 240)):
        with tempfile.TemporaryDirectory(prefix="bmqctl-tools-") as directory:
            log = write_large_log(Path(directory) / "store", arguments.messages, body_sizes)
            copy = Path(directory) / "copy"
            shutil.copytree(log.directory, copy)
            title = f"{log.records:,} records, bodies of {body_sizes.start} to {body_sizes.stop - 1} bytes"
            console.print(report(log_cases(log, copy), title, log.records))


if __name__ == "__main__":
    main()
