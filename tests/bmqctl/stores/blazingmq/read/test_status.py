"""Messages by what became of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bmqctl.stores.blazingmq.read import reader
from tests.bmqctl.stores.blazingmq.dump.slow_rows import JournalRows
from tests.golden.archives import STORES, only

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]
Golden = Callable[[str], Path]
Row = dict[str, Any]

QUEUE = "bmq://a.b/fanout"
GUIDS = [f"{number:032X}" for number in range(1, 6)]


def statuses(rows: list[Row]) -> dict[str, set[str]]:
    """GUIDs by status, by the reference's words: from all records of each."""
    confirmed = {row["guid"] for row in rows if row["type"] == "CONFIRM"}
    deleted = {row["guid"]: row["deletion_flag"] for row in rows if row["type"] == "DELETION"}
    messages = {row["guid"] for row in rows if row["type"] == "MESSAGE"}
    return {
        "--outstanding": messages - deleted.keys(),
        "--partially-confirmed": (messages - deleted.keys()) & confirmed,
        "--confirmed": {guid for guid in messages if deleted.get(guid) in ("NONE", "IMPLICIT_CONFIRM")},
    }


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--outstanding", "--confirmed", "--partially-confirmed"])
@pytest.mark.parametrize("name", STORES)
def test_records_of_messages_by_status(run: Run, golden: Golden, name: str, option: str) -> None:
    file = only(golden(name), ".bmq_journal")
    rows = list(JournalRows(file).rows())
    wanted = statuses(rows)[option]
    assert wanted or (name.startswith("cluster") and option == "--partially-confirmed")
    found = [json.loads(line) for line in run("dump", option, file).out.splitlines()]
    assert found == [row for row in rows if row.get("guid") in wanted]


def test_status_and_other_filters(run: Run, golden: Golden) -> None:
    file = only(golden("single-clean"), ".bmq_journal")
    rows = list(JournalRows(file).rows())
    wanted = statuses(rows)["--partially-confirmed"]
    queue = "bmq://bmq.test.persistent.fanout/prices-1"
    arguments = ["--partially-confirmed", "--type", "confirm", "--queue", queue, "--offset-gt", "20000"]
    found = [json.loads(line) for line in run("dump", *arguments, file).out.splitlines()]
    confirms = [row for row in rows if row.get("guid") in wanted and row["type"] == "CONFIRM"]
    expected = [row for row in confirms if row["queue_uri"] == queue and row["offset"] > 20000]
    assert expected
    assert found == expected


@pytest.mark.parametrize("app", ["foo", "bar", "baz", "__default", "DA79F90025", "da79f90025"])
def test_outstanding_for_an_app(run: Run, golden: Golden, app: str) -> None:
    file = only(golden("single-clean"), ".bmq_journal")
    rows = list(JournalRows(file).rows())
    app_id = "bar" if app.upper() == "DA79F90025" else app
    outstanding = statuses(rows)["--outstanding"]
    confirmed = {row["guid"] for row in rows if row["type"] == "CONFIRM" and row.get("app_id") == app_id}
    wanted = {
        row["guid"]
        for row in rows
        if row["type"] == "MESSAGE" and ("fanout" in row["queue_uri"]) == (app_id != "__default")
    } & (outstanding - confirmed)
    found = [json.loads(line) for line in run("dump", "--outstanding", "--app", app, file).out.splitlines()]
    assert found == [row for row in rows if row.get("guid") in wanted]
    assert bool(found) == (app != "foo")


def test_outstanding_for_apps_that_come_late_or_are_purged(run: Run, tmp_path: Path) -> None:
    message = {"type": "MESSAGE", "payload": "x"}
    records: list[dict[str, Any]] = [
        {"type": "QUEUE_OP", "apps": ["foo"]},
        {**message, "guid": GUIDS[0]},
        {"type": "QUEUE_OP", "queue_op_type": "ADDITION", "apps": ["late"]},
        {**message, "guid": GUIDS[1]},
        {**message, "guid": GUIDS[2]},
        {
            "type": "QUEUE_OP",
            "queue_op_type": "PURGE",
            "app_id": "late",
            "start_primary_lease_id": 1,
            "start_sequence_number": 1,
        },
        {**message, "guid": GUIDS[3]},
        {"type": "CONFIRM", "guid": GUIDS[3], "app_id": "foo"},
    ]
    (tmp_path / "lines").write_text(lines_of(*records))
    assert run("build", tmp_path / "lines", "--out", tmp_path / "store").code == 0
    for apps, expected in ((["foo"], GUIDS[:3]), (["late"], GUIDS[3:4]), (["foo", "late"], GUIDS[:4])):
        options = [option for app in apps for option in ("--app", app)]
        found = run("dump", "--outstanding", "--type", "message", *options, tmp_path / "store").out.splitlines()
        assert [json.loads(line)["guid"] for line in found] == expected


def test_outstanding_for_many_apps(run: Run, tmp_path: Path) -> None:
    """The queue has more apps than a message's masks have bits."""
    apps = [f"app{number}" for number in range(70)]
    confirms = [{"type": "CONFIRM", "guid": GUIDS[0], "app_id": app} for app in apps[:68]]
    message = {"type": "MESSAGE", "guid": GUIDS[0], "payload": "x", "ref_count": 70}
    (tmp_path / "lines").write_text(lines_of({"type": "QUEUE_OP", "apps": apps}, message, *confirms))
    assert run("build", tmp_path / "lines", "--out", tmp_path / "store").code == 0
    for app, count in (("app0", 0), ("app67", 0), ("app68", 1), ("app69", 1)):
        found = run("dump", "--outstanding", "--app", app, "--type", "message", tmp_path / "store")
        assert len(found.out.splitlines()) == count


def lines_of(*records: dict[str, Any]) -> str:
    return "\n".join(json.dumps({"queue_uri": QUEUE, **record}) for record in records)


def test_a_guid_that_comes_again_is_another_message(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one was confirmed, its successor expired, the third is there: in blocks of any size."""
    first = GUIDS[0]
    message = {"type": "MESSAGE", "guid": first, "payload": "x"}
    (tmp_path / "lines").write_text(
        lines_of(
            {"type": "QUEUE_OP", "apps": ["foo", "bar"]},
            message,
            {"type": "CONFIRM", "guid": first, "app_id": "foo"},
            {"type": "DELETION", "guid": first},
            message,
            {"type": "DELETION", "guid": first, "deletion_flag": "TTL_EXPIRATION"},
            message,
            {"type": "CONFIRM", "guid": first, "app_id": "bar"},
        )
    )
    assert run("build", tmp_path / "lines", "--out", tmp_path / "store").code == 0
    for block in (1, 2, 3, 1000):
        monkeypatch.setattr(reader, "BLOCK_RECORDS", block)
        found = {
            option: [json.loads(line)["index"] for line in run("dump", option, tmp_path / "store").out.splitlines()]
            for option in ("--confirmed", "--outstanding", "--partially-confirmed")
        }
        rows = list(JournalRows(only(tmp_path / "store", ".bmq_journal")).rows())
        base = next(row["index"] for row in rows if row["type"] == "MESSAGE")
        assert found == {
            "--confirmed": [base, base + 1, base + 2],
            "--outstanding": [base + 5, base + 6],
            "--partially-confirmed": [base + 5, base + 6],
        }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--outstanding", "--confirmed"], "give exactly one of them"),
        (["--confirmed", "--app", "foo"], "--app goes with --outstanding"),
        (["--outstanding", "--type", "queue-op"], "--outstanding: only records of type"),
        (["--confirmed", "--offset", "44"], "combined with other filters"),
        (["--confirmed", "--follow"], "only known at the end"),
    ],
)
def test_contradictions(run: Run, golden: Golden, arguments: list[str], reason: str) -> None:
    outcome = run("dump", *arguments, golden("single-clean"))
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert reason in line
