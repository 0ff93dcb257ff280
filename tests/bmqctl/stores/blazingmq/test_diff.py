"""`bmqctl journal diff`: every way in which two replicas of a partition can stand to each other."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.stores.blazingmq.build import build_store
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from tests.golden.archives import only, unpack_store

QUEUE = "bmq://bmq.test.persistent.priority/q"
START_S = 1_767_225_600
SYNC = {"type": "JOURNAL_OP"}
HEADER = 44


def message(number: int, **fields: Any) -> dict[str, Any]:
    return {"type": "MESSAGE", "queue_uri": QUEUE, "guid": f"{number:032X}", "payload": str(number), **fields}


def build(directory: Path, *lines: dict[str, Any]) -> Path:
    directory.mkdir()
    build_store(map(json.dumps, lines), directory, START_S)
    return directory


def run(*args: str | Path) -> Any:
    return CliRunner().invoke(app, ["journal", "diff", *map(str, args)])


def compare(a: Path, b: Path) -> dict[str, Any]:
    result = run("--json", a, b)
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if found["equal"] else 1), result.output
    (partition,) = found["partitions"]
    assert isinstance(partition, dict)
    return partition


def last(partition: dict[str, Any]) -> tuple[int, int]:
    common = partition["last_common"]
    return common["primary_lease_id"], common["sequence_number"]


def beyond(partition: dict[str, Any], side: str) -> int:
    count = partition[side]["beyond"]["records"]
    assert isinstance(count, int)
    return count


# Every store begins with a sync point and the queue's creation: message n has the sequence number n + 2.
COMMON = [message(n) for n in range(1, 6)]
NEW_LEASE = {**SYNC, "primary_lease_id": 2}


@pytest.mark.parametrize(
    ("a", "b", "status", "common", "counts"),
    [
        ([], [], "equal", (1, 7), (0, 0)),
        ([message(6), message(7)], [], "a-ahead", (1, 7), (2, 0)),
        ([], [NEW_LEASE, message(8)], "b-ahead", (1, 7), (0, 2)),
        # A was primary, and wrote what nobody received; B is its successor.
        ([message(6), message(7)], [NEW_LEASE, message(8)], "diverged", (1, 7), (2, 2)),
        # One number, two records.
        ([message(6)], [message(7)], "diverged", (1, 7), (1, 1)),
        # B has lost one in the middle.
        ([message(6), message(7)], [message(7, sequence_number=9)], "diverged", (1, 7), (1, 0)),
        # The same message, with other bytes.
        ([message(6)], [message(6, payload="other")], "diverged", (1, 7), (1, 1)),
    ],
)
def test_statuses(
    tmp_path: Path,
    a: list[dict[str, Any]],
    b: list[dict[str, Any]],
    status: str,
    common: tuple[int, int],
    counts: tuple[int, int],
) -> None:
    stores = [build(tmp_path / name, *COMMON, *lines) for name, lines in (("a", a), ("b", b))]
    found = compare(*stores)
    assert (found["status"], last(found), (beyond(found, "a"), beyond(found, "b"))) == (status, common, counts)
    assert found["last_common"]["a_offset"] == HEADER + 6 * JOURNAL_RECORD_SIZE
    mirrored = compare(*reversed(stores))
    swapped = {"a-ahead": "b-ahead", "b-ahead": "a-ahead"}.get(status, status)
    assert (mirrored["status"], beyond(mirrored, "b"), beyond(mirrored, "a")) == (swapped, *counts)


def test_records_beyond_the_shorter_store_are_reported(tmp_path: Path) -> None:
    a = build(tmp_path / "a", *COMMON, message(6), message(7), SYNC)
    b = build(tmp_path / "b", *COMMON)
    found = compare(a, b)["a"]["beyond"]
    assert found["types"] == {"MESSAGE": 2, "JOURNAL_OP": 1}
    assert found["messages"] == {QUEUE: 2}
    assert [found["first"]["sequence_number"], found["last"]["sequence_number"]] == [8, 10]
    assert [row.get("guid") for row in found["samples"]] == [f"{6:032X}", f"{7:032X}", None]
    table = run("--limit", "1", a, b)
    assert table.exit_code == 1
    assert "partition 0: A is ahead" in table.output
    assert "last common record: 1-7 of 2026-01-01T00:00:00Z" in table.output
    assert f"{6:032X}" in table.output
    assert f"{7:032X}" not in table.output
    assert "2 more records beyond are not shown" in table.output


def test_where_payloads_lie_is_no_difference(tmp_path: Path) -> None:
    """B's DATA file has a gap before the first message, as a node has that wrote a payload and then stopped."""
    a, b = (build(tmp_path / name, *COMMON) for name in ("a", "b"))
    journal = only(b, ".bmq_journal")
    content = bytearray(journal.read_bytes())
    at = HEADER + 2 * JOURNAL_RECORD_SIZE + 32
    content[at : at + 4] = (int.from_bytes(content[at : at + 4], "big") + 2).to_bytes(4, "big")
    journal.write_bytes(content)
    assert compare(a, b)["status"] == "equal"


def test_records_dropped_by_a_rollover_are_no_difference(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole", *COMMON, SYNC, message(6))
    rolled = build(
        tmp_path / "rolled",
        {"type": "JOURNAL_OP", "sequence_number": 1},
        message(3, sequence_number=5),
        {**SYNC, "sequence_number": 8},
        message(6),
    )
    # The first sync point of a rolled over journal follows the records that were copied, of which the first is a
    # queue's creation: the builder's own sync point is cut out, and the header names the other one.
    journal = only(rolled, ".bmq_journal")
    content = bytearray(journal.read_bytes())
    del content[HEADER : HEADER + JOURNAL_RECORD_SIZE]
    content[36:44] = ((HEADER + 2 * JOURNAL_RECORD_SIZE) // 4).to_bytes(8, "big")
    journal.write_bytes(content)
    found = compare(whole, rolled)
    assert (found["status"], last(found)) == ("equal", (1, 9))
    assert found["b"]["complete_from"] == {"primary_lease_id": 1, "sequence_number": 8}
    # Records that it left out look like records that it never had; later ones do not.
    with only(rolled, ".bmq_journal").open("r+b") as file:
        file.truncate(HEADER + 3 * JOURNAL_RECORD_SIZE)
    assert compare(whole, rolled)["status"] == "a-ahead"


@pytest.mark.parametrize("old", [{"sync_point_type": "ROLLOVER"}, {"timestamp": START_S + 100}])
def test_the_copy_that_a_rolled_over_journal_begins_with_is_no_difference(tmp_path: Path, old: dict[str, Any]) -> None:
    a = build(tmp_path / "a", message(1), {**SYNC, "timestamp": START_S, **old})
    b = build(tmp_path / "b", message(1), {**SYNC, "timestamp": START_S})
    assert compare(a, b)["status"] == "diverged"
    with only(b, ".bmq_journal").open("r+b") as file:
        file.seek(36)
        file.write(((HEADER + 3 * JOURNAL_RECORD_SIZE) // 4).to_bytes(8, "big"))
    assert (found := compare(a, b))["status"] == "equal"
    assert last(found) == (1, 4)


def test_golden_replicas_are_equal_and_a_cut_one_is_behind(tmp_path: Path) -> None:
    a, b = (unpack_store(name, tmp_path) for name in ("cluster-node0", "cluster-node2"))
    found = compare(a, b)
    assert (found["status"], last(found), found["common_records"]) == ("equal", (2, 17489), 19430)
    journal = only(b, ".bmq_journal")
    with journal.open("r+b") as file:
        file.truncate(journal.stat().st_size - 5 * JOURNAL_RECORD_SIZE - 7)
    found = compare(a, b)
    assert (found["status"], last(found), beyond(found, "a")) == ("a-ahead", (2, 17483), 6)


def test_places_without_a_record_are_counted(tmp_path: Path) -> None:
    a = build(tmp_path / "a", *COMMON)
    b = tmp_path / "b"
    shutil.copytree(a, b)
    journal = only(b, ".bmq_journal")
    content = bytearray(journal.read_bytes())
    content[HEADER + 4 * JOURNAL_RECORD_SIZE - 1] ^= 1
    journal.write_bytes(content)
    found = run("--json", a, b)
    assert found.exit_code == 1
    (partition,) = json.loads(found.stdout)["partitions"]
    assert (partition["b"]["unreadable"], partition["status"]) == (1, "diverged")
    assert "1 slots hold no record and were skipped" in found.stderr


def test_partitions_of_one_side_only(tmp_path: Path) -> None:
    a = build(tmp_path / "a", *COMMON, message(9, partition_id=1))
    b = build(tmp_path / "b", *COMMON)
    result = run(a, b)
    assert result.exit_code == 1
    assert "partition 0: equal" in result.output
    assert "partition 1: only A has this partition" in result.output


def test_file_that_is_no_journal_is_refused_in_a_line(tmp_path: Path) -> None:
    a = build(tmp_path / "a", *COMMON, message(9, partition_id=1))
    empty = tmp_path / "empty"
    empty.mkdir()
    first, second = sorted(a.glob("*.bmq_journal"))
    for args, reason in (
        ((a, empty), "holds no files"),
        ((a, a / "none"), "No such file"),
        ((first, next(a.glob("bmq_0.*_data"))), "is a DATA file"),
        ((first, second), "is of partition 0"),
    ):
        result = run(*args)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert reason in result.stderr


def test_partitions_are_rows_for_spreadsheets(tmp_path: Path) -> None:
    a, b = build(tmp_path / "a", *COMMON), build(tmp_path / "b", *COMMON[:3])
    whole = json.loads(run("--json", a, b).stdout)
    result = run("--output", "jsonl", a, b)
    assert result.exit_code == 1
    assert [json.loads(line) for line in result.stdout.splitlines()] == whole["partitions"]
    (row,) = csv.DictReader(io.StringIO(run("--output", "csv", a, b).stdout))
    assert (row["partition_id"], row["status"]) == ("0", "a-ahead")
    assert json.loads(row["a"])["beyond"]["records"] == 2
