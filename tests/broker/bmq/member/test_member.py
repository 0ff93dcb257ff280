from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.partition.kept_records import Awaiting
from broker.bmq.replication import replication
from formats.bmq.codes import AckStatus, EncodingType, EventType
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import (
    ClusterMessage,
    ControlMessage,
    LeaderSyncStateQuery,
    NodeStatus,
    OpenQueue,
    OpenQueueResponse,
    PartitionMessage,
    PartitionSequenceNumber,
    ReplicaDataRequest,
    ReplicaDataType,
    Status,
    StopRequest,
)
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, RecordType
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.wire.event import build_schema_event, iter_frames, schema_message
from formats.bmq.wire.storage import storage_partition_id
from tests.broker.bmq.member.member_bus import MemberClient, Members, Process, members
from tests.broker.bmq.rig import ACK, READ, WRITE, guid, handle
from tests.broker.fakes import MemoryDirectory

QUEUE = "bmq://priority/q"


def test_however_few_may_elect_a_majority_keeps() -> None:
    members = Members(elector_quorum=1)
    members.kill(1)
    members.kill(2)
    alone = members.processes[0]
    members.until(lambda: alone.member.election.leader_id == 0)
    members.run(60_000)
    assert not alone.member.metadata.healed
    assert all(stored.kept.is_cut_off for stored in alone.node.partitions.values())
    assert {partition.quorum for partition in alone.member.partitions.values()} == {2}


@pytest.mark.parametrize("when_ms", [0, 30_000])
def test_an_operator_has_a_node_go_on_without_the_others(when_ms: int) -> None:
    cluster = members()
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    client.put(1, guid(1), b"kept")
    cluster.run()
    disks = {node_id: cluster.kill(node_id) for node_id in cluster.ids}
    cluster.start(1, disks[1])
    alone = cluster.processes[1]
    cluster.run(when_ms)
    assert not alone.member.metadata.healed
    alone.node.role.set_elector_quorum(1)
    cluster.until(lambda: alone.member.partitions[0].is_primary)
    consumer = cluster.connect(1)
    consumer.read(1, QUEUE)
    cluster.run()
    assert consumer.payloads() == [b"kept"]
    for node_id in (0, 2):
        cluster.start(node_id, disks[node_id])
    cluster.until(lambda: all(each.member.partitions[0].is_healed for each in cluster.processes.values()))
    assert cluster.leader is alone
    assert cluster.faults() == []


def test_consumers_confirm_before_their_node_leaves(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    cluster = members()
    consumer, producer = cluster.connect(1), cluster.connect(0)
    consumer.read(1, QUEUE)
    producer.open(1, QUEUE, WRITE | ACK)
    producer.put(1, guid(1), b"1")
    cluster.run()
    member = cluster.processes[1].member
    assert not member.retire()
    producer.put(1, guid(2), b"2")
    cluster.run(1000)
    assert not member.retire()
    assert "waiting for 1 unconfirmed message(s)" in caplog.text
    assert consumer.payloads() == [b"1"]
    consumer.confirm(1, guid(1))
    cluster.run()
    assert member.retire()
    assert "no unconfirmed message(s)" in caplog.text


def test_a_domain_does_not_count_messages_that_another_node_serves() -> None:
    """A queue without clients at its former primary, where it does not become a relay."""
    cluster = members()
    former = cluster.leader
    producer = cluster.connect(former.node_id)
    producer.open(1, QUEUE, WRITE | ACK)
    producer.put(1, guid(1), b"1")
    producer.close(1, QUEUE, WRITE | ACK)
    cluster.run()
    usage = former.node.domains["priority"].usage
    assert (usage.messages, usage.bytes) == (1, 1)
    former.member.retire()
    cluster.until(
        lambda: any(each.member.partitions[0].is_primary for each in cluster.processes.values() if each is not former)
    )
    cluster.run()
    assert cluster.queue(former.node_id, QUEUE) is None
    assert (usage.messages, usage.bytes) == (0, 0)


@pytest.mark.parametrize("codec", [ber, jsonc])
def test_request_that_no_member_may_make_is_refused(codec: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    """A node that acts like a primary is not one for that, and partitions that do not exist are refused."""
    cluster = members()
    number = PartitionSequenceNumber(primary_lease_id=1, sequence_number=0)
    encoding = EncodingType.JSON if codec is jsonc else EncodingType.BER
    for partition_id, text in ((0, "but self's perceived primary is 0"), (-1, "invalid partitionId, -1")):
        request = ReplicaDataRequest(
            partition_id=partition_id,
            primary_lease_id=1,
            replica_data_type=ReplicaDataType.DROP,
            begin_sequence_number=number,
            end_sequence_number=number,
        )
        message = ControlMessage(r_id=4242, choice=ClusterMessage(choice=PartitionMessage(choice=request)))
        event = memoryview(build_schema_event(codec.encode(message), EventType.CONTROL, encoding))
        (frame,) = iter_frames(event, 0, len(event), len(event))
        cluster.processes[1].member.receive(2, event, frame)
        assert f"Received ReplicaDataRequestDrop {'of an ' if partition_id else 'from node 2, '}{text}" in caplog.text
    cluster.run()
    assert cluster.processes[1].member.partitions[0].is_healed


def test_an_operator_lets_a_minority_go_on() -> None:
    """Messages of eventual consistency are acknowledged then; those of strong consistency still wait for a majority."""
    cluster = Members()
    cluster.domains["strong"] = DomainConfig("strong", Mode.PRIORITY, strong=True)
    cluster.until(lambda: all(each.member.partitions[0].is_healed for each in cluster.processes.values()))
    leader = cluster.leader
    leader.node.role.set_elector_quorum(1)
    client = cluster.connect(leader.node_id)
    client.open(1, QUEUE, WRITE | ACK)
    strong = "bmq://strong/q"
    client.open(2, strong, WRITE | ACK)
    for node_id in [each for each in cluster.ids if each != leader.node_id]:
        cluster.kill(node_id)
    assert cluster.leader is leader
    for queue_id in (1, 2):
        client.put(queue_id, guid(queue_id), b"x")
    cluster.run()
    assert [(ack.queue_id, ack.status) for ack in client.acks()] == [(1, AckStatus.SUCCESS)]
    leader.node.role.set_elector_quorum(0)
    client.put(1, guid(3), b"x")
    cluster.run()
    assert client.acks() == []


STRONG = "bmq://strong/q"


def strong_cluster(nodes: int = 3) -> tuple[Members, Process, MemberClient]:
    """A cluster, its leader, and a client of it that reads and writes a queue of strong consistency."""
    cluster = Members(nodes)
    cluster.domains["strong"] = DomainConfig("strong", Mode.PRIORITY, strong=True)
    cluster.until(lambda: all(each.member.partitions[0].is_healed for each in cluster.processes.values()))
    client = cluster.connect(cluster.leader.node_id)
    client.open(1, STRONG, READ | WRITE | ACK)
    client.configure(1)
    return cluster, cluster.leader, client


def deafen(cluster: Members, to: Process, *node_ids: int) -> None:
    """Have a primary hear nothing of what these nodes have written."""
    for node_id in node_ids:
        cluster.wires[node_id, to.node_id].events = Sieve(EventType.REPLICATION_RECEIPT)


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_a_smaller_replication_quorum_lets_go_of_what_waits(copies: int, caplog: pytest.LogCaptureFixture) -> None:
    cluster, leader, client = strong_cluster(5)
    others = [node_id for node_id in cluster.ids if node_id != leader.node_id]
    deafen(cluster, leader, *others[copies > 1 :])
    client.put(1, guid(1), b"1")
    cluster.run()
    assert (client.acks(), client.payloads()) == ([], [])
    stored = leader.node.partitions[0]
    number = stored.kept.awaiting[0].sequence_number
    leader.node.role.set_replication_quorum(copies)
    cluster.run()
    assert [ack.status for ack in client.acks()] == [AckStatus.SUCCESS]
    assert client.payloads() == [b"1"]
    client.put(1, guid(2), b"2")
    cluster.run()
    assert [ack.status for ack in client.acks()] == [AckStatus.SUCCESS]
    assert f"acknowledged with {max(1, copies)} of 5 copies, less than a majority" in caplog.text
    # Records that the next primary may lack are still passed on to it.
    assert stored.kept.kept_number < number
    assert cluster.faults() == []


def test_messages_after_those_released_in_slices_need_no_copies_either() -> None:
    cluster, leader, client = strong_cluster()
    deafen(cluster, leader, *(node_id for node_id in cluster.ids if node_id != leader.node_id))
    for number in range(10):
        client.put(1, guid(number), b"%d" % number)
    cluster.run()
    leader.node.work.amount = leader.node.work.left = 2
    leader.node.role.set_replication_quorum(1)
    client.put(1, guid(10), b"10")
    assert leader.node.partitions[0].kept.awaiting
    cluster.run()
    assert [ack.guid for ack in client.acks()] == [guid(number) for number in range(11)]
    assert client.payloads() == [b"%d" % number for number in range(11)]


def test_a_larger_replication_quorum_waits_for_more(caplog: pytest.LogCaptureFixture) -> None:
    cluster, leader, client = strong_cluster()
    deafen(cluster, leader, next(node_id for node_id in cluster.ids if node_id != leader.node_id))
    client.put(1, guid(1), b"1")
    cluster.run()
    assert len(client.acks()) == 1
    leader.node.role.set_replication_quorum(3)
    client.put(1, guid(2), b"2")
    cluster.run()
    assert client.acks() == []
    # A majority has it for all that.
    assert leader.node.partitions[0].kept.kept_number == leader.node.partitions[0].kept.awaiting[0].sequence_number
    leader.node.role.set_replication_quorum(4)
    assert "there are only 3 nodes: none is acknowledged" in caplog.text
    leader.node.role.set_replication_quorum(2)
    cluster.run()
    assert [ack.guid for ack in client.acks()] == [guid(2)]


def test_the_next_primary_keeps_the_replication_quorum_that_it_was_given() -> None:
    cluster, leader, _ = strong_cluster()
    for process in cluster.processes.values():
        process.node.role.set_replication_quorum(1)
    cluster.kill(leader.node_id)
    cluster.until(lambda: any(each.member.partitions[0].is_primary for each in cluster.processes.values()))
    client = cluster.connect(cluster.leader.node_id)
    client.open(1, STRONG, WRITE | ACK)
    deafen(cluster, cluster.leader, *(cluster.processes.keys() - {cluster.leader.node_id}))
    client.put(1, guid(1), b"1")
    cluster.run()
    assert len(client.acks()) == 1


def test_isolated_node_waits_for_a_majority_whatever_the_replication_quorum() -> None:
    """Others may have elected another leader, who knows nothing of what is posted here."""
    cluster, leader, client = strong_cluster()
    leader.node.role.set_replication_quorum(1)
    client.open(2, QUEUE, WRITE | ACK)
    for node_id in [each for each in cluster.ids if each != leader.node_id]:
        cluster.kill(node_id)
    for queue_id in (1, 2):
        client.put(queue_id, guid(queue_id), b"x")
    cluster.run()
    assert client.acks() == []


def test_as_many_agree_as_elect() -> None:
    cluster = members()
    leader = cluster.leader
    leader.node.role.set_elector_quorum(4)
    client = cluster.connect(1)
    client.send(
        client._schema_event(ControlMessage(r_id=1, choice=OpenQueue(handle_parameters=handle(1, QUEUE, READ))))
    )
    cluster.run(10_000)
    assert client._pick(ControlMessage) == []
    assert cluster.leader is leader
    leader.node.role.set_elector_quorum(0)
    cluster.run()
    (answer,) = client._pick(ControlMessage)
    assert isinstance(answer.choice, OpenQueueResponse)


class Sieve(deque[bytes]):
    """A link that loses events of some kinds: of one partition, if it is given."""

    def __init__(self, *kinds: EventType, partition_id: int | None = None) -> None:
        super().__init__()
        self._kinds = kinds
        self._partition_id = partition_id

    def append(self, event: bytes) -> None:
        is_lost = event[4] & 0x3F in self._kinds
        if is_lost and self._partition_id is not None:
            is_lost = _partition_of(event) == self._partition_id
        if not is_lost:
            super().append(event)


def _partition_of(event: bytes) -> int:
    view = memoryview(event)
    (frame,) = iter_frames(view, 0, len(view), 1 << 30)
    return storage_partition_id(view, frame.body, frame.end)


def at_replica(cluster: Members) -> tuple[MemberClient, MemberClient]:
    """A consumer of a queue at a replica, node 2, and a producer at the primary, node 0."""
    consumer, producer = cluster.connect(2), cluster.connect(0)
    consumer.open(1, QUEUE, READ)
    consumer.configure(1)
    producer.open(1, QUEUE, WRITE | ACK)
    cluster.run(1000)
    return consumer, producer


def test_a_replica_that_lags_is_pushed_nothing_before_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "SLICE_BYTES", 500)
    cluster = members()
    consumer, producer = at_replica(cluster)
    cluster.wires[0, 2].backlog = replication.BACKLOG_MAX
    cluster.run()
    for number in range(20):
        producer.put(1, guid(number), b"%d" % number)
    cluster.run()
    assert len(producer.acks()) == 20
    assert consumer.payloads() == []
    cluster.wires[0, 2].backlog = 0
    cluster.run()
    assert consumer.payloads() == [b"%d" % number for number in range(20)]
    assert cluster.faults() == []


class Looked(deque[Awaiting]):
    """Messages that wait for copies, and how many were looked at by going through them."""

    looks = 0

    def __reversed__(self) -> Iterator[Awaiting]:
        for each in list(super().__reversed__()):
            self.looks += 1
            yield each


def test_replicas_that_lag_get_their_records_without_a_look_at_all_that_wait_for_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replication, "SLICE_BYTES", 500)
    cluster = members()
    cluster.domains["priority"] = replace(cluster.domains["priority"], strong=True)
    producer = cluster.connect(0)
    producer.open(1, QUEUE, WRITE | ACK)
    for other in (1, 2):
        cluster.wires[0, other].backlog = replication.BACKLOG_MAX
    for number in range(40):
        producer.put(1, guid(number), b"%d" % number)
    cluster.run()
    stored = cluster.processes[0].node.partitions[0]
    looked = stored.kept.awaiting = Looked(stored.kept.awaiting)
    assert len(looked) == 40
    for other in (1, 2):
        cluster.wires[0, other].backlog = 0
    cluster.run()
    assert [ack.guid for ack in producer.acks()] == [guid(number) for number in range(40)]
    assert looked.looks < 40
    assert cluster.faults() == []


def test_a_push_of_what_a_replica_lacks_comes_again_when_it_is_there() -> None:
    cluster = members()
    consumer, producer = at_replica(cluster)
    producer.put(1, guid(1), b"1")
    wire = cluster.wires[0, 2]
    wire.events = Sieve(EventType.STORAGE)
    cluster.run()
    wire.events = deque()
    assert consumer.payloads() == []
    # The next record does not fit: the replica heals, and its hop restarts.
    cluster.run(5000)
    assert consumer.payloads() == [b"1"]
    assert cluster.faults() == []


@pytest.mark.parametrize("is_own", [True, False])
def test_a_node_opens_queues_at_primaries_of_the_reference_when_it_is_available(is_own: bool) -> None:
    """The reference's drop what they are to push to a node that is not; others need not wait for all its partitions."""
    cluster = members(partition_count=2)
    cluster.connect(0).open(1, QUEUE, WRITE | ACK)
    place = cluster.processes[0].node.ledger.state.queues[QUEUE].partition_id
    cluster.kill(2)
    cluster.start(2, MemoryDirectory())
    started = cluster.processes[2]
    cluster.wires[0, 2].events = Sieve(EventType.PARTITION_SYNC, partition_id=1 - place)
    cluster.wires[2, 0].takes_removals = is_own
    opening = ControlMessage(r_id=1, choice=OpenQueue(handle_parameters=handle(1, QUEUE, READ)))
    consumer = cluster.connect(2)
    consumer.send(build_schema_event(ber.encode(opening)))
    cluster.run(500)
    assert started.member.partitions[place].is_healed
    assert started.member.status is NodeStatus.STARTING
    (app,) = cluster.processes[0].node.queues[QUEUE].apps.values()
    assert bool(app.streams) is is_own
    cluster.wires[0, 2].events = deque()
    cluster.until(lambda: started.member.status is NodeStatus.AVAILABLE)
    cluster.run()
    assert app.streams


def test_posts_of_another_hop_are_left_to_it_when_the_primary_moves() -> None:
    cluster = members()
    cluster.domains["priority"] = replace(cluster.domains["priority"], strong=True)
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    # Nobody tells the primary that it has the record.
    for other in (1, 2):
        cluster.wires[other, 0].events = Sieve(EventType.REPLICATION_RECEIPT)
    client.put(1, guid(1), b"1")
    cluster.run()
    old = cluster.processes[0]
    root = old.node.queues[QUEUE]
    assert list(root.awaiting) == [guid(1)]
    cluster.until(old.member.retire)
    cluster.run(3000)
    assert [AckStatus(ack.status) for ack in client.acks()] == [AckStatus.SUCCESS]
    assert old.node.queues == {}
    assert cluster.faults() == []


def test_a_node_of_the_legacy_workflow_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal for each request, and one line for the operator, with what to do."""
    cluster = members()
    member = cluster.processes[1].member
    wire = cluster.wires[1, 2]
    for r_id in (7, 8):
        query = ControlMessage(r_id=r_id, choice=ClusterMessage(choice=LeaderSyncStateQuery()))
        event = memoryview(build_schema_event(ber.encode(query)))
        (frame,) = iter_frames(event, 0, len(event), len(event))
        member.receive(2, event, frame)
        data = wire.events.pop()
        (frame,) = iter_frames(memoryview(data), 0, len(data), len(data))
        answer = ber.decode(ControlMessage, bytes(schema_message(memoryview(data), frame.body, frame.end)))
        assert answer.r_id == r_id
        assert isinstance(answer.choice, Status)
        assert (answer.choice.category.name, answer.choice.message) == (
            "NOT_SUPPORTED",
            "the legacy workflow is not supported",
        )
    assert caplog.text.count("speaks the legacy workflow (LeaderSyncStateQuery): set") == 1


def test_a_majority_that_lost_its_disks_serves_what_one_node_has_kept(caplog: pytest.LogCaptureFixture) -> None:
    """The leader knows of no lease, gives one that the records of the third node are of, and then one above it."""
    cluster = members()
    client = cluster.connect(0)
    client.open(1, QUEUE, WRITE | ACK)
    client.put(1, guid(1), b"kept by one")
    cluster.run(2000)
    disks = [cluster.kill(node_id) for node_id in cluster.ids]
    disks[0], disks[2] = MemoryDirectory(), MemoryDirectory()
    for name in disks[1].names():
        if name.startswith("bmq_csl"):
            disks[1].remove(name)
    caplog.clear()
    for node_id in cluster.ids:
        cluster.start(node_id, disks[node_id])
    cluster.until(lambda: all(each.member.status.name == "AVAILABLE" for each in cluster.processes.values()))
    assert caplog.text.count("records were already written under lease 1") == 1
    assert {each.member.partitions[0].primary_lease_id for each in cluster.processes.values()} == {2}
    assert {each.member.partitions[0].position for each in cluster.processes.values()} == {RecordNumber(2, 1)}
    assert cluster.faults() == []


def test_a_cluster_that_has_lost_the_names_of_its_queues_finds_them_in_the_ledger() -> None:
    cluster = members()
    client = cluster.connect(0)
    client.open(1, QUEUE, WRITE | ACK)
    client.put(1, guid(1), b"kept")
    cluster.run(3000)
    disks = {node_id: cluster.kill(node_id) for node_id in cluster.ids}
    lost = [disk.files.pop(disk.find("qlist")).data for disk in disks.values()]
    for node_id, disk in disks.items():
        cluster.start(node_id, disk)
    cluster.until(lambda: all(each.member.partitions[0].is_healed for each in cluster.processes.values()))
    consumer = cluster.connect(1)
    consumer.read(1, QUEUE)
    cluster.run()
    assert consumer.payloads() == [b"kept"]
    assert [bytes(disk.files[disk.find("qlist")].data) for disk in disks.values()] == [bytes(each) for each in lost]
    assert cluster.faults() == []


def test_a_new_leader_is_active_before_its_queues_are_rebuilt(caplog: pytest.LogCaptureFixture) -> None:
    """Programs read the log from the line about the leader on, and wait for the queue's."""
    caplog.set_level("INFO")
    cluster = members()
    cluster.connect(1).open(1, QUEUE, WRITE | ACK)
    cluster.run()
    caplog.clear()
    for node_id in (0, 2):
        cluster.kill(node_id)
    cluster.processes[1].node.role.set_elector_quorum(1)
    cluster.until(lambda: cluster.processes[1].member.partitions[0].is_primary)
    at = [
        index
        for index, text in enumerate(caplog.messages)
        if "leader status: ACTIVE" in text or text == f"Rebuilt internal state of queue engine for queue [{QUEUE}]"
    ]
    assert len(at) == 2
    assert "leader status: ACTIVE" in caplog.messages[at[0]]


def held_at_a_replica(cluster: Members, *, takes_over: bool) -> tuple[Process, MemberClient, MemberClient]:
    """Return the primary of a queue, a consumer that has two of its messages from a replica, and a producer."""
    consumer, producer = cluster.connect(1), cluster.connect(2)
    consumer.read(1, QUEUE)
    producer.open(1, QUEUE, WRITE | ACK)
    for number in (1, 2):
        producer.put(1, guid(number), b"%d" % number)
    cluster.run()
    primary = cluster.processes[0]
    assert primary.member.partitions[0].is_primary
    if not takes_over:
        for other in (1, 2):
            cluster.wires[0, other].events = Sieve(EventType.CONTROL, EventType.ELECTOR)
    return primary, consumer, producer


def test_a_primary_waits_for_what_another_member_has_from_it(caplog: pytest.LogCaptureFixture) -> None:
    """The leader moves no partition, as in the reference; the consumer at the replica confirms in time."""
    caplog.set_level("INFO")
    cluster = members()
    primary, consumer, producer = held_at_a_replica(cluster, takes_over=False)
    assert not primary.node.retire()
    assert primary.node.awaits_confirms()
    assert "waiting for 2 unconfirmed message(s)" in caplog.text
    producer.put(1, guid(3), b"3")
    cluster.run(1000)
    consumer.confirm(1, guid(1))
    cluster.run(0)
    assert not primary.node.retire()
    assert "waiting for 1 unconfirmed message(s)" in caplog.text
    consumer.confirm(1, guid(2))
    cluster.run(0)
    assert not primary.node.retire()
    assert not primary.node.awaits_confirms()
    assert "no unconfirmed message(s)" in caplog.text
    assert consumer.payloads() == [b"1", b"2"]


def test_a_primary_gives_up_on_what_nobody_confirms(caplog: pytest.LogCaptureFixture) -> None:
    cluster = members()
    primary, _, _ = held_at_a_replica(cluster, takes_over=False)
    primary.node.configure(replace(primary.node.settings, shutdown_timeout_ms=1000))
    for _ in range(2):
        assert not primary.node.retire()
        assert primary.node.awaits_confirms()
        cluster.run(500)
    for _ in range(2):
        assert not primary.node.retire()
        assert not primary.node.awaits_confirms()
    assert caplog.messages.count("giving up on 2 unconfirmed message(s)") == 1


def test_a_primary_waits_no_longer_than_until_its_partitions_have_moved(caplog: pytest.LogCaptureFixture) -> None:
    """The consumer keeps its messages, and confirms them to the next primary."""
    caplog.set_level("INFO")
    cluster = members()
    primary, consumer, _ = held_at_a_replica(cluster, takes_over=True)
    assert not primary.node.retire()
    assert "waiting for 2 unconfirmed message(s)" in caplog.text
    cluster.run(500)
    assert primary.node.retire()
    consumer.confirm(1, guid(1), guid(2))
    cluster.run(500)
    assert consumer.payloads() == [b"1", b"2"]


def test_a_member_that_nobody_has_anything_from_stops_at_once() -> None:
    cluster = members()
    primary, consumer, _ = held_at_a_replica(cluster, takes_over=True)
    consumer.confirm(1, guid(1), guid(2))
    cluster.run(0)
    primary.node.retire()
    assert not primary.node.awaits_confirms()
    cluster.run(100)
    assert primary.node.retire()


def last_kind(process: Process) -> RecordType:
    """Return the kind of the last record in a process's journal of partition 0."""
    files = process.member.partitions[0].stored.files
    return RecordType(ANY_RECORD.unpack(files.journal.buffer, files.journal_end - JOURNAL_RECORD_SIZE).type)


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_replica_that_stops_has_a_sync_point_at_once(*, is_asked: bool) -> None:
    cluster, primary, client = strong_cluster()
    client.put(1, guid(1), b"1")
    cluster.run()
    assert last_kind(primary) is RecordType.MESSAGE
    replica = next(each for each in cluster.processes.values() if each is not primary)
    if is_asked:
        stop = ControlMessage(r_id=9, choice=ClusterMessage(choice=StopRequest(cluster_name="local")))
        event = memoryview(build_schema_event(ber.encode(stop)))
        (frame,) = iter_frames(event, 0, len(event), len(event))
        primary.member.receive(replica.node_id, event, frame)
    else:
        replica.node.retire()
    cluster.run()
    assert last_kind(primary) is last_kind(replica) is RecordType.JOURNAL_OP
