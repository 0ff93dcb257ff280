"""`bmqctl journal queues` and `summary` on stores of RocketMQ, against what their logs and tables hold."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bmqctl.stores.rocketmq.read import queues as queues_module
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.read.losses import find_losses
from bmqctl.stores.rocketmq.read.queues import QueueFigures, read_queues
from bmqctl.stores.rocketmq.read.topics import TopicKind, kind_of
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, FILLER, ConsumeQueueEntry
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Record, encode_record
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting import fastjson
from tests.bmqctl.stores.conftest import Outcome
from tests.bmqctl.stores.rocketmq.journal.losses_rig import entry_of
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES, Written, message, write_log
from tests.golden.rocketmq.stores import records

Run = Callable[..., Outcome]


def write_queue(written: Written, queue_id: int, entries: Sequence[ConsumeQueueEntry], begin: int = 0) -> None:
    """Write a queue of the topic `orders` into one file, with room after the last entry."""
    folder = written.root / "consumequeue" / "orders" / str(queue_id)
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(map(CONSUME_QUEUE_ENTRY.pack, entries)) + bytes(10 * CONSUME_QUEUE_ENTRY.size)
    (folder / offset_name(begin * CONSUME_QUEUE_ENTRY.size)).write_bytes(data)


@pytest.fixture
def store(tmp_path: Path) -> Written:
    """A store of 40 messages in four queues."""
    written = write_log(tmp_path / "store", (message(number) for number in range(40)))
    for queue_id in range(4):
        write_queue(written, queue_id, [entry_of(each) for each in written.records if each.queue_id == queue_id])
    return written


def write_offsets(store: Written, table: str) -> None:
    config = store.root / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(f'{{"offsetTable":{table}}}')


def listed(run: Run, path: Path, *arguments: object) -> list[dict[str, Any]]:
    outcome = run("queues", "--output", "json-line", *arguments, path)
    assert outcome.code == 0
    return [json.loads(line) for line in outcome.out.splitlines()]


def summary(run: Run, path: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    outcome = run("summary", "--json", *arguments, path)
    assert outcome.code == code, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_golden_queues_hold_what_the_log_does(run: Run, golden_store: Path) -> None:
    expected: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for _, record in records(golden_store):
        if isinstance(record, Record):
            expected[record.topic, record.queue_id].append(record)
    found = {(queue["topic"], queue["queue_id"]): queue for queue in listed(run, golden_store)}
    assert found.keys() == expected.keys()
    for name, queue in found.items():
        there = expected[name]
        assert (queue["begin"], queue["end"]) == (there[0].queue_offset, there[-1].queue_offset + 1)
        assert queue["messages"] == len(there)
        assert queue["size"] == sum(len(encode_record(each)) for each in there)
        assert (queue["first_ms"], queue["last_ms"]) == (there[0].stored_ms, there[-1].stored_ms)
        if name[0] != "SCHEDULE_TOPIC_XXXX":
            tags = Counter(decode_properties(each.properties).get("TAGS") for each in there)
            assert queue["tags"] == {tag: count for tag, count in tags.items() if tag}


def test_golden_summary_has_the_lag_of_every_group(run: Run, golden_store: Path) -> None:
    ends = {(queue["topic"], queue["queue_id"]): queue["end"] for queue in listed(run, golden_store)}
    table = fastjson.loads((golden_store / "config" / "consumerOffset.json").read_text())["offsetTable"]
    found = summary(run, golden_store)
    groups = {f"{group['topic']}@{group['group']}": group for group in found["groups"]}
    assert groups.keys() == table.keys()
    for name, progress in table.items():
        lags = {queue["queue_id"]: queue["lag"] for queue in groups[name]["queues"]}
        for queue_id, offset in progress.items():
            end = ends.get((groups[name]["topic"], int(queue_id)), 0)
            assert lags[int(queue_id)] == max(0, end - offset)
        assert groups[name]["lag"] == sum(lags.values())
        assert (groups[name]["oldest_ms"] is None) == (groups[name]["lag"] == 0)
    assert found["log"]["not_in_queues"] == 0
    assert found["log"]["end"] == max(
        at + len(encode_record(r)) for at, r in records(golden_store) if type(r) is Record
    )
    assert found["totals"]["dead_letters"] == 1
    assert found["totals"]["half_messages"] == 36
    assert found["totals"]["delayed"] == 10
    table_text = run("summary", golden_store).out
    assert "%DLQ%CG_retry" in table_text
    assert "1 dead letters" in table_text


def test_lag_and_the_oldest_that_waits(run: Run, store: Written) -> None:
    write_offsets(store, '{"orders@billing":{0:10,1:3},"%RETRY%billing@billing":{0:5}}')
    billing = next(group for group in summary(run, store.root)["groups"] if group["topic"] == "orders")
    assert billing["queues"] == [
        {"queue_id": 0, "offset": 10, "lag": 0},
        {"queue_id": 1, "offset": 3, "lag": 7},
        {"queue_id": 2, "offset": 0, "lag": 10},
        {"queue_id": 3, "offset": 0, "lag": 10},
    ]
    # Message 13 is the fourth of queue 1, message 2 the first of queue 2.
    assert billing["oldest_ms"] == store.records[2].stored_ms
    assert "billing" in run("summary", "--topic", "ord", store.root).out


def test_messages_that_no_queue_has_are_counted(run: Run, store: Written) -> None:
    for queue_id in range(4):
        some = [entry_of(each) for each in store.records[:30] if each.queue_id == queue_id]
        write_queue(store, queue_id, some)
    found = summary(run, store.root)
    assert found["log"]["not_in_queues"] == 10
    assert found["totals"]["messages"] == 30
    assert "10 of its messages are in no queue" in run("summary", store.root).out


def figures(root: Path) -> list[QueueFigures]:
    store = open_store(root)
    return read_queues(store, find_losses(store))


def test_queue_begins_with_what_the_log_still_has(tmp_path: Path) -> None:
    written = write_log(
        tmp_path, (message(4 * number, queue_offset=303 + number) for number in range(20)), begin=FILE_BYTES
    )
    gone = ConsumeQueueEntry(100, 200, 0)
    write_queue(written, 0, [FILLER, FILLER, gone, *map(entry_of, written.records)], begin=300)
    (queue,) = figures(tmp_path)
    assert (queue.begin, queue.end, queue.entries) == (303, 323, 20)
    assert queue.first_ms == written.records[0].stored_ms
    write_queue(written, 0, [FILLER, gone], begin=300)
    (queue,) = figures(tmp_path)
    assert (queue.begin, queue.end, queue.entries, queue.missing, queue.first_ms) == (303, 323, 0, 20, None)


def test_queue_of_several_files_and_chunks(store: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues_module, "_CHUNK_ENTRIES", 3)
    folder = store.root / "consumequeue" / "orders" / "0"
    data = (folder / offset_name(0)).read_bytes()
    (folder / offset_name(0)).write_bytes(data[:80])
    (folder / offset_name(80)).write_bytes(data[80:])
    queue = figures(store.root)[0]
    assert (queue.begin, queue.end, queue.entries) == (0, 10, 10)
    assert queue.tags == {"open": 10}
    assert queue.last_ms == store.records[36].stored_ms


def test_cut_file_of_a_queue_costs_its_own_entries(store: Written) -> None:
    folder = store.root / "consumequeue" / "orders" / "0"
    data = (folder / offset_name(0)).read_bytes()
    (folder / offset_name(0)).write_bytes(data[:50])
    (folder / offset_name(80)).write_bytes(data[80:])
    queue = figures(store.root)[0]
    assert (queue.begin, queue.end, queue.entries, queue.missing) == (0, 10, 8, 2)


def test_entries_of_strangers_are_damaged(store: Written) -> None:
    wrong = [ConsumeQueueEntry(1 << 60, 0x7FFFFFFE, 5), ConsumeQueueEntry(3, 100, 6)]
    write_queue(store, 0, wrong)
    queue = figures(store.root)[0]
    assert (queue.entries, queue.damaged, queue.missing, queue.unfinished) == (0, 2, 8, 0)
    assert (queue.begin, queue.end, queue.first_ms, queue.last_ms, queue.tags) == (0, 10, None, None, {})


def test_table_that_cannot_be_read_is_told(run: Run, store: Written) -> None:
    write_offsets(store, "nonsense")
    outcome = run("summary", store.root)
    assert outcome.code == 1
    assert "consumerOffset.json" in outcome.err
    assert "orders" in outcome.out


def test_torn_end_is_told(run: Run, store: Written) -> None:
    last = store.records[-1]
    store.overwrite(last.physical_offset + len(encode_record(last)), b"\0\0\1\0torn")
    outcome = run("summary", store.root)
    assert outcome.code == 0
    assert "8 B of an unfinished write follow" in outcome.out
    assert summary(run, store.root)["log"]["unfinished_bytes"] == 8


def test_options_of_the_other_system_are_refused(run: Run, store: Written, tmp_path: Path) -> None:
    assert run("summary", "--queue", "orders", store.root).code == 2
    assert run("summary", "--plot", store.root).code == 2
    assert run("summary", "--topic", "nowhere", store.root).code == 2
    other = tmp_path / "blazing"
    other.mkdir()
    assert "is no store of RocketMQ" in run("summary", "--topic", "orders", other).err


def test_queues_are_chosen_by_name_and_printed(run: Run, store: Written) -> None:
    assert len(listed(run, store.root, "--name", "ord")) == 4
    assert listed(run, store.root, "--name", "pay") == []
    assert "paid 10" in run("queues", "--output", "table", store.root).out


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", TopicKind.ORDINARY),
        ("%RETRY%g", TopicKind.RETRY),
        ("%DLQ%g", TopicKind.DEAD_LETTERS),
        ("rmq_sys_wheel_timer", TopicKind.DELAYED),
        ("RMQ_SYS_TRANS_HALF_TOPIC", TopicKind.HALF),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", TopicKind.SYSTEM),
    ],
)
def test_kinds_of_topics(topic: str, kind: TopicKind) -> None:
    assert kind_of(topic) is kind


def test_topics_are_rows_for_spreadsheets(run: Run, golden_store: Path) -> None:
    whole = summary(run, golden_store)
    lines = run("summary", "--output", "jsonl", golden_store).out.splitlines()
    assert [json.loads(line) for line in lines] == whole["topics"]
    names, *rows = run("summary", "--output", "csv", golden_store).out.splitlines()
    assert names.split(",") == list(whole["topics"][0])
    assert len(rows) == len(whole["topics"])
