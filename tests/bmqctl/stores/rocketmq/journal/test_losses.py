"""Losses of a store of RocketMQ: each command that reads it names them, and counts the rest exactly."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import encode_record
from tests.bmqctl.stores.conftest import Outcome
from tests.bmqctl.stores.rocketmq.journal.losses_rig import (
    _ENTRY,
    COUNT,
    EVERY,
    Damaged,
    _outside,
    body_overwritten,
    last_files_missing,
    whole_store,
)
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES

Run = Callable[..., Outcome]


@pytest.mark.parametrize("damage", EVERY)
def test_summary_and_queues_count_what_is_left_and_what_is_lost(
    run: Run, tmp_path: Path, damage: Callable[[Path], Damaged]
) -> None:
    store = damage(tmp_path)
    outcome = run("summary", "--json", store.root)
    assert outcome.code == 1
    found = json.loads(outcome.out)
    (topic,) = found["topics"]
    expected = (len(store.left), store.damaged, store.missing)
    assert (topic["messages"], topic["damaged"], topic["missing"]) == expected
    assert tuple(found["totals"][name] for name in ("messages", "damaged", "missing")) == expected
    assert topic["size"] == sum(len(encode_record(each)) for each in store.left)
    assert found["log"]["records"] == len(store.left)
    assert "bmqctl journal validate" in outcome.err
    outcome = run("queues", "--output", "json-line", store.root)
    assert outcome.code == 1
    queues = [json.loads(line) for line in outcome.out.splitlines()]
    assert Counter({queue["queue_id"]: queue["messages"] for queue in queues}) == Counter(
        each.queue_id for each in store.left
    )
    assert sum(queue["damaged"] for queue in queues) == store.damaged
    assert sum(queue["missing"] for queue in queues) == store.missing
    assert "journal repair" in outcome.err
    table = run("summary", "--output", "table", store.root)
    assert table.code == 1
    assert f" {store.damaged + store.missing} " in table.out


@pytest.mark.parametrize("damage", [each for each in EVERY if each not in (body_overwritten, last_files_missing)])
def test_each_byte_of_the_log_is_accounted_for(run: Run, tmp_path: Path, damage: Callable[[Path], Damaged]) -> None:
    store = damage(tmp_path)
    log = json.loads(run("summary", "--json", store.root).out)["log"]
    files = {each.physical_offset // FILE_BYTES for each in store.written.records}
    last = store.written.records[-1]
    end = max(log["end"], last.physical_offset + len(encode_record(last)) if log["damaged"] else 0)
    # After the last record of each file but the last one there are bytes of no record.
    ends = {
        each.physical_offset // FILE_BYTES: each.physical_offset + len(encode_record(each))
        for each in store.written.records
    }
    filled = sum((number + 1) * FILE_BYTES - ends[number] for number in sorted(files)[:-1])
    rest = end - log["record_bytes"] - log["damaged_bytes"] - log["missing_bytes"]
    # Filling bytes within a place that is lost are lost with it.
    assert 0 <= rest <= filled
    assert log["record_bytes"] == sum(len(encode_record(each)) for each in store.left)
    assert log["damaged_bytes"] + log["missing_bytes"] >= sum(
        len(encode_record(each)) for each in store.written.records if each not in store.left
    )


@pytest.mark.parametrize("damage", EVERY)
@pytest.mark.parametrize("form", [(), ("--payload", "stored")])
def test_dump_without_payloads_ends_with_1(
    run: Run, tmp_path: Path, damage: Callable[[Path], Damaged], form: Sequence[str]
) -> None:
    store = damage(tmp_path)
    outcome = run("dump", "--output", "json-line", *form, store.root)
    assert outcome.code == 1, outcome.err
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    told = any("fault" in row for row in rows)
    assert told or "the checksum of the body differs" in outcome.err or f"{store.missing} messages" in outcome.err


def test_dump_of_other_records_or_of_a_part_does_not_tell_of_the_rest(run: Run, tmp_path: Path) -> None:
    store = last_files_missing(tmp_path)
    assert run("dump", "--limit", "3", store.root).code == 0
    assert run("dump", "--offset-lt", "3000", store.root).code == 0
    assert run("dump", store.written.path(0)).code == 0
    assert run("dump", "--topic", "other", store.root).code == 0
    assert run("dump", "--topic", "orders", store.root).code == 1
    assert run("dump", "--offset-gt", "3000", store.root).code == 1


@pytest.mark.parametrize("damage", EVERY)
def test_dump_prints_what_is_left_and_ends_with_1(run: Run, tmp_path: Path, damage: Callable[[Path], Damaged]) -> None:
    store = damage(tmp_path)
    outcome = run("dump", "--output", "json-line", "--payload", "auto", store.root)
    assert outcome.code == 1
    rows: list[dict[str, Any]] = [json.loads(line) for line in outcome.out.splitlines()]
    sound = [row["offset"] for row in rows if "fault" not in row and "payload_fault" not in row]
    assert sound == [each.physical_offset for each in store.left]


def test_a_whole_store_and_one_that_was_cut_at_its_end_are_no_damage(run: Run, tmp_path: Path) -> None:
    written = whole_store(tmp_path)
    last = written.records[-1]
    end = last.physical_offset + len(encode_record(last))
    path = written.path(end)
    for size in (None, end % FILE_BYTES, end % FILE_BYTES - 1, end % FILE_BYTES - 100, end % FILE_BYTES - 1000):
        if size is not None:
            path.write_bytes(path.read_bytes()[:size])
        left = _outside(written.records, FILE_BYTES * (end // FILE_BYTES) + (size or FILE_BYTES), 1 << 40)
        outcome = run("summary", "--json", tmp_path)
        assert outcome.code == 0, (size, outcome.err)
        found = json.loads(outcome.out)
        assert found["totals"]["messages"] == len(left)
        assert (found["totals"]["damaged"], found["totals"]["missing"], found["log"]["places"]) == (0, 0, [])
        assert run("queues", tmp_path).code == 0
        assert run("dump", tmp_path).code == 0
        assert run("validate", tmp_path).code in (0, 1)


@pytest.mark.parametrize(("first", "count"), [(0, 3), (20, 10), (0, 100)])
def test_entries_of_a_queue_that_are_zeros_are_missing(run: Run, tmp_path: Path, first: int, count: int) -> None:
    written = whole_store(tmp_path)
    path = tmp_path / "consumequeue" / "orders" / "2" / offset_name(0)
    data = bytearray(path.read_bytes())
    data[first * _ENTRY : (first + count) * _ENTRY] = bytes(count * _ENTRY)
    path.write_bytes(data)
    for name in ("summary", "queues", "validate"):
        assert run(name, tmp_path).code == 1, name
    (queue,) = (
        each
        for each in map(json.loads, run("queues", "--output", "json-line", tmp_path).out.splitlines())
        if each["queue_id"] == 2
    )
    every = sum(each.queue_id == 2 for each in written.records)
    assert (queue["messages"], queue["missing"], queue["end"]) == (every - count, count, every)
    # A dump reads the log, and has all messages.
    assert run("dump", tmp_path).code == 0


def _split_queues(root: Path, entries: int) -> None:
    for path in sorted((root / "consumequeue" / "orders").glob(f"*/{offset_name(0)}")):
        data = path.read_bytes()
        for at in range(0, len(data), entries * _ENTRY):
            part = data[at : at + entries * _ENTRY]
            path.with_name(offset_name(at)).write_bytes(part + bytes(entries * _ENTRY - len(part)))


def test_the_first_file_of_the_log_that_no_broker_has_removed(run: Run, tmp_path: Path) -> None:
    """A broker that removes files of the log removes the files of queues that name nothing else."""
    written = whole_store(tmp_path)
    _split_queues(tmp_path, 4)
    assert run("queues", tmp_path).code == 0
    written.path(0).unlink()
    for name in ("summary", "queues", "dump"):
        outcome = run(name, tmp_path)
        assert (outcome.code, "messages that the store names are missing" in outcome.err) == (1, True), name
    begin = min(each.physical_offset for each in _outside(written.records, 0, FILE_BYTES))
    (tmp_path / "abort").touch()
    for name in ("summary", "queues", "dump"):
        assert run(name, tmp_path).code == 0, "a broker may be removing them"
    (tmp_path / "abort").unlink()
    for path in (tmp_path / "consumequeue").glob("*/*/*"):
        last = CONSUME_QUEUE_ENTRY.unpack(path.read_bytes()[-_ENTRY:])
        if last.size and last.physical_offset < begin:
            path.unlink()
    for name in ("summary", "queues", "dump"):
        assert run(name, tmp_path).code == 0, name


def _remove_topic(root: Path) -> set[int]:
    shutil.rmtree(root / "consumequeue" / "orders")
    return {0, 1, 2, 3}


def _remove_queue(root: Path) -> set[int]:
    shutil.rmtree(root / "consumequeue" / "orders" / "2")
    return {2}


def _empty_queue(root: Path) -> set[int]:
    path = root / "consumequeue" / "orders" / "1" / offset_name(0)
    path.write_bytes(bytes(path.stat().st_size))
    return {1}


LACKING = [_remove_topic, _remove_queue, _empty_queue]


@pytest.mark.parametrize("remove", LACKING)
def test_queues_that_only_the_log_knows_are_missing(
    run: Run, tmp_path: Path, remove: Callable[[Path], set[int]]
) -> None:
    written = whole_store(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{0:1,2:1}}}')
    gone = remove(tmp_path)
    lost = [each for each in written.records if each.queue_id in gone]
    first = next(each for each in lost if each.queue_id == min(gone))
    outcome = run("queues", "--output", "json-line", tmp_path)
    assert outcome.code == 1
    queues = [json.loads(line) for line in outcome.out.splitlines()]
    assert [queue["queue_id"] for queue in queues] == [0, 1, 2, 3]
    for queue in queues:
        every = sum(each.queue_id == queue["queue_id"] for each in written.records)
        is_gone = queue["queue_id"] in gone
        assert (queue["begin"], queue["end"]) == (0, every)
        assert (queue["messages"], queue["missing"]) == ((0, every) if is_gone else (every, 0))
        assert (queue["place"] is not None) == is_gone
    (shown,) = (queue["place"] for queue in queues if queue["queue_id"] == min(gone))
    assert f"consumequeue/orders/{min(gone)} " in shown
    assert f"offset {first.physical_offset}" in shown
    outcome = run("summary", "--json", tmp_path)
    assert outcome.code == 1
    found = json.loads(outcome.out)
    assert (found["totals"]["messages"], found["totals"]["missing"]) == (COUNT - len(lost), len(lost))
    assert (found["log"]["records"], found["log"]["missing"], found["log"]["not_in_queues"]) == (COUNT, 0, 0)
    for name in ("summary", "queues"):
        text = run(name, "--output", "table", tmp_path)
        assert (text.code, shown in text.err) == (1, True), text.err
        assert "lost" in text.out
    assert run("queues", "--name", "other", tmp_path).code == 0
    assert "queue-missing" in run("validate", tmp_path).out
    assert run("dump", tmp_path).code == 0, "a dump reads the log, which has all messages"


@pytest.mark.parametrize("remove", LACKING)
def test_queues_that_may_lack_entries_are_not_missing(
    run: Run, tmp_path: Path, remove: Callable[[Path], set[int]]
) -> None:
    whole_store(tmp_path)
    remove(tmp_path)
    (tmp_path / "config").mkdir()
    topics = tmp_path / "config" / "topics.json"
    for name, code in (("others", 0), ("orders", 1)):
        topics.write_text(f'{{"topicConfigTable":{{"{name}":{{"topicName":"{name}"}}}}}}')
        assert [run(command, tmp_path).code for command in ("summary", "queues")] == [code, code], name
    (tmp_path / "abort").touch()
    assert [run(command, tmp_path).code for command in ("summary", "queues")] == [0, 0], "a broker enters them"
