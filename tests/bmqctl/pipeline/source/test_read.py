"""The tables as the tasks read them, without Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bmqctl.pipeline.source.plan import RECORDS_PER_CHUNK
from bmqctl.pipeline.source.stores import StoreError
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import QueueOpType
from formats.bmq.stores.faults import CATALOGUE
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.pipeline.source.lifecycles import lifecycles
from tests.bmqctl.pipeline.source.read_rig import GUIDS, Q, damaged
from tests.bmqctl.pipeline.written import TIME, WrittenStore
from tests.golden.archives import STORES, ledger_records, only, storage_records, truth

TABLES = ("records", "messages", "confirms", "queues", "ledger", "payloads", "faults")
APPS = ("confirmed_apps", "rejected_apps", "auto_confirmed_apps", "purged_apps", "pending_apps")

Golden = Callable[[str], Path]


@pytest.mark.parametrize("name", STORES)
def test_records_are_those_that_the_reference_prints(golden: Golden, name: str) -> None:
    rows = read_rows(golden(name))
    printed = storage_records(name)
    assert len(rows) == len(printed)
    for row, record in zip(rows, printed, strict=True):
        assert row["type"] == record["RecordType"]
        assert row["offset"] == int(record["Offset"])
        assert row["primary_lease_id"] == int(record["PrimaryLeaseId"])
        assert row["sequence_number"] == int(record["SequenceNumber"])
        assert row["timestamp"] == datetime.fromtimestamp(int(record["Epoch"]), UTC)
        assert row["guid"] == record.get("GUID")
        assert row["queue_uri"] == record.get("QueueUri")
        if row["type"] == "CONFIRM":
            assert row["app_id"] == record["AppId"]


def test_messages_and_payloads_are_those_that_were_posted(golden: Golden) -> None:
    posted = {one["guid"].upper(): one for one in truth("single") if "mem.broadcast" not in one["queue"]}
    messages = {row["guid"]: row for row in read_rows(golden("single-crash"), table="messages", tasks="3")}
    payloads = {row["guid"]: row for row in read_rows(golden("single-crash"), table="payloads")}
    assert messages.keys() == payloads.keys() == posted.keys()
    for guid, one in posted.items():
        message, payload = messages[guid], payloads[guid]
        assert message["queue_uri"] == payload["queue_uri"] == one["queue"]
        assert message["payload_size"] == payload["payload_size"] == len(payload["payload"]) == one["size"]
        assert message["confirmed_apps"] == sorted(one["confirmed_by"])
        assert payload["fault"] is None
        assert len(payload["properties"]) == len(one["properties"])
    assert {row["compression"] for row in payloads.values()} == {"NONE", "ZLIB"}


def test_confirms_are_those_that_were_made(golden: Golden) -> None:
    rows = read_rows(golden("single-crash"), table="confirms", tasks="2")
    made = Counter((row["guid"], row["app_id"]) for row in rows)
    posted = (one for one in truth("single") if "mem.broadcast" not in one["queue"])
    assert made == Counter((one["guid"].upper(), app) for one in posted for app in one["confirmed_by"])
    assert {row["latency_s"] for row in rows} <= {0, 1, 2}
    messages = {row["guid"]: row for row in read_rows(golden("single-crash"), table="messages")}
    for row in rows:
        assert row["message_journal_offset"] == messages[row["guid"]]["journal_offset"]
        assert row["arrival_time"] == messages[row["guid"]]["arrival_time"]


def test_the_ledger_is_as_the_reference_prints_it(golden: Golden) -> None:
    rows = read_rows(golden("single-clean"), table="ledger")
    printed = ledger_records("single-clean")
    assert [(row["type"], row["sequence_number"]) for row in rows] == [
        (record["RecordType"], int(record["SequenceNumber"])) for record in printed
    ]


def test_queues_have_their_domains_and_apps(golden: Golden) -> None:
    rows = {row["queue_uri"]: row for row in read_rows(golden("single-crash"), table="queues")}
    fanout = rows["bmq://bmq.test.persistent.fanout/prices-1"]
    assert (fanout["domain"], fanout["queue"]) == ("bmq.test.persistent.fanout", "prices-1")
    assert fanout["app_ids"] == ["bar", "baz", "foo"]
    assert fanout["created_time"] is not None
    assert fanout["deleted_time"] is None


@pytest.mark.parametrize("tasks", ["1", "2", "5"])
def test_every_way_that_a_message_can_end(tmp_path: Path, tasks: str) -> None:
    store, said = lifecycles()
    rows = read_rows(store.save(tmp_path / "store"), table="messages", tasks=tasks)
    found = {int(row["guid"], 16): (row["outcome"], *(row[name] for name in APPS)) for row in rows}
    assert found == said
    for row in rows:
        is_there = row["outcome"] in ("outstanding", "partially_confirmed")
        assert is_there == (row["removal_time"] is None) == (row["removal_sequence_number"] is None)


@pytest.mark.parametrize("table", ["records", "messages", "confirms"])
def test_a_store_is_read_as_of_any_record(tmp_path: Path, table: str) -> None:
    """`until` a record is the same as a journal that ends with it; `after` it, the rest."""
    store, _ = lifecycles()
    whole = store.save(tmp_path / "whole")
    size = len(store.journal)
    all_rows = read_rows(whole, table=table)
    in_qlist = {row["sequence_number"]: row["queue_uri_record_offset"] for row in read_rows(whole)}
    for number in range(1, store.sequence_number + 1, 7):
        cut, _ = lifecycles()
        del cut.journal[size - (store.sequence_number - number) * JOURNAL_RECORD_SIZE :]
        later = (at for after, at in in_qlist.items() if after > number and at)
        del cut.qlist[min(later, default=len(cut.qlist)) :]
        then = read_rows(cut.save(tmp_path / f"cut-{number}"), table=table)
        assert by_place(read_rows(whole, table=table, until=f"0:1-1,1:1-{number}")) == by_place(then)
        if table != "messages":
            rest = read_rows(whole, table=table, after=f"1:1-{number}")
            assert by_place(then + rest) == by_place(all_rows)


def by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row.get("journal_offset") or row["offset"], row.get("app_key") or ""

    return sorted(rows, key=place)


def test_columns_are_read_alone(golden: Golden, tmp_path: Path) -> None:
    written = lifecycles()[0].save(tmp_path / "store")
    for table in TABLES:
        store = golden("single-crash") if table == "ledger" else written
        whole = read_rows(store, table=table)
        for name in whole[0]:
            assert read_rows(store, table=table, columns=name) == [{name: row[name]} for row in whole]


def test_damage_is_told_in_rows(tmp_path: Path) -> None:
    store = damaged(tmp_path)
    assert [row["offset"] for row in read_rows(store)] == [44, 104, 224, 284]
    faults = read_rows(store, table="faults")
    assert ("record-magic", 164) in {(row["code"], row["offset"]) for row in faults}
    assert all(row["partition_id"] == 0 and row["advice"] == CATALOGUE[row["code"]].advice for row in faults)
    payloads = read_rows(store, table="payloads")
    assert [row["guid"] for row in payloads] == [GUIDS[0].hex().upper(), GUIDS[2].hex().upper()]
    assert all("crc32c" in row["fault"] and row["payload"] is None for row in payloads)


def test_damage_ends_a_job_that_is_to_fail_fast(tmp_path: Path) -> None:
    for table in ("records", "messages", "confirms", "payloads"):
        with pytest.raises(StoreError, match=r"bmq_journal: .*magic at offset 220"):
            read_rows(damaged(tmp_path), table=table, mode="failfast")
    with pytest.raises(StoreError, match=r"bmq_data: the message at offset 40: .*crc32c"):
        read_rows(damaged(tmp_path, journal=False), table="payloads", mode="failfast")


def test_a_journal_that_cannot_be_opened_is_a_row(tmp_path: Path) -> None:
    for partition_id in (0, 1):
        store = WrittenStore(partition_id)
        store.sync_point()
        store.save(tmp_path)
    for journal in tmp_path.glob("bmq_0.*.bmq_journal"):
        journal.write_bytes(b"garbage")
    assert [row["partition_id"] for row in read_rows(tmp_path)] == [1]
    assert [(row["code"], row["partition_id"]) for row in read_rows(tmp_path, table="faults")] == [("header", 0)]
    with pytest.raises(StoreError, match=r"bmq_0.*journal validate"):
        read_rows(tmp_path, mode="failfast")


def test_a_missing_data_file_leaves_the_records(tmp_path: Path) -> None:
    store = WrittenStore()
    store.message(Q, GUIDS[0])
    store.save(tmp_path)
    only(tmp_path, ".bmq_data").unlink()
    (record,) = read_rows(tmp_path)
    assert (record["message_offset"], record["stored_size"], record["payload_size"]) == (40, None, None)
    (message,) = read_rows(tmp_path, table="messages")
    assert message["payload_size"] is None
    assert [row["fault"] for row in read_rows(tmp_path, table="payloads")] == [
        "DATA at offset 0: there is no file, or an empty one"
    ]
    assert next(row["code"] for row in read_rows(tmp_path, table="faults")) == "set-incomplete"
    for table in ("records", "messages", "payloads"):
        with pytest.raises(StoreError, match="no DATA file for"):
            read_rows(tmp_path, table=table, mode="failfast")


def test_a_message_that_is_not_in_its_file_ends_a_job_that_is_to_fail_fast(tmp_path: Path) -> None:
    store = WrittenStore()
    for number in range(2):
        store.message(Q, GUIDS[number])
    del store.data[64:]
    store.save(tmp_path)
    for table in ("records", "messages"):
        assert [row["payload_size"] for row in read_rows(tmp_path, table=table)] == [7, None]
        with pytest.raises(StoreError, match="bmq_data: no intact message at offset 64"):
            read_rows(tmp_path, table=table, mode="failfast")


def test_apps_that_come_and_go_change_what_messages_wait_for(tmp_path: Path) -> None:
    store = WrittenStore()
    apps = [(name, name.encode() * 5) for name in "abcde"]
    store.queue(Q, "bmq://domain/fanout", apps[0])
    for number, app in enumerate(apps[1:]):
        store.message(Q, GUIDS[number])
        store.queue(Q, "bmq://domain/fanout", app, kind=QueueOpType.ADDITION)
    store.queue_op(QueueOpType.DELETION, Q, apps[0][1])
    store.message(Q, GUIDS[4])
    rows = read_rows(store.save(tmp_path), table="messages")
    assert [row["pending_apps"] for row in rows] == [["a"], [*"ab"], [*"abc"], [*"abcd"], [*"bcde"]]


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_ends_a_job(golden: Golden, tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    for file in golden("single-crash").iterdir():
        content = bytearray(file.read_bytes().rstrip(b"\0"))
        for _ in range(noise.choice((0, 1, 5, 50))):
            at = noise.randrange(len(content) + 1)
            size = noise.choice((1, 4, 60, 600))
            content[at : at + size] = noise.choice((noise.randbytes(size), bytes(size), b"", noise.randbytes(1)))
        (tmp_path / file.name).write_bytes(content)
    for table in TABLES:
        read_rows(tmp_path, table=table, tasks="2")
        with suppress(StoreError):
            read_rows(tmp_path, table=table, mode="failfast")


def test_chunks_and_tasks_do_not_show(tmp_path: Path) -> None:
    """The records of messages fill more than a chunk; their confirms and deletions are in another."""
    store = WrittenStore()
    store.queue(Q, "bmq://domain/queue", ("__default", b"0\0\0\0\0"))
    count = RECORDS_PER_CHUNK // 2 + 100
    guids = [number.to_bytes(16, "big") for number in range(count)]
    for guid in guids:
        store.message(Q, guid, b"x" * (guid[-1] + 1))
    for guid in guids[: count // 2]:
        store.deletion(Q, guid)
    store.save(tmp_path)
    for tasks in ("1", "3"):
        rows = read_rows(tmp_path, table="messages", tasks=tasks, columns="guid,outcome,payload_size,removal_time")
        found = {int(row["guid"], 16): row for row in rows}
        assert len(rows) == len(found) == count
        for number in range(0, count, 97):
            gone = number < count // 2
            assert found[number]["outcome"] == ("confirmed" if gone else "outstanding")
            assert found[number]["payload_size"] == number % 256 + 1
            removed = datetime.fromtimestamp(TIME + 2 + count + number, UTC) if gone else None
            assert found[number]["removal_time"] == removed
