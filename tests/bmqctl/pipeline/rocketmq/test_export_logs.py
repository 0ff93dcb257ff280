"""Exports of RocketMQ's stores: every format, what is new, and comparison with the store.

The tasks run in this process, one after the other; the last test has Spark run them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from bmqctl.pipeline.export.export import ExportRequest, OtherExport, Summary, export_store, plan_export
from bmqctl.pipeline.export.exported import exported_table, subject_of_export
from bmqctl.pipeline.export.manifest import Manifest, need_manifest
from bmqctl.pipeline.export.output import Output, open_output
from bmqctl.pipeline.export.table_files import FileFormat, read_table
from bmqctl.pipeline.export.verify import Verdict, VerifyRequest
from bmqctl.pipeline.source.options import BadOption
from bmqctl.pipeline.spark.run_tasks import quiet
from formats.rocketmq.files.record import encode_record
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.stores.rocketmq.journal.losses_rig import (
    EVERY,
    Damaged,
    middle_file_missing,
    whole_store,
)
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES, message, write_log

Java = Callable[[str], list[Path]]


def in_order(session: object, run: Callable[[Any], Any], items: Iterable[Any], *_: object) -> list[Any]:
    """Run tasks as `run_all` does."""
    return [run(item) for item in items]


def rows_of(output: Output, manifest: Manifest, table: str) -> list[dict[str, Any]]:
    """The rows in the files of an exported table, in their order in the log."""
    schema = subject_of_export(manifest).schema(table)
    rows: list[dict[str, Any]] = []
    for file in manifest.tables[table].files:
        for batch in read_table(output, file.path, FileFormat(manifest.format), schema):
            rows += pa.Table.from_batches([batch]).cast(schema).to_pylist()
    return sorted(rows, key=lambda row: int(row["offset"]))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session for jobs whose tasks run in this process."""

    def count(context: object, output: Output, manifest: Manifest, table: str) -> int:
        return len(rows_of(output, manifest, table))

    for module in ("export", "verify"):
        monkeypatch.setattr(f"bmqctl.pipeline.export.{module}.run_all", in_order)
    monkeypatch.setattr("bmqctl.pipeline.export.verify.count_exported", count)
    return Mock(SparkSession, sparkContext=Mock(SparkContext))


def export(spark: SparkSession, stores: list[Path], out: Path, **options: Any) -> Summary:
    return export_store(spark.sparkContext, plan_export(ExportRequest(tuple(map(str, stores)), str(out), **options)))


def verify(spark: SparkSession, out: Path, *stores: Path) -> Verdict:
    return VerifyRequest(str(out), tuple(map(str, stores))).run(spark.sparkContext, quiet)


def exported(out: Path, table: str) -> list[dict[str, Any]]:
    output = open_output(str(out))
    return rows_of(output, need_manifest(output), table)


@pytest.mark.parametrize("form", list(FileFormat))
def test_an_export_has_the_rows_of_the_store(here: SparkSession, java: Java, tmp_path: Path, form: FileFormat) -> None:
    (store,) = java("store")
    summary = export(here, [store], tmp_path / "out", format=form)
    rows = read_rows(store, table="messages")
    assert summary.manifest.tables["messages"].rows == len(rows) == 844
    assert {each.uri: each.messages for each in summary.queues} == Counter(row["topic"] for row in rows)
    found = exported(tmp_path / "out", "messages")
    assert found == rows
    verdict = verify(here, tmp_path / "out")
    assert verdict.differences == []
    assert verdict.tables["messages"].in_store == 844


def test_incremental_export_adds_new_messages(here: SparkSession, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    write_log(store, [message(n) for n in range(50)])
    assert export(here, [store], out, since_last=True).run.added == {"messages": 50}
    assert export(here, [store], out, since_last=True).run.added == {"messages": 0}
    write_log(store, [message(n) for n in range(700)])
    assert verify(here, out).gone_on == [0]
    summary = export(here, [store], out, since_last=True)
    assert summary.run.added == {"messages": 650}
    assert summary.run.missed == 0
    assert [row["offset"] for row in exported(out, "messages")] == [
        row["offset"] for row in read_rows(store, table="messages")
    ]
    # The broker deletes a file: what was in it has left the store, and is no difference.
    first = min((store / "commitlog").iterdir())
    first.unlink()
    verdict = verify(here, out)
    assert verdict.differences == []
    assert verdict.tables["messages"].left > 0
    # The same store under another name of the folder.
    moved = store.rename(tmp_path / "moved")
    assert verify(here, out, moved).differences == []


@pytest.mark.parametrize("damage", EVERY)
def test_account_names_messages_that_the_log_has_lost(
    here: SparkSession, tmp_path: Path, damage: Callable[[Path], Damaged]
) -> None:
    store, out = damage(tmp_path / "store"), tmp_path / "out"
    summary = export(here, [store.root], out, tables=("messages", "payloads"))
    account = summary.account
    assert not account.is_sound
    assert bool(account.missing) == bool(store.missing)
    assert bool(account.damaged) == bool(store.damaged)
    offsets = {row["offset"] for row in exported(out, "messages")}
    assert {each.physical_offset for each in store.left} <= offsets
    assert account.records == len(store.left)
    accounts = need_manifest(open_output(str(out))).runs[-1].accounts
    assert accounts == {"messages": account.as_json(), "payloads": account.as_json()}
    verdict = verify(here, out)
    assert verdict.differences == []
    assert verdict.store.as_json() == account.as_json()


@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_a_last_file_that_was_cut_is_an_end(here: SparkSession, tmp_path: Path, cut: int) -> None:
    written = whole_store(tmp_path / "store")
    last = written.records[-1]
    end = last.physical_offset + len(encode_record(last)) - cut
    path = written.path(end)
    path.write_bytes(path.read_bytes()[: end % FILE_BYTES])
    assert export(here, [written.root], tmp_path / "out").account.is_sound
    assert verify(here, tmp_path / "out").store.is_sound


def test_messages_of_another_replica_are_not_lost(here: SparkSession, tmp_path: Path) -> None:
    damaged, whole = middle_file_missing(tmp_path / "one"), whole_store(tmp_path / "two")
    summary = export(here, [damaged.root, whole.root], tmp_path / "out")
    assert summary.account.is_sound
    assert summary.account.records == len(whole.records)


def test_changed_rows_are_named(here: SparkSession, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    written = write_log(store, [message(n) for n in range(50)])
    export(here, [store], out, tables=("messages", "payloads"))
    assert verify(here, out).differences == []
    written.overwrite(written.offsets[7] + 88, b"Z")
    written.overwrite(written.offsets[9], b"rot!")
    differences = {(each.table, each.where, each.what) for each in verify(here, out).differences}
    assert differences == {
        ("payloads", f"broker store, offset {written.offsets[7]}", "differs from the store"),
        ("payloads", f"broker store, offset {written.offsets[9]}", "is in the export, but not in the store"),
        ("messages", f"broker store, offset {written.offsets[9]}", "is in the export, but not in the store"),
    }


def test_requests_that_do_not_fit_are_refused(
    here: SparkSession, java: Java, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    (store,) = java("store")
    with pytest.raises(BadOption, match="'confirms' is none of messages, payloads"):
        plan_export(ExportRequest((str(store),), str(tmp_path), tables=("confirms",)))
    with pytest.raises(BadOption, match="'payloads' is none of records, messages, confirms"):
        plan_export(ExportRequest((str(golden("single-crash")),), str(tmp_path), tables=("payloads",)))
    with pytest.raises(BadOption, match="use parquet or delta"):
        plan_export(ExportRequest((str(store),), str(tmp_path), FileFormat.JSON, ("payloads",)))
    export(here, [store], tmp_path / "out", since_last=True)
    with pytest.raises(OtherExport, match="was exported with stores"):
        plan_export(ExportRequest(tuple(map(str, java("ha-classic/stores"))), str(tmp_path / "out"), since_last=True))


def test_spark_reads_what_it_has_exported(spark: SparkSession, java: Java, tmp_path: Path) -> None:
    (store,) = java("store")
    for form in (FileFormat.PARQUET, FileFormat.CSV):
        out = tmp_path / form
        export(spark, [store], out, format=form)
        assert verify(spark, out).differences == []
        output = open_output(str(out))
        frame = exported_table(spark, output, need_manifest(output), "messages")
        found = {row.offset: (row.id, row.properties) for row in frame.collect()}
        rows = read_rows(store, table="messages")
        assert found == {row["offset"]: (row["id"], dict(row["properties"])) for row in rows}
