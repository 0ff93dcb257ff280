"""Poison messages by the journals of a store and the logs of its brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bmqctl.stores.blazingmq.build import build_store
from bmqctl.stores.blazingmq.rejected import Rejected, rejected_in_log
from tests.bmqctl.stores.blazingmq.small_store import ORDERS, PRICES, START_S, message_guid
from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., Outcome]

ALARM = (
    "{time} ERROR broker.queue ALARM [POISON_PILL] A poison pill message was detected and purged from the queue {uri} "
    "[GUID: {guid}, appId: {app}, subQueueId: 1]. Message was transmitted a total of 3 times to consumer(s). {tail}\n"
)
KEPT = "Message was dumped in file at location [/tmp/bmq-rejected-x.txt] on this machine. Please copy file."
REJECTING = (
    "{time} INFO broker.queue [THROTTLED] Queue '{uri}' rejecting PUSH [GUID: '{guid}', appId: {app}, subQueueId: 0] "
    "with the counter: [{left}]\n"
)
TIME = "2026-11-26T03:14:09.520Z"
LOST = message_guid(77)


def told(template: str, number: int, uri: str = ORDERS, app: str = "__default", **fields: object) -> str:
    return template.format(**{"time": TIME, "uri": uri, "app": app, "guid": message_guid(number), "tail": ""} | fields)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store in which foo gave up a message of two apps, and the only app of another queue one."""
    lines = [
        {"type": "JOURNAL_OP"},
        {"type": "QUEUE_OP", "queue_uri": ORDERS},
        {"type": "QUEUE_OP", "queue_uri": PRICES, "apps": ["foo", "bar"]},
        {"type": "MESSAGE", "queue_uri": PRICES, "guid": message_guid(1), "payload": "poison"},
        {"type": "MESSAGE", "queue_uri": PRICES, "guid": message_guid(2), "payload": "sound"},
        {"type": "MESSAGE", "queue_uri": ORDERS, "guid": message_guid(3), "payload": "poison"},
        {"type": "CONFIRM", "queue_uri": PRICES, "app_id": "foo", "guid": message_guid(1), "reason": "REJECTED"},
        {"type": "CONFIRM", "queue_uri": PRICES, "app_id": "bar", "guid": message_guid(2)},
        {"type": "DELETION", "queue_uri": ORDERS, "guid": message_guid(3)},
        {"type": "JOURNAL_OP"},
    ]
    directory = tmp_path / "store"
    directory.mkdir()
    build_store(map(json.dumps, lines), directory, START_S)
    return directory


def rows_of(outcome: Outcome) -> list[dict[str, object]]:
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_a_journal_tells_of_apps_that_were_not_the_last(run: Run, store: Path) -> None:
    outcome = run("rejected", store)
    (row,) = rows_of(outcome)
    assert (row["guid"], row["queue_uri"], row["app_id"]) == (message_guid(1), PRICES, "foo")
    assert (row["in_journal"], row["in_log"], row["is_stored"], row["attempts"]) == (True, False, True, None)
    assert str(row["time"]).startswith("2026-11-2")
    assert "has no bmqbrkr.log*: name the brokers' logs with --log" in outcome.err


def test_logs_tell_of_the_rest_and_each_message_is_there_once(run: Run, store: Path, tmp_path: Path) -> None:
    (store / "bmqbrkr.log").write_text(
        told(REJECTING, 3, left=2)
        + told(REJECTING, 3, left=1)
        + told(ALARM, 3, tail=KEPT)
        + told(ALARM, 1, PRICES, "foo")
        + told(REJECTING, 4, left=3)
    )
    (store / "bmqbrkr.log.1").write_text(told(REJECTING, 77, left=1))
    outcome = run("rejected", store)
    rows = {row["guid"]: row for row in rows_of(outcome)}
    assert rows.keys() == {message_guid(1), message_guid(3), LOST}
    assert outcome.err == ""
    one, three, lost = (rows[each] for each in (message_guid(1), message_guid(3), LOST))
    assert (one["in_journal"], one["in_log"], one["attempts"]) == (True, True, 3)
    assert (three["app_id"], three["is_stored"], three["kept_in"]) == ("__default", True, "/tmp/bmq-rejected-x.txt")
    assert (three["time"], three["in_journal"]) == (TIME, False)
    assert (lost["is_stored"], lost["attempts"]) == (False, None)
    assert [row["guid"] for row in rows_of(run("rejected", store, "--queue", PRICES))] == [message_guid(1)]
    other = tmp_path / "other.log"
    other.write_text("")
    assert [row["guid"] for row in rows_of(run("rejected", store, "--log", other))] == [message_guid(1)]
    table = run("rejected", store, "--output", "table").out.splitlines()
    assert [line.split()[:1] for line in table[:1]] == [["time"]]
    assert sum(" no " in line for line in table) == 1
    assert run("rejected", store, "--output", "csv").out.splitlines()[0] == ",".join(Rejected._fields)


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
        (TIME, TIME),
        ("26NOV2026_03:14:09.520", TIME),
        ("99NOV2026_03:14:09.520", None),
        ("[1234]", None),
    ],
)
def test_times_of_either_broker_are_understood(stamp: str, time: str | None) -> None:
    (found,) = rejected_in_log([told(ALARM, 1, time=stamp, tail="Attempt to dump message in a file failed.")])
    assert (found.time, found.attempts, found.kept_in) == (time, 3, None)


def test_path_that_is_no_store_or_log_is_refused(run: Run, store: Path, tmp_path: Path) -> None:
    assert run("rejected", tmp_path).code == 2
    outcome = run("rejected", store, "--log", tmp_path / "none")
    assert (outcome.code, outcome.err) == (2, f"bmqctl journal rejected: {tmp_path}/none: No such file or directory\n")
    assert "is a store of RocketMQ" in run("rejected", rocketmq_store(tmp_path / "rocketmq")).err


def rocketmq_store(folder: Path) -> Path:
    (folder / "commitlog").mkdir(parents=True)
    (folder / "commitlog" / f"{0:020}").write_bytes(bytes(1 << 12))
    return folder


def test_a_line_of_any_length_is_read_in_time_that_grows_with_it() -> None:
    tail = "dumped in file at location [" * 30_000
    (found,) = rejected_in_log([told(ALARM, 1, tail=tail)])
    assert found.kept_in is None
    (found,) = rejected_in_log([told(ALARM, 1, tail=tail + "/tmp/x]")])
    assert found.kept_in == "/tmp/x"
