from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession

from bmqctl.pipeline.export.export import (
    ExportRequest,
    OtherExport,
    OutputExists,
    Summary,
    export_store,
    plan_export,
)
from bmqctl.pipeline.export.exported import exported_table
from bmqctl.pipeline.export.manifest import MANIFEST, Commit, Manifest, read_manifest, settle
from bmqctl.pipeline.export.output import Output, OutputBusy, OutputError, open_output
from bmqctl.pipeline.export.table_files import FileFormat
from bmqctl.pipeline.export.verify import VerifyRequest, verify
from bmqctl.pipeline.spark.run_tasks import quiet
from tests.bmqctl.pipeline.source.lifecycles import BAR, FOO, F, Q, guid, lifecycles
from tests.bmqctl.pipeline.written import WrittenStore
from tests.golden.archives import storage_records, truth

# Starting Python workers takes long where many others work too.

ALL = ("records", "messages", "confirms")


def export(spark: SparkSession, store: Path, out: Path, **options: Any) -> Summary:
    return export_store(spark.sparkContext, plan_export(ExportRequest((str(store),), str(out), **options)))


def read(spark: SparkSession, table: Path) -> list[Row]:
    return spark.read.parquet(str(table)).collect()


def differences(spark: SparkSession, out: Path) -> list[str]:
    verdict = verify(spark.sparkContext, VerifyRequest(str(out)), lambda step, done, total: None)
    return [f"{each.table} {each.where} {each.what}" for each in verdict.differences]


def test_a_golden_store_gives_what_the_client_posted(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    summary = export(spark, golden("single-crash"), tmp_path, records_per_task=200)
    printed = storage_records("single-crash")
    assert summary.records == dict(Counter(record["RecordType"] for record in printed))
    assert summary.account.is_sound
    assert summary.account.records == len(printed)

    records = sorted(read(spark, tmp_path / "records"), key=lambda row: row.offset)
    assert [(row.queue_uri, row.app_id) for row in records] == [
        (record.get("QueueUri"), None if record["RecordType"] == "QUEUE_OP" else record.get("AppId"))
        for record in printed
    ]
    dates = {path.name for path in (tmp_path / "records").iterdir()}
    assert dates == {f"date={row.timestamp:%Y-%m-%d}" for row in records}
    for row in records:
        assert row.domain == (row.queue_uri.split("/")[2] if row.queue_uri else None)

    messages = {row.guid: row for row in read(spark, tmp_path / "messages")}
    posted = [message for message in truth("single") if "mem.broadcast" not in message["queue"]]
    assert len(messages) == len(posted) == 290
    for message in posted:
        row = messages[message["guid"].upper()]
        assert (row.queue_uri, row.payload_size) == (message["queue"], message["size"])
        assert row.confirmed_apps == sorted(message["confirmed_by"])
    assert {queue.uri: queue.outcomes for queue in summary.queues} == {
        "bmq://bmq.gold.ttl/short-1": {"expired": 30},
        "bmq://bmq.test.persistent.fanout/prices-1": {"partially_confirmed": 80},
        "bmq://bmq.test.persistent.priority/orders-1": {"confirmed": 60, "outstanding": 60},
        "bmq://bmq.test.persistent.priority/orders-zlib-1": {"confirmed": 20, "outstanding": 40},
    }
    for queue in summary.queues:
        assert queue.payload_bytes == sum(message["size"] for message in posted if message["queue"] == queue.uri)


def test_every_format_holds_the_same_rows(spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path) -> None:
    rows: dict[str, dict[FileFormat, list[Row]]] = {name: {} for name in ALL}
    for file_format in FileFormat:
        out = tmp_path / file_format
        summary = export(spark, golden("single-clean"), out, format=file_format, tables=ALL)
        assert differences(spark, out) == []
        for name in ALL:
            frame = exported_table(spark, open_output(str(out)), summary.manifest, name)
            rows[name][file_format] = sorted(frame.collect(), key=lambda row: row.sequence_number)
    for name, by_format in rows.items():
        assert by_format[FileFormat.PARQUET]
        for found in by_format.values():
            assert found == by_format[FileFormat.PARQUET], name


def test_a_delta_table_is_one_to_others(spark: SparkSession, tmp_path: Path) -> None:
    store, said = lifecycles()
    store.save(tmp_path / "store")
    out = tmp_path / "out"
    export(spark, tmp_path / "store", out, format=FileFormat.DELTA, since_last=True)
    table = DeltaTable(str(out / "messages"))
    assert (table.version(), table.metadata().partition_columns) == (0, ["date", "domain"])
    outcomes = dict.fromkeys(said, "")
    for row in table.to_pyarrow_table().to_pylist():
        outcomes[int(row["guid"], 16)] = row["outcome"]
        assert row["domain"] == ("domain" if row["queue_uri"] else None)
    assert outcomes == {number: what[0] for number, what in said.items()}

    store.confirm(F, guid(6), FOO)
    store.message(Q, guid(77))
    store.save(tmp_path / "store")
    export(spark, tmp_path / "store", out, format=FileFormat.DELTA, since_last=True)
    table = DeltaTable(str(out / "messages"))
    assert table.version() == 1
    now = {int(row["guid"], 16): row["outcome"] for row in table.to_pyarrow_table().to_pylist()}
    assert now == {**outcomes, 6: "partially_confirmed", 77: "outstanding"}
    assert len(DeltaTable(str(out / "messages"), version=0).to_pyarrow_table()) == len(said)
    assert differences(spark, out) == []


def test_tables_replace_earlier_ones_only_when_told(spark: SparkSession, tmp_path: Path) -> None:
    other = tmp_path / "records" / "part-of-an-earlier-export.parquet"
    other.parent.mkdir()
    other.touch()
    (tmp_path / "notes.txt").touch()
    store = WrittenStore()
    store.save(tmp_path / "store")
    with pytest.raises(OutputExists, match="/records"):
        plan_export(ExportRequest((str(tmp_path / "store"),), str(tmp_path)))
    with pytest.raises(OtherExport, match="no manifest"):
        plan_export(ExportRequest((str(tmp_path / "store"),), str(tmp_path), since_last=True))
    summary = export(spark, tmp_path / "store", tmp_path, overwrite=True)
    assert (summary.records, summary.queues) == ({}, [])
    assert not other.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_bmqctl", "notes.txt", "store"]
    other_format = ExportRequest((str(tmp_path / "store"),), str(tmp_path), since_last=True, format=FileFormat.CSV)
    with pytest.raises(OtherExport, match="format parquet, not csv"):
        plan_export(other_format)


def test_a_record_that_cannot_be_read_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    store = WrittenStore()
    store.message(Q, guid(1))
    store.message(Q, guid(2))
    store.sync_point()
    store.journal[44 + 56] ^= 0xFF
    summary = export(spark, store.save(tmp_path / "store"), tmp_path / "out")
    assert summary.records == {"MESSAGE": 1, "JOURNAL_OP": 1}
    account = summary.account
    assert (account.records, account.damaged, account.damaged_bytes, account.missing) == (2, 1, 60, 0)
    assert read_manifest(open_output(str(tmp_path / "out"))).runs[-1].accounts["records"] == account.as_json()  # type: ignore[union-attr]
    verdict = verify(spark.sparkContext, VerifyRequest(str(tmp_path / "out")), quiet)
    assert (verdict.differences, verdict.store.damaged) == ([], 1)


def zeros_in_the_journal(store: WrittenStore) -> None:
    store.journal[44 + 60 : 44 + 180] = bytes(120)


def damage_in_data(store: WrittenStore) -> None:
    store.data[:] = store.data.replace(b"payload 1", b"PAYLOAD 1")


def header_in_data(store: WrittenStore) -> None:
    at = store.data.index(b"payload 2")
    store.data[at - 12 : at] = b"\xff" * 12


def data_that_was_cut(store: WrittenStore) -> None:
    del store.data[store.data.index(b"payload 3") :]


@pytest.mark.parametrize(
    ("damage", "damaged", "missing"),
    [
        (zeros_in_the_journal, 2, 0),
        (damage_in_data, 1, 0),
        (header_in_data, 1, 0),
        # The end of the file, with the message that it cuts.
        (data_that_was_cut, 0, 1),
    ],
)
def test_damage_of_each_file_is_counted(
    spark: SparkSession, tmp_path: Path, damage: Callable[[WrittenStore], None], damaged: int, missing: int
) -> None:
    store = WrittenStore()
    for number in range(4):
        store.message(Q, guid(number), b"payload %d" % number)
    store.sync_point()
    damage(store)
    summary = export(spark, store.save(tmp_path / "store"), tmp_path / "out")
    assert (summary.account.damaged, summary.account.missing) == (damaged, missing)
    assert summary.account.places


@pytest.mark.parametrize("lost", ["data", "journal"])
def test_a_file_that_is_missing_is_counted(spark: SparkSession, tmp_path: Path, lost: str) -> None:
    for partition_id in range(2):
        store = WrittenStore(partition_id)
        store.message(Q, guid(partition_id))
        store.sync_point()
        store.save(tmp_path / "store")
    path = tmp_path / "store" / f"bmq_1.20270115_080000.bmq_{lost}"
    path.unlink()
    summary = export(spark, tmp_path / "store", tmp_path / "out")
    assert (summary.account.damaged, summary.account.missing) == (0, 1)
    assert "bmq_1.20270115_080000.bmq_journal" in summary.account.places[0]


@pytest.mark.parametrize("name", ["a[b]", "a{b}", "a*b", "a?b", "a[b", "a\\b", "{a,b}", "a b%c:d,e#f"])
def test_names_that_look_like_patterns_are_names(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    store = WrittenStore()
    store.message(Q, guid(1))
    store.sync_point()
    out = tmp_path / name / f"export {name}"
    # For a pattern, these are the same table.
    (tmp_path / "ab").mkdir()
    # Each format has a reader of its own, and all have the same way of writing a name.
    for form in FileFormat if name == "a[b]" else (FileFormat.PARQUET,):
        export(spark, store.save(tmp_path / name / "store"), out, format=form, overwrite=True)
        assert differences(spark, out) == []
        assert len(exported_rows(spark, out)) == 1


def exported_rows(spark: SparkSession, out: Path) -> list[Row]:
    output = open_output(str(out))
    manifest = read_manifest(output)
    assert manifest is not None
    return exported_table(spark, output, manifest, "messages").collect()


@pytest.fixture
def grown(spark: SparkSession, tmp_path: Path) -> tuple[WrittenStore, Path, Path]:
    """A store that was exported, and has grown since: a new message, and two that changed."""
    store, _ = lifecycles()
    out = tmp_path / "out"
    export(spark, store.save(tmp_path / "store"), out, tables=ALL, since_last=True)
    store.message(Q, guid(50))
    store.confirm(F, guid(6), FOO)
    store.confirm(F, guid(10), BAR)
    store.deletion(F, guid(10))
    store.save(tmp_path / "store")
    return store, tmp_path / "store", out


def test_incremental_export_adds_new_rows_and_replaces_changed_ones(
    spark: SparkSession, grown: tuple[WrittenStore, Path, Path], tmp_path: Path
) -> None:
    _, store, out = grown
    before = {row.sequence_number for row in read(spark, out / "records")}
    summary = export(spark, store, out, tables=ALL, since_last=True)
    assert summary.records == {"CONFIRM": 2, "DELETION": 1, "MESSAGE": 1}
    assert (summary.run.number, summary.run.replaced, summary.run.missed) == (2, 2, 0)
    assert summary.run.added == {"records": 4, "messages": 1, "confirms": 3}
    records = [row.sequence_number for row in read(spark, out / "records")]
    assert sorted(records) == [*range(1, len(before) + 5)]

    # The same as if all were exported at once.
    export(spark, store, tmp_path / "whole", tables=ALL)
    for name in ALL:
        assert sorted(map(str, read(spark, out / name))) == sorted(map(str, read(spark, tmp_path / "whole" / name)))
    assert differences(spark, out) == []

    again = export(spark, store, out, tables=ALL, since_last=True)
    assert (again.records, again.queues, again.run.added) == ({}, [], dict.fromkeys(ALL, 0))
    assert differences(spark, out) == []


def rolled_over(*, with_old_set: bool, tmp_path: Path) -> Path:
    """`lifecycles` with more in it, rolled over: only what is alive is in the new file set, with its numbers."""
    old, _ = lifecycles()
    before = old.sequence_number
    new = WrittenStore(partition_id=1, timestamp="20270115_090000")
    old.message(Q, guid(60))
    old.message(Q, guid(61))
    old.deletion(Q, guid(61))
    for key, uri, apps in ((Q, "bmq://domain/priority", ()), (F, "bmq://domain/fanout", (("foo", FOO), ("bar", BAR)))):
        new.queue(key, uri, *apps)
    new.sequence_number = before
    new.message(Q, guid(60))
    new.sequence_number = before + 3
    new.finish_rollover()
    new.message(Q, guid(62))
    store = tmp_path / "store"
    if with_old_set:
        old.save(store)
    else:
        for path in store.iterdir():
            path.unlink()
    new.save(store)
    return store


@pytest.mark.parametrize("with_old_set", [True, False])
def test_a_rollover_between_two_exports(spark: SparkSession, tmp_path: Path, with_old_set: bool) -> None:
    first, _ = lifecycles()
    out = tmp_path / "out"
    export(spark, first.save(tmp_path / "store"), out, since_last=True)
    pending = {
        int(row.guid, 16): row.outcome
        for row in read(spark, out / "messages")
        if row.outcome in ("outstanding", "partially_confirmed")
    }
    store = rolled_over(with_old_set=with_old_set, tmp_path=tmp_path)
    summary = export(spark, store, out, since_last=True)
    outcomes = {int(row.guid, 16): row.outcome for row in read(spark, out / "messages")}
    if with_old_set:
        assert summary.records == {"MESSAGE": 3, "DELETION": 1, "JOURNAL_OP": 1}
        assert (summary.run.missed, outcomes[61], outcomes[62]) == (0, "confirmed", "outstanding")
        assert {number: outcomes[number] for number in pending} == pending
    else:
        # The message that came and went between the two is in no file, nor is what became of the pending ones.
        assert summary.records == {"MESSAGE": 2, "JOURNAL_OP": 1}
        assert (summary.run.missed, outcomes[60], outcomes[62]) == (2, "outstanding", "outstanding")
        assert {outcomes[number] for number in pending} == {"removed"}
        assert 61 not in outcomes
    assert differences(spark, out) == []


class Killed(BaseException):
    """An end as by SIGKILL: nothing is cleaned up."""


@pytest.mark.parametrize("step", [0, 1, 4, 6])
def test_a_run_killed_at_any_step_is_undone_or_finished(
    spark: SparkSession, grown: tuple[WrittenStore, Path, Path], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    _, store, out = grown
    left = [step]

    def dying(name: str) -> None:
        original = getattr(Output, name)

        def method(self: Output, *arguments: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return original(self, *arguments)

        monkeypatch.setattr(Output, name, method)

    plan = plan_export(ExportRequest((str(store),), str(out), tables=ALL, since_last=True))
    write_commit = Commit.write

    def write_and_die_soon(self: Commit, output: Output) -> None:
        if step == 0:
            raise Killed
        write_commit(self, output)
        for name in ("move", "delete", "write", "delete_tree"):
            dying(name)

    monkeypatch.setattr(Commit, "write", write_and_die_soon)
    with pytest.raises(Killed):
        export_store(spark.sparkContext, plan)
    monkeypatch.undo()
    if step:
        assert any("interrupted" in each for each in differences(spark, out))
    else:
        assert differences(spark, out) == []
    export(spark, store, out, tables=ALL, since_last=True)
    records = [row.sequence_number for row in read(spark, out / "records")]
    assert sorted(records) == [*range(1, len(records) + 1)]
    assert differences(spark, out) == []
    assert sorted(path.name for path in (out / "_bmqctl").iterdir()) == ["lock", "manifest.json"]


def test_a_first_run_killed_in_its_commit_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are in their places already, and there is no manifest yet that tells whose they are."""
    store, said = lifecycles()
    directory, out = store.save(tmp_path / "store"), tmp_path / "out"

    def killed(self: Output, names: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Output, "delete_empty", killed)
        with pytest.raises(Killed):
            export(spark, directory, out, since_last=True)
    assert not (out / MANIFEST).exists()
    with pytest.raises(OutputExists):
        plan_export(ExportRequest((str(directory),), str(out)))
    with pytest.raises(OtherExport, match="format parquet, not csv"):
        plan_export(ExportRequest((str(directory),), str(out), since_last=True, format=FileFormat.CSV))
    summary = export(spark, directory, out, since_last=True)
    assert (summary.run.number, summary.run.added) == (2, {"records": 0, "messages": 0})
    assert summary.manifest.tables["messages"].rows == len(said)
    assert differences(spark, out) == []


def test_a_plan_made_before_another_export_ended_takes_nothing_back(
    spark: SparkSession, grown: tuple[WrittenStore, Path, Path]
) -> None:
    written, store, out = grown
    request = ExportRequest((str(store),), str(out), tables=ALL, since_last=True)
    plan = plan_export(request)
    written.message(Q, guid(51))
    written.save(store)
    export(spark, store, out, tables=ALL, since_last=True)
    late = export_store(spark.sparkContext, plan)
    assert (late.records, late.run.added) == ({}, dict.fromkeys(ALL, 0))
    assert export(spark, store, out, tables=ALL, since_last=True).records == {}
    assert differences(spark, out) == []
    with pytest.raises(OutputExists):
        export_store(spark.sparkContext, replace(plan, request=replace(request, since_last=False)))


def test_files_that_the_driver_does_not_see_are_not_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors may write to separate disks."""
    store = WrittenStore()
    store.message(Q, guid(1))
    sizes = Output.sizes
    monkeypatch.setattr(Output, "sizes", lambda self, name: {} if "run-" in name else sizes(self, name))
    with pytest.raises(OutputError, match="a place shared by all executors"):
        export(spark, store.save(tmp_path / "store"), tmp_path / "out")
    monkeypatch.undo()
    assert read_manifest(open_output(str(tmp_path / "out"))) is None
    export(spark, tmp_path / "store", tmp_path / "out")


def test_two_exports_do_not_write_at_a_time(spark: SparkSession, grown: tuple[WrittenStore, Path, Path]) -> None:
    _, store, out = grown
    with open_output(str(out)).locked(), pytest.raises(OutputBusy, match="another export"):
        export(spark, store, out, tables=ALL, since_last=True)


def test_verification_reports_files_that_differ(spark: SparkSession, grown: tuple[WrittenStore, Path, Path]) -> None:
    _, store, out = grown
    export(spark, store, out, tables=ALL, since_last=True)
    manifest = read_manifest(open_output(str(out)))
    assert manifest is not None
    flipped, missing, *_ = (file.path for file in manifest.tables["records"].files)
    content = bytearray((out / flipped).read_bytes())
    content[len(content) // 2] ^= 1
    (out / flipped).write_bytes(content)
    (out / missing).unlink()
    (out / "messages" / "more.parquet").write_bytes(b"PAR1")
    assert sorted(differences(spark, out)) == [
        "messages messages/more.parquet was not exported, but is in the table",
        f"records {flipped} has changed since it was written (SHA-256)",
        f"records {missing} is missing",
    ]


def test_a_store_that_differs_is_told_by_record(spark: SparkSession, tmp_path: Path) -> None:
    store = WrittenStore()
    store.queue(Q, "bmq://domain/priority")
    for number in range(1, 6):
        store.message(Q, guid(number))
    store.save(tmp_path / "store")
    export(spark, tmp_path / "store", tmp_path / "out")
    assert differences(spark, tmp_path / "out") == []
    changed = WrittenStore()
    changed.queue(Q, "bmq://domain/priority")
    for number in (1, 2, 9, 4, 5):
        changed.message(Q, guid(number))
    changed.deletion(Q, guid(1))  # later than the export: no difference
    changed.save(tmp_path / "store")
    assert differences(spark, tmp_path / "out") == [
        "records partition 0, lease 1, record 4 differs from the store",
        "messages partition 0, lease 1, record 4 differs from the store",
    ]
    shorter = WrittenStore()
    shorter.queue(Q, "bmq://domain/priority")
    shorter.message(Q, guid(1))
    shorter.save(tmp_path / "store")
    assert "records partition 0, lease 1, record 6 is in the export, but not in the store" in differences(
        spark, tmp_path / "out"
    )


def test_a_manifest_that_is_none_is_refused(tmp_path: Path) -> None:
    output = open_output(str(tmp_path))
    assert read_manifest(output) is None
    odd = json.dumps(Manifest("id", "../../x", ("store",), "all").as_json())
    for text in ("", "[]", "{}", json.dumps({"format_version": 99}), "[" * 100_000, odd):
        output.write(MANIFEST, text.encode())
        with pytest.raises(OutputError, match="not a bmqctl manifest"):
            read_manifest(output)
    manifest = Manifest("id", "parquet", ("store",), "all")
    output.write(MANIFEST, json.dumps(manifest.as_json()).encode())
    assert read_manifest(output) == manifest


@pytest.mark.parametrize(
    "steps",
    [
        {"deletes": ["../mine"]},
        {"deletes": ["records/../../mine"]},
        {"deletes": ["{mine}"]},
        {"moves": {"../mine": "records/x"}},
        {"moves": {"records/x": "../other"}},
        {"logs": {"../other": "text"}},
        {"moves": ["../mine"]},
        {"logs": None},
    ],
)
def test_a_commit_that_leads_out_of_the_output_is_not_carried_out(tmp_path: Path, steps: dict[str, Any]) -> None:
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.write_text("mine")
    output = open_output(str(out))
    manifest = Manifest("id", "parquet", ("store",), "all")
    output.write("records/x", b"x")
    commit = {"manifest": manifest.as_json(), "moves": {}, "deletes": ["records/x"], "logs": {}, **steps}
    text = json.dumps(commit).replace("{mine}", str(mine))
    output.write("_bmqctl/commit.json", text.encode())
    with pytest.raises(OutputError):
        settle(output)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "other").exists()
    # Nothing of it is, not what would have been allowed either.
    assert output.read("records/x") == b"x"


def test_places_that_cannot_be_written_to_are_refused() -> None:
    with pytest.raises(OutputError, match="nowhere://there"):
        open_output("nowhere://there/is")


def test_the_logs_of_others_go_on(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    assert spark.range(1).count() == 1
    logging.getLogger("another").error("said beside Spark")
    assert "said beside Spark" in caplog.text
