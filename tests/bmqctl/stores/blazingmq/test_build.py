"""`bmqctl journal build`: lines to files, and golden files to lines and back."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.stores.blazingmq.build import BadLine, build_store
from bmqctl.stores.blazingmq.dump.rows import qlist_rows
from bmqctl.stores.blazingmq.read.files import map_data, read_written
from formats.bmq.disk.data import parse_data_record
from formats.bmq.disk.journal import MessageRecord
from formats.bmq.stores.recover import iter_journal
from formats.bmq.wire.application_data import split_application_data
from formats.bmq.wire.properties import decode_properties
from tests.bmqctl.stores.blazingmq.dump.slow_rows import JournalRows, ledger_rows
from tests.golden.archives import only, unpack_store

QUEUE = "bmq://bmq.test.persistent.priority/q"
GUID = "40000000000000000000000000000001"
START_S = 1_767_225_600


def build(directory: Path, *lines: dict[str, Any]) -> Path:
    directory.mkdir()
    build_store(map(json.dumps, lines), directory, START_S)
    return directory


def run(*args: str, text: str = "") -> Any:
    return CliRunner().invoke(app, ["journal", *args], input=text)


def rows(directory: Path) -> list[dict[str, Any]]:
    return list(JournalRows(only(directory, ".bmq_journal")).rows())


def sound(directory: Path) -> bool:
    result = run("validate", "--strict", str(directory))
    return bool(result.exit_code == 0)


def test_one_message_is_a_store(tmp_path: Path) -> None:
    store = build(tmp_path / "store", {"type": "MESSAGE", "queue_uri": QUEUE, "payload": "hello"})
    assert sorted(path.suffix for path in store.iterdir()) == [".bmq_csl", ".bmq_data", ".bmq_journal", ".bmq_qlist"]
    assert [(row["type"], row["sequence_number"]) for row in rows(store)] == [
        ("JOURNAL_OP", 1),
        ("QUEUE_OP", 2),
        ("MESSAGE", 3),
    ]
    assert sound(store)


def test_the_same_lines_make_the_same_bytes(tmp_path: Path) -> None:
    lines = [{"type": "MESSAGE", "queue_uri": QUEUE, "payload": str(number)} for number in range(5)]
    stores = [build(tmp_path / name, *lines) for name in ("a", "b")]
    first, second = ({path.name: path.read_bytes() for path in store.iterdir()} for store in stores)
    assert first == second


def test_fanout_confirms_purges_and_the_end_of_a_queue(tmp_path: Path) -> None:
    fanout = "bmq://my.fanout/q"
    store = build(
        tmp_path / "store",
        {"type": "QUEUE_OP", "queue_uri": fanout, "apps": ["foo", {"app_id": "bar", "app_key": "00000000AA"}]},
        {"type": "MESSAGE", "queue_uri": fanout, "guid": GUID, "payload_hex": "00ff"},
        {"type": "CONFIRM", "queue_uri": fanout, "app_id": "foo", "guid": GUID, "reason": "rejected"},
        {"type": "QUEUE_OP", "queue_op_type": "addition", "queue_uri": fanout, "apps": ["baz"]},
        {"type": "DELETION", "queue_uri": fanout, "guid": GUID, "deletion_flag": "TTL_EXPIRATION"},
        {"type": "QUEUE_OP", "queue_op_type": "PURGE", "queue_uri": fanout, "app_id": "bar"},
        {"type": "JOURNAL_OP"},
        {"type": "QUEUE_OP", "queue_op_type": "DELETION", "queue_uri": fanout},
    )
    assert sound(store)
    found = rows(store)
    assert found[2]["ref_count"] == 2
    assert (found[3]["app_id"], found[3]["reason"]) == ("foo", "REJECTED")
    assert found[5]["deletion_flag"] == "TTL_EXPIRATION"
    assert found[6]["app_key"] == "00000000AA"
    assert [[each["app_id"] for each in row["apps"]] for row in qlist_rows(only(store, ".bmq_qlist"))] == [
        ["foo", "bar"],
        ["baz"],
    ]


@pytest.mark.parametrize("schema_id", [0, 1])
def test_properties_and_compression(tmp_path: Path, schema_id: int) -> None:
    line = {
        "type": "MESSAGE",
        "queue_uri": QUEUE,
        "payload": "a" * 5000,
        "compression": "zlib",
        "schema_id": schema_id,
        "properties": {
            "yes": True,
            "n": -5,
            "text": "ü",
            "raw": {"type": "BINARY", "value": "00FF"},
            "short": {"type": "SHORT", "value": 7},
        },
    }
    store = build(tmp_path / "store", line)
    assert sound(store)
    (record,) = [
        each for _, each in iter_journal(read_written(only(store, ".bmq_journal"))) if type(each) is MessageRecord
    ]
    data = map_data(only(store, ".bmq_data"))
    stored = parse_data_record(data, record.message_offset_dwords * 8)
    assert (record.compression, stored.header.schema_id, stored.header.flags) == (1, schema_id, 1)
    assert stored.app_data_size < 1000
    area, payload = split_application_data(stored.app_data(data), True, schema_id, record.compression)
    assert bytes(payload) == b"a" * 5000
    assert {each.name: each.value for each in decode_properties(area, schema_id)} == {
        "yes": True,
        "n": -5,
        "text": "ü",
        "raw": b"\0\xff",
        "short": 7,
    }


def test_partitions_and_leases(tmp_path: Path) -> None:
    store = build(
        tmp_path / "store",
        {"type": "MESSAGE", "queue_uri": QUEUE, "payload": "0", "primary_lease_id": 3, "timestamp": START_S + 9},
        {"type": "MESSAGE", "queue_uri": "bmq://other/q", "payload": "1", "partition_id": 1},
        {"type": "MESSAGE", "queue_uri": QUEUE, "payload": "2"},
        {"type": "JOURNAL_OP", "primary_lease_id": 4, "primary_node_id": 7},
        {"type": "MESSAGE", "queue_uri": QUEUE, "payload": "3"},
    )
    assert sound(store)
    first = next(store.glob("bmq_0.*_journal"))
    found = [(row["primary_lease_id"], row["sequence_number"], row["timestamp"]) for row in JournalRows(first).rows()]
    assert found == [(3, n, START_S + 9) for n in (1, 2, 3, 4)] + [(4, 1, START_S + 9), (4, 2, START_S + 9)]
    (snapshot, _) = ledger_rows(only(store, ".bmq_csl"))
    assert [each["primaryLeaseId"] for each in snapshot["message"]["leaderAdvisory"]["partitions"]] == [4, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single-clean", "cluster-node0"])
def test_golden_files_come_back_from_their_lines(name: str, tmp_path: Path) -> None:
    golden = unpack_store(name, tmp_path)
    journal = read_written(only(golden, ".bmq_journal"))
    data = map_data(only(golden, ".bmq_data"))
    apps = {row["queue_key"]: row["apps"] for row in qlist_rows(only(golden, ".bmq_qlist"))}
    lines = []
    for row, (_, record) in zip(rows(golden), iter_journal(journal), strict=True):
        if isinstance(record, MessageRecord):
            stored = parse_data_record(data, record.message_offset_dwords * 8)
            row["application_data_hex"] = stored.app_data(data).hex()
            row["has_properties"] = bool(stored.header.flags)
            row["schema_id"] = stored.header.schema_id
        elif row["type"] == "QUEUE_OP":
            row["apps"] = apps[row["queue_key"]]
        lines.append(row)
    rebuilt = build(tmp_path / "rebuilt", *lines, *ledger_rows(only(golden, ".bmq_csl")))
    for extension in (".bmq_journal", ".bmq_qlist"):
        assert read_written(only(rebuilt, extension)) == read_written(only(golden, extension)), extension
    assert only(rebuilt, ".bmq_data").read_bytes() == bytes(data)
    # The log id in the header is the builder's own, and a golden ledger may end with zeros.
    assert read_written(only(rebuilt, ".bmq_csl"))[8:] == read_written(only(golden, ".bmq_csl"))[8:].rstrip(b"\0")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"type": "MESAGE"}, "does not match any of the expected tags"),
        ({"type": "MESSAGE", "payload": "x"}, "queue_uri: required"),
        ({"type": "MESSAGE", "queue_uri": "bmq:/x", "payload": "x"}, "queue_uri: "),
        ({"type": "MESSAGE", "queue_uri": QUEUE}, "payload: a message has at least one byte"),
        ({"type": "MESSAGE", "queue_uri": QUEUE, "payload": "x", "payload_hex": "00"}, "give exactly one of them"),
        ({"type": "MESSAGE", "queue_uri": QUEUE, "payload": "x", "crc32c": 1}, "crc32c: 1, but the message's data has"),
        ({"type": "MESSAGE", "queue_uri": QUEUE, "payload": "x", "guid": "12"}, "guid: "),
        ({"type": "MESSAGE", "queue_uri": QUEUE, "payload": "x", "sequence": 5}, "sequence: "),
        ({"type": "MESSAGE", "queue_uri": QUEUE, "payload_hex": "0"}, "payload_hex: "),
        ({"type": "CONFIRM", "queue_uri": QUEUE, "app_id": "foo", "guid": GUID}, "app_id: queue"),
        ({"type": "QUEUE_OP", "queue_op_type": "ADDITION", "queue_uri": QUEUE}, "apps: required"),
        ({"type": "UPDATE", "elector_term": 1, "sequence_number": 1, "message": {"x": 1}}, "message: "),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: dict[str, Any], reason: str) -> None:
    good = {"type": "QUEUE_OP", "queue_uri": "bmq://bmq.test.mem.priority/first"}
    with pytest.raises(BadLine) as error:
        build(tmp_path / "store", good, line)
    assert str(error.value).startswith("line 2: ")
    assert reason in str(error.value)


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "store"
    text = json.dumps({"type": "MESSAGE", "queue_uri": QUEUE, "payload": "x"}) + "\n\n"
    result = run("build", "-", "--out", str(out), "--start", "2026-11-21T05:00:00", text=text)
    assert result.exit_code == 0, result.output
    assert "partition 0: 3 records, 1 messages, 1 queues" in result.output
    assert (out / "bmq_0.20261121_050000.bmq_journal").is_file()
    again = run("build", "-", "--out", str(out), text=text)
    assert (again.exit_code, again.stderr.count("\n")) == (2, 1)
    assert "is not empty" in again.stderr


def test_the_files_are_for_this_account_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        line = json.dumps({"type": "MESSAGE", "queue_uri": QUEUE, "payload": "secret"})
        assert run("build", "-", "--out", str(tmp_path / "store"), text=line).exit_code == 0
        journal = only(tmp_path / "store", ".bmq_journal")
        dumped = run("dump", str(journal), "--output", "jsonl", "--out", str(tmp_path / "rows"))
        assert dumped.exit_code == 0, dumped.output
        made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
        assert len(made) == 6
        assert set(made.values()) == {0o600, 0o700}
        # The commands that follow in this process have the modes that they had before.
        (tmp_path / "other").touch()
        assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o644
    finally:
        os.umask(before)


def test_the_command_names_the_file_and_line(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("{\n")
    result = run("build", str(lines), "--out", str(tmp_path / "store"))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"{lines}: line 1: " in result.stderr
    lines.write_bytes(b"\xff\n")
    assert "not UTF-8 at byte 0" in run("build", str(lines), "--out", str(tmp_path / "store2")).stderr
    missing = run("build", str(tmp_path / "none"), "--out", str(tmp_path / "store3"))
    assert (missing.exit_code, "No such file" in missing.stderr) == (2, True)
