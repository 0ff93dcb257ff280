"""Posts that come again are known after restarts and rollovers, as long as their domain says."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.bmq.core.history import History
from broker.bmq.queue.purges import purge
from broker.bmq.store import removals
from broker.bmq.store.partition_files import PartitionLimits
from broker.bmq.store.removals import PRODUCER_SIZE, Unreadable, hashes_of, latest_of
from broker.shell.files.mapped_files import DataDirectory
from formats.bmq.codes import AckStatus
from tests.broker.bmq.rig import ACK, DOMAINS, READ, WRITE, Client, Rig, guid, start
from tests.broker.fakes import Crash, MemoryDirectory

QUEUE = "bmq://priority/q"
LIMITS = PartitionLimits(journal=32 << 10, data=64 << 10, qlist=4 << 10)


def begin(window_ms: int = 300_000, directory: MemoryDirectory | None = None) -> Rig:
    config = replace(DOMAINS["priority"], deduplication_time_ms=window_ms)
    return start(directory, domains={config.name: config}, limits=LIMITS)


def client_of(rig: Rig) -> Client:
    client = rig.connect()
    client.open(1, QUEUE, READ | WRITE | ACK)
    client.configure(1)
    return client


def pass_on(rig: Rig, *numbers: int) -> None:
    client = client_of(rig)
    for number in numbers:
        assert client.post(1, guid(number), b"data") is AckStatus.SUCCESS
        assert len(client.pushes()) == 1
        client.confirm(1, guid(number))
    client.drop()


def known(rig: Rig, *numbers: int) -> list[int]:
    """Return the messages that are acknowledged when they are posted again, and go to nobody."""
    client = client_of(rig)
    found = []
    for number in numbers:
        assert client.post(1, guid(number), b"data") is AckStatus.SUCCESS
        if client.pushes():
            client.confirm(1, guid(number))
        else:
            found.append(number)
    client.drop()
    return found


def side_files(rig: Rig) -> list[str]:
    return [name for name in rig.directory.names() if name.endswith(".removed")]


@pytest.mark.parametrize("clean", [False, True])
def test_removed_messages_are_known_after_rollovers_and_restarts(clean: bool) -> None:
    rig = begin()
    count = 0
    for _ in range(3):
        pass_on(rig, *range(count, count + 700))
        count += 700
        assert len(rig.directory.archived) >= 3
        if clean:
            rig.stop()
            rig = rig.restart(rig.directory)
        else:
            rig = rig.restart()
    assert known(rig, *range(0, count, 7)) == list(range(0, count, 7))
    assert known(rig, count) == []
    assert not rig.faults()


def test_a_purge_is_known_after_a_rollover_and_a_restart() -> None:
    rig = begin()
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    for number in range(20):
        client.post(1, guid(number), b"data")
    purge(rig.node.queues[QUEUE])
    rig.node.partitions[0].roll_over()
    rig.node.partitions[0].roll_over()
    assert known(rig.restart(), *range(21)) == list(range(20))


def test_message_that_no_app_wants_is_known_after_a_rollover_though_its_process_died_before_removing_it() -> None:
    rig = begin()
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    for number in range(20):
        client.post(1, guid(number), b"data")
    queue = rig.node.queues[QUEUE]
    queue.log.settle(tuple(queue.messages.values()), queue.apps["__default"].key)
    for _ in range(2):
        rig = rig.restart()
        assert not rig.node.queues[QUEUE].messages
    rig.node.partitions[0].roll_over()
    rig.node.partitions[0].roll_over()
    assert known(rig.restart(), *range(21)) == list(range(20))


def test_purged_messages_are_read_from_the_journal_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = begin()
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    for number in range(40):
        client.post(1, guid(number), b"data")
    purge(rig.node.queues[QUEUE])
    monkeypatch.setattr(removals, "SLICE_RECORDS", 4)
    partition, parts = rig.node.partitions[0], 1
    while partition.removals.catch_up(partition.files, rig.now.ms):
        parts += 1
    # It is read once, and what is before the purge twice more.
    assert parts >= 3 * 40 // 4
    partition.roll_over()
    partition.roll_over()
    assert known(rig.restart(), *range(41)) == list(range(40))


def test_a_rollover_that_was_cut_short_is_known_once_at_the_next_start() -> None:
    """A file may describe the journal that is in use again."""
    rig = begin()
    pass_on(rig, *range(20))
    for flushes in range(100):
        partition = rig.node.partitions[0]
        partition.sets.outlives_power = True
        rig.directory.flushes_left = flushes
        try:
            partition.roll_over()
        except Crash:
            rig = rig.restart()
            assert known(rig, *range(20)) == list(range(20))
        else:
            break
    assert 3 < flushes < 99
    assert not rig.faults()


def test_it_is_so_with_real_files(tmp_path: Path) -> None:
    limits = PartitionLimits(journal=64 << 10, data=64 << 10, qlist=4 << 10)
    for part in range(2):
        directory = DataDirectory(tmp_path / "store", tmp_path / "archive")
        rig = start(directory, limits=limits)  # type: ignore[arg-type]
        assert known(rig, *range(0, part * 1500, 17)) == list(range(0, part * 1500, 17))
        pass_on(rig, *range(part * 1500, part * 1500 + 1500))
        rig.stop()
        directory.close()
    sizes = [path.stat().st_size for path in (tmp_path / "store").glob("bmqctl_0.*.removed")]
    assert 0 < sum(sizes) < 3000 * 10


def test_files_can_be_closed_and_read_by_others_while_somebody_reads_them(tmp_path: Path) -> None:
    """A take-over reads in slices, between which a file may become full or old, or a replica may ask."""
    directory = DataDirectory(tmp_path / "store", tmp_path / "archive")
    rig = start(directory, limits=LIMITS)  # type: ignore[arg-type]
    partition = rig.node.partitions[0]
    for first in (0, 20, 40):
        pass_on(rig, *range(first, first + 20))
        partition.roll_over()
    removals, files, newest_s = partition.removals, partition.files, rig.node.now.wall_s
    slices = removals.before_slowly(files, newest_s, 0)
    before = next(slices)
    removals.close(0)
    assert len(list(removals.told(files, newest_s, 0))) == 3
    before += [each for some in slices for each in some]
    assert sum(len(removed.hashes) for _, removed in before) == 60
    rig.stop()
    directory.close()


def test_a_node_alone_that_cannot_open_its_files_of_removals_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that would take posts that come again for new ones for as long as it runs."""
    rig = begin()
    pass_on(rig, 1, 2)
    rig.node.partitions[0].roll_over()
    rig.stop()

    def take_descriptor(directory: MemoryDirectory, name: str) -> None:
        if name.endswith(".removed"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)

    with monkeypatch.context() as patches:
        patches.setattr(MemoryDirectory, "take_descriptor", take_descriptor)
        with pytest.raises(Unreadable, match="Too many open files"):
            rig.restart()


def test_healed_replica_gets_the_removals_that_can_be_read() -> None:
    rig = begin()
    pass_on(rig, 1, 2)
    partition = rig.node.partitions[0]
    partition.roll_over()
    partition.removals.close(0)
    assert len(list(partition.removals.told(partition.files, rig.node.now.wall_s, 0))) == 1
    rig.directory.is_out_of_descriptors = True
    assert list(partition.removals.told(partition.files, rig.node.now.wall_s, 0)) == []


def test_an_hour_is_an_hour() -> None:
    rig = begin(window_ms=3_600_000)
    rig.configure(keepalive_ms=100_000_000)  # a queue that goes is another when it comes back
    pass_on(rig, 1, 2)
    rig.node.partitions[0].roll_over()
    for number in range(3, 6):
        rig.wait(1_000_000)
        pass_on(rig, number)
        rig.node.partitions[0].roll_over()
    rig = rig.restart()
    assert known(rig, *range(1, 6)) == [1, 2, 3, 4, 5]
    rig.wait(1_000_000)
    assert known(rig, 1, 2, 3, 4, 5) == [3, 4, 5]


@pytest.mark.slow
def test_removals_that_are_no_longer_needed_go() -> None:
    rig = begin()
    rig.configure(keepalive_ms=100_000_000)
    sizes = []
    for part in range(8):
        pass_on(rig, *range(part * 700, part * 700 + 700))
        rig.wait(100_000)
        sizes.append(sum(len(rig.directory.files[name].data) for name in side_files(rig)))
    assert sizes[-1] <= max(sizes[:-1])
    rig.wait(1_000_000)
    rig.node.partitions[0].roll_over()
    rig.wait(500_000)
    assert side_files(rig) == []
    assert rig.node.queues[QUEUE].history.size == 0


def test_a_damaged_file_says_so_and_tells_what_is_before(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    for number in range(1, 4):
        pass_on(rig, number)
        rig.node.partitions[0].roll_over()
    directory = rig.directory.after_crash()
    (name,) = [name for name in directory.names() if name.endswith(".removed")]
    data = directory.files[name].data
    data[len(bytes(data).rstrip(b"\0")) - 1] ^= 1
    again = rig.restart(directory)
    assert f"{name}: damaged from offset" in caplog.text
    assert known(again, 1, 2, 3) == [1, 2]


def test_files_that_are_gone_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    pass_on(rig, 1)
    rig.node.partitions[0].roll_over()
    directory = rig.directory.after_crash()
    for name in side_files(rig):
        del directory.files[name]
    assert "are not known here" not in caplog.text
    again = rig.restart(directory)
    assert "the messages removed before the last rollover are not known here" in caplog.text
    assert known(again, 1) == []


def test_a_file_of_somebody_else_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    pass_on(rig, 1)
    rig.node.partitions[0].roll_over()
    directory = rig.directory.after_crash()
    (name,) = side_files(rig)
    directory.files[name].data[:8] = b"somebody"
    assert known(rig.restart(directory), 1) == []
    assert f"{name}: not a file of removed messages" in caplog.text


def test_without_disk_posts_go_on_and_a_line_says_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    pass_on(rig, *range(100))
    partition = rig.node.partitions[0]
    rig.directory.free = 0
    partition.removals.give_up(partition.files, rig.now.ms, synced=False)
    assert "no room to record which messages were removed" in caplog.text
    assert side_files(rig) == []
    rig.directory.free = 1 << 30
    pass_on(rig, 100)


def test_a_clock_that_was_set_does_not_make_a_process_forget() -> None:
    rig = begin()
    pass_on(rig, 1)
    rig.now.wall_s += 100_000
    pass_on(rig, 2)
    partition = rig.node.partitions[0]
    partition.roll_over()
    pass_on(rig, 3)
    before = partition.removals.before(partition.files, rig.now.wall_s, rig.now.ms)
    (key,) = before
    history = History(300_000)
    history.restore(b"", rig.now.ms, before[key])
    assert [history.is_new(guid(number)) for number in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize("uptime_ms", [None, 5000, 1 << 40])
def test_a_clock_that_was_set_does_not_make_the_next_process_forget(uptime_ms: int | None) -> None:
    """`uptime_ms` is what the monotonic clock says after the restart, None if the machine runs on."""
    rig = begin()
    pass_on(rig, 1)
    rig.node.partitions[0].roll_over()
    if uptime_ms != 1 << 40:
        rig.now.wall_s += 100_000
    pass_on(rig, 2)
    if uptime_ms is not None:
        rig.now.ms = uptime_ms
    assert known(rig.restart(), 1, 2, 3) == [1, 2]


def test_time_that_both_clocks_have_seen_pass_counts_after_a_restart() -> None:
    rig = begin()
    pass_on(rig, 1)
    rig.node.partitions[0].roll_over()
    rig.now.ms += 299_000
    rig.now.wall_s += 299
    pass_on(rig, 2)
    rig.node.partitions[0].roll_over()
    rig.now.ms += 2000
    rig.now.wall_s += 2
    pass_on(rig, 3)
    assert known(rig.restart(), 1, 2, 3) == [2, 3]


@given(st.lists(st.tuples(st.integers(0, (1 << 56) - 1), st.integers(0, 3)), min_size=1))
def test_of_each_producer_the_greatest_tick_is_kept(posts: list[tuple[int, int]]) -> None:
    guids = [b"\x40\0\0" + ticks.to_bytes(7, "big") + producer.to_bytes(6, "big") for ticks, producer in posts]
    packed = latest_of(b"".join(guids))
    cells = [packed[at : at + PRODUCER_SIZE] for at in range(0, len(packed), PRODUCER_SIZE)]
    assert {cell[:6]: cell[6:] for cell in cells} == {
        producer.to_bytes(6, "big"): max(ticks for ticks, other in posts if other == producer).to_bytes(7, "big")
        for _, producer in posts
    }
    assert len(cells) == len({producer for _, producer in posts})
    assert len(hashes_of(b"".join(guids))) == len(guids)
