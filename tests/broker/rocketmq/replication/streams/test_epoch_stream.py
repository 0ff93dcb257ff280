"""Masters and slaves with epochs: against the captured bytes of the original, and each other, whatever their logs."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.rocketmq.replication.lifecycles import CopyState
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.replication.streams.epochs import EpochBook
from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.shell.files.folders import FileFolder
from formats.rocketmq.files.epochs import EpochEntry, decode_epochs, encode_epochs
from formats.rocketmq.remoting.replication import (
    EPOCH_REPORT,
    EPOCH_TRANSFER,
    EpochReport,
    HaState,
    MasterPiece,
    encode_epoch_handshake,
    next_from_master,
)
from tests.broker.rocketmq.replication.streams.ends import Clock, carry, pump
from tests.broker.rocketmq.replication.streams.epoch_stream_rig import Broker
from tests.broker.rocketmq.store.copying_rig import log_bytes
from tests.broker.rocketmq.store.message_store_rig import bodies, make_message
from tests.golden.rocketmq.captures import Stream, streams
from tests.golden.rocketmq.stores import unpack

OPTIONS = ReplicationOptions(Role.SYNC_MASTER, in_sync_replicas=2)
CHECK_MS = OPTIONS.check_ms
GOLDEN = StoreOptions(4194304, 6_000_000, 500, 2000)


def join(master: Broker, slave: Broker, piece: int = 1 << 30) -> tuple[ReplicationSession, ReplicationSession]:
    here, _ = master.accept(slave.broker_id)
    there, _ = slave.follow()
    pump(here, there, piece)
    return here, there


def group(count: int = 2) -> tuple[Broker, ...]:
    clock = Clock()
    return tuple(Broker(number + 1, clock) for number in range(count))


# -- against the original's bytes


def capture_of(name: str, port: int) -> tuple[Stream, Stream]:
    """Both directions of the last connection to a port: the slave's, and the master's."""
    both = streams(name)
    found = [
        (said, answered)
        for said in both
        for answered in both
        if said.target == port and (answered.source, answered.target) == (port, said.source)
    ]
    return found[-1]


def golden(folder: Path, epochs: bytes | None = None) -> Broker:
    store = open_store(FileFolder(folder), GOLDEN, lambda ms: f"{ms:017d}")
    data = epochs if epochs is not None else (folder / "epochFileCheckpoint").read_bytes()
    return Broker(1, store=store, epochs=EpochBook(data, lambda data: None))


def test_diverged_golden_slave_does_what_the_original_did(tmp_path: Path) -> None:
    said, answered = capture_of("ha-truncate/d3.pcap.xz", 24212)
    (folder,) = unpack("ha-truncate/before-c1-diverged", tmp_path / "before")
    after, _ = unpack("ha-truncate/after", tmp_path / "after")
    slave = golden(folder)
    session, _ = slave.follow()
    sent = bytes(session.take_output())
    assert sent == said.data[: len(sent)]
    rest = session.receive(memoryview(answered.data))
    assert rest == len(answered.data)
    assert not session.finished, session.reason
    assert slave.cuts == [1305]
    assert slave.epochs.entries == [EpochEntry(1, 0), EpochEntry(5, 1305)]
    end = slave.store.log.end
    assert end > 1305
    (log,) = (after / "commitlog").iterdir()
    assert log_bytes(slave.store) == log.read_bytes()[:end]
    assert EPOCH_REPORT.pack(EpochReport(HaState.TRANSFER, end)) in said.data
    slave.store.close()


def test_golden_master_says_what_the_original_said(tmp_path: Path) -> None:
    said, answered = capture_of("ha-truncate/d3.pcap.xz", 24212)
    _, folder = unpack("ha-truncate/after", tmp_path)
    first, at = next_from_master(memoryview(answered.data), 0, len(answered.data)) or (None, 0)
    assert first is not None
    piece, end = next_from_master(memoryview(answered.data), at, len(answered.data)) or (None, 0)
    assert isinstance(piece, MasterPiece)
    master = golden(folder, encode_epochs([EpochEntry(1, 0), EpochEntry(5, 1305)]))
    master.store.truncate(2088)
    master.broker_id = 2
    # The original happened to send its pieces so.
    master.options.piece_bytes = len(piece.body)
    master.serve()
    session, copy = master.accept()
    taken = session.receive(memoryview(said.data[:28]))
    assert taken == 28
    out = bytes(session.take_output())
    assert copy.broker_id == 1
    assert out[: len(answered.data[:end])] == answered.data[:end]
    master.store.close()


# -- against each other


def test_slave_gets_log_epochs_and_what_is_confirmed() -> None:
    master, slave = group()
    master.lead(1)
    master.put(*range(10))
    here, there = join(master, slave, piece=7)
    assert log_bytes(slave.store) == log_bytes(master.store)
    assert slave.epochs.entries == [EpochEntry(1, 0)]
    assert slave.confirmed == master.in_sync.confirmed == master.store.log.end
    assert master.proposals == [(frozenset({1, 2}), 1)]
    master.in_sync.appoint(frozenset({1, 2}), 2)
    before = master.in_sync.confirmed
    master.put(10)
    assert master.in_sync.confirmed == before
    carry(here, there)
    assert slave.confirmed == before
    carry(there, here)
    assert master.in_sync.confirmed == master.store.log.end
    carry(here, there)
    assert slave.confirmed == slave.store.log.end


CASES = {
    "the slave is behind": ([(1, 3)], [(1, 5)], 3),
    "the slave is behind by epochs": ([(1, 3)], [(1, 3), (2, 4), (3, 1)], 3),
    "the same": ([(1, 3), (2, 2)], [(1, 3), (2, 2)], 5),
    "the slave has more of the last epoch": ([(1, 9)], [(1, 5)], 5),
    "the slave has more of an old epoch": ([(1, 9)], [(1, 5), (2, 4)], 5),
    "both were masters": ([(1, 4), (2, 5)], [(1, 4), (3, 6)], 4),
    "the slave was a master that wrote nothing": ([(1, 4), (2, 0)], [(1, 4), (3, 6)], 4),
}


def write(broker: Broker, terms: Sequence[tuple[int, int]], mark: int) -> None:
    """Write as the master of some epochs. Logs have the same records in an epoch of the same number."""
    for epoch, count in terms:
        broker.lead(epoch)
        broker.put(*range(100 * epoch, 100 * epoch + count))


@pytest.mark.parametrize(("theirs", "ours", "kept"), CASES.values(), ids=CASES)
def test_logs_become_the_same_whatever_they_were(
    theirs: list[tuple[int, int]], ours: list[tuple[int, int]], kept: int
) -> None:
    master, slave = group()
    write(slave, theirs, 1)
    write(master, ours, 2)
    had = bodies(slave.store)
    join(master, slave)
    assert log_bytes(slave.store) == log_bytes(master.store)
    assert bodies(slave.store) == bodies(master.store)
    assert bodies(slave.store)[:kept] == had[:kept]
    assert slave.epochs.entries == master.epochs.entries
    assert bool(slave.cuts) == (len(had) > kept)


def test_logs_with_nothing_in_common_are_left_alone() -> None:
    master, slave = group()
    write(slave, [(7, 3)], 1)
    write(master, [(1, 5)], 2)
    before = log_bytes(slave.store)
    _, there = join(master, slave)
    assert "no epoch in common" in there.reason
    assert log_bytes(slave.store) == before


def test_log_with_nothing_in_common_gives_way_if_nothing_of_it_is_confirmed() -> None:
    master, slave = group()
    slave.store.hold_back(0)
    write(slave, [(7, 3)], 1)
    write(master, [(8, 5)], 2)
    assert not slave.store.confirmed
    _, there = join(master, slave)
    assert not there.reason
    assert log_bytes(slave.store) == log_bytes(master.store)
    assert slave.epochs.entries == master.epochs.entries


def test_slave_that_reports_without_an_introduction_is_given_up() -> None:
    master, _ = group()
    master.lead(1)
    here, copy = master.accept()
    here.receive(memoryview(EPOCH_REPORT.pack(EpochReport(HaState.TRANSFER, 0))))
    assert "has not introduced itself" in here.reason
    assert copy.state is CopyState.CLOSED


def test_report_of_what_was_not_sent_is_refused() -> None:
    master, slave = group()
    master.lead(1)
    master.put(1)
    here, _ = join(master, slave)
    here.receive(memoryview(EPOCH_REPORT.pack(EpochReport(HaState.TRANSFER, master.store.log.end + 1))))
    assert "was not sent" in here.reason
    assert master.in_sync.slaves == {2: master.in_sync.slaves[2]}
    here.end()
    assert master.in_sync.slaves == {}


def test_pieces_before_the_epochs_are_refused() -> None:
    _, slave = group()
    there, _ = slave.follow()
    piece = EPOCH_TRANSFER.pack(EPOCH_TRANSFER.unpack(bytes(3) + bytes([HaState.TRANSFER]) + bytes(32), 0))
    there.receive(memoryview(piece))
    assert "has not sent its epochs" in there.reason


def test_epochs_told_twice_are_refused() -> None:
    _, slave = group()
    there, _ = slave.follow()
    told = encode_epoch_handshake(0, [EpochEntry(1, 0)])
    there.receive(memoryview(told + told))
    assert "again" in there.reason


def test_epoch_file_that_cannot_be_written_ends_the_connection_before_its_records_come() -> None:
    master, slave = group()
    write(master, [(1, 5)], 2)

    def fail(data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    slave.epochs = EpochBook(b"", fail)
    _, there = join(master, slave)
    assert "No space left" in there.reason
    assert slave.store.log.end == 0


def test_epochs_are_in_the_file_before_their_records_are_in_the_log() -> None:
    master, slave = group()
    write(master, [(1, 5), (2, 3), (4, 2)], 2)
    ends: list[tuple[list[EpochEntry], int]] = []
    slave.epochs = EpochBook(b"", lambda data: ends.append((decode_epochs(data), slave.store.log.end)))
    join(master, slave)
    assert [entries[-1].epoch for entries, _ in ends] == [1, 2, 4]
    assert all(end <= entries[-1].start_offset for entries, end in ends)


# -- who is in sync


def test_slave_that_stays_behind_leaves_and_comes_back() -> None:
    master, slave = group()
    master.lead(1)
    here, there = join(master, slave)
    master.agree({1, 2}, 2)
    master.proposals.clear()
    master.put(1)
    for _ in range(master.options.behind_ms_max // CHECK_MS):
        master.clock.ms += CHECK_MS
        master.copies.tick()
    assert master.proposals == []
    master.clock.ms += CHECK_MS
    master.copies.tick()
    assert master.proposals == [(frozenset({1}), 2)]
    # Until the controller agrees, nothing is confirmed without it.
    assert master.in_sync.confirmed < master.store.log.end
    master.agree({1}, 3)
    assert master.in_sync.confirmed == master.store.log.end
    pump(here, there)
    assert master.proposals[-1] == (frozenset({1, 2}), 3)


def test_slave_that_has_everything_stays_while_nothing_is_written() -> None:
    master, slave = group()
    master.lead(1)
    master.put(1)
    join(master, slave)
    master.agree({1, 2}, 2)
    master.proposals.clear()
    for _ in range(10):
        master.clock.ms += CHECK_MS
        master.copies.tick()
    assert master.proposals == []


def test_slave_that_disconnects_leaves_at_once() -> None:
    master, slave = group()
    master.lead(1)
    here, _ = join(master, slave)
    master.agree({1, 2}, 2)
    master.proposals.clear()
    here.end()
    assert master.proposals == [(frozenset({1}), 2)]


def test_older_connection_of_a_slave_does_not_count() -> None:
    master, slave = group()
    master.lead(1)
    old, _ = join(master, slave)
    master.agree({1, 2}, 2)
    join(master, slave)
    master.proposals.clear()
    old.end()
    assert master.proposals == []
    assert 2 in master.in_sync.slaves


def test_refusal_says_nothing_of_an_earlier_proposal_without_an_answer() -> None:
    """The controller has taken the first one, whose answer is lost, and refuses the second for being no other set."""
    master, slave = group()
    master.lead(1)
    join(master, slave)
    master.in_sync.answered()
    master.clock.ms += CHECK_MS
    master.copies.tick()
    assert [members for members, _ in master.proposals] == [frozenset({1, 2})] * 2
    master.put(1)
    master.in_sync.answered(is_refused=True)
    assert master.in_sync.counted == {1, 2}
    assert master.in_sync.confirmed == 0
    master.agree({1}, 2)
    assert master.in_sync.confirmed == master.store.log.end


def test_set_that_was_refused_does_not_count() -> None:
    master, slave = group()
    master.lead(1)
    join(master, slave)
    assert master.in_sync.counted == {1, 2}
    master.put(1)
    assert master.in_sync.confirmed == 0
    master.in_sync.answered(is_refused=True)
    assert master.in_sync.confirmed == master.store.log.end
    assert master.in_sync.counted == {1}
    # It is proposed again, but not with each of the slave's reports.
    master.proposals.clear()
    join(master, slave)
    assert master.proposals == []
    master.clock.ms += CHECK_MS
    master.copies.tick()
    assert master.proposals == [(frozenset({1, 2}), 1)]


def test_set_that_was_proposed_counts_until_there_is_an_answer() -> None:
    master, slave = group()
    master.lead(1)
    here, there = join(master, slave)
    assert master.proposals == [(frozenset({1, 2}), 1)]
    carry(here, there)
    carry(there, here)
    # The controller is asked in between, and still has the old set.
    master.in_sync.appoint(frozenset({1}), 1)
    master.put(1)
    assert master.in_sync.confirmed < master.store.log.end
    master.agree({1, 2}, 2)
    pump(here, there)
    assert master.in_sync.confirmed == master.store.log.end


def test_all_sets_that_may_have_been_taken_count() -> None:
    master, slave, other = group(3)
    master.lead(1)
    here, _ = join(master, slave)
    join(master, other)
    assert master.proposals == [(frozenset({1, 2}), 1)]
    master.in_sync.answered()
    here.end()
    master.clock.ms += CHECK_MS
    master.copies.tick()
    assert master.proposals[-1] == (frozenset({1, 3}), 1)
    # The controller may have taken the first proposal, and said so to nobody.
    assert master.in_sync.counted == {1, 2, 3}
    confirmed = master.in_sync.confirmed
    master.put(1)
    assert master.in_sync.confirmed == confirmed
    master.in_sync.appoint(frozenset({1, 3}), 2)
    master.in_sync.answered()
    assert master.in_sync.counted == {1, 3}


def test_replicas_that_have_a_message_are_counted() -> None:
    master, slave, other = group(3)
    master.lead(1)
    in_sync = master.in_sync
    assert in_sync.acknowledged_by(1) > in_sync.acknowledged_by_all() == master.store.log.end
    assert in_sync.acknowledged_by(2) == -1
    master.put(1)
    here, there = join(master, slave)
    assert in_sync.acknowledged_by(2) == in_sync.acknowledged_by_all() == master.store.log.end
    assert in_sync.acknowledged_by(3) == -1
    assert in_sync.size == 2
    in_sync.appoint(frozenset({1, 2, 3}), 2)
    assert in_sync.acknowledged_by_all() == -1
    join(master, other)
    had = master.store.log.end
    master.put(2)
    pump(here, there)
    assert (in_sync.acknowledged_by(2), in_sync.acknowledged_by(3)) == (master.store.log.end, had)
    assert in_sync.acknowledged_by_all() == in_sync.confirmed == had


def test_message_counts_for_a_lone_master_once_who_comes_in_has_to_have_it() -> None:
    master, slave = group()
    master.lead(1)
    master.put(1)
    join(master, slave)
    master.in_sync.answered(is_refused=True)
    master.proposals.clear()
    had = master.store.log.end
    Writer(master.store).put(make_message(2), 1002)
    # Before the step is over, the slave that lacks the message may still come in.
    assert master.in_sync.acknowledged_by_all() == had
    master.clock.ms += CHECK_MS
    master.in_sync.tick()
    assert master.proposals == [(frozenset({1, 2}), 1)]
    master.copies.end_step()
    assert master.in_sync.acknowledged_by_all() == had


def test_slave_with_the_masters_id_is_refused() -> None:
    master, slave = group()
    slave.broker_id = 1
    master.lead(1)
    here, _ = join(master, slave)
    assert "is the id of this broker" in here.reason
    assert master.in_sync.slaves == {}


def test_set_of_an_older_epoch_is_ignored() -> None:
    master, _ = group()
    master.lead(1)
    master.agree({1, 2}, 5)
    master.agree({1}, 4)
    master.agree({1}, 5)
    assert (master.in_sync.members, master.in_sync.epoch) == (frozenset({1, 2}), 5)


# -- where senders wait for the disk


def test_slave_gets_and_confirms_nothing_that_is_not_on_the_masters_disk() -> None:
    master, slave = group()
    master.lead(1)
    master.put(*range(5))
    master.on_disk = on_disk = master.store.log.end
    here, there = join(master, slave)
    master.put(*range(5, 8))
    assert not here.take_output()
    assert slave.store.log.end == master.in_sync.confirmed == on_disk
    master.on_disk = master.store.log.end
    master.copies.end_step()
    pump(here, there)
    assert slave.store.log.end == master.in_sync.confirmed == master.store.log.end


def test_slave_reports_only_what_is_on_its_disk() -> None:
    master, slave = group()
    slave.on_disk = 0
    master.lead(1)
    master.put(*range(5))
    here, _ = master.accept()
    there, stream = slave.follow()
    pump(here, there)
    assert slave.store.log.end == master.store.log.end
    assert master.in_sync.slaves[2].acknowledged == 0
    slave.on_disk = slave.store.log.end
    stream.end_step()
    pump(here, there)
    assert master.in_sync.slaves[2].acknowledged == master.store.log.end


def test_slave_reports_its_log_first_when_all_of_it_is_on_its_disk() -> None:
    master, slave = group()
    write(master, [(1, 5)], 2)
    join(master, slave)
    write(master, [(2, 3)], 2)
    slave.on_disk = 0
    here, _ = master.accept()
    there, stream = slave.follow()
    pump(here, there)
    assert 2 in master.in_sync.slaves
    assert master.in_sync.slaves[2].acknowledged == -1
    slave.on_disk = None
    stream.end_step()
    pump(here, there)
    assert log_bytes(slave.store) == log_bytes(master.store)


def test_slave_is_not_behind_while_the_masters_disk_is() -> None:
    master, slave = group()
    master.lead(1)
    master.put(1)
    join(master, slave)
    master.agree({1, 2}, 2)
    master.on_disk = master.store.log.end
    master.proposals.clear()
    for number in range(10):
        master.put(2 + number)
        master.clock.ms += CHECK_MS
        master.copies.tick()
    assert master.proposals == []
