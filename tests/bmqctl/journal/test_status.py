"""Messages by what became of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bmqctl.journal import reader
from tests.bmqctl.journal.slow_rows import JournalRows
from tests.golden.archives import STORES, only

if TYPE_CHECKING:
    from tests.bmqctl.journal.conftest import Outcome

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
    arguments = ["--partially-confirmed", "--type", "confirm", "--app", "bar", "--offset-gt", "20000"]
    found = [json.loads(line) for line in run("dump", *arguments, file).out.splitlines()]
    expected = [
        row for row in rows if row.get("guid") in wanted and row.get("app_id") == "bar" and row["offset"] > 20000
    ]
    assert expected
    assert found == expected


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
        (["--outstanding", "--confirmed"], "give one of them"),
        (["--outstanding", "--type", "queue-op"], "--outstanding: only records of type"),
        (["--confirmed", "--offset", "44"], "no other filter"),
        (["--confirmed", "--follow"], "known at the end"),
    ],
)
def test_contradictions(run: Run, golden: Golden, arguments: list[str], reason: str) -> None:
    outcome = run("dump", *arguments, golden("single-clean"))
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert reason in line
