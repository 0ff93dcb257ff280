"""`bmqctl journal diff` on stores of RocketMQ: replicas of the original, and what a plain comparison finds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmqctl.stores.rocketmq.log_diff import Status, compare_logs
from bmqctl.stores.rocketmq.read.files import log_files
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY, ConsumeQueueEntry
from formats.rocketmq.files.epochs import EpochEntry, encode_epochs
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Record, encode_record
from tests.bmqctl.stores.conftest import Outcome
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES, Written, message, write_log
from tests.golden.rocketmq.stores import unpack

Run = Callable[..., Outcome]


def compared(run: Run, a: Path, b: Path, *, code: int) -> dict[str, Any]:
    outcome = run("diff", "--json", a, b)
    assert outcome.code == code, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    assert found["equal"] is (code == 0)
    return found


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Written, Path]:
    """A store of 1,000 messages in several files, and the folder of a copy."""
    written = write_log(tmp_path / "a", map(message, range(1000)))
    shutil.copytree(written.root, tmp_path / "b")
    return written, tmp_path / "b"


def test_replicas_of_the_original_are_equal(run: Run, tmp_path: Path) -> None:
    master, slave = unpack("ha-classic/stores", tmp_path / "classic")
    found = compared(run, master, slave, code=0)
    assert (found["status"], found["common_end"], found["common_epoch"]) == ("equal", 13053, None)
    assert found["last_common"]["offset"] == 12792
    one, other = unpack("ha-truncate/after", tmp_path / "truncated")
    found = compared(run, one, other, code=0)
    assert found["common_epoch"] == {"epoch": 6, "end": 3915}
    assert [entry["epoch"] for entry in found["b"]["epochs"]] == [1, 5, 6, 7]


def test_diverged_replica_of_the_original(run: Run, tmp_path: Path) -> None:
    (before,) = unpack("ha-truncate/before-c1-diverged", tmp_path / "before")
    _, after = unpack("ha-truncate/after", tmp_path / "after")
    found = compared(run, before, after, code=1)
    # Where the original has cut the log of this replica.
    assert (found["status"], found["common_end"]) == ("diverged", 1305)
    assert found["common_epoch"] == {"epoch": 1, "end": 1305}
    assert not found["contradicts_epochs"]
    parted = found["first_difference"]
    assert parted["offset"] == 1305
    assert parted["fields"]["size"] == {"a": 262, "b": 261}
    assert parted["fields"]["properties"]["a"]["WAIT"] == "false"
    assert "topic" not in parted["fields"]
    assert [(side["beyond"]["records"], side["beyond"]["different"]) for side in (found["a"], found["b"])] == [
        (5, 1),
        (10, 1),
    ]
    assert found["a"]["beyond"]["queues"] == [
        {"topic": "THa", "queue_id": 0, "records": 3, "size": 786},
        {"topic": "THa", "queue_id": 1, "records": 2, "size": 524},
    ]
    queue = found["queues"][0]
    assert (queue["topic"], queue["queue_id"], queue["first"], queue["different"]) == ("THa", 0, 2, 3)
    assert (queue["a"]["end"], queue["b"]["end"], queue["b"]["alone"]) == (5, 8, 3)
    assert queue["a"]["entry"]["physical_offset"] == 1305
    text = run("diff", before, after).out
    assert "they diverge" in text
    assert "first difference: at 1305, from byte 3 of the record" in text


def test_behind_replica_of_the_original(run: Run, tmp_path: Path) -> None:
    (behind,) = unpack("ha-controller/c3-diverged-broker-c2", tmp_path / "behind")
    ahead = unpack("ha-controller/stores", tmp_path / "stores")[0]
    found = compared(run, behind, ahead, code=1)
    assert (found["status"], found["common_end"]) == ("b-ahead", 3398)
    assert compared(run, ahead, behind, code=1)["status"] == "a-ahead"
    assert found["first_difference"]["a"] is None
    assert "where A has no record" in run("diff", behind, ahead).out


def test_file_that_one_has_deleted_is_no_difference(run: Run, pair: tuple[Written, Path]) -> None:
    written, other = pair
    (other / "commitlog" / offset_name(0)).unlink()
    found = compared(run, written.root, other, code=0)
    assert found["compared_from"] == FILE_BYTES
    for path in sorted((written.root / "commitlog").iterdir())[1:]:
        path.unlink()
    (other / "commitlog" / offset_name(FILE_BYTES)).unlink()
    assert compared(run, written.root, other, code=1)["status"] == "apart"


def test_rest_of_a_blank_tail_is_no_difference(run: Run, pair: tuple[Written, Path]) -> None:
    written, other = pair
    with (other / "commitlog" / offset_name(0)).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    found = compared(run, written.root, other, code=0)
    assert found["last_common"]["offset"] == written.offsets[-1]


def test_damage_in_one_is_told(run: Run, pair: tuple[Written, Path]) -> None:
    written, other = pair
    Written(other).overwrite(written.offsets[7] + 4, b"\0")
    found = compared(run, written.root, other, code=1)
    # It lies in front of what B has: going on at its end would not bring it.
    assert found["status"] == "diverged"
    assert found["first_difference"]["offset"] == written.offsets[7]
    assert found["b"]["places_without_record"] == 1
    assert "1 places hold no record" in run("diff", written.root, other).err


def test_every_field_that_differs_is_told(run: Run, tmp_path: Path) -> None:
    every = [message(number) for number in range(5)]
    a = write_log(tmp_path / "a", every)
    b = write_log(tmp_path / "b", [*every[:3], every[3]._replace(flag=77, stored_ms=12345), every[4]])
    found = compared(run, a.root, b.root, code=1)
    assert found["first_difference"]["fields"] == {
        "flag": {"a": 3, "b": 77},
        "stored_ms": {"a": every[3].stored_ms, "b": 12345},
        "stored": {"a": "2026-11-23T02:13:23.001Z", "b": "1970-01-01T00:00:12.345Z"},
    }
    assert found["first_difference"]["byte"] == 19
    assert found["a"]["beyond"]["same"] == 1


def test_queues_and_progress_are_compared(run: Run, pair: tuple[Written, Path]) -> None:
    written, other = pair
    size = len(encode_record(written.records[0]))
    entries = [ConsumeQueueEntry(written.offsets[0], size, 5), ConsumeQueueEntry(written.offsets[4], size, 5)]
    for root, some in ((written.root, entries), (other, entries[:1])):
        folder = root / "consumequeue" / "orders" / "0"
        folder.mkdir(parents=True)
        (folder / offset_name(0)).write_bytes(b"".join(map(CONSUME_QUEUE_ENTRY.pack, some)) + bytes(100))
        (root / "config").mkdir()
    (written.root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{0:2,1:1}}}')
    (other / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{0:1,1:1}}}')
    (written.root / "config" / "delayOffset.json").write_text('{"offsetTable":{3:7}}')
    found = compared(run, written.root, other, code=1)
    assert found["status"] == "equal"
    (queue,) = found["queues"]
    assert (queue["first"], queue["a"]["alone"], queue["b"]) == (
        1,
        1,
        {"begin": 0, "end": 1, "alone": 0, "entry": None},
    )
    assert found["progress"] == [{"group": "g", "topic": "orders", "queue_id": 0, "a": 2, "b": 1}]
    assert found["delays"] == [{"level": 3, "a": 7, "b": None}]
    (other / "config" / "consumerOffset.json").write_text("{")
    outcome = run("diff", written.root, other)
    assert outcome.code == 1
    assert "left out" in outcome.err


def test_contradiction_with_the_epochs_is_told(run: Run, tmp_path: Path) -> None:
    every = [message(number) for number in range(5)]
    a = write_log(tmp_path / "a", every)
    b = write_log(tmp_path / "b", [*every[:3], every[3]._replace(flag=77), every[4]])
    for root in (a.root, b.root):
        (root / "epochFileCheckpoint").write_bytes(encode_epochs([EpochEntry(4, 0)]))
    found = compared(run, a.root, b.root, code=1)
    assert found["contradicts_epochs"]
    assert "by other means than replication" in run("diff", a.root, b.root).out


def test_stores_that_cannot_be_compared_are_refused(run: Run, pair: tuple[Written, Path], tmp_path: Path) -> None:
    written, _ = pair
    (tmp_path / "empty").mkdir()
    outcome = run("diff", written.root, tmp_path / "empty")
    assert outcome.code == 2
    assert "is a store of RocketMQ" in outcome.err


FLAGS = st.lists(st.sampled_from([0, 0, 0, 0, 1]), min_size=0, max_size=40)


def plain(a: list[Record], b: list[Record]) -> tuple[set[int], set[int]]:
    """The offsets of the records that one of two logs alone has."""
    ours, theirs = ({each.physical_offset: encode_record(each) for each in side} for side in (a, b))
    return {at for at, data in ours.items() if theirs.get(at) != data}, {
        at for at, data in theirs.items() if ours.get(at) != data
    }


@settings(max_examples=30)
@given(FLAGS, FLAGS, st.sampled_from([0, 1, 7, 200, 400]))
def test_logs_part_as_a_plain_comparison_says(changed: list[int], more: list[int], common: int) -> None:
    every = [message(number) for number in range(common)]
    ours = every + [message(900 + number, body=b"x" * (30 + flag)) for number, flag in enumerate(more)]
    theirs = every + [message(900 + number, body=b"x" * (30 + flag)) for number, flag in enumerate(changed)]
    with TemporaryDirectory() as folder:
        a, b = (write_log(Path(folder) / name, side) for name, side in (("a", ours), ("b", theirs)))
        found = compare_logs(log_files(a.root), log_files(b.root), 1000)
        alone = plain(a.records, b.records)
    assert [{row["offset"] for row in beyond.samples} for beyond in found.beyond] == list(alone)
    firsts = [min(side) for side in alone if side]
    if not firsts:
        assert (found.status, found.first_difference) == (Status.EQUAL, None)
    else:
        assert found.first_difference is not None
        assert found.first_difference.offset == min(firsts)
    shared = [at for at in a.offsets if at not in alone[0] and (not firsts or at < min(firsts))]
    assert (None if found.last_common is None else found.last_common["offset"]) == (shared[-1] if shared else None)
