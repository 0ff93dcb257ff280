"""`bmqctl journal ledger dump`."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.bmqctl.stores.blazingmq.dump.slow_rows import ledger_rows
from tests.golden.archives import only

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]
Golden = Callable[[str], Path]
Row = dict[str, Any]

LATE = "bmq://bmq.test.persistent.priority/late-1"
LATE_KEY = "A2249CB65F"


def number(row: Row) -> tuple[int, int]:
    return row["elector_term"], row["sequence_number"]


def rows(outcome: Outcome) -> list[Row]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_from_the_last_snapshot_on_or_all(run: Run, golden: Golden) -> None:
    file = only(golden("single-clean"), ".bmq_csl")
    everything = list(ledger_rows(file))
    last = max(row["index"] for row in everything if row["type"] == "SNAPSHOT")
    assert last > 0
    outcome = run("ledger", "dump", file)
    assert (outcome.code, rows(outcome)) == (0, everything[last:])
    assert f"{last} records before the last snapshot skipped: --from-begin" in outcome.err
    outcome = run("ledger", "dump", "--from-begin", file)
    assert (outcome.code, rows(outcome), outcome.err) == (0, everything, "")
    assert rows(run("dump", file)) == everything


CASES: list[tuple[list[str], Callable[[Row], bool]]] = [
    (["--type", "snapshot", "--type", "COMMIT"], lambda row: row["type"] in ("SNAPSHOT", "COMMIT")),
    (["--type", "ack"], lambda row: False),
    (
        ["--since", "1795237869", "--until", "2026-11-21T05:11:46"],
        lambda row: 869 <= row["timestamp"] - 1795237000 < 906,
    ),
    (["--seqnum-gt", "1-3", "--seqnum-lt", "2-2"], lambda row: (1, 3) < number(row) < (2, 2)),
    (["--offset-gt", "8", "--offset-lt", "380"], lambda row: 8 < row["offset"] < 380),
    (["--seqnum", "1-3", "--seqnum", "2-1"], lambda row: number(row) in ((1, 3), (2, 1))),
    (["--offset", "160"], lambda row: row["offset"] == 160),
    (["--queue", LATE], lambda row: LATE in json.dumps(row["message"])),
    (["--queue", LATE_KEY], lambda row: LATE in json.dumps(row["message"])),
    (["--queue", "bmq://a.b/none"], lambda row: False),
]


@pytest.mark.parametrize(("arguments", "passes"), CASES, ids=[" ".join(arguments) for arguments, _ in CASES])
def test_filters(run: Run, golden: Golden, arguments: list[str], passes: Callable[[Row], bool]) -> None:
    file = only(golden("single-clean"), ".bmq_csl")
    expected = [row for row in ledger_rows(file) if passes(row)]
    assert rows(run("ledger", "dump", "--from-begin", *arguments, file)) == expected
    last = max(row["index"] for row in ledger_rows(file) if row["type"] == "SNAPSHOT")
    assert rows(run("ledger", "dump", *arguments, file)) == [row for row in expected if row["index"] >= last]


def test_queues_in_every_kind_of_update(run: Run, tmp_path: Path) -> None:
    """Assigned, given another app, taken away."""
    key = base64.b64encode(bytes.fromhex("0102030405")).decode()
    info = {"uri": "bmq://a.b/q", "key": key, "partitionId": 0}
    head = {"sequenceNumber": {"electorTerm": 1, "sequenceNumber": 1}}
    partition = {"partitionId": 0, "primaryLeaseId": 1, "primaryNodeId": 0}
    apps = {"addedAppIds": [{"appId": "foo", "appKey": key}], "removedAppIds": []}
    messages = [
        {"queueAssignmentAdvisory": {**head, "queues": [info]}},
        {"queueUpdateAdvisory": {**head, "queueUpdates": [{**info, "domain": "a.b", **apps}]}},
        {"queueUnAssignmentAdvisory": {**head, **partition, "queues": [info]}},
        {"queueAssignmentAdvisory": {**head, "queues": [{**info, "uri": "bmq://a.b/other", "key": "AAAAAAE="}]}},
    ]
    lines = [
        {"type": "UPDATE", "elector_term": 1, "sequence_number": place + 1, "message": message}
        for place, message in enumerate(messages)
    ]
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, lines)))
    assert run("build", tmp_path / "lines", "--out", tmp_path / "store").code == 0
    for queue in ("bmq://a.b/q", "0102030405"):
        found = rows(run("ledger", "dump", "--queue", queue, tmp_path / "store"))
        assert [row["sequence_number"] for row in found] == [1, 2, 3]


def test_the_newest_ledger_of_a_store(run: Run, copy: Path) -> None:
    older = only(copy, ".bmq_csl")
    newer = older.with_name("bmq_csl_20261122_000000_0000000001.bmq_csl")
    content = older.read_bytes()
    newer.write_bytes(content[:8] + content[1272:])
    assert rows(run("ledger", "dump", copy))[0]["offset"] == 8
    assert rows(run("ledger", "dump", older))[0]["offset"] == 1272


def test_record_that_is_missing_from_a_ledger(run: Run, golden: Golden) -> None:
    outcome = run("ledger", "dump", "--from-begin", "--offset", 8, "--offset", 9, golden("single-clean"))
    assert (outcome.code, len(rows(outcome)), "no record at offset 9" in outcome.err) == (1, 1, True)
    arguments = ("--seqnum", "9-9", "--from-begin", "--output", "json-pretty")
    outcome = run("ledger", "dump", *arguments, golden("single-clean"))
    assert (outcome.code, "9-9" in outcome.err) == (1, True)
    assert json.loads(outcome.out)["SequenceNumbersNotFound"] == [{"leaseId": "9", "sequenceNumber": "9"}]


def test_a_damaged_ledger_ends_with_the_reason(run: Run, copy: Path) -> None:
    file = only(copy, ".bmq_csl")
    content = bytearray(file.read_bytes())
    content[1900] ^= 1
    file.write_bytes(content)
    for output in ("json-line", "table", "csv"):
        outcome = run("ledger", "dump", "--output", output, file)
        assert (outcome.code, bool(outcome.out)) == (1, True)
        assert "LedgerRecord.crc32c at offset" in outcome.err
    document = run("ledger", "dump", "--output", "json-pretty", file)
    assert (document.code, "LedgerRecord.crc32c" in document.err) == (1, True)
    assert len(json.loads(document.out)["Records"]) == 2


def test_usage(run: Run, golden: Golden, copy: Path, tmp_path: Path) -> None:
    store = golden("single-clean")
    ledger = only(store, ".bmq_csl")
    only(copy, ".bmq_csl").unlink()
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, reason in [
        ((only(store, ".bmq_journal"),), "run bmqctl journal dump"),
        ((copy,), "holds no cluster-state ledger"),
        ((empty,), "holds no files"),
        ((tmp_path / "none",), "No such file"),
        (("--type", "message", ledger), "snapshot, update, commit, ack"),
        (("--seqnum", "x", ledger), "is not a sequence number"),
        (("--offset", "8", "--queue", LATE, ledger), "combined with other filters"),
        (("--since", "5", "--until", "4", ledger), "--since must be before"),
    ]:
        outcome = run("ledger", "dump", *arguments)
        assert (outcome.code, outcome.out) == (2, "")
        (line,) = outcome.err.splitlines()
        assert reason in line


def test_older_journals_are_named(run: Run, copy: Path) -> None:
    """The dump of a store has only the files that a broker would recover from."""
    for file in copy.glob("bmq_0.*"):
        shutil.copy(file, file.with_name(file.name.replace("20261121_051104", "20261120_051104")))
    outcome = run("dump", copy)
    assert outcome.code == 0
    assert len(outcome.out.splitlines()) == 604
    assert "1 older journals in" in outcome.err
