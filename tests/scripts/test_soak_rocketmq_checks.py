"""The judgement of scripts/soak-rocketmq finds what it is to find."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.shell.files.folders import FileFolder
from formats.rocketmq.hosts import Host
from scripts.endurance.rocketmq_checks import (
    Ack,
    Lines,
    check_deliveries,
    check_log,
    check_stores,
    longest_gap_s,
    read_ack,
)

OPTIONS = StoreOptions(1 << 16, 2000, 50, 1000)
HOST = Host("127.0.0.1", 10911).pack()
# Thread, number, attempt; each thread has its queue.
SENT = [(thread, number, 0) for number in range(40) for thread in (0, 1)]


def body(sent: tuple[int, int, int]) -> bytes:
    text = b"%d %d %d\n" % sent + bytes(200)
    return text + zlib.crc32(text).to_bytes(4, "big")


def make(folder: Path, sent: list[tuple[int, int, int]], change: Callable[[bytes], bytes] = lambda data: data) -> int:
    store = open_store(FileFolder(folder), OPTIONS, lambda ms: time.strftime("%Y%m%d%H%M%S000"), lambda *_: None)
    for at, each in enumerate(sent):
        message = Message("soak", each[0], 0, 0, 1, HOST, HOST, 0, 0, change(body(each)), b"")
        Writer(store).put(message, 1000 + at)
    end = store.log.end
    store.close()
    return end


def acks(sent: list[tuple[int, int, int]]) -> list[Ack]:
    return [Ack(each, 1000 * at) for at, each in enumerate(sent)]


def test_sound_run_has_no_faults(tmp_path: Path) -> None:
    repeated = [*SENT[:6], *SENT[4:6], (0, 3, 1), *SENT[6:]]
    ends = {make(tmp_path / name, repeated) for name in "ab"}
    (end,) = ends
    assert check_log(tmp_path / "a", end, "soak", acks(SENT)) == []
    assert check_stores([tmp_path / "a", tmp_path / "b"], end, "soak") == []
    lines = [f"{thread} {number} {attempt} {thread}" for thread, number, attempt in repeated]
    assert check_deliveries(acks(SENT), lines, 4) == []


@pytest.mark.parametrize(
    ("sent", "change", "reason"),
    [
        (SENT[:-1], None, "1 acknowledged messages are lost: [(1, 39, 0)]"),
        ([*SENT[:4], *SENT[6:], *SENT[4:6]], None, "number 3 of thread 0 stands behind 1"),
        (SENT, lambda data: data[:-5] + b"x" + data[-4:], "is not what was sent"),
    ],
)
def test_fault_of_the_log_is_found(
    tmp_path: Path,
    sent: list[tuple[int, int, int]],
    change: Callable[[bytes], bytes] | None,
    reason: str,
) -> None:
    end = make(tmp_path / "a", sent, change or bytes)
    assert any(reason in fault for fault in check_log(tmp_path / "a", end, "soak", acks(SENT)))


def test_log_that_ends_early_is_found(tmp_path: Path) -> None:
    end = make(tmp_path / "a", SENT)
    assert any("not at" in fault for fault in check_log(tmp_path / "a", end + 500, "soak", acks(SENT)))


def test_stores_that_differ_are_found(tmp_path: Path) -> None:
    end = make(tmp_path / "a", SENT)
    make(tmp_path / "b", SENT)
    log = tmp_path / "b" / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[777] ^= 1
    log.write_bytes(data)
    queue = tmp_path / "b" / "consumequeue" / "soak" / "1" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[3] ^= 1
    queue.write_bytes(data)
    first, second = check_stores([tmp_path / "a", tmp_path / "b"], end, "soak")
    assert first.endswith("differ at 777")
    assert second.startswith("the queues of")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["0 0 0 0", "0 1 0 0"], "1 acknowledged messages were not given to a consumer: [(0, 2, 0)]"),
        (["0 0 0 0", "0 2 0 0", "0 1 0 0"], "1 deliveries out of order: ['0 2 0 0 came behind number 0']"),
        (["0 0 0 0", "0 1 0 1", "0 2 0 0"], "0 1 0 1: the message is in another queue"),
        (["bad checksum 0", "0 0 0 0", "0 1 0 0", "0 2 0 0"], "a consumer was given bad checksum 0"),
    ],
)
def test_fault_of_the_deliveries_is_found(lines: list[str], reason: str) -> None:
    assert check_deliveries(acks([(0, number, 0) for number in range(3)]), lines, 4) == [reason]


def test_gap_is_the_longest_of_those_that_touch_the_time() -> None:
    found = [read_ack(f"0 {number} 0 {ms}") for number, ms in enumerate((0, 9000, 10_000, 13_000, 14_000, 30_000))]
    assert longest_gap_s(found, 9.5, 13.5) == 3.0
    assert longest_gap_s(found, 1, 2) == 9.0


def test_lines_are_read_when_they_are_whole(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "a")
    assert lines.new() == []
    (tmp_path / "a").write_text("one\ntwo\nth")
    assert lines.new() == ["one", "two"]
    with (tmp_path / "a").open("a") as file:
        file.write("ree\n")
    assert lines.new() == ["three"]
