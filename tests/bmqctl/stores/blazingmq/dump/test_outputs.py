"""Every output says what the slow witness reads, and what the reference's tool prints."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bmqctl.stores.blazingmq.read import reader
from bmqctl.stores.blazingmq.read.files import FileKind
from formats.bmq.disk import journal_packing
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.qlist import build_queue_record
from tests.bmqctl.stores.blazingmq.dump.slow_rows import JournalRows
from tests.golden.archives import STORES, ledger_records, only, storage_records

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]
Golden = Callable[[str], Path]

JOURNAL = "bmq_0.20261121_051104.bmq_journal"
DETAILS = {"RecordType", "Index", "Offset", "PrimaryLeaseId", "SequenceNumber", "Timestamp", "Epoch"}


@pytest.fixture(params=["golden", "damaged", "random"])
def journal_file(request: pytest.FixtureRequest, golden: Golden, copy: Path, tmp_path: Path) -> Path:
    """A sound journal, one with damages of all sorts, and one with random bytes in place of what is checked."""
    if request.param == "golden":
        return only(golden("cluster-node0"), ".bmq_journal")
    rng = random.Random(7)
    if request.param == "damaged":
        file = only(copy, ".bmq_journal")
        content = bytearray(file.read_bytes())
        for _ in range(60):
            at = 44 + rng.randrange(600) * JOURNAL_RECORD_SIZE
            match rng.randrange(4):
                case 0:
                    content[at : at + JOURNAL_RECORD_SIZE] = bytes(JOURNAL_RECORD_SIZE)
                case 1:
                    content[at : at + JOURNAL_RECORD_SIZE] = rng.randbytes(JOURNAL_RECORD_SIZE)
                case 2:
                    content[at + rng.randrange(JOURNAL_RECORD_SIZE)] ^= 1 << rng.randrange(8)
                case _:
                    content[at + 59] = 0
        file.write_bytes(content + rng.randbytes(17))
        return file
    file = tmp_path / JOURNAL
    file.write_bytes(initial_bytes(FileType.JOURNAL, 0) + b"".join(_any_record(rng) for _ in range(3000)))
    return file


def _any_record(rng: random.Random) -> bytes:
    """A record with a sound head, and any bytes and flags after it."""
    kind = rng.randrange(1, 6)
    flags = rng.choice([0, 1, 2, 3, 4, 7, 0xFFF])
    number = rng.choice([1, 5, (1 << 48) - 1])
    head = (kind << 60 | flags << 48 | number).to_bytes(8, "big") + rng.randrange(1, 1 << 32).to_bytes(4, "big")
    time = rng.choice([0, 1_795_237_864, 253_402_300_799, 253_402_300_800, (1 << 64) - 1]).to_bytes(8, "big")
    body = bytearray(rng.randbytes(36))
    if kind == 4:
        body[12:16] = rng.choice([1, 2, 3, 4, 5, 0xFFFF_FFFF]).to_bytes(4, "big")
        body[28:32] = rng.choice([0, 1]).to_bytes(4, "big")
    if rng.random() < 0.3:
        body[2:12] = b"queue" + bytes(5)
    return head + time + bytes(body) + b"*rEc"


def witness(file: Path) -> list[dict[str, Any]]:
    return list(JournalRows(file).rows())


def as_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list) else str(value)


@pytest.mark.slow
def test_json_lines(run: Run, journal_file: Path) -> None:
    lines = run("dump", "--output", "json-line", journal_file).out.splitlines()
    rows = witness(journal_file)
    assert [json.loads(line) for line in lines] == rows
    # The names come in the same order, too.
    assert [list(json.loads(line)) for line in lines] == [list(row) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 4, 37, 5000])
def test_a_limit_counts_faults_too(run: Run, journal_file: Path, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BLOCK_RECORDS", 7)
    lines = run("dump", "--output", "json-line", "--limit", limit, journal_file).out.splitlines()
    assert [json.loads(line) for line in lines] == witness(journal_file)[:limit]


@pytest.mark.slow
def test_csv(run: Run, journal_file: Path) -> None:
    read = list(csv.DictReader(io.StringIO(run("dump", "--output", "csv", journal_file).out)))
    rows = witness(journal_file)
    assert len(read) == len(rows)
    for line, row in zip(read, rows, strict=True):
        assert set(row) <= set(line)
        assert line == {name: as_text(row.get(name, "")) for name in line}


@pytest.mark.slow
@pytest.mark.parametrize("output", ["arrow", "parquet"])
def test_columnar(run: Run, journal_file: Path, tmp_path: Path, output: str) -> None:
    out = tmp_path / f"out.{output}"
    run("dump", "--out", out, journal_file)
    table = pa.ipc.open_stream(out.read_bytes()).read_all() if output == "arrow" else pq.read_table(out)
    rows = witness(journal_file)
    assert table.num_rows == len(rows)
    for read, row in zip(table.to_pylist(), rows, strict=True):
        time = read.pop("time")
        assert (None if time is None else time.strftime("%Y-%m-%dT%H:%M:%SZ")) == row.pop("time", None)
        texts = {name: as_text(value) if isinstance(read[name], str) else value for name, value in row.items()}
        assert {name: value for name, value in read.items() if value is not None} == texts


def test_table(run: Run, journal_file: Path) -> None:
    text = run("dump", "--output", "table", "--limit", 50, journal_file).out
    for row in witness(journal_file)[:50]:
        assert str(row["offset"]) in text
        assert row.get("type", "?") in text


@pytest.mark.parametrize("name", STORES)
def test_json_pretty_is_what_the_reference_prints(run: Run, golden: Golden, name: str) -> None:
    document = json.loads(run("dump", "--output", "json-pretty", only(golden(name), ".bmq_journal")).out)
    expected = storage_records(name)
    records = document.pop("Records")
    # The tool prints a message's confirms and deletion with it; ours come in the journal's order.
    assert records == expected
    assert [list(record) for record in records] == [list(record) for record in expected]
    counts = Counter(record["RecordType"] for record in expected)
    assert document == {
        "MessageRecords": str(counts["MESSAGE"]),
        "QueueOpRecords": str(counts["QUEUE_OP"]),
        "JournalOpRecords": str(counts["JOURNAL_OP"]),
    }


@pytest.mark.parametrize("name", STORES)
def test_the_ledger_is_printed_as_the_reference_prints_it(run: Run, golden: Golden, name: str) -> None:
    outcome = run("ledger", "dump", "--from-begin", "--output", "json-pretty", golden(name))
    document = json.loads(outcome.out)
    assert document.pop("Records") == ledger_records(name)
    counts = Counter(record["RecordType"] for record in ledger_records(name))
    assert document == {
        f"{kind.capitalize()}Records": str(counts[kind]) for kind in ("SNAPSHOT", "UPDATE", "COMMIT", "ACK")
    }


def test_json_pretty_of_what_the_reference_has_no_name_for(run: Run, tmp_path: Path) -> None:
    content = bytearray(initial_bytes(FileType.JOURNAL, 0)) + bytearray(2 * JOURNAL_RECORD_SIZE)
    journal_packing.pack_deletion(content, 44, 1, 1, 253_402_300_800, 3, b"queue", bytes(16))
    journal_packing.pack_queue_op(content, 104, 1, 2, 0, 9, b"queue", b"apple")
    (tmp_path / JOURNAL).write_bytes(content)
    deletion, queue_op = json.loads(run("dump", "--output", "json-pretty", tmp_path / JOURNAL).out)["Records"]
    assert (deletion["DeletionFlag"], deletion["Timestamp"]) == ("(* UNKNOWN *)", "0")
    assert "QueueUri" not in deletion
    assert (queue_op["QueueOpType"], queue_op["AppKey"]) == ("(* UNKNOWN *)", b"apple".hex().upper())
    assert "AppId" not in queue_op
    assert queue_op["Timestamp"] == "01JAN1970_00:00:00.000000"


def test_json_pretty_tells_faults_apart_from_the_document(run: Run, copy: Path) -> None:
    file = only(copy, ".bmq_journal")
    content = bytearray(file.read_bytes())
    content[44 + 59] ^= 1
    file.write_bytes(content)
    outcome = run("dump", "--output", "json-pretty", file)
    assert outcome.code == 1
    assert len(json.loads(outcome.out)["Records"]) == 603
    assert "no record at offset 44: JournalOpRecord.magic" in outcome.err


def test_an_empty_journal(run: Run, tmp_path: Path) -> None:
    file = tmp_path / JOURNAL
    file.write_bytes(initial_bytes(FileType.JOURNAL, 0) + bytes(6000))
    assert run("dump", "--output", "json-line", file).out == ""
    assert json.loads(run("dump", "--output", "json-pretty", file).out)["Records"] == []
    assert len(run("dump", "--output", "csv", file).out.splitlines()) == 1
    for suffix in ("arrow", "parquet"):
        assert run("dump", "--out", tmp_path / f"out.{suffix}", file).code == 0
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


def test_names_that_come_back_for_another_queue(run: Run, tmp_path: Path) -> None:
    """Records have the name that their key had when they were written; quotes and commas in it survive."""
    uris = ["bmq://a.b/first", 'bmq://a.b/second,"quoted"']
    qlist = bytearray(initial_bytes(FileType.QLIST, 0))
    content = bytearray(initial_bytes(FileType.JOURNAL, 0))
    record = bytearray(JOURNAL_RECORD_SIZE)
    for number, uri in enumerate(uris):
        offset = len(qlist)
        qlist += build_queue_record(uri, b"queue", [("foo", b"fookey"[:5])])
        journal_packing.pack_queue_op(
            record, 0, 1, 2 * number + 1, 1, 2, b"queue", queue_uri_record_offset_words=offset // 4
        )
        content += record
        journal_packing.pack_deletion(record, 0, 1, 2 * number + 2, 1, 0, b"queue", bytes(16))
        content += record
    file = tmp_path / JOURNAL
    file.write_bytes(content)
    (tmp_path / "bmq_0.20261121_051104.bmq_qlist").write_bytes(qlist)
    found = [json.loads(line)["queue_uri"] for line in run("dump", "--output", "json-line", file).out.splitlines()]
    assert found == [uris[0], uris[0], uris[1], uris[1]]
    assert run("dump", "--output", "jsonl", file).out == run("dump", "--output", "json-line", file).out
    read = csv.DictReader(io.StringIO(run("dump", "--output", "csv", file).out))
    assert [row["queue_uri"] for row in read] == found


def test_a_store_is_dumped_with_its_partitions(run: Run, tmp_path: Path) -> None:
    lines = [
        {"type": "MESSAGE", "queue_uri": f"bmq://a.b/q{partition}", "payload": "x", "partition_id": partition}
        for partition in (0, 1, 3)
    ]
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, lines)))
    assert run("build", tmp_path / "lines", "--out", tmp_path / "store").code == 0
    rows = [json.loads(line) for line in run("dump", tmp_path / "store").out.splitlines()]
    messages = [row for row in rows if row["type"] == "MESSAGE"]
    assert [row["partition_id"] for row in messages] == [0, 1, 3]
    assert [row["queue_uri"] for row in messages] == ["bmq://a.b/q0", "bmq://a.b/q1", "bmq://a.b/q3"]
    only_one = [json.loads(line) for line in run("dump", "--partition", 1, tmp_path / "store").out.splitlines()]
    assert {row["partition_id"] for row in only_one} == {1}
    assert run("dump", "--output", "csv", tmp_path / "store").out.count("partition_id") == 1
    outcome = run("dump", "--output", "json-pretty", tmp_path / "store")
    assert (outcome.code, "--partition" in outcome.err) == (2, True)
    # The queue is in one partition; a name that is in none is refused.
    found = run("dump", "--queue", "bmq://a.b/q3", "--type", "message", tmp_path / "store").out.splitlines()
    assert [json.loads(line)["partition_id"] for line in found] == [3]
    assert run("dump", "--queue", "bmq://a.b/q2", tmp_path / "store").code == 2


@pytest.mark.parametrize("kind", [FileKind.DATA, FileKind.QLIST, FileKind.LEDGER])
@pytest.mark.parametrize("output", ["csv", "arrow", "parquet"])
def test_other_files(run: Run, golden: Golden, tmp_path: Path, kind: FileKind, output: str) -> None:
    extension = ".bmq_csl" if kind is FileKind.LEDGER else f".bmq_{kind.name.lower()}"
    file = only(golden("single-clean"), extension)
    rows = [json.loads(line) for line in run("dump", "--output", "json-line", file).out.splitlines()]
    out = tmp_path / f"out.{output}"
    assert run("dump", "--out", out, file).code == 0
    if output == "csv":
        read: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(out.read_text())))
        numbers = {name for name, value in rows[0].items() if isinstance(value, int)}
        read = [{name: int(value) if name in numbers else value for name, value in row.items()} for row in read]
    else:
        table = pa.ipc.open_stream(out.read_bytes()).read_all() if output == "arrow" else pq.read_table(out)
        read = table.to_pylist()
    for row in read:
        for name in {"message", "apps"} & row.keys():
            row[name] = json.loads(row[name])
        if isinstance(row.get("time"), datetime):
            row["time"] = row["time"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert read == rows


def test_output_that_cannot_be_printed_is_refused(
    run: Run, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("single-clean")
    file = only(store, ".bmq_journal")
    existing = tmp_path / "there.csv"
    existing.write_text("")
    for arguments, reason in [
        (("--output", "parquet"), "needs --out"),
        (("--out", tmp_path / "out.what"), "does not imply a format"),
        (("--out", existing), "exists"),
        (("--out", tmp_path / "none" / "out.csv"), "No such file"),
        (("--output", "table", "--out", tmp_path / "table.txt"), "terminal"),
    ]:
        outcome = run("dump", *arguments, file)
        assert (outcome.code, outcome.out) == (2, "")
        (line,) = outcome.err.splitlines()
        assert reason in line
    outcome = run("dump", "--output", "json-pretty", only(store, ".bmq_data"))
    assert (outcome.code, "is a DATA file" in outcome.err) == (2, True)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "bmqctl.stores.blazingmq.dump.arrow", raising=False)
    monkeypatch.delattr("bmqctl.stores.blazingmq.dump.arrow", raising=False)
    outcome = run("dump", "--out", tmp_path / "out.parquet", file)
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert "pip install '.[arrow]'" in line
    assert not (tmp_path / "out.parquet").exists()
