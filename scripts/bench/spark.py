"""The runner of scripts/benchmark-spark: conversion of stores to tables, on two cores, in one run.

A store is exported (`bmqctl spark-export`: the tables records and messages, as a whole process), and one of twice the
size. Then the same tables are made from the JSON lines that the storage tool prints, by `spark.read.json` and joins.
Counts and sums are queried in both ways, and with DuckDB over the same lines. All must agree, and both exports must
have the same number of rows.

The outcomes of the messages are queried twice in a session: the first time includes starting processes and loading
code. Wall time depends on the machine's other load, so processor time is given too. Memory is that of the largest
process of a kind, for Python's workers without mapped files. Both are sampled twice a second.

With `--rocketmq` the messages of RocketMQ stores are exported.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow.dataset

from scripts.bench.figures import Figure, print_figures
from scripts.bench.large_log import write_consume_queues, write_large_log
from scripts.bench.large_store import LargeStore, write_store

RECORDS = 10_000_000
RECORDS_PER_MESSAGE = 2.99  # of `write_store`, which keeps one message in a hundred
PAYLOAD_SIZE = 256
CORES = 2
RATE_MIN = 400_000
DOUBLE_MAX = 2.1
ADVANTAGE_MIN = 10
SAMPLE_S = 0.5

BMQCTL = [sys.executable, "-c", "from bmqctl.app import main; main()"]

# The query of the store and of the lines: counts and sums by type and queue.
QUERY = """
import json, sys, time
from bmqctl.pipeline.spark.session import local_session
from pyspark.sql import functions as f

form, path = sys.argv[1:]
with local_session({cores}, "2g") as spark:
    spark.range(1).count()
    started = time.perf_counter()
    if form == "bmq":
        frame = spark.read.format("bmq").option("columns", "type,queue_uri,sequence_number,ref_count,crc32c").load(path)
    else:
        frame = spark.read.json(path)
    sums = (f.sum(name) for name in ("sequence_number", "ref_count", "crc32c"))
    rows = frame.groupBy("type", "queue_uri").agg(f.count("*"), *sums).collect()
    print(json.dumps([time.perf_counter() - started, sorted((list(row) for row in rows), key=str)]))
"""

# The tables of an export, made from the lines: records by date and queue, and messages with their outcomes.
TABLES = """
import sys
from bmqctl.pipeline.spark.session import local_session
from pyspark.sql import functions as f

lines, out = sys.argv[1:]
with local_session({cores}, "2g") as spark:
    records = spark.read.json(lines).withColumn("date", f.to_date("time"))
    records.write.partitionBy("date").parquet(out + "/records")
    messages = records.where("type = 'MESSAGE'").drop("type", "deletion_flag")
    confirms = records.where("type = 'CONFIRM'").groupBy("queue_key", "guid").agg(
        f.count("*").alias("confirm_count"), f.max("time").alias("last_confirm_time")
    )
    removals = records.where("type = 'DELETION'").selectExpr("queue_key", "guid", "time as removed", "deletion_flag")
    key = ["queue_key", "guid"]
    messages = messages.join(confirms, key, "left").join(removals, key, "left")
    messages.write.partitionBy("date").parquet(out + "/messages")
"""

# Outcomes of the messages of each queue: a query of the table `messages`, and of joins of the lines.
OUTCOMES = """
import json, sys, time
from bmqctl.pipeline.spark.session import local_session
from pyspark.sql import functions as f

form, path = sys.argv[1:]
with local_session({cores}, "2g") as spark:
    def outcomes():
        if form == "bmq":
            options = dict(table="messages", columns="queue_uri,outcome")
            frame = spark.read.format("bmq").options(**options).load(path)
        else:
            records = spark.read.json(path)
            key = ["queue_key", "guid"]
            messages = records.where("type = 'MESSAGE'").select(*key, "queue_uri")
            confirms = records.where("type = 'CONFIRM'").select(*key).distinct().withColumn("confirm", f.lit(True))
            removals = records.where("type = 'DELETION'").select(*key, f.col("deletion_flag").alias("removal"))
            outcome = (
                f.when(f.col("removal") == "NONE", "confirmed")
                .when(f.col("removal") == "TTL_EXPIRATION", "expired")
                .when(f.col("removal") == "NO_SC_QUORUM", "no_quorum")
                .when(f.col("confirm"), "partially_confirmed")
                .otherwise("outstanding")
            )
            frame = messages.join(confirms, key, "left").join(removals, key, "left").withColumn("outcome", outcome)
        return frame.groupBy("queue_uri", "outcome").count().collect()

    # First with all that a session has to load, then without.
    taken = []
    for _ in range(2):
        started = time.perf_counter()
        rows = outcomes()
        taken.append(time.perf_counter() - started)
    print(json.dumps([taken, sorted((list(row) for row in rows), key=str)]))
"""


class Usage(NamedTuple):
    """Usage of a process and its descendants; memory is in MiB, by kind of program."""

    wall_s: float
    cpu_s: float
    peak_mib: dict[str, float]
    said: str


def use(command: list[str], into: Path | None = None) -> Usage:
    """Run `command` with its output in the file `into`, or returned. Raises SystemExit if it fails."""
    started = time.perf_counter()
    with open(into or os.devnull, "wb") as file:  # noqa: PTH123
        output = subprocess.PIPE if into is None else file
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        peaks: dict[str, float] = {}
        ended = threading.Event()
        spent: dict[int, float] = {}
        watcher = threading.Thread(target=_watch, args=(process.pid, peaks, spent, ended))
        watcher.start()
        said = process.stdout.read().decode() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        watcher.join()
    if process.stdout:
        process.stdout.close()
    if process.returncode:
        raise SystemExit(f"benchmark-spark: {' '.join(command[3:])}: exit code {process.returncode}")
    # The command's own account lacks Python's workers, which are not waited for.
    cpu_s = max(used.ru_utime + used.ru_stime, sum(spent.values()))
    return Usage(time.perf_counter() - started, cpu_s, peaks, said)


def _watch(root: int, peaks: dict[str, float], spent: dict[int, float], ended: threading.Event) -> None:
    while not ended.wait(SAMPLE_S):
        for pid, name, mib in _memory(root):
            peaks[name] = max(mib, peaks.get(name, 0))
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                spent[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(root: int) -> Iterator[tuple[int, str, float]]:
    """Yield (process id, java or python, MiB in use) of `root` and its descendants."""
    status: dict[int, dict[str, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                lines = (entry / "status").read_text().splitlines()
            except OSError:
                continue
            status[int(entry.name)] = {
                name: value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
    below = {root}
    for pid, fields in sorted(status.items()):
        if int(fields["PPid"]) in below:
            below.add(pid)
    for pid in below & status.keys():
        kind = "java" if status[pid]["Name"] == "java" else "python"
        yield pid, kind, int(status[pid].get("RssAnon", "0 kB").split()[0]) / 1024


def make(directory: Path, records: int) -> LargeStore:
    directory.mkdir()
    return write_store(directory, round(records / RECORDS_PER_MESSAGE), PAYLOAD_SIZE)


def export(store: LargeStore, out: Path) -> Usage:
    return use([*BMQCTL, "spark-export", str(store.directory), "--out", str(out), "--cores", str(CORES)])


def measure_export(work: Path, records: int) -> tuple[LargeStore, Usage, list[Figure]]:
    one, two = make(work / "one", records), make(work / "two", 2 * records)
    first, second = export(one, work / "export-one"), export(two, work / "export-two")
    rate, cpu_rate = one.records / first.wall_s, one.records / (first.cpu_s / CORES)
    ratio, cpu_ratio = second.wall_s / first.wall_s, second.cpu_s / first.cpu_s
    figures = [
        Figure("wall time of the export", first.wall_s, "s"),
        Figure("processor time of it", first.cpu_s, "s"),
        Figure("records exported, end to end", rate, "/s", f"{RATE_MIN:,}", rate >= RATE_MIN),
        Figure("the same, of two whole processors", cpu_rate, "/s", f"{RATE_MIN:,}", cpu_rate >= RATE_MIN),
        Figure("wall time of twice the records", ratio, "x", f"{DOUBLE_MAX}", ratio <= DOUBLE_MAX),
        Figure("processor time of twice the records", cpu_ratio, "x", f"{DOUBLE_MAX}", cpu_ratio <= DOUBLE_MAX),
    ]
    for kind in ("java", "python"):
        figures.append(Figure(f"largest {kind} process", first.peak_mib.get(kind, 0), "MiB"))
        figures.append(Figure(f"largest {kind} process, twice the records", second.peak_mib.get(kind, 0), "MiB"))
    if _rows(work / "export-one", "records") != one.records:
        raise SystemExit(f"benchmark-spark: not all of the {one.records} records exported")
    shutil.rmtree(two.directory)
    return one, first, figures


def measure_lines(work: Path, store: LargeStore, export: Usage) -> tuple[Path, Usage, list[Figure]]:
    """Measure the same tables made from JSON lines, and the lines, which are kept."""
    lines, out = work / "records.jsonl", work / "of-lines"
    dump = use([*BMQCTL, "journal", "dump", "--output", "json-line", str(store.directory)], lines)
    tables = use([sys.executable, "-c", TABLES.format(cores=CORES), str(lines), str(out)])
    for name in ("records", "messages"):
        if _rows(out, name) != _rows(work / "export-one", name):
            raise SystemExit(f"benchmark-spark: the tables {name} do not have as many rows")
    advantage = (dump.wall_s + tables.wall_s) / export.wall_s
    figures = [
        Figure("the storage tool's JSON lines, written", dump.wall_s, "s"),
        Figure("spark.read.json of them, joined and written", tables.wall_s, "s"),
        Figure("both, beside the export", advantage, "x"),
    ]
    return lines, dump, figures


def _rows(export: Path, table: str) -> int:
    return int(pyarrow.dataset.dataset(export / table, partitioning="hive").count_rows())


def measure_messages(store: LargeStore, lines: Path, dump: Usage) -> list[Figure]:
    """Measure the query of outcomes by the table `messages` and by joins of the JSON lines."""
    (ours, our_rows), (theirs, their_rows) = _answers(OUTCOMES, store, lines)
    if our_rows != their_rows:
        raise SystemExit("benchmark-spark: the messages' outcomes are not the same")
    first, again = ((dump.wall_s + their_s) / our_s for our_s, their_s in zip(ours, theirs, strict=True))
    return [
        Figure("outcomes by queue, by the table messages, first", ours[0], "s"),
        Figure("outcomes by queue, by the table messages, again", ours[1], "s"),
        Figure("by spark.read.json of the lines and joins, first", theirs[0], "s"),
        Figure("by spark.read.json of the lines and joins, again", theirs[1], "s"),
        Figure("JSON lines in all, beside the table, first", first, "x"),
        Figure("JSON lines in all, beside the table, again", again, "x", f"{ADVANTAGE_MIN}", again >= ADVANTAGE_MIN),
    ]


def measure_query(store: LargeStore, lines: Path, dump: Usage) -> list[Figure]:
    """Measure counts and sums of all records by the format `bmq`, and by the JSON lines."""
    (our_s, our_rows), (their_s, their_rows) = _answers(QUERY, store, lines)
    if not our_rows == their_rows == _by_duckdb(lines):
        raise SystemExit("benchmark-spark: the counts and sums are not the same")
    return [
        Figure("counts and sums by the format bmq", our_s, "s"),
        Figure("counts and sums by spark.read.json of the lines", their_s, "s"),
        Figure("JSON lines in all, beside the format bmq", (dump.wall_s + their_s) / our_s, "x"),
        Figure("spark.read.json alone, beside the format bmq", their_s / our_s, "x"),
    ]


def _answers(script: str, store: LargeStore, lines: Path) -> list[tuple[Any, object]]:
    """Return the results of `script` for the store and for the lines, and the seconds that each took."""
    query = [sys.executable, "-c", script.format(cores=CORES)]
    return [_answer(use([*query, form, str(path)])) for form, path in (("bmq", store.directory), ("json", lines))]


def _answer(usage: Usage) -> tuple[Any, object]:
    seconds, rows = json.loads(usage.said.splitlines()[-1])
    return seconds, rows


def _by_duckdb(lines: Path) -> list[list[object]]:
    counted = duckdb.sql(
        "SELECT type, queue_uri, count(*), sum(sequence_number), sum(ref_count), sum(crc32c)"
        f" FROM read_json('{lines}', format = 'newline_delimited') GROUP BY ALL"
    )
    assert counted is not None
    return sorted((list(row) for row in counted.fetchall()), key=str)


def measure_logs(records: int) -> None:
    """Measure the export of the messages of RocketMQ stores, of `records` and twice as many, and a query of topics."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-spark-") as directory:
        work, load = Path(directory), os.getloadavg()[0]
        used: list[Usage] = []
        for number in (1, 2):
            (work / f"log-{number}").mkdir()
            log = write_large_log(work / f"log-{number}", number * records, range(PAYLOAD_SIZE, PAYLOAD_SIZE + 1))
            write_consume_queues(log)
            # Writing back the new store would slow down its reader.
            os.sync()
            out = work / f"export-{number}"
            used.append(use([*BMQCTL, "spark-export", str(log.directory), "--out", str(out), "--cores", str(CORES)]))
            if _rows(out, "messages") != log.records:
                raise SystemExit(f"benchmark-spark: not all of the {log.records} messages exported")
        walls = [each.wall_s for each in used]
        rates = (
            records / walls[0],
            records / (used[0].cpu_s / CORES),
            records / (walls[1] - walls[0]),
            2 * records / walls[1],
        )
        figures = [
            Figure("wall time of the export", used[0].wall_s, "s"),
            Figure("processor time of it", used[0].cpu_s, "s"),
            Figure("messages exported, end to end", rates[0], "/s", f"{RATE_MIN:,}", rates[0] >= RATE_MIN),
            Figure("the same, of two whole processors", rates[1], "/s", f"{RATE_MIN:,}", rates[1] >= RATE_MIN),
            Figure("twice as many, end to end", rates[3], "/s", f"{RATE_MIN:,}", rates[3] >= RATE_MIN),
            Figure("messages in the wall time that twice as many take more", rates[2], "/s"),
        ]
        for number, each in enumerate(used, 1):
            figures.append(Figure(f"largest python process, {number} x the messages", each.peak_mib["python"], "MiB"))
        print_figures(
            f"export of {records:,} messages of a RocketMQ store, bodies of {PAYLOAD_SIZE} bytes", figures, load
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the export of stores to tables.")
    parser.add_argument("records", nargs="?", type=int, default=RECORDS, metavar="RECORDS")
    parser.add_argument("--rocketmq", action="store_true", help="Export a RocketMQ store, and one of twice the size.")
    arguments = parser.parse_args()
    if arguments.rocketmq:
        measure_logs(arguments.records)
        return
    with tempfile.TemporaryDirectory(prefix="bmqctl-spark-") as directory:
        work = Path(directory)
        load = os.getloadavg()[0]
        store, export_usage, figures = measure_export(work, arguments.records)
        print_figures(f"export of {store.records:,} records, payloads of {PAYLOAD_SIZE} bytes", figures, load)
        load = os.getloadavg()[0]
        lines, dump, figures = measure_lines(work, store, export_usage)
        print_figures("the same by way of JSON lines", figures, load)
        load = os.getloadavg()[0]
        print_figures("what became of the messages", measure_messages(store, lines, dump), load)
        load = os.getloadavg()[0]
        print_figures(f"query of {store.records:,} records", measure_query(store, lines, dump), load)


if __name__ == "__main__":
    main()
