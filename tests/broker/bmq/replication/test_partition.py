"""A partition on several nodes: replication, receipts, healing, fail-over; afterwards all hold the same bytes."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from broker.bmq.core.messages import Full
from broker.bmq.replication import replication
from broker.bmq.replication.partition_table import State
from broker.bmq.replication.positions import history, on_wire
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from formats.bmq.codes import EventType
from formats.bmq.control.messages import ClusterMessage, ControlMessage, PartitionMessage, ReplicaStateRequest
from formats.bmq.wire.receipt import build_receipt_event
from formats.errors import FormatError
from tests.broker.bmq.replication.partition_bus import KEY, Bus
from tests.broker.bmq.rig import guid
from tests.broker.fakes import MemoryDirectory

PRIMARY, REPLICA = State.PRIMARY_HEALED, State.REPLICA_HEALED


@pytest.fixture
def bus() -> Bus:
    bus = Bus()
    bus.assign(0)
    bus.settle()
    return bus


def test_a_new_cluster_heals_at_once(bus: Bus) -> None:
    assert bus.states() == [PRIMARY, REPLICA, REPLICA]
    bus.check_equal()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_cluster_of_any_size_keeps_what_is_posted(count: int) -> None:
    bus = Bus(count)
    primary = bus.assign(0)
    bus.settle()
    primary.post(*range(40))
    primary.stored.kept.copied(primary.stored.sequence_number) if count == 1 else bus.settle()
    assert primary.acked == list(range(40))
    bus.check_equal()


def test_a_message_is_acknowledged_once_a_majority_has_it() -> None:
    bus = Bus(5)
    primary = bus.assign(0)
    bus.settle()
    for node_id in (2, 3, 4):
        bus.part(node_id)
    primary.post(1)
    bus.settle()
    assert primary.acked == []
    bus.join()
    for node_id in (3, 4):
        bus.part(node_id)
    bus.settle()
    assert primary.acked == [1]
    bus.join()
    bus.settle(3000)
    bus.check_equal()


def test_messages_served_by_a_primary_outlive_it_though_another_wrote_under_a_lease_between(bus: Bus) -> None:
    """A message that no majority had is on a majority later; its records are still older than another node's last."""
    bus.settle()
    bus.part(0)
    bus.nodes[0].post(100)
    bus.kill(0)
    bus.assign(1, among=(1, 2))
    while bus.nodes[1].partition.position.primary_lease_id < 2:
        assert bus.step()
    bus.kill(1)
    bus.join()
    bus.start(0)
    bus.assign(0, among=(0, 2))
    while not bus.nodes[0].serving:
        assert bus.step()
    assert guid(100) in bus.nodes[0].store
    bus.kill(0)
    bus.start(1)
    bus.assign(1, among=(1, 2))
    bus.settle()
    assert bus.nodes[1].serving
    assert guid(100) in bus.nodes[1].store
    bus.restart(0)
    bus.settle(3000)
    bus.check_equal()


def test_restored_messages_are_as_old_as_the_records_of_others_say(bus: Bus) -> None:
    """The record that it has written itself, by its own clock, does not count."""
    bus.nodes[0].post(1)
    bus.settle()
    written_s = bus.now.wall_s
    bus.kill(0)
    bus.now.wall_s += 1000
    bus.assign(1)
    bus.settle()
    assert bus.nodes[1].serving
    assert bus.nodes[1].restored_s == written_s


def test_receipts_are_conflated_and_asked_for_only_when_somebody_waits(bus: Bus) -> None:
    primary = bus.nodes[0]
    primary.events.clear()
    primary.post(*range(100))
    bus.settle()
    assert primary.acked == list(range(100))
    assert primary.events.count(EventType.REPLICATION_RECEIPT) == 2
    primary.events.clear()
    primary.remove(*range(50))
    bus.settle()
    assert primary.events == []
    bus.check_equal()


def test_a_restarted_replica_gets_what_it_missed(bus: Bus) -> None:
    primary = bus.nodes[0]
    primary.post(*range(10))
    bus.settle()
    bus.kill(2)
    primary.post(*range(10, 20))
    primary.remove(3, 4, 5)
    bus.settle()
    assert primary.acked == list(range(20))
    bus.restart(2)
    bus.settle()
    assert bus.states() == [PRIMARY, REPLICA, REPLICA]
    assert EventType.PARTITION_SYNC in bus.nodes[2].events
    bus.check_equal()


def test_a_replica_with_an_empty_disk_gets_everything(bus: Bus) -> None:
    primary = bus.nodes[0]
    primary.post(*range(30))
    bus.settle()
    bus.kill(1)
    bus.disks[1] = type(bus.disks[1])()
    bus.restart(1)
    bus.settle()
    assert bus.states() == [PRIMARY, REPLICA, REPLICA]
    bus.check_equal()


def test_a_replica_whose_link_broke_goes_on(bus: Bus) -> None:
    primary = bus.nodes[0]
    primary.post(1)
    bus.part(2)
    primary.post(2, 3)
    bus.settle()
    bus.join()
    primary.post(4)
    bus.settle()
    assert bus.states() == [PRIMARY, REPLICA, REPLICA]
    assert primary.acked == [1, 2, 3, 4]
    bus.check_equal()


def test_a_replica_that_comes_back_later_is_what_a_post_has_waited_for(bus: Bus) -> None:
    bus.kill(1)
    bus.kill(2)
    primary = bus.nodes[0]
    primary.post(1)
    bus.settle(1000)
    assert primary.acked == []
    bus.restart(1)
    bus.settle(1000)
    assert primary.acked == [1]
    bus.check_equal()


def test_a_replica_becomes_primary_with_all_that_was_acknowledged(bus: Bus) -> None:
    primary = bus.nodes[0]
    primary.post(*range(20))
    bus.settle()
    acked = list(primary.acked)
    primary.post(*range(20, 25))
    primary.partition.flush()
    bus.kill(0)
    new = bus.assign(1)
    bus.settle()
    assert bus.states() == [PRIMARY, REPLICA]
    assert {guid(number) for number in acked} <= set(new.store)
    new.post(100, 101)
    bus.settle()
    assert new.acked == [100, 101]
    bus.restart(0)
    bus.settle(2000)
    assert bus.states() == [REPLICA, PRIMARY, REPLICA]
    bus.check_equal()


def test_a_new_primary_that_is_behind_heals_itself_from_the_most_advanced_replica(bus: Bus) -> None:
    primary = bus.nodes[0]
    bus.part(1)
    primary.post(*range(20))
    bus.settle()
    assert primary.acked == list(range(20))
    bus.kill(0)
    bus.join()
    new = bus.assign(1)
    bus.settle(2000)
    assert bus.states() == [PRIMARY, REPLICA]
    assert set(new.store) == {guid(number) for number in range(20)}
    bus.check_equal()
    bus.restart(0)
    bus.settle(2000)
    bus.check_equal()


def test_a_primary_without_a_majority_does_not_serve() -> None:
    bus = Bus()
    bus.part(0)
    bus.assign(0)
    bus.settle(5000)
    assert not any(node.serving for node in bus.nodes.values())
    bus.join()
    bus.settle(5000)
    assert bus.nodes[0].serving
    bus.check_equal()


def test_a_primary_that_was_cut_off_becomes_a_replica_and_loses_its_tail(bus: Bus) -> None:
    old = bus.nodes[0]
    old.post(1, 2)
    bus.settle()
    bus.part(0)
    old.post(3, 4)
    bus.settle()
    assert old.acked == [1, 2]
    new = bus.assign(1, among=(1, 2))
    bus.settle()
    new.post(5)
    bus.settle()
    assert new.acked == [5]
    bus.join()
    old.partition.primary_changed(1, bus.lease_id)
    assert bus.nodes[0].serving is False
    bus.settle(3000)
    assert bus.states() == [REPLICA, PRIMARY, REPLICA]
    assert bus.kept(0) == [guid(1), guid(2), guid(5)]
    # Truncated, not received again.
    assert len(old.directory.archived) == 0
    bus.check_equal()


def test_the_tail_is_cut_also_when_the_old_primary_is_primary_again(bus: Bus) -> None:
    old = bus.nodes[0]
    old.post(1, 2)
    bus.settle()
    bus.part(0)
    old.post(3, 4)
    new = bus.assign(1, among=(1, 2))
    bus.settle()
    new.post(5, 6, 7)
    bus.settle()
    bus.join()
    bus.assign(0)
    bus.settle(3000)
    assert bus.states() == [PRIMARY, REPLICA, REPLICA]
    assert bus.kept(0) == [guid(number) for number in (1, 2, 5, 6, 7)]
    bus.check_equal()


def test_a_primary_that_is_received_anew_keeps_its_records_until_it_has_those_of_the_replica_ahead() -> None:
    """Two nodes have all acknowledged records; one receives them again from the other, which is lost meanwhile."""
    bus = Bus()
    bus.assign(0)
    bus.settle()
    bus.nodes[0].post(1)
    bus.settle()
    bus.assign(0)
    bus.settle()
    bus.part(2)
    bus.nodes[0].post(2, 3)
    bus.settle()
    assert bus.nodes[0].acked == [1, 2, 3]
    bus.join()
    bus.part(0)
    bus.nodes[0].post(4)
    ahead = bus.assign(1, among=(1, 2))
    while ahead.partition.copy.records.position.primary_lease_id < bus.lease_id:
        bus.step()
    bus.part(2)
    assert guid(2) not in bus.kept(2)
    bus.join()
    bus.part(2)
    primary = bus.assign(0)
    before = primary.partition.copy.records.position
    while primary.partition.copy.records.position == before:
        bus.step()
    bus.join()
    bus.part(1)
    bus.settle(3000)
    assert primary.serving
    assert {guid(number) for number in (1, 2, 3)} <= set(primary.store)
    bus.join()
    bus.settle(3000)
    bus.check_equal()


def test_the_log_of_a_primary_with_records_of_its_own_is_in_the_words_of_the_reference(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    bus.nodes[0].post(1, 2)
    bus.settle()
    bus.part(0)
    bus.nodes[0].post(3, 4)
    bus.assign(1, among=(1, 2))
    bus.settle()
    bus.nodes[1].post(5, 6, 7)
    bus.settle()
    bus.join()
    caplog.set_level("INFO")
    caplog.clear()
    bus.assign(0)
    bus.settle(3000)
    wanted = (
        r"Sending request to '\[node(\d), \1\] from 0' \[request: .*replicaDataRequest = "
        r"\[ partitionId = 0 primaryLeaseId = 3 replicaDataType = E_PULL beginSequenceNumber = "
        r"\[ primaryLeaseId = 1 sequenceNumber = [1-9]\d* \]",
        r"Primary \[node0, 0\] from [12] has PSN \(1, [1-9]\d*\), .*, implying that primary has irreconcilable records",
        r"Replica \[node[12], [12]\] from 0 reported irreconcilable data on self primary\. "
        r"Removing entire storage and requesting it from replica\.",
        r"Sending request to .* replicaDataType = E_PULL .*beginSequenceNumber = "
        r"\[ primaryLeaseId = 0 sequenceNumber = 0 \]",
    )
    assert re.search(".*".join(wanted), caplog.text, re.DOTALL), caplog.text
    bus.check_equal()


def fill(bus: Bus, first: int, count: int, live: int = 20) -> int:
    """Post and remove messages, so that the partition rolls over; the number of the next message."""
    primary = bus.nodes[bus.primary_id or 0]
    for number in range(first, first + count):
        primary.post(number)
        if number - live >= first:
            primary.remove(number - live)
        if number % 10 == 0:
            bus.settle()
    bus.settle()
    return first + count


@pytest.fixture
def small() -> Bus:
    bus = Bus(limits=PartitionLimits(journal=16 << 10, data=32 << 10, qlist=4 << 10))
    bus.assign(0)
    bus.settle()
    return bus


def test_all_roll_over_together(small: Bus) -> None:
    before = small.nodes[0].stored.files.timestamp
    for node in small.nodes.values():
        node.events.clear()
    fill(small, 0, 400)
    assert small.nodes[0].stored.files.timestamp != before
    assert small.states() == [PRIMARY, REPLICA, REPLICA]
    for node in small.nodes.values():
        assert EventType.PARTITION_SYNC not in node.events
    assert small.nodes[0].acked == list(range(400))
    small.check_equal()


def test_a_replica_that_missed_a_rollover_is_received_anew(small: Bus) -> None:
    fill(small, 0, 30)
    small.part(2)
    fill(small, 100, 400)
    small.join()
    small.settle(3000)
    assert small.states() == [PRIMARY, REPLICA, REPLICA]
    small.check_equal()
    fill(small, 600, 400)
    small.check_equal()


def test_a_replica_that_was_received_anew_keeps_that_when_an_old_question_comes_again(small: Bus) -> None:
    """A link may give a message twice."""
    fill(small, 0, 30)
    small.part(2)
    fill(small, 100, 400)
    small.join()
    small.settle(3000)
    replica, primary = small.nodes[2].partition, small.nodes[0].partition
    at = on_wire(primary.position)
    question = ReplicaStateRequest(
        partition_id=0,
        primary_lease_id=small.lease_id,
        latest_sequence_number=at,
        first_sync_point_after_rollover_sequence_number=at,
    )
    message = ControlMessage(r_id=1, choice=ClusterMessage(choice=PartitionMessage(choice=question)))
    assert replica.on_control(0, message)
    small.settle(3000)
    assert replica.state is REPLICA
    assert replica.position == primary.position
    small.check_equal()


def test_a_primary_that_missed_a_rollover_receives_the_partition_anew(small: Bus) -> None:
    fill(small, 0, 30)
    small.part(2)
    fill(small, 100, 400)
    small.kill(0)
    small.join()
    small.assign(2)
    small.settle(3000)
    assert small.states() == [REPLICA, PRIMARY]
    small.check_equal()
    fill(small, 600, 100)
    small.check_equal()


def test_a_rollover_that_nobody_alive_has_finished_is_not_begun_by_healing(small: Bus) -> None:
    """The old primary went on in new files and is gone; the others end with the record that it meant to do so."""
    fill(small, 0, 30)
    small.part(2)
    old = small.nodes[0].stored.files.timestamp
    # No room for new files: the old ones take what is posted, up to that record.
    files = small.nodes[1].stored.files
    assert files.journal.reserve(small.limits.journal)
    assert files.data.reserve(small.limits.data)
    small.nodes[1].directory.free = 0
    number = 100
    while small.nodes[0].stored.files.timestamp == old:
        small.nodes[0].post(number)
        small.nodes[0].remove(number)
        small.settle()
        number += 1
    before = small.nodes[1].partition.copy.records.position
    small.kill(0)
    small.nodes[1].directory.free = 1 << 30
    small.join()
    new = small.assign(2)
    small.settle(3000)
    assert {node.stored.files.timestamp for node in small.nodes.values()} == {old}
    assert history(new.stored.files)[1] == before
    assert small.states() == [REPLICA, PRIMARY]
    small.check_equal()
    fill(small, number, 10)
    assert new.acked[-10:] == list(range(number, number + 10))
    small.check_equal()


def test_a_node_that_dies_while_it_is_received_anew_still_has_what_it_had(
    small: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "SLICE_BYTES", 500)
    fill(small, 0, 30)
    small.part(2)
    before = small.nodes[2].files()
    fill(small, 100, 400)
    small.join()
    replica = small.nodes[2]
    for _ in range(1000):
        small.step()
        if replica.partition.copy.records.is_fresh and replica.partition.copy.records.position > (0, 0):
            break
    assert replica.partition.copy.records.is_fresh
    small.kill(2)
    replica = small.restart(2)
    assert replica.files() == before
    small.settle(3000)
    small.check_equal()


def test_a_disk_that_is_full_stops_a_replica_until_there_is_room(bus: Bus) -> None:
    replica = bus.nodes[2]
    replica.directory.free = 0
    bus.nodes[0].post(*range(20))
    bus.settle(2000)
    assert bus.nodes[0].acked == list(range(20))
    assert replica.partition.state is not REPLICA
    replica.directory.free = 1 << 30
    bus.settle(3000)
    assert bus.states() == [PRIMARY, REPLICA, REPLICA]
    bus.check_equal()


def test_nothing_was_heard_by_a_replica_whose_journal_has_no_record() -> None:
    """A record came, and the replica has restarted before the tick."""
    replica = Bus().nodes[2]
    replica.stored.hears = True
    replica.stored.tick()
    assert replica.stored.heard is None


def test_last_time_is_noted_before_the_first_record_of_a_lease(bus: Bus) -> None:
    """The old primary's clock was set back within its last second."""
    replica = bus.nodes[1]
    replica.stored.tick()
    bus.now.wall_s -= 30_000
    bus.nodes[0].post(1)
    bus.settle()
    last_s = bus.now.wall_s
    bus.kill(0)
    bus.now.wall_s += 30_000
    bus.assign(1)
    bus.settle(1000)
    assert replica.serving
    assert replica.stored.heard is not None
    assert replica.stored.heard.timestamp == last_s


def test_a_record_that_does_not_fit_was_not_heard(bus: Bus) -> None:
    """The record's time is unknown: the time of the last one could look as if a clock had been set."""
    replica = bus.nodes[2]
    bus.nodes[0].post(0)
    bus.settle()
    replica.stored.tick()
    heard = replica.stored.heard
    assert heard is not None
    replica.directory.free = 0
    bus.now.ms += 60_000
    bus.nodes[0].post(*range(1, 20))
    bus.settle()
    replica.stored.tick()
    assert replica.stored.heard == heard


def test_the_report_says_how_far_replicas_are(bus: Bus) -> None:
    bus.nodes[0].post(1)
    bus.settle()
    report = bus.nodes[0].partition.report()
    assert report.state is PRIMARY
    assert [(each.node_id, each.is_live, each.records_behind) for each in report.followers] == [
        (1, True, 0),
        (2, True, 0),
    ]


def test_a_primary_whose_disk_is_full_begins_when_there_is_room(small: Bus) -> None:
    number = fill(small, 0, 30)
    small.kill(0)
    disk = small.nodes[1].directory
    small.nodes[1].stored.room.limits = PartitionLimits(journal=1 << 10, data=32 << 10, qlist=4 << 10)
    disk.free = 0
    new = small.assign(1)
    small.settle(3000)
    assert not any(node.serving for node in small.nodes.values())
    disk.free = 1 << 30
    small.settle(3000)
    assert small.nodes[1].serving
    fill(small, number, 10)
    assert new.acked == list(range(number, number + 10))


@pytest.mark.parametrize("live", [5, 30])
def test_a_primary_with_smaller_files_fills_no_more_of_them_than_it_may(small: Bus, live: int) -> None:
    """A replica of the reference writes where its primary does, even beyond the end of its own files."""
    other = small.nodes[1].stored
    limits = other.room.limits = other.capacity = PartitionLimits(small.limits.journal, 8 << 10, small.limits.qlist)
    first = other.files.timestamp
    number = fill(small, 0, 60, live)
    while other.files.timestamp == first or other.files.data_end <= limits.data:
        number = fill(small, number, 5, 0)
    before = other.files.data_end
    small.kill(0)
    new = small.assign(1)
    small.settle(3000)
    assert new.serving
    for _ in range(300):
        with suppress(Full):
            new.post(number)
            number += 1
        if len(new.store) > live:
            oldest = min(new.store.values(), key=lambda message: message.offset)
            new.stored.records.remove(KEY, new.store.pop(oldest.guid))
        small.settle()
        assert other.files.data_end <= max(limits.data, before)
    assert new.acked[-1] == number - 1
    small.check_equal()


def test_removed_messages_are_known_to_the_next_primary_over_any_number_of_rollovers(small: Bus) -> None:
    number = fill(small, 0, 1000)
    assert len(small.nodes[1].directory.archived) > 6
    small.kill(0)
    new = small.assign(1)
    small.settle()
    known = {each for each in range(number) if not new.history.is_new(guid(each))}
    assert known == {each for each in range(number) if guid(each) not in new.store}
    # And to the same after a restart.
    small.kill(1)
    small.restart(1)
    small.settle()
    again = small.assign(1)
    small.settle(2000)
    assert known <= {each for each in range(number) if not again.history.is_new(guid(each))}


def test_a_lease_is_not_written_under_twice(bus: Bus) -> None:
    bus.nodes[0].post(1)
    bus.settle()
    bus.kill(0)
    node = bus.restart(0)  # nobody has noticed: the lease is still its own
    bus.settle(2000)
    assert not node.serving
    assert set(node.outdated) == {bus.lease_id}, "it asks for a newer one"
    bus.assign(0)
    bus.settle(2000)
    assert bus.nodes[0].serving
    bus.check_equal()


def test_a_primary_without_room_to_begin_anew_receives_nothing_before_there_is(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A primary that serves the partition does not begin again under a lease under which it has written."""
    bus.nodes[0].post(1, 2)
    bus.settle()
    bus.kill(2)
    bus.disks[2] = MemoryDirectory()
    bus.restart(2)
    with monkeypatch.context() as patch:
        patch.setattr(PartitionFiles, "create", lambda *args: None)
        node = bus.assign(2)
        bus.settle()
        assert node.partition.state is State.PRIMARY_HEALING_STG2
    bus.settle(5000)
    assert node.serving
    assert node.outdated == []
    node.post(3)
    bus.settle()
    assert node.acked == [3]
    bus.check_equal()


def test_a_replica_that_comes_back_with_all_records_counts_for_what_waits() -> None:
    """The replica's receipt was lost with its link; nothing is sent to it for which it would give another."""
    bus = Bus(2)
    primary = bus.assign(0)
    bus.settle()
    primary.post(1)
    primary.flush()
    link = bus.links[0, 1]
    while link:
        bus.nodes[1].receive(0, link.popleft())
    assert bus.nodes[1].partition.position == primary.partition.position
    bus.part(1)
    bus.join()
    bus.settle(1000)
    assert primary.acked == [1]


@pytest.mark.parametrize("number", [1 << 40, (1 << 64) - 1])
def test_a_receipt_of_what_was_never_written_acknowledges_nothing(number: int) -> None:
    bus = Bus(3)
    primary = bus.assign(0)
    bus.settle()
    primary.post(1)
    with pytest.raises(FormatError, match="ReplicationReceipt"):
        primary.receive(1, build_receipt_event(0, bus.lease_id, number))
    assert primary.acked == []
