from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bmqctl.stores.blazingmq.read import reader
from bmqctl.stores.blazingmq.read.files import read_blocks, read_written
from bmqctl.stores.blazingmq.read.reader import JournalReader
from formats.bmq.disk import journal_packing
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record
from tests.bmqctl.carrying.replay.stores import build
from tests.golden.archives import STORES, ledger_records, only, storage_records
from tests.waiting import WAIT_S

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]
Golden = Callable[[str], Path]


def lines(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.out.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_every_record_is_dumped_as_the_reference_reads_it(run: Run, golden: Golden, name: str) -> None:
    outcome = run("dump", only(golden(name), ".bmq_journal"))
    assert outcome.code == 0
    rows = lines(outcome)
    same = {
        "RecordType": "type",
        "Index": "index",
        "Offset": "offset",
        "PrimaryLeaseId": "primary_lease_id",
        "SequenceNumber": "sequence_number",
        "Epoch": "timestamp",
        "QueueKey": "queue_key",
        "QueueUri": "queue_uri",
        "GUID": "guid",
        "RefCount": "ref_count",
        "Crc32c": "crc32c",
        "DeletionFlag": "deletion_flag",
        "QueueOpType": "queue_op_type",
        "JournalOpType": "journal_op_type",
        "SyncPointType": "sync_point_type",
        "SyncPtSequenceNumber": "sync_point_sequence_number",
        "SyncPtPrimaryLeaseId": "sync_point_primary_lease_id",
        "PrimaryNodeId": "primary_node_id",
    }
    for row, printed in zip(rows, storage_records(name), strict=True):
        assert {theirs: str(row[ours]) for theirs, ours in same.items() if theirs in printed} == {
            theirs: value for theirs, value in printed.items() if theirs in same
        }
        if printed["RecordType"] == "MESSAGE":
            assert row["data_offset"] == int(printed["MsgOffsetDwords"]) * 8
        if printed["RecordType"] == "CONFIRM":
            assert (row["app_key"], row["app_id"], row["reason"]) == (printed["AppKey"], printed["AppId"], "CONFIRMED")


@pytest.mark.parametrize("name", STORES)
def test_every_ledger_record_is_dumped(run: Run, golden: Golden, name: str) -> None:
    outcome = run("dump", only(golden(name), ".bmq_csl"))
    assert outcome.code == 0
    for row, printed in zip(lines(outcome), ledger_records(name), strict=True):
        assert (row["type"], row["offset"]) == (printed["RecordType"], int(printed["Offset"]))
        assert list(row["message"]) == list(printed["Record"])


def test_data_and_qlist_are_dumped(run: Run, golden: Golden) -> None:
    store = golden("single-crash")
    messages = [record for record in storage_records("single-crash") if record["RecordType"] == "MESSAGE"]
    rows = lines(run("dump", only(store, ".bmq_data")))
    assert [(str(row["offset"] // 8), str(row["crc32c"])) for row in rows] == [
        (record["MsgOffsetDwords"], record["Crc32c"]) for record in messages
    ]
    queues = lines(run("dump", only(store, ".bmq_qlist")))
    assert [queue["queue_uri"] for queue in queues][:2] == [
        "bmq://bmq.test.persistent.priority/orders-1",
        "bmq://bmq.test.persistent.priority/orders-zlib-1",
    ]
    assert [app["app_id"] for app in queues[2]["apps"]] == ["foo", "bar", "baz"]


def test_limit_and_type(run: Run, golden: Golden) -> None:
    file = only(golden("single-clean"), ".bmq_journal")
    assert run("dump", "--limit", 0, file).out == ""
    assert [row["index"] for row in lines(run("dump", "--limit", 3, file))] == [0, 1, 2]
    both = lines(run("dump", "--type", "queue-op", "--type", "JOURNAL-OP", file))
    assert {row["type"] for row in both} == {"QUEUE_OP", "JOURNAL_OP"}
    of_type = [r for r in storage_records("single-clean") if r["RecordType"] in ("QUEUE_OP", "JOURNAL_OP")]
    assert len(both) == len(of_type)
    ledger = only(golden("single-clean"), ".bmq_csl")
    assert {row["type"] for row in lines(run("dump", "--type", "commit", ledger))} == {"COMMIT"}


@pytest.mark.parametrize("extension", [".bmq_journal", ".bmq_data", ".bmq_qlist", ".bmq_csl"])
def test_tables(run: Run, golden: Golden, extension: str) -> None:
    outcome = run("dump", "--output", "table", "--limit", 4, only(golden("single-clean"), extension))
    assert outcome.code == 0
    title, *rows = outcome.out.splitlines()
    assert title.split()[:2] == ["index", "offset"]
    assert [row.split()[0] for row in rows if row[:8].strip()] == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_tables_stay_aligned_from_page_to_page(run: Run, golden: Golden) -> None:
    title, *rows = run("dump", "--output", "table", only(golden("single-clean"), ".bmq_journal")).out.splitlines()
    assert len(rows) > 600
    assert {row.find("2026-11-21T") for row in rows if row[:8].strip()} == {title.find("time")}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (bytes(4096), "starts with zeros"),
        (b"plain text, and enough of it", "is not a file of a BlazingMQ store"),
        (b"BlazingMQ: a text that starts as a ledger does", "is not a file of a BlazingMQ store"),
        (b"!bmqBMQ!\x48\x87" + bytes(22), "of unknown type 7"),
    ],
)
def test_other_files_get_one_line(run: Run, tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    for command in ("dump", "validate"):
        outcome = run(command, file)
        assert (outcome.code, outcome.out) == (2, "")
        (line,) = outcome.err.splitlines()
        assert str(file) in line
        assert reason in line


def test_directories_without_a_store_get_one_line(run: Run, tmp_path: Path) -> None:
    outcome = run("dump", tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert "holds no files of a BlazingMQ store" in outcome.err


def test_missing_files_and_wrong_options(run: Run, golden: Golden, tmp_path: Path) -> None:
    assert "No such file" in run("dump", tmp_path / "none").err
    assert run("dump", tmp_path / "none").code == 2
    store = golden("single-clean")
    outcome = run("dump", "--type", "commit", only(store, ".bmq_journal"))
    assert (outcome.code, "message, confirm, deletion" in outcome.err) == (2, True)
    outcome = run("dump", "--type", "message", only(store, ".bmq_data"))
    assert (outcome.code, "all of one type" in outcome.err) == (2, True)


@pytest.mark.slow
def test_damaged_records_are_shown_in_their_place(run: Run, copy: Path) -> None:
    file = only(copy, ".bmq_journal")
    content = bytearray(file.read_bytes())
    content[44 + 3 * 60 + 59] ^= 1
    content[44 + 5 * 60 : 44 + 7 * 60] = bytes(120)
    file.write_bytes(content)
    outcome = run("dump", file)
    assert outcome.code == 1
    rows = lines(outcome)
    assert [(row["index"], row["offset"]) for row in rows if "fault" in row] == [(3, 224), (5, 344)]
    assert rows[5]["fault"] == "zeros in place of 2 records"
    assert len(rows) == 603
    assert "fault" in run("dump", "--output", "json-line", "--type", "queue-op", file).out
    assert "is not '*rEc'" in run("dump", "--output", "table", file).out


@pytest.mark.parametrize("tail", [0, 25, 100_000])
def test_an_unfinished_last_record_is_no_damage(run: Run, copy: Path, tail: int) -> None:
    file = only(copy, ".bmq_journal")
    file.write_bytes(file.read_bytes()[:-25] + bytes(tail))
    outcome = run("dump", file)
    assert outcome.code == 0
    rows = lines(outcome)
    assert ["fault" in row for row in rows[-2:]] == [False, True]
    assert len(rows) == 604


@pytest.mark.parametrize("extension", [".bmq_data", ".bmq_qlist", ".bmq_csl"])
def test_other_damaged_files_end_with_the_reason(run: Run, copy: Path, extension: str) -> None:
    file = only(copy, extension)
    content = file.read_bytes().rstrip(b"\0")
    file.write_bytes(content[: len(content) * 2 // 3])
    outcome = run("dump", file)
    assert outcome.code == 1
    assert lines(outcome)
    assert " at offset " in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_ledger_record_with_an_unknown_message(run: Run, copy: Path) -> None:
    file = only(copy, ".bmq_csl")
    record = build_ledger_record(LedgerRecordType.UPDATE, 1, 1, 1, b"no BER")
    file.write_bytes(file.read_bytes()[:8] + record)
    outcome = run("dump", file)
    assert (outcome.code, outcome.out) == (1, "")
    assert "ClusterMessage at offset 40" in outcome.err


def test_a_journal_with_a_damaged_header(run: Run, copy: Path) -> None:
    file = only(copy, ".bmq_journal")
    content = bytearray(file.read_bytes())
    content[33] = 0
    file.write_bytes(content)
    outcome = run("dump", file)
    assert outcome.code == 1
    assert "JournalFileHeader.record_words" in outcome.err


def test_the_other_journals_of_a_store_are_dumped(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "store"
    build(store, [{"type": "QUEUE_OP", "queue_uri": f"bmq://a/{number}", "partition_id": number} for number in (0, 1)])
    damaged = next(store.glob("bmq_0.*.bmq_journal"))
    damaged.write_bytes(b"?" + damaged.read_bytes()[1:])
    outcome = run("dump", "--output", "json-line", store)
    assert outcome.code == 1
    assert {row["queue_uri"] for row in lines(outcome) if "queue_uri" in row} == {"bmq://a/1"}
    assert f"left out: {damaged}: FileHeader.magic" in outcome.err


def without_apps(outcome: Outcome) -> list[dict[str, Any]]:
    """The rows without the lists of apps, which only QLIST has."""
    return [{name: value for name, value in row.items() if name != "apps"} for row in lines(outcome)]


def test_a_journal_without_its_qlist_has_names_from_the_ledger(run: Run, copy: Path) -> None:
    journal = only(copy, ".bmq_journal")
    named = without_apps(run("dump", journal))
    only(copy, ".bmq_qlist").unlink()
    assert without_apps(run("dump", journal)) == named
    ledger = only(copy, ".bmq_csl").rename(copy.parent / "moved.bmq_csl")
    rows = lines(run("dump", journal))
    assert len(rows) == 604
    assert not any("queue_uri" in row for row in rows)
    assert without_apps(run("dump", "--csl-file", ledger, journal)) == named


def test_a_damaged_qlist_is_completed_by_the_ledger(run: Run, copy: Path) -> None:
    journal = only(copy, ".bmq_journal")
    named = without_apps(run("dump", journal))
    qlist = only(copy, ".bmq_qlist")
    qlist.write_bytes(qlist.read_bytes()[:150] + b"?" * 200)
    assert without_apps(run("dump", journal)) == named


def a_long_journal(path: Path, count: int) -> None:
    content = bytearray(initial_bytes(FileType.JOURNAL, 0)) + bytes(count * JOURNAL_RECORD_SIZE)
    for index in range(count):
        offset = 44 + index * JOURNAL_RECORD_SIZE
        journal_packing.pack_deletion(content, offset, 1, index + 1, 1_795_237_864, 0, b"queue", bytes(15) + b"1")
    path.write_bytes(content)


def test_memory_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    file = tmp_path / "bmq_0.20261121_051104.bmq_journal"
    a_long_journal(file, 100_000)
    os.truncate(file, 1 << 30)
    tracemalloc.start()
    try:
        with JournalReader(file) as opened:
            assert sum(map(len, opened.chunks())) == 100_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


def test_records_written_during_a_dump_are_left_out(tmp_path: Path) -> None:
    """A broker writes on while a block is printed: no gap is reported between the block and the new records."""
    file = tmp_path / "bmq_0.20261121_051104.bmq_journal"
    block = reader.BLOCK_RECORDS
    a_long_journal(file, 3 * block)
    content = file.read_bytes()
    written = 44 + (block + 100) * JOURNAL_RECORD_SIZE
    file.write_bytes(content[:written] + bytes(len(content) - written))
    with JournalReader(file) as opened:
        walk = opened.chunks()
        first = next(walk)
        file.write_bytes(content)
        chunks = [first, *walk]
        assert sum(map(len, chunks)) == block + 100
        assert not any(chunk.faults for chunk in chunks)
        assert not opened.damaged
        assert sum(map(len, opened.chunks())) == 3 * block


def test_holes_and_zeros_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as out:
        out.write(b"start")
        out.seek(10_000_000)
        out.write(b"end")
        out.write(bytes(3_000_000))
    blocks = list(read_blocks(file, 0, 1 << 16))
    assert len(blocks) < 5
    content = bytearray(13_000_003)
    for offset, block in blocks:
        content[offset : offset + len(block)] = block
    assert content == file.read_bytes()
    written = read_written(file)
    assert content.startswith(written)
    assert 10_000_003 <= len(written) < 12_000_000


@pytest.mark.process
def test_a_reader_that_leaves(golden: Golden) -> None:
    """`bmqctl journal dump | head -1` ends quietly, as any program that SIGPIPE ends."""
    for output in ("table", "json-line"):
        command = [sys.executable, "-c", "from bmqctl.app import main; main()", "journal", "dump", "--output", output]
        with subprocess.Popen(
            [*command, str(only(golden("cluster-node0"), ".bmq_journal"))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as dump:
            assert dump.stdout is not None
            assert dump.stderr is not None
            assert dump.stdout.readline()
            dump.stdout.close()
            assert dump.stderr.read() == b""
            assert dump.wait(WAIT_S) == 141
