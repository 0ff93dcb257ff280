"""`bmqctl journal summary`: the figures of the golden stores' truth, and what it says of files that are
none of its."""

from __future__ import annotations

import csv
import io
import json
import os
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmqctl.cli.files.summary import Order, _as_json
from bmqctl.stores.blazingmq.read.scan import JournalScan
from bmqctl.stores.blazingmq.summary.summary import summarize
from formats.bmq.disk.data import DATA_HEADER
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.stores.recover import iter_data
from tests.bmqctl.stores.blazingmq.summary.summaries import FANOUT, PRIORITY, START_S, built, small_chunks, summary
from tests.bmqctl.stores.conftest import Outcome
from tests.families import examples
from tests.golden.archives import STORES, map_file, only, storage_records, truth

Run = Callable[..., Outcome]
Golden = Callable[[str], Path]


@pytest.mark.parametrize(("name", "of_truth"), [("single-crash", "single"), ("cluster-node0", "cluster")])
def test_golden_stores_hold_what_was_posted(golden: Golden, name: str, of_truth: str) -> None:
    found = summary(golden(name))
    # Broadcast is not stored; the cluster's first queue had more traffic after the truth was written.
    elsewhere = ("bmq://bmq.test.mem.broadcast/ticks-1", "bmq://bmq.test.persistent.priority.sc/orders-2")
    posted = [message for message in truth(of_truth) if message["queue"] not in elsewhere]
    assert posted
    for uri in {message["queue"] for message in posted}:
        messages = [message for message in posted if message["queue"] == uri]
        confirmed = Counter(app for message in messages for app in message["confirmed_by"])
        queue = found[uri]
        assert queue.messages == len(messages)
        assert {app.app_id: app.confirmed for app in queue.apps if app.confirmed} == dict(confirmed)
        if "ttl" in uri:
            assert queue.ended["expired"] == len(messages)
            continue
        assert {app.app_id: app.outstanding for app in queue.apps} == {
            app.app_id: len(messages) - confirmed[app.app_id or ""] for app in queue.apps
        }
        done = sum(len(message["confirmed_by"]) == len(queue.apps) for message in messages)
        assert (queue.outstanding, queue.ended["confirmed"]) == (len(messages) - done, done)
        assert queue.partially_confirmed == sum(0 < len(m["confirmed_by"]) < len(queue.apps) for m in messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("chunk_records", [50, 1 << 16])
def test_golden_stores_hold_what_the_reference_says(
    golden: Golden, name: str, chunk_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_chunks(monkeypatch, chunk_records)
    found = summary(golden(name))
    records = storage_records(name)
    data = map_file(only(golden(name), ".bmq_data"))
    stored = {record.offset: record for record in iter_data(data)}
    for uri, queue in found.items():
        ours = [record for record in records if record.get("QueueUri") == uri]
        messages = {record["GUID"]: record for record in ours if record["RecordType"] == "MESSAGE"}
        deleted = Counter(record["DeletionFlag"] for record in ours if record["RecordType"] == "DELETION")
        confirms = Counter(record["AppId"] for record in ours if record["RecordType"] == "CONFIRM")
        assert (queue.messages, queue.ended["confirmed"]) == (len(messages), deleted["NONE"])
        assert queue.ended["expired"] == deleted["TTL_EXPIRATION"]
        sizes = {guid: stored[int(record["MsgOffsetDwords"]) * 8] for guid, record in messages.items()}
        assert queue.stored_bytes == sum(record.end - record.offset for record in sizes.values())
        assert queue.payload_bytes == sum(record.app_data_size for record in sizes.values())
        gone = {record["GUID"] for record in ours if record["RecordType"] == "DELETION"}
        waiting = [record for guid, record in messages.items() if guid not in gone]
        assert queue.outstanding == len(waiting)
        assert queue.outstanding_bytes == sum(sizes[record["GUID"]].app_data_size for record in waiting)
        oldest = min((int(record["Epoch"]) for record in waiting), default=None)
        assert queue.oldest_outstanding == oldest
        if len(queue.apps) > 1:
            assert {app.app_id: app.confirmed for app in queue.apps if app.confirmed} == dict(confirms)


@pytest.mark.parametrize("chunk_records", [50, 1 << 16])
def test_partitions_of_a_golden_store(golden: Golden, chunk_records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, chunk_records)
    found = summarize(golden("single-clean"), lambda done, total: None)
    (partition,) = found.partitions
    records = storage_records("single-clean")
    assert partition.records == dict(Counter(record["RecordType"] for record in records))
    leases = [(lease.primary_lease_id, lease.records, lease.last_sequence_number) for lease in partition.leases]
    wanted = Counter(int(record["PrimaryLeaseId"]) for record in records)
    assert leases == [(lease, count, count) for lease, count in wanted.items()]
    times = [int(record["Epoch"]) for record in records]
    assert (partition.first_timestamp, partition.last_timestamp) == (min(times), max(times))
    assert (partition.unreadable, partition.rolled_over_records) == (0, 0)
    assert not any(partition.misfits.values())
    assert found.series.backlog[-1] == sum(queue.outstanding for queue in found.queues)
    assert found.series.arrivals.sum() == sum(queue.messages for queue in found.queues)


def two_queues(directory: Path) -> Path:
    """A fanout with three messages in partition 0, a queue with two in partition 1."""
    lines: list[dict[str, Any]] = [{"type": "QUEUE_OP", "queue_uri": FANOUT, "apps": ["foo", "bar"]}]
    for number in range(3):
        line = {"queue_uri": FANOUT, "guid": f"40{number:030X}", "timestamp": START_S + 10 * number}
        lines.append({"type": "MESSAGE", **line, "payload": "x" * 100})
        if number != 2:
            lines.append({"type": "CONFIRM", **line, "app_id": "foo"})
    lines.append({"type": "DELETION", "queue_uri": FANOUT, "guid": f"40{0:030X}", "timestamp": START_S + 40})
    line = {"queue_uri": PRIORITY, "partition_id": 1}
    lines += [{"type": "MESSAGE", **line, "timestamp": START_S + at, "payload": "y" * 1000} for at in (5, 6)]
    return built(directory, lines)


def test_all_partitions_of_a_store(run: Run, tmp_path: Path) -> None:
    result = run("summary", "--json", two_queues(tmp_path / "store"))
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert [partition["partition_id"] for partition in found["partitions"]] == [0, 1]
    fanout, priority = found["queues"]
    assert (fanout["queue_uri"], priority["queue_uri"]) == (FANOUT, PRIORITY)
    assert (fanout["messages"], fanout["outstanding"], fanout["payload_bytes"]) == (3, 2, 300)
    assert fanout["oldest_outstanding"] == {"timestamp": START_S + 10, "time": "2026-01-01T00:00:10Z", "age_s": 30}
    assert [(app["app_id"], app["confirmed"], app["outstanding"]) for app in fanout["apps"]] == [
        ("foo", 2, 1),
        ("bar", 1, 2),
    ]
    assert (fanout["arrivals_per_s"], fanout["removals_per_s"]) == (3 / 40, 1 / 40)
    assert (priority["messages"], priority["outstanding"], priority["arrivals_per_s"]) == (2, 2, 2.0)
    assert found["totals"]["messages"] == 5
    assert found["totals"]["payload_bytes"] == 2300
    series = found["series"]
    assert series["start"]["timestamp"] == START_S
    assert series["backlog"][5:11] == [2, 3, 3, 3, 3, 4]
    assert series["backlog"][-1] == 4


def test_queues_are_rows_for_spreadsheets(run: Run, tmp_path: Path) -> None:
    store = two_queues(tmp_path / "store")
    whole = json.loads(run("summary", "--json", store).out)
    assert json.loads(run("summary", "--output", "json", store).out) == whole
    lines = run("summary", "--output", "jsonl", "--top", 1, store).out.splitlines()
    assert [json.loads(line) for line in lines] == whole["queues"][:1]
    rows = list(csv.DictReader(io.StringIO(run("summary", "--output", "csv", store).out)))
    assert [(row["queue_uri"], row["messages"]) for row in rows] == [(FANOUT, "3"), (PRIORITY, "2")]
    assert list(rows[0]) == list(whole["queues"][0])


def test_one_journal_of_a_store(run: Run, tmp_path: Path) -> None:
    store = two_queues(tmp_path / "store")
    found = json.loads(run("summary", "--json", next(store.glob("bmq_1.*.bmq_journal"))).out)
    assert [queue["queue_uri"] for queue in found["queues"]] == [PRIORITY]


def test_a_partition_whose_headers_are_damaged_is_left_out(run: Run, tmp_path: Path) -> None:
    store = two_queues(tmp_path / "store")
    journals = sorted(store.glob("*.bmq_journal"))
    with journals[0].open("r+b") as file:
        file.write(b"?")
    result = run("summary", "--json", store)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert str(journals[0]) in result.err
    assert [queue["queue_uri"] for queue in json.loads(result.out)["queues"]] == [PRIORITY]
    with journals[1].open("r+b") as file:
        file.write(b"?")
    result = run("summary", "--json", store)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)


def test_selecting_and_sorting(run: Run, tmp_path: Path) -> None:
    store = two_queues(tmp_path / "store")
    (fanout,) = json.loads(run("summary", "--json", "--queue", "fanout", store).out)["queues"]
    by_key = json.loads(run("summary", "--json", "--queue", fanout["queue_key"].lower(), store).out)
    assert by_key["queues"] == [fanout]
    assert sum(by_key["series"]["arrivals"]) == 3
    for order in Order:
        result = json.loads(run("summary", "--json", "--sort", order, store).out)
        first = PRIORITY if order in (Order.BYTES, Order.ARRIVALS, Order.OLDEST) else FANOUT
        assert result["queues"][0]["queue_uri"] == first, order
        result = json.loads(run("summary", "--json", "--sort", order, "--top", 1, store).out)
        assert [queue["queue_uri"] for queue in result["queues"]] == [first]
        assert result["totals"]["queues"] == 2
    result = run("summary", "--queue", "nowhere", store)
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_tables(run: Run, tmp_path: Path) -> None:
    result = run("summary", two_queues(tmp_path / "store"))
    assert (result.code, result.err) == (0, "")
    rows = [line.split() for line in result.out.splitlines()]
    assert ["0", "3", "360", "B", "0.075", "0.025", "2", "30s", "1", "0", "0", "0", FANOUT] in rows
    assert ["2", "30s", "1", "0", "bar"] in rows
    assert "5 messages in 2 queues, 2.3 KiB stored (2.2 KiB of payload); 4 wait, 1 of them" in result.out
    result = run("summary", "--top", 1, tmp_path / "store")
    assert "and 1 more queues (--top)" in result.out
    assert PRIORITY not in result.out


def test_without_data_and_names(run: Run, tmp_path: Path) -> None:
    """The journal alone: what can be known is, what cannot is left open."""
    store = two_queues(tmp_path / "store")
    for path in store.iterdir():
        if path.name.endswith(("data", "qlist", "csl")):
            path.unlink()
    result = run("summary", "--json", "--sort", "messages", store)
    assert result.code == 1
    assert "bmq_journal: has no DATA file" in result.err
    fanout, _ = json.loads(result.out)["queues"]
    assert (fanout["queue_uri"], fanout["messages"], fanout["outstanding"]) == (None, 3, 2)
    assert (fanout["stored_bytes"], fanout["payload_bytes"], fanout["outstanding_bytes"]) == (None, None, None)
    assert [(app["app_id"], app["confirmed"]) for app in fanout["apps"]] == [(None, 2)]
    assert "? (key " + fanout["queue_key"] in run("summary", store).out


def test_payload_bytes_on_demand(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = two_queues(tmp_path / "store")

    def totals(*options: str) -> tuple[int, int | None]:
        found = json.loads(run("summary", "--json", *options, store).out)["totals"]
        return found["stored_bytes"], found["payload_bytes"]

    assert totals() == totals("--payload-bytes") == (2392, 2300)
    assert totals("--no-payload-bytes") == (2392, None)
    monkeypatch.setattr("bmqctl.stores.blazingmq.summary.summary_records.DATA_SIZE_READ", 10)
    assert totals() == (2392, None)
    assert totals("--payload-bytes") == (2392, 2300)


def test_data_that_is_not_what_the_journal_says(run: Run, tmp_path: Path) -> None:
    """Lengths of nonsense count as nothing, and break nothing."""
    store = two_queues(tmp_path / "store")
    data = next(store.glob("bmq_0.*.bmq_data"))
    content = bytearray(data.read_bytes())
    content[40 : 40 + DATA_HEADER.size] = b"\xff" * DATA_HEADER.size
    data.write_bytes(content[:-8])
    found = json.loads(run("summary", "--json", "--queue", "fanout", store).out)
    assert found["totals"]["payload_bytes"] == 100
    for short in (b"", b"\xff" * 7, b"\xff" * DATA_HEADER.size):
        data.write_bytes(short)
        assert json.loads(run("summary", "--json", "--queue", "fanout", store).out)["totals"]["payload_bytes"] is None


def test_damaged_records(run: Run, copy: Path) -> None:
    journal = only(copy, ".bmq_journal")
    content = bytearray(journal.read_bytes())
    at = 44 + 10 * JOURNAL_RECORD_SIZE
    assert content[at] >> 4 == 1
    content[at + 56] ^= 1
    confirm = next(n for n in range(300, 600) if content[44 + n * JOURNAL_RECORD_SIZE] >> 4 == 2)
    content[44 + confirm * JOURNAL_RECORD_SIZE] = 0
    journal.write_bytes(content)
    result = run("summary", "--json", copy)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "2 records cannot be read" in result.err
    (partition,) = json.loads(result.out)["partitions"]
    assert partition["unreadable"] == 2
    assert partition["misfits"]["unknown"] == 1


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 604 * 60 - 1), st.binary(min_size=1, max_size=70)), max_size=40), st.booleans()
)
def test_any_bytes_are_counted(golden: Golden, damage: list[tuple[int, bytes]], behind_magic: bool) -> None:
    """Every slot is counted, as a record or as unreadable, for any contents."""
    source = golden("single-clean")
    content = bytearray(only(source, ".bmq_journal").read_bytes())
    for at, piece in damage:
        # Pieces that leave the magic alone make other records, not unreadable ones.
        at = at // 60 * 60 if behind_magic else at
        piece = piece[:56] if behind_magic else piece
        content[44 + at : 44 + at + len(piece)] = piece
    with TemporaryDirectory() as directory:
        for path in source.iterdir():
            (Path(directory) / path.name).symlink_to(path)
        journal = only(Path(directory), ".bmq_journal")
        journal.unlink()
        journal.write_bytes(content)
        found = summarize(Path(directory), lambda done, total: None)
        with JournalScan(journal) as scan:
            count = scan.extent.record_count
    (partition,) = found.partitions
    assert sum(partition.records.values()) + partition.unreadable == count
    assert (
        sum(queue.messages for queue in found.queues) + partition.misfits["duplicates"] == partition.records["MESSAGE"]
    )
    for queue in found.queues:
        assert queue.messages == queue.outstanding + sum(queue.ended.values())
        for app in queue.apps:
            assert min(app.confirmed, app.rejected, app.automatic, app.purged, app.outstanding) >= 0
    assert found.series.backlog.tolist()[-1:] == [sum(queue.outstanding for queue in found.queues)]
    assert json.dumps(_as_json(found, found.queues))


def test_a_journal_that_a_rollover_filled(run: Run, tmp_path: Path) -> None:
    """The records before the first sync point, which the header names, were copied from an older journal."""
    line = {"queue_uri": PRIORITY, "payload": "z"}
    lines: list[dict[str, Any]] = [{"type": "QUEUE_OP", "queue_uri": PRIORITY, "timestamp": START_S}]
    lines += [{"type": "MESSAGE", **line, "timestamp": START_S + 1}] * 3
    lines.append({"type": "JOURNAL_OP", "timestamp": START_S + 1000})
    lines += [{"type": "MESSAGE", **line, "timestamp": START_S + 1000}] * 4
    lines.append({"type": "JOURNAL_OP", "timestamp": START_S + 1002})
    store = built(tmp_path / "store", lines)
    journal = next(store.glob("*.bmq_journal"))
    content = bytearray(journal.read_bytes())
    del content[44 : 44 + JOURNAL_RECORD_SIZE]  # the sync point that opens every new journal but such a one
    struct.pack_into(">Q", content, 36, (44 + 4 * JOURNAL_RECORD_SIZE) // 4)
    journal.write_bytes(content)
    found = json.loads(run("summary", "--json", store).out)
    (queue,), (partition,) = found["queues"], found["partitions"]
    assert (queue["messages"], queue["carried_over"], queue["arrivals_per_s"]) == (7, 3, 2.0)
    assert (partition["rolled_over_records"], partition["seconds"]) == (4, 2)


@pytest.mark.parametrize("kind", ["data", "qlist", "ledger", "empty", "text", "zeros", "nothing", "directory", "cut"])
def test_file_that_is_no_journal_gets_one_line(run: Run, tmp_path: Path, kind: str) -> None:
    store = two_queues(tmp_path / "store")
    path = tmp_path / "given"
    if kind in ("data", "qlist", "ledger"):
        path = next(store.glob({"data": "bmq_0*.bmq_data", "qlist": "bmq_0*.bmq_qlist", "ledger": "*.bmq_csl"}[kind]))
    elif kind == "directory":
        path.mkdir()
    elif kind == "cut":
        path.write_bytes(next(store.glob("bmq_0*.bmq_journal")).read_bytes()[:40])
    elif kind != "nothing":
        path.write_bytes({"empty": b"", "text": b"hello, world", "zeros": bytes(4096)}[kind])
    result = run("summary", path)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert str(path) in result.err


def test_an_empty_journal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bmq_0.20260101_000000.bmq_journal"
    path.write_bytes(next(two_queues(tmp_path / "store").glob("bmq_0*.bmq_journal")).read_bytes()[:44])
    result = run("summary", "--json", path)
    assert result.code == 0
    found = json.loads(result.out)
    assert (found["queues"], found["series"]["start"]) == ([], None)
    assert run("summary", path).code == 0


def test_while_a_broker_cuts_the_files_off(run: Run, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that stops truncates its files: a chunk that is gone was not there."""
    small_chunks(monkeypatch, 100)
    journal = only(copy, ".bmq_journal")
    found = summarize(copy, lambda done, total: os.truncate(journal, 44 + 150 * JOURNAL_RECORD_SIZE))
    assert sum(found.partitions[0].records.values()) == 150


@pytest.mark.process  # matplotlib asks fc-list for fonts where it has not done so before
class TestPlots:
    def test_in_the_terminal(self, run: Run, tmp_path: Path) -> None:
        result = run("summary", "--plot", two_queues(tmp_path / "store"))
        assert (result.code, result.err) == (0, "")
        assert "arrivals per second" in result.out
        assert "backlog, messages" in result.out
        assert "00:00:00" in result.out
        assert "\x1b" not in result.out

    @pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
    def test_to_a_file(self, run: Run, tmp_path: Path, suffix: str, start: bytes) -> None:
        picture = tmp_path / f"plot{suffix}"
        result = run("summary", "--plot-out", picture, two_queues(tmp_path / "store"))
        assert (result.code, result.err) == (0, "")
        assert picture.read_bytes().startswith(start)

    @pytest.mark.parametrize("times", [(0, 0), (0, 50_000), (0, 86_400 * 30), (-START_S, (1 << 62) - START_S)])
    def test_any_time_span(self, run: Run, tmp_path: Path, times: tuple[int, int]) -> None:
        lines = [{"type": "MESSAGE", "queue_uri": FANOUT, "timestamp": START_S + time} for time in times]
        store = built(tmp_path / "store", [{**line, "payload": "x"} for line in lines])
        result = run("summary", "--plot", "--plot-out", tmp_path / "plot.png", store)
        assert (result.code, result.err) == (0, "")
        assert result.out.count("backlog") == 1

    def test_of_a_backlog_that_is_empty_all_the_time(self, run: Run, tmp_path: Path) -> None:
        message = {"queue_uri": FANOUT, "guid": f"{1:032X}", "timestamp": START_S}
        lines = [{**message, "type": "MESSAGE", "payload": "x"}, {**message, "type": "DELETION"}]
        result = run("summary", "--plot", built(tmp_path / "store", lines))
        assert (result.code, result.err) == (0, "")
        assert "backlog, messages" in result.out

    def test_to_a_file_that_cannot_be(self, run: Run, tmp_path: Path) -> None:
        store = two_queues(tmp_path / "store")
        for name in ("plot.gif", "nowhere/plot.png"):
            result = run("summary", "--plot-out", tmp_path / name, store)
            assert (result.code, result.err.count("\n")) == (2, 1)

    def test_of_nothing(self, run: Run, tmp_path: Path) -> None:
        store = built(tmp_path / "store", [{"type": "QUEUE_OP", "queue_uri": FANOUT}])
        result = run("summary", "--plot", "--plot-out", tmp_path / "plot.png", store)
        assert (result.code, result.err.count("no messages to plot")) == (0, 2)
        assert not (tmp_path / "plot.png").exists()

    @pytest.mark.parametrize(("option", "package"), [("--plot", "plotext"), ("--plot-out=p.png", "matplotlib")])
    def test_without_the_extra(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, package: str
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, package, None)
        result = run("summary", option, two_queues(tmp_path / "store"))
        assert (result.code, result.out) == (2, "")
        assert result.err.count("\n") == 1
        assert "pip install '.[plots]'" in result.err
