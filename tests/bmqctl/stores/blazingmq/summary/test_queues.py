"""`bmqctl journal queues`: the same queues from a store, from one of its files, and from a ledger alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.stores.blazingmq.build import build_store
from tests.golden.archives import ledger_records, only, unpack_store

FANOUT = "bmq://my.fanout/q"
GONE = "bmq://my.priority/gone"
START_S = 1_767_225_600


def run(*args: str | Path) -> Any:
    return CliRunner().invoke(app, ["journal", "queues", *map(str, args)])


def queues(path: Path, *args: str, code: int = 0) -> list[dict[str, Any]]:
    result = run("--output", "json-line", *args, path)
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def built(directory: Path) -> Path:
    lines: list[dict[str, Any]] = [
        {"type": "QUEUE_OP", "queue_uri": FANOUT, "apps": ["foo", "bar"]},
        {"type": "QUEUE_OP", "queue_uri": GONE, "timestamp": START_S + 10},
        {"type": "QUEUE_OP", "queue_uri": FANOUT, "queue_op_type": "ADDITION", "apps": ["baz"]},
        {"type": "QUEUE_OP", "queue_uri": FANOUT, "queue_op_type": "PURGE", "app_id": "bar"},
        {"type": "QUEUE_OP", "queue_uri": FANOUT, "queue_op_type": "DELETION", "app_id": "foo"},
        {"type": "QUEUE_OP", "queue_uri": GONE, "queue_op_type": "DELETION", "timestamp": START_S + 20},
        {"type": "QUEUE_OP", "queue_uri": "bmq://other/q", "partition_id": 1},
    ]
    directory.mkdir()
    build_store(map(json.dumps, lines), directory, START_S)
    return directory


def test_golden_stores_have_the_queues_of_their_ledgers(tmp_path: Path) -> None:
    for name in ("single-clean", "cluster-node0"):
        store = unpack_store(name, tmp_path)
        wanted = {
            info["uri"]: sorted(app["appId"] for app in info["appIds"])
            for record in ledger_records(name)
            for advisory in record["Record"].values()
            for info in advisory.get("queues", ())
        }
        for path in (store, only(store, ".bmq_journal"), only(store, ".bmq_qlist"), only(store, ".bmq_csl")):
            found = {each["queue_uri"]: sorted(app["app_id"] for app in each["apps"]) for each in queues(path)}
            assert found == wanted, path


def test_history_of_a_queue_is_shown(tmp_path: Path) -> None:
    fanout, gone, other = queues(built(tmp_path / "store"))
    assert (fanout["state"], gone["state"], other["partition_id"]) == ("open", "deleted", 1)
    assert fanout["created"] == {"offset": 104, "timestamp": START_S, "time": "2026-01-01T00:00:00Z"}
    assert [(app["app_id"], app["removed_offset"]) for app in fanout["apps"]] == [
        ("foo", 344),
        ("bar", None),
        ("baz", None),
    ]
    assert [(purge["offset"], purge["app_key"]) for purge in fanout["purges"]] == [(284, fanout["apps"][1]["app_key"])]
    assert gone["created"]["timestamp"] == START_S + 10
    assert gone["deleted"]["timestamp"] == START_S + 20
    assert gone["purges"] == []


def test_by_name_or_key(tmp_path: Path) -> None:
    store = built(tmp_path / "store")
    (found,) = queues(store, "--name", "fanout")
    assert found["queue_uri"] == FANOUT
    assert queues(store, "--name", found["queue_key"].lower()) == [found]


def test_the_table(tmp_path: Path) -> None:
    result = run("--output", "table", built(tmp_path / "store"))
    assert result.exit_code == 0
    assert "foo (removed), bar, baz" in result.output
    assert "deleted" in result.output


def test_without_qlist_and_journal_the_ledger_names_them(tmp_path: Path) -> None:
    store = built(tmp_path / "store")
    for path in (*store.glob("*.bmq_qlist"), *store.glob("*.bmq_data")):
        path.unlink()
    assert [each["queue_uri"] for each in queues(store, code=1)] == [FANOUT, None, "bmq://other/q"]
    for path in store.glob("*.bmq_journal"):
        path.write_bytes(b"garbage")
    assert [(each["queue_uri"], each["state"]) for each in queues(store, code=1)] == [
        (FANOUT, "named"),
        ("bmq://other/q", "named"),
    ]


def test_a_file_under_another_name(tmp_path: Path) -> None:
    store = built(tmp_path / "store")
    copy = tmp_path / "copy"
    copy.write_bytes(next(store.glob("bmq_1.*_qlist")).read_bytes())
    (found,) = queues(copy)
    assert (found["partition_id"], found["queue_uri"], found["state"]) == (1, "bmq://other/q", "named")


def test_file_without_queue_names_is_refused_in_a_line(tmp_path: Path) -> None:
    store = built(tmp_path / "store")
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    for path, reason in (
        (next(store.glob("*.bmq_data")), "which contains no queue names"),
        (empty, "is empty"),
        (tmp_path / "none", "No such file"),
        (tmp_path, "holds no files"),
    ):
        result = run(path)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert reason in result.stderr
