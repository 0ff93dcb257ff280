"""`bmqctl journal validate` on stores of RocketMQ: sound ones have no fault, and each kind of damage has its code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bmqctl.stores.blazingmq.read.fault_report import Report
from bmqctl.stores.rocketmq.check.check import check_log_store
from bmqctl.stores.rocketmq.faults import CATALOGUE
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.read.index_files import IndexLayout, find_layout
from bmqctl.stores.rocketmq.read.scan import LogScan
from formats.rocketmq.files.checkpoints import STORE_CHECKPOINT, StoreCheckpoint
from formats.rocketmq.files.epochs import EpochEntry, encode_epochs
from formats.rocketmq.files.flush_mark import MARK_NAME, encode_mark
from formats.rocketmq.files.index import IndexFile
from formats.rocketmq.files.names import offset_name
from tests.bmqctl.stores.conftest import Outcome, run
from tests.bmqctl.stores.rocketmq.check.broker_stores import SMALL, change, fill, open_small, write_store
from tests.broker.rocketmq.store.files.leftovers_rig import END, Golden
from tests.golden.rocketmq.stores import STORES, unpack

__all__ = ["run"]

FIRST = offset_name(0)
ENTRIES_AT = 40 + SMALL.index_slots * 4


def check(root: Path) -> Report:
    return check_log_store(root, 1000, lambda done, total: None)


def records_at(root: Path) -> list[int]:
    """The offsets of the records of a log."""
    return [offset for chunk in LogScan(open_store(root).log).chunks() for offset in chunk.records.offsets.tolist()]


def in_log(root: Path, offset: int) -> tuple[Path, int]:
    place = offset % SMALL.commit_log_file_bytes
    return root / "commitlog" / offset_name(offset - place), place


@pytest.mark.parametrize("name", STORES)
def test_stores_of_the_original_have_no_fault_but_that_they_were_not_stopped(tmp_path: Path, name: str) -> None:
    for root in unpack(name, tmp_path, without=("timerwheel", "timerlog")):
        report = check(root)
        assert report.errors == 0, report.faults
        assert report.records == len(records_at(root)) > 0
        assert bool(report.counts) is (root / "abort").exists()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("crashed", [False, True])
def test_stores_of_the_broker_have_no_fault(tmp_path: Path, seed: int, crashed: bool) -> None:
    root = write_store(tmp_path, Random(seed).randrange(1, 200), seed, crashed=crashed)
    assert check(root).counts == ({"not-stopped": 1} if crashed else {})


def test_store_in_use_has_no_error(tmp_path: Path) -> None:
    root = write_store(tmp_path)
    store = open_small(root)
    fill(store, 30, Random(3), begin=60)
    assert check(root).counts == {"not-stopped": 1}
    store.close()


def flip(folder: str, name: str, at: int) -> Callable[[Path], None]:
    return lambda root: change(root / folder / name, at)


def index_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "index").iterdir())[number]


def flip_index(at: int) -> Callable[[Path], None]:
    return lambda root: change(index_file(root), at)


def overwrite_index_header(root: Path) -> None:
    with index_file(root).open("r+b") as file:
        file.write(b"\xff" * 40)


def flip_record(number: int, at: int) -> Callable[[Path], None]:
    """Change a byte of the record with a number; from the end for a negative one."""

    def damage(root: Path) -> None:
        path, place = in_log(root, records_at(root)[number])
        change(path, place + at)

    return damage


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        (root / name).write_bytes(data)

    return damage


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def remove_queue(root: Path) -> None:
    folder = root / "consumequeue" / "a" / "0"
    for path in folder.iterdir():
        path.unlink()


def zero_entry(root: Path) -> None:
    path = root / "consumequeue" / "a" / "0" / FIRST
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(20) + data[60:])


def drop_last_records(root: Path) -> None:
    """Have an end of the log before that of queues and checkpoint."""
    offset = records_at(root)[-3]
    path, place = in_log(root, offset)
    data = path.read_bytes()
    path.write_bytes(data[:place] + bytes(len(data) - place))


def write_behind(root: Path) -> None:
    offset = records_at(root)[-1]
    path, place = in_log(root, offset)
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[place : place + 4], "big")
    data[place + size : place + size + 30] = data[place : place + 30]
    path.write_bytes(data)


def truncate_log(root: Path) -> None:
    path = root / "commitlog" / FIRST
    path.write_bytes(path.read_bytes()[:4000])


QUEUE = "consumequeue/a/0"
DAMAGE: dict[str, tuple[Callable[[Path], None], set[str]]] = {
    "body": (flip_record(4, 90), {"body-checksum"}),
    "magic": (flip_record(4, 5), {"record", "number-gap", "entry-without-record", "index-key"}),
    "number of a message": (flip_record(4, 27), {"number-gap", "number-repeated", "entry-offset"}),
    "topic of a message": (flip_record(4, 109), set()),
    "log's second file": (
        remove(f"commitlog/{offset_name(4096)}"),
        {"log-file-missing", "number-gap", "entry-without-record", "index-key"},
    ),
    "size of a file": (truncate_log, {"log-file-size", "log-file-missing"}),
    "end of the log": (drop_last_records, {"entry-without-record", "checkpoint-ahead", "index-key"}),
    "behind the log": (write_behind, {"log-tail"}),
    "offset of an entry": (flip(QUEUE, FIRST, 20 + 7), {"entry-offset"}),
    "size of an entry": (flip(QUEUE, FIRST, 20 + 11), {"entry-size"}),
    "tag of an entry": (flip(QUEUE, FIRST, 20 + 19), {"entry-tag"}),
    "order of entries": (flip(QUEUE, FIRST, 20 + 6), {"entry-offset"}),
    "time of a delayed message": (flip("consumequeue/SCHEDULE_TOPIC_XXXX/1", FIRST, 12), {"entry-tag"}),
    "tag in a lite topic": (flip("consumequeue/%LMQ%$parent$lite/0", FIRST, 19), {"entry-tag"}),
    "an entry": (zero_entry, {"queue-hole", "entry-offset"}),
    "all files of a queue": (remove_queue, {"queue-missing"}),
    "first file of a queue": (remove(f"{QUEUE}/{FIRST}"), {"entry-missing"}),
    "index: hash": (flip_index(ENTRIES_AT + 20 + 3), {"index-key", "index-lacks", "index-chain"}),
    "index: offset": (flip_index(ENTRIES_AT + 60 + 11), {"index-key", "index-lacks"}),
    "index: time": (flip_index(ENTRIES_AT + 120 + 14), {"index-time"}),
    "index: previous": (flip_index(ENTRIES_AT + 40 + 19), {"index-chain"}),
    "index: slot": (flip_index(43), {"index-slot"}),
    "index: slots in use": (flip_index(35), {"index-header"}),
    "index: number of entries": (flip_index(36), {"index-header"}),
    "index: number of entries below 0": (overwrite_index_header, {"index-header"}),
    "checkpoint's size": (write("checkpoint", bytes(100)), {"checkpoint"}),
    "no checkpoint": (remove("checkpoint"), {"checkpoint"}),
    "checkpoint's time": (
        write("checkpoint", STORE_CHECKPOINT.pack(StoreCheckpoint(1 << 50, 0, 0, 0, 0)).ljust(4096, b"\0")),
        {"checkpoint-ahead"},
    ),
    "mark": (write(MARK_NAME, encode_mark(1 << 50, 1 << 40)), {"checkpoint-ahead"}),
    "epochs": (write("epochFileCheckpoint", b"1\n77\n1-0\n"), {"epoch-file"}),
    "an epoch's begin": (
        write("epochFileCheckpoint", encode_epochs([EpochEntry(1, 0), EpochEntry(2, 1 << 40)])),
        {"epoch-offset"},
    ),
    "topics": (write("config/topics.json", b'{"topicConfigTable":'), {"config-file"}),
    "group's offset": (
        write("config/consumerOffset.json", b'{"offsetTable":{"a@group":{0:1000}}}'),
        {"offset-ahead"},
    ),
    "negative offset": (write("config/consumerOffset.json", b'{"offsetTable":{"a@g":{0:-5}}}'), {"offset-invalid"}),
    "delay level": (write("config/delayOffset.json", b'{"offsetTable":{2:900}}'), {"offset-ahead"}),
    "timers": (write("config/timercheck", bytes(7)), {"config-file"}),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(tmp_path: Path, name: str) -> None:
    root = write_store(tmp_path, 120)
    damage, codes = DAMAGE[name]
    damage(root)
    report = check(root)
    assert codes <= report.counts.keys(), report.faults
    assert report.counts
    for found in report.faults:
        assert found.code in CATALOGUE
        assert found.advice
        assert found.offset >= 0
        assert Path(found.file).is_relative_to(root)


def test_traces_of_a_crash_are_no_error(tmp_path: Path) -> None:
    root = write_store(tmp_path, 120, crashed=True)
    write_behind(root)
    report = check(root)
    assert report.counts == {"not-stopped": 1, "torn-tail": 1}
    assert report.errors == 0


@pytest.mark.parametrize("seed", range(40))
def test_any_change_of_a_written_entry_is_found(tmp_path: Path, seed: int) -> None:
    choose = Random(seed)
    root = write_store(tmp_path, 60, seed)
    path = choose.choice(sorted((root / "consumequeue").glob("*/*/*")))
    data = path.read_bytes()
    at = choose.randrange(len(data.rstrip(b"\0")))
    change(path, at, lambda byte: byte ^ 1 << choose.randrange(8))
    # The time at which a delayed message is due depends on the broker's configuration.
    assert check(root).errors or (at % 20 >= 12 and "SCHEDULE" in str(path)), (path, at)


@pytest.mark.parametrize("seed", range(30))
def test_garbage_anywhere_gives_faults_and_no_more(tmp_path: Path, seed: int) -> None:
    choose = Random(seed)
    root = write_store(tmp_path, 60, seed)
    for path in choose.sample([path for path in sorted(root.rglob("*")) if path.is_file()], 4):
        data = bytearray(path.read_bytes())
        at = choose.randrange(len(data) + 1)
        data[at : at + 50] = choose.randbytes(choose.choice((0, 50, 80)))
        path.write_bytes(data)
    for found in check(root).faults:
        assert found.reason


def test_file_of_a_queue_far_away_takes_no_time(tmp_path: Path) -> None:
    root = write_store(tmp_path, 120)
    last = max((root / "consumequeue" / "a" / "1").iterdir())
    last.rename(last.with_name(offset_name((1 << 62) - (1 << 62) % 200)))
    assert check(root).counts.keys() >= {"queue-file-missing", "queue-hole", "entry-without-record"}


@pytest.mark.parametrize("name", [b"\xff/0", b"a/00", b"a/4294967296", "a/\u0660".encode(), b"a/" + b"9" * 200])
def test_folders_that_no_broker_makes(tmp_path: Path, name: bytes) -> None:
    root = write_store(tmp_path, 60)
    folder = root / "consumequeue" / os.fsdecode(name)
    folder.mkdir(parents=True)
    (folder / FIRST).write_bytes((root / "consumequeue" / "a" / "0" / FIRST).read_bytes())
    # Where the topic can be one, its entries have no records; what is no number of a queue is none.
    assert check(root).counts.keys() == ({"entry-without-record"} if name == b"\xff/0" else set())


@pytest.mark.parametrize("crashed", [False, True])
def test_rest_of_an_older_log_is_no_error(tmp_path: Path, crashed: bool) -> None:
    golden = Golden(tmp_path)
    (golden.root / "commitlog" / FIRST).write_bytes(golden.log)
    last_ms = golden.new_ms[1827]
    checkpoint = StoreCheckpoint(last_ms, last_ms, 0, 0, END)
    (golden.root / "checkpoint").write_bytes(STORE_CHECKPOINT.pack(checkpoint).ljust(4096, b"\0"))
    (golden.root / "epochFileCheckpoint").write_bytes(encode_epochs([EpochEntry(1, 0), EpochEntry(5, 1305)]))
    if not crashed:
        (golden.root / "abort").unlink()
    report = check(golden.root)
    assert report.counts["old-tail"] == 1
    assert report.errors == 0, report.faults


def test_layout_of_an_index_is_found(tmp_path: Path) -> None:
    root = write_store(tmp_path, 60)
    assert find_layout(open_store(root).index_files) == IndexLayout(SMALL.index_slots, SMALL.index_entries)


@pytest.mark.parametrize("slots", [1003, 1011, 1014, 1016])
def test_layout_is_not_mistaken_where_many_slots_are_used(tmp_path: Path, slots: int) -> None:
    layout = IndexLayout(slots, 7777)
    buffer = bytearray(layout.size)
    file = IndexFile(buffer, *layout)
    # The first entries are in slots of their own, whatever the number of slots is, and the last message has three keys.
    for number in range(6000):
        file.put_hash(number % slots, 100 * min(number, 5997), 1_795_400_000_000)
    path = tmp_path / "20261123000000000"
    path.write_bytes(buffer)
    assert find_layout([path]) == layout


def test_command_prints_faults_and_exits_with_one(tmp_path: Path, run: Callable[..., Outcome]) -> None:
    root = write_store(tmp_path / "store", 120)
    outcome = run("validate", root)
    assert outcome.code == 0
    assert outcome.out.endswith("with 120 records\n")
    flip_record(4, 90)(root)
    outcome = run("validate", "--json", root)
    assert outcome.code == 1
    found: dict[str, Any] = json.loads(outcome.out)
    (only,) = found["faults"]
    assert (only["code"], only["severity"], found["errors"]) == ("body-checksum", "error", 1)
    assert only["file"] == str(root / "commitlog" / FIRST)
