"""`bmqctl journal repair` on stores of RocketMQ: what is sound stays, and the result has no fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from bmqctl.stores.rocketmq.check.check import check_log_store
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.read.scan import LogScan
from bmqctl.stores.rocketmq.repair.fill import FILLER_TOPIC, LOST
from bmqctl.stores.rocketmq.repair.parts import Refused, RepairReport
from bmqctl.stores.rocketmq.repair.repair import repair_log_store
from broker.rocketmq.store.message_store import MessageStore
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY
from formats.rocketmq.files.epochs import EpochEntry, decode_epochs, encode_epochs
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Record, decode_record, encode_record
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS
from tests.bmqctl.stores.conftest import Outcome, run
from tests.bmqctl.stores.rocketmq.check.broker_stores import SMALL, change, fill, open_small, write_store
from tests.golden.rocketmq.stores import STORES, unpack

__all__ = ["run"]

FIRST = offset_name(0)


def repair(root: Path, out: Path) -> RepairReport:
    return repair_log_store(root, out, None, lambda what, done, total: None)


def read_log(root: Path) -> dict[int, bytes]:
    """The bytes of the records of a log whose bodies are sound, by their offsets."""
    found = {}
    for chunk in LogScan(open_store(root).log).chunks():
        records = chunk.records
        for at, begin, size in zip(
            records.offsets.tolist(), records.starts.tolist(), records.sizes.tolist(), strict=True
        ):
            data = bytes(records.data[begin : begin + size])
            record = decode_record(data)
            if isinstance(record, Record) and record.is_body_sound:
                found[at] = data
    return found


def is_made(data: bytes) -> bool:
    """Return whether a record was made in place of a lost one."""
    record = decode_record(data)
    assert isinstance(record, Record)
    return record.topic == FILLER_TOPIC[: len(record.topic)] or LOST.encode() in record.properties


def queues_of(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """The numbers and bodies of all messages, read by way of their queues."""
    return {
        key: [
            (number, bytes(store.log.read(queue.get(number).physical_offset).record.body))
            for number in range(queue.begin, queue.end)
        ]
        for key, queue in store.queues.items()
    }


def flip(root: Path, choose: Random) -> None:
    path = choose.choice(sorted((root / "commitlog").iterdir()))
    data = path.read_bytes()
    change(path, choose.randrange(len(data.rstrip(b"\0"))), lambda byte: byte ^ 1 << choose.randrange(8))


def zero(root: Path, choose: Random) -> None:
    path = choose.choice(sorted((root / "commitlog").iterdir()))
    data = bytearray(path.read_bytes())
    begin = choose.randrange(len(data))
    end = min(len(data), begin + choose.randrange(1, 1500))
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)


def truncate(root: Path, choose: Random) -> None:
    path = choose.choice(sorted((root / "commitlog").iterdir()))
    path.write_bytes(path.read_bytes()[: choose.randrange(1, SMALL.commit_log_file_bytes)])


def delete(root: Path, choose: Random) -> None:
    choose.choice([path for path in sorted(root.rglob("*")) if path.is_file()]).unlink()


def flip_derived(root: Path, choose: Random) -> None:
    paths = [path for name in ("consumequeue", "index") for path in sorted((root / name).rglob("*")) if path.is_file()]
    path = choose.choice(paths)
    change(path, choose.randrange(path.stat().st_size), lambda byte: byte ^ 1 << choose.randrange(8))


DAMAGES = (flip, flip, zero, truncate, delete, flip_derived)


@pytest.mark.parametrize("seed", range(60))
def test_every_undamaged_record_is_in_the_result_which_has_no_fault(tmp_path: Path, seed: int) -> None:
    choose = Random(seed)
    root = write_store(tmp_path / "store", choose.randrange(30, 150), seed, crashed=choose.random() < 0.3)
    for damage in choose.choices(DAMAGES, k=choose.randrange(1, 4)):
        damage(root, choose)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    sound = read_log(root)
    report = repair(root, tmp_path / "out")
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert (report.errors, report.warnings) == (0, 0), check_log_store(tmp_path / "out", 99, lambda a, b: None).faults
    kept = read_log(tmp_path / "out")
    told = {note.offset for note in (*report.restored, *report.left_out)}
    for offset, data in sound.items():
        assert kept.get(offset) == data or offset in told, (offset, report)
    for offset, data in kept.items():
        assert sound.get(offset) == data or offset in told or is_made(data)
    # The broker starts with it, and has each message of a queue in its order.
    store = open_small(tmp_path / "out")
    for numbers in queues_of(store).values():
        assert [number for number, _ in numbers] == list(range(numbers[0][0], numbers[0][0] + len(numbers)))
    fill(store, 5, choose, begin=200)
    store.close()
    assert check_log_store(tmp_path / "out", 0, lambda done, total: None).errors == 0


@pytest.mark.parametrize("seed", range(12))
def test_messages_keep_their_numbers_where_others_are_lost(tmp_path: Path, seed: int) -> None:
    choose = Random(seed)
    root = write_store(tmp_path / "store", 100, seed)
    expected = queues_of(store := open_small(root))
    store.close()
    zero(root, choose)
    repair(root, tmp_path / "out")
    found = queues_of(store := open_small(tmp_path / "out"))
    store.close()
    for key, messages in expected.items():
        there = dict(found.get(key, []))
        # Messages after the last sound record are lost; all others are as they were, or empty.
        for number, body in messages:
            assert there.get(number, b"") in (b"", body)
    assert sum(body != b"" for each in found.values() for _, body in each) > 50


@pytest.mark.parametrize("name", STORES)
def test_sound_stores_of_the_original_stay_as_they_are(tmp_path: Path, name: str) -> None:
    for at, root in enumerate(unpack(name, tmp_path / "store", without=("timerwheel", "timerlog"))):
        report = repair(root, tmp_path / str(at))
        assert (report.left_out, report.restored, report.errors) == ([], [], 0)
        assert read_log(tmp_path / str(at)) == read_log(root)
        if not (root / "abort").exists():
            for path in (root / "consumequeue").rglob("*"):
                if path.is_file():
                    assert (tmp_path / str(at) / path.relative_to(root)).read_bytes() == path.read_bytes()


def records_at(root: Path) -> list[int]:
    return list(read_log(root))


def test_message_with_a_damaged_body_keeps_its_place_and_properties(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", 60)
    offset = records_at(root)[6]
    before = decode_record(read_log(root)[offset])
    assert isinstance(before, Record)
    change(root / "commitlog" / offset_name(offset - offset % 4096), offset % 4096 + 90)
    report = repair(root, tmp_path / "out")
    (note,) = report.left_out
    assert (note.what, note.offset, note.topic, note.number) == ("body", offset, before.topic, before.queue_offset)
    after = decode_record(read_log(tmp_path / "out")[offset])
    assert isinstance(after, Record)
    assert bytes(after.body) == b""
    kept = decode_properties(after.properties)
    assert kept.items() >= decode_properties(before.properties).items()
    assert after._replace(body=before.body, body_crc=before.body_crc, properties=before.properties) == before


def test_message_with_a_damaged_body_and_topic_keeps_its_place(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", 60)
    offset = records_at(root)[6]
    before = decode_record(read_log(root)[offset])
    assert isinstance(before, Record)
    path = root / "commitlog" / offset_name(offset - offset % 4096)
    change(path, offset % 4096 + 90)
    change(path, offset % 4096 + 88 + len(before.body) + 1, lambda byte: 0xFF)
    report = repair(root, tmp_path / "out")
    assert report.errors == 0
    assert [(note.what, note.offset) for note in report.left_out] == [("bytes", offset), ("message", offset)]
    lost = report.left_out[1]
    assert (lost.topic, lost.queue_id, lost.number) == (before.topic, before.queue_id, before.queue_offset)


def test_number_that_the_queue_contradicts_is_put_right(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", 60)
    before = read_log(root)
    offset = list(before)[20]
    change(root / "commitlog" / offset_name(offset - offset % 4096), offset % 4096 + 26)
    report = repair(root, tmp_path / "out")
    assert [(note.offset, note.what) for note in report.restored] == [(offset, "number")]
    assert report.left_out == []
    assert read_log(tmp_path / "out") == before


def test_epochs_and_offsets_behind_the_end_are_set_back(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", 60)
    (root / "epochFileCheckpoint").write_bytes(encode_epochs([EpochEntry(1, 0), EpochEntry(2, 1 << 40)]))
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"a@group":{0:1000,1:1}}}')
    report = repair(root, tmp_path / "out")
    assert decode_epochs((tmp_path / "out" / "epochFileCheckpoint").read_bytes()) == [EpochEntry(1, 0)]
    assert [note.what for note in report.restored] == ["config/consumerOffset.json"]
    assert report.errors == report.warnings == 0


def test_offsets_of_a_broker_with_light_queues_are_set_back_too(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", 60)
    name = "lmqConsumerOffset.json"
    (root / "config" / name).write_text('{"offsetTable":{"a@group":{0:1000}},"lmqOffsetTable":{"a@%LMQ%x":1000}}')
    report = repair(root, tmp_path / "out")
    assert [note.what for note in report.restored] == [f"config/{name}"] * 2
    found = CONSUMER_OFFSETS.read((tmp_path / "out" / "config" / name).read_bytes()).all_offsets
    end = found["a@group"][0]
    assert 0 < end < 1000
    assert found["a@%LMQ%x"] == {0: end}


@pytest.mark.parametrize("ms", [(1 << 63) - 1, -1 << 63, 1 << 62, 253_402_300_799_999])
def test_times_that_no_calendar_has_stay(tmp_path: Path, ms: int) -> None:
    root = write_store(tmp_path / "store", 60)
    for offset in records_at(root):
        path = root / "commitlog" / offset_name(offset - offset % 4096)
        data = bytearray(path.read_bytes())
        data[offset % 4096 + 56 : offset % 4096 + 64] = ms.to_bytes(8, "big", signed=True)
        path.write_bytes(data)
    report = repair(root, tmp_path / "out")
    assert (report.records, report.left_out) == (60, [])
    assert read_log(tmp_path / "out") == read_log(root)


def test_gap_of_too_many_files_is_refused(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", 60)
    last = records_at(root)[-1]
    begin = (1 << 62) - (1 << 62) % 4096
    record = decode_record(read_log(root)[last])
    assert isinstance(record, Record)
    data = encode_record(record._replace(physical_offset=begin))
    (root / "commitlog" / offset_name(begin)).write_bytes(data.ljust(4096, b"\0"))
    with pytest.raises(Refused, match=f"too many to fill: move the files before offset {begin} away"):
        repair(root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_bytes_behind_the_end_of_a_file_are_left_out(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", 60)
    before = read_log(root)
    path = root / "commitlog" / FIRST
    change(path, list(before)[-1] % 4096 + 90)
    sound = read_log(root)
    path.write_bytes(path.read_bytes() + b"x" * 45)
    report = repair(root, tmp_path / "out")
    assert report.errors == 0
    assert read_log(tmp_path / "out").items() >= sound.items()


@pytest.mark.parametrize(
    "text", ['{"offsetTable":{"a":null}}', '{"offsetTable":{}}', '{"offsetTable":{"a@g":{"0":null}}}', " "]
)
@pytest.mark.parametrize("name", ["consumerOffset.json", "delayOffset.json"])
def test_odd_offsets_are_no_obstacle(tmp_path: Path, name: str, text: str) -> None:
    root = write_store(tmp_path / "store", 60)
    (root / "config" / name).write_text(text)
    assert repair(root, tmp_path / "out").errors == 0


def test_store_in_use_and_places_in_it_are_refused(tmp_path: Path) -> None:
    root = write_store(tmp_path / "store", 10)
    for out in (root, root / "config" / "out"):
        with pytest.raises(Refused, match="inside the damaged store"):
            repair(root, out)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(Refused, match="is not empty"):
        repair(root, tmp_path / "full")


def split_entries(data: bytes) -> list[bytes]:
    """Divide the bytes of a file of a queue into entries."""
    size = CONSUME_QUEUE_ENTRY.size
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_messages_that_queues_name_after_the_end_of_the_log_are_left_out(tmp_path: Path, kept: int) -> None:
    root = write_store(tmp_path / "store", 60)
    files = sorted((root / "commitlog").iterdir())
    for path in files[kept:]:
        path.unlink()
    end = kept * SMALL.commit_log_file_bytes
    entries = [
        CONSUME_QUEUE_ENTRY.unpack(data)
        for path in root.glob("consumequeue/*/*/*")
        for data in split_entries(path.read_bytes())
    ]
    lost = sorted(entry.physical_offset for entry in entries if entry.size and entry.physical_offset >= end)
    assert lost
    report = repair(root, tmp_path / "out")
    assert sorted(note.offset for note in report.left_out if note.what == "message") == lost
    assert {note.reason for note in report.left_out} == {"the log ends before it"}
    assert report.errors == report.warnings == 0


def test_command_tells_what_was_lost(tmp_path: Path, run: Callable[..., Outcome]) -> None:
    root = write_store(tmp_path / "store", 60)
    assert run("repair", root, "--out", tmp_path / "same").code == 0
    offset = records_at(root)[6]
    change(root / "commitlog" / FIRST, offset + 5)
    outcome = run("repair", "--json", root, "--out", tmp_path / "out")
    assert outcome.code == 1
    found = json.loads(outcome.out)
    assert {note["what"] for note in found["left_out"]} == {"bytes", "message"}
    assert found["errors"] == 0
    lines = run("repair", root, "--out", tmp_path / "lines", "--output", "jsonl").out.splitlines()
    notes = [("left_out", note) for note in found["left_out"]] + [("restored", note) for note in found["restored"]]
    assert list(map(json.loads, lines)) == [{"outcome": outcome, **note} for outcome, note in notes]
    lines = run("repair", root, "--out", tmp_path / "csv", "--output", "csv").out.splitlines()
    assert lines[0] == "outcome,offset,size,what,reason,topic,queue_id,number"
    assert len(lines) == len(notes) + 1
    outcome = run("repair", "--replica", root, "--out", tmp_path / "other")
    assert (outcome.code, "for those of BlazingMQ" in outcome.err) == (2, True)
    assert run("validate", "--strict", tmp_path / "out").code == 0
    assert "fewer" not in run("repair", root, "--out", tmp_path / "more").out
