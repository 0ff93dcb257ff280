"""A master and its slaves without sockets: what each gets, what it reports, and who is given up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.rocketmq.replication.lifecycles import CopyState, SlaveState
from broker.rocketmq.replication.options import ReplicationOptions, Role
from formats.rocketmq.remoting.replication import REPORT, TRANSFER, Report, Transfer
from tests.broker.rocketmq.replication.streams.ends import MASTER, Clock, Master, Replica, carry, pump
from tests.broker.rocketmq.store.copying_rig import kept, log_bytes
from tests.broker.rocketmq.store.message_store_rig import make_message


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def master(clock: Clock) -> Master:
    return Master(clock)


@pytest.fixture
def replica(clock: Clock) -> Replica:
    found = Replica(clock)
    found.slave.follow(MASTER)
    return found


def report(offset: int) -> memoryview:
    return memoryview(REPORT.pack(Report(offset)))


def test_slave_gets_the_log_and_reports_how_far_it_is(master: Master, replica: Replica) -> None:
    master.put(30)
    near, copy = master.accept()
    far = replica.connect()
    assert (copy.state, copy.acknowledged) == (CopyState.WAITING, -1)
    pump(near, far)
    assert (copy.state, copy.acknowledged) == (CopyState.COPYING, master.store.log.end)
    assert log_bytes(replica.store) == log_bytes(master.store)
    end = master.put(3)
    assert near in master.dirty
    pump(near, far)
    assert copy.acknowledged == replica.store.log.end == end
    assert kept(replica.folder) == kept(master.folder)
    assert sum(messages for _, _, messages, _ in replica.arrived) == 33


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 400)), min_size=1, max_size=12), st.integers(7, 300))
@settings(max_examples=40, deadline=None)
def test_logs_are_the_same_whatever_the_pieces_are(rounds: list[tuple[int, int]], piece_bytes: int) -> None:
    """Pieces of a master that begin and end within records, reads that do, and a slave that is killed at times."""
    clock = Clock()
    master = Master(clock, ReplicationOptions(Role.SYNC_MASTER, 2, piece_bytes=piece_bytes))
    replica = Replica(clock)
    replica.slave.follow(MASTER)
    for number, (count, piece) in enumerate(rounds):
        master.put(count)
        near, copy = master.accept(number)
        far = replica.connect()
        carry(far, near)
        carry(near, far, piece)
        if piece % 3:
            pump(near, far, piece)
            assert copy.acknowledged == master.store.log.end
        assert log_bytes(replica.store) == log_bytes(master.store)[: replica.store.log.end]
        near.end()
        replica.crash()
        replica.slave.follow(MASTER)
    assert not master.copies.status()


def test_nothing_of_half_a_record_is_kept_or_reported(master: Master, replica: Replica) -> None:
    end = master.put()
    near, copy = master.accept()
    far = replica.connect()
    carry(far, near)
    data = bytes(near.take_output())[TRANSFER.size :]
    half = TRANSFER.pack(Transfer(0, 50)) + data[:50]
    assert far.receive(memoryview(half)) == len(half)
    assert (replica.store.log.end, bytes(far.take_output())) == (0, b"")
    rest = TRANSFER.pack(Transfer(50, len(data) - 50)) + data[50:]
    assert far.receive(memoryview(rest)) == len(rest)
    assert bytes(far.take_output()) == bytes(report(end))
    far.end()
    assert copy.acknowledged == 0


def test_pieces_are_taken_once_no_other_has_begun(
    master: Master, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of a piece that has begun is waited for, unless much has come before it."""
    end = master.put(8)
    far = replica.connect()
    far.take_output()
    data = log_bytes(master.store)
    pieces = b"".join(
        TRANSFER.pack(Transfer(at, len(data[at : at + 100]))) + data[at : at + 100] for at in range(0, end, 100)
    )
    whole = 3 * (TRANSFER.size + 100)
    assert far.receive(memoryview(pieces)[: whole + 20]) == whole
    assert (replica.store.log.end, bytes(far.take_output())) == (0, b"")
    monkeypatch.setattr("broker.rocketmq.replication.streams.taking.GATHERED_BYTES_MAX", 500)
    assert far.receive(memoryview(pieces)[whole : 2 * whole + 20]) == whole
    assert 0 < replica.store.log.end <= 600
    assert bytes(far.take_output()) == bytes(report(replica.store.log.end))
    assert far.receive(memoryview(pieces)[2 * whole :]) == len(pieces) - 2 * whole
    assert bytes(far.take_output()) == bytes(report(end))


def test_half_a_record_is_forgotten_with_its_connection(master: Master, replica: Replica, clock: Clock) -> None:
    master.put(2)
    near, _ = master.accept()
    far = replica.connect()
    carry(far, near)
    data = bytes(near.take_output())[TRANSFER.size :]
    size = master.store.log.end - 20
    far.receive(memoryview(TRANSFER.pack(Transfer(0, size)) + data[:size]))
    kept_end = replica.store.log.end
    assert 0 < kept_end < size
    far.end()
    near.end()
    clock.ms += 1000
    replica.slave.tick()
    near, _ = master.accept(2)
    far = replica.connect()
    assert bytes(far.take_output()) == bytes(report(kept_end))
    far.send()
    near.receive(report(kept_end))
    pump(near, far)
    assert log_bytes(replica.store) == log_bytes(master.store)


@pytest.mark.parametrize("by", [-1, 1])
def test_gap_is_refused_by_the_slave(master: Master, replica: Replica, by: int) -> None:
    master.put(5)
    near, _ = master.accept()
    far = replica.connect()
    pump(near, far)
    end = replica.store.log.end
    far.receive(memoryview(TRANSFER.pack(Transfer(end + by, 4)) + b"abcd"))
    assert far.finished
    assert f"{end} is missing" in far.reason
    far.end()
    assert replica.slave.state is SlaveState.PAUSING


def test_slave_refuses_damaged_records(master: Master, replica: Replica) -> None:
    master.put(2)
    near, _ = master.accept()
    far = replica.connect()
    carry(far, near)
    data = bytearray(near.take_output())
    data[data.index(make_message(1).body)] ^= 1
    far.receive(memoryview(data))
    assert far.finished
    assert replica.store.log.end < master.store.log.end


def test_slave_without_disk_is_given_up_and_comes_again(master: Master, replica: Replica, clock: Clock) -> None:
    master.put(9)
    near, _ = master.accept()
    far = replica.connect()
    replica.folder.folder("commitlog").free = 64 * 3
    carry(far, near)
    carry(near, far)
    assert "there is no disk space for it" in far.reason
    far.end()
    near.end()
    replica.folder.folder("commitlog").free = 1 << 30
    clock.ms += 1000
    replica.slave.tick()
    near, _ = master.accept(2)
    pump(near, replica.connect())
    assert log_bytes(replica.store) == log_bytes(master.store)


@pytest.mark.parametrize(
    ("reports", "reason"),
    [
        ([1 << 40], "empty the store of the slave"),
        ([0, 1 << 40], "was not sent"),
        ([0, 300, 200], "is below 300"),
        ([-1], "-1 is less than 0"),
    ],
)
def test_reports_that_cannot_be_end_the_connection(master: Master, reports: list[int], reason: str) -> None:
    master.put(5)
    near, copy = master.accept()
    for offset in reports:
        near.receive(report(offset))
        near.take_output()
    assert near.finished
    assert reason in near.reason
    acknowledged = copy.acknowledged
    near.end()
    assert copy.state is CopyState.CLOSED
    assert acknowledged in (-1, 0, 300)
    assert master.copies.replicas_with(1) == 1


def test_new_slave_gets_everything_or_the_last_file_only(clock: Clock) -> None:
    for last_only in (False, True):
        master = Master(clock, ReplicationOptions(Role.ASYNC_MASTER, from_last_file=last_only))
        end = master.put(30)
        near, copy = master.accept()
        near.receive(report(0))
        assert copy.next_offset == (end - end % 1024 if last_only else 0)


def test_slave_that_needs_what_was_deleted_is_given_up(master: Master) -> None:
    master.put(30)
    near, _ = master.accept()
    near.receive(report(0))
    master.store.expire(2048)
    assert not near.take_output()
    assert "has been deleted here" in near.reason
    again, copy = master.accept(2)
    again.receive(report(1024))
    assert again.finished
    assert copy.state is CopyState.CLOSED


def test_silence_is_filled_by_both_ends(master: Master, replica: Replica, clock: Clock) -> None:
    master.put(1)
    near, copy = master.accept()
    far = replica.connect()
    pump(near, far)
    end = master.store.log.end
    clock.ms = 4_999
    master.copies.tick(clock.ms)
    replica.slave.tick()
    assert not near.take_output() + far.take_output()
    clock.ms = 5_000
    master.copies.tick(clock.ms)
    replica.slave.tick()
    assert bytes(near.take_output()) == TRANSFER.pack(Transfer(end, 0))
    assert bytes(far.take_output()) == bytes(report(end))
    assert far.receive(memoryview(TRANSFER.pack(Transfer(end, 0)))) == TRANSFER.size
    assert not far.take_output()
    assert copy.acknowledged == end


def test_silent_slave_is_disconnected(master: Master, replica: Replica, clock: Clock) -> None:
    near, copy = master.accept()
    far = replica.connect()
    pump(near, far)
    clock.ms = 20_000
    near.tick()
    far.tick()
    assert not near.finished
    clock.ms = 20_001
    near.tick()
    far.tick()
    assert near.reason == far.reason == "nothing was received from it for 20 s"
    near.end()
    far.end()
    assert copy.state is CopyState.CLOSED
    assert replica.slave.state is SlaveState.PAUSING


def test_in_sync_is_who_is_not_too_far_behind(clock: Clock) -> None:
    master = Master(clock, ReplicationOptions(Role.SYNC_MASTER, 2, gap_bytes_max=500))
    end = master.put(5)
    near, copy = master.accept()
    assert not copy.is_in_sync(end)
    near.receive(report(0))
    near.take_output()
    near.receive(report(end - 500))
    assert not copy.is_in_sync(end)
    near.receive(report(end - 499))
    assert copy.is_in_sync(end)
    (status,) = master.copies.status()
    assert (status.slave_ack_offset, status.in_sync, status.transfer_from_where) == (end - 499, True, end)


def test_one_connection_gets_so_much_in_one_step(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.rocketmq.replication.streams.copies.STEP_BYTES", 600)
    master = Master(clock, ReplicationOptions(Role.SYNC_MASTER, 2, piece_bytes=200))
    end = master.put(30)
    near, copy = master.accept()
    near.receive(report(0))
    master.dirty.clear()
    assert 600 <= len(near.take_output()) <= 900
    near.output_sent()
    assert near in master.dirty
    while near.take_output():
        pass
    assert copy.next_offset == end


# -- finding the master


def test_slave_dials_again_after_a_pause(replica: Replica, clock: Clock) -> None:
    address, _, failed = replica.dialed.pop()
    assert (address, replica.slave.state) == (MASTER, SlaveState.DIALING)
    failed("Connection refused")
    replica.slave.tick()
    assert (replica.dialed, replica.slave.state) == ([], SlaveState.PAUSING)
    clock.ms += 1000
    replica.slave.tick()
    assert len(replica.dialed) == 1
    replica.connect()
    assert replica.slave.state is SlaveState.FOLLOWING


def test_slave_that_is_refused_comes_again_ever_later(replica: Replica, clock: Clock) -> None:
    pauses = []
    for _ in range(7):
        replica.connect().end()
        begin = clock.ms
        while not replica.dialed:
            clock.ms += 500
            replica.slave.tick()
        pauses.append(clock.ms - begin)
    assert pauses == [2_000, 4_000, 8_000, 16_000, 32_000, 32_000, 32_000]
    far = replica.connect()
    clock.ms += 5_000
    far.end()
    clock.ms += 1_000
    replica.slave.tick()
    assert len(replica.dialed) == 1


def test_slave_that_got_something_comes_again_soon(master: Master, replica: Replica, clock: Clock) -> None:
    for _ in range(5):
        master.put()
        near, _ = master.accept()
        far = replica.connect()
        pump(near, far)
        near.end()
        far.end()
        clock.ms += 1_000
        replica.slave.tick()
        assert len(replica.dialed) == 1


def test_another_master_is_followed_at_once(replica: Replica, clock: Clock) -> None:
    far = replica.connect()
    clock.ms += 5000
    replica.slave.follow("10.0.0.9:10912")
    assert far.finished
    far.end()
    replica.slave.tick()
    assert [address for address, _, _ in replica.dialed] == ["10.0.0.9:10912"]


def test_master_that_changes_while_it_is_dialed_is_not_followed(replica: Replica, clock: Clock) -> None:
    replica.slave.follow("10.0.0.9:10912")
    assert len(replica.dialed) == 1
    far = replica.connect()
    assert far.finished
    far.end()
    assert (replica.slave.state, replica.slave.stream) == (SlaveState.PAUSING, None)
    clock.ms += 1000
    replica.slave.tick()
    assert replica.dialed[0][0] == "10.0.0.9:10912"


def test_stopped_slave_takes_in_nothing(master: Master, replica: Replica, clock: Clock) -> None:
    far = replica.connect()
    replica.slave.stop()
    replica.slave.stop()
    assert far.finished
    far.end()
    clock.ms += 5000
    replica.slave.tick()
    replica.slave.follow("10.0.0.9:10912")
    assert (replica.dialed, replica.slave.state) == ([], SlaveState.STOPPED)


def test_slave_that_is_stopped_while_it_dials_takes_in_nothing(replica: Replica) -> None:
    replica.slave.stop()
    address, connected, failed = replica.dialed[0]
    failed("too late")
    assert connected(address).finished
    assert replica.slave.state is SlaveState.STOPPED


def test_slave_gets_of_the_log_what_the_master_has_on_the_disk(master: Master, replica: Replica) -> None:
    first = master.put(2)
    master.on_disk = first
    near, copy = master.accept()
    far = replica.connect()
    pump(near, far)
    assert copy.acknowledged == first
    near.output_sent()
    master.dirty.clear()
    end = master.put(3)
    near.send()
    pump(near, far)
    assert (replica.store.log.end, copy.next_offset) == (first, first)
    # The flush is over: the step that says so ends like all others.
    master.dirty.clear()
    master.on_disk = end
    master.copies.end_step()
    assert near in master.dirty
    pump(near, far)
    assert copy.acknowledged == end


def test_slave_reports_what_it_has_on_the_disk(master: Master, replica: Replica) -> None:
    first = master.put(2)
    near, copy = master.accept()
    replica.on_disk = 0
    far = replica.connect()
    pump(near, far)
    assert (replica.store.log.end, copy.acknowledged) == (first, 0)
    replica.dirty.clear()
    replica.on_disk = first - 10
    replica.slave.end_step()
    assert far in replica.dirty
    pump(near, far)
    assert copy.acknowledged == first - 10
    # A second query whether it is there has the same answer.
    replica.on_disk = first - 20
    far.send()
    replica.clock.ms += replica.options.heartbeat_ms
    replica.slave.tick()
    assert carry(far, near) == REPORT.size
    assert (copy.state, copy.acknowledged) == (CopyState.COPYING, first - 10)


def test_slave_that_connects_says_nothing_before_its_whole_log_is_on_the_disk(master: Master, replica: Replica) -> None:
    end = master.put(2)
    pump(master.accept()[0], replica.connect())
    replica.crash()
    replica.slave.follow(MASTER)
    replica.on_disk = end - 10
    near, copy = master.accept(2)
    far = replica.connect()
    pump(near, far)
    assert copy.state is CopyState.WAITING
    replica.on_disk = end
    replica.dirty.clear()
    replica.slave.end_step()
    assert far in replica.dirty
    pump(near, far)
    assert (copy.state, copy.acknowledged) == (CopyState.COPYING, end)


def test_slave_that_cannot_dial_goes_on_with_another_address(clock: Clock) -> None:
    class Unreadable(ValueError): ...

    replica = Replica(clock)

    def dial(address: str, connected: object, failed: object) -> None:
        if not address[-1].isdecimal():
            raise Unreadable(address)
        replica.dialed.append((address, connected, failed))  # type: ignore[arg-type]

    replica.slave._dial = dial
    with pytest.raises(Unreadable):
        replica.slave.follow("without-port")
    assert replica.slave.state is SlaveState.ALONE
    replica.slave.follow(MASTER)
    assert [address for address, _, _ in replica.dialed] == [MASTER]
