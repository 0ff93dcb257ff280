"""Terms and leases that no election or fail-over leads to: a node that took them would have no number for the next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bmq.consensus.election import TERM_JUMP_MAX
from broker.bmq.consensus.election_table import ElectionRole
from broker.bmq.consensus.primaries import LEASE_JUMP_MAX
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.queue.handles import Refusal
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClusterMessage,
    ClusterStateFSMMessage,
    ControlMessage,
    ElectionProposal,
    ElectionResponse,
    ElectorMessage,
    FollowerClusterStateResponse,
    FollowerLSNResponse,
    HeartbeatResponse,
    LeaderAdvisory,
    LeaderHeartbeat,
    LeaderMessageSequence,
    LeadershipCessionNotification,
    PartitionPrimaryAdvisory,
    PartitionPrimaryInfo,
    QueueAssignmentAdvisory,
    QueueAssignmentRequest,
    QueueInfo,
    RegistrationRequest,
    Status,
)
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record
from formats.bmq.disk.numbers import LedgerNumber
from formats.bmq.wire.event import build_event, build_schema_event, next_frame, schema_message
from formats.errors import FormatError
from tests.broker.bmq.consensus.election_rig import One
from tests.broker.bmq.consensus.metadata_bus import Bus, Node, cluster, collector

HIGHEST = (1 << 64) - 1
FURTHEST = LedgerNumber(1, 99)


@pytest.mark.parametrize(
    "choice",
    [LeaderHeartbeat(), ElectionProposal(), ElectionResponse(), HeartbeatResponse(), LeadershipCessionNotification()],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("term", [HIGHEST, 7 + TERM_JUMP_MAX + 1])
def test_a_term_that_no_election_leads_to_is_not_kept(choice: object, term: int) -> None:
    one = One(term=7)
    one.election.start()
    with pytest.raises(FormatError, match=r"ElectorMessage\.term"):
        one.election.receive(2, ElectorMessage(term=term, choice=choice))  # type: ignore[arg-type]
    assert (one.election.term, one.kept) == (7, [])
    one.election.receive(2, ElectorMessage(term=8, choice=LeaderHeartbeat()))
    assert (one.election.role, one.kept) == (ElectionRole.FOLLOWING, [8])


def advise(node: Node, source: int, number: LedgerNumber, advisory: LeaderAdvisory | QueueAssignmentAdvisory) -> None:
    """A peer that is the leader sends what the leader's code would not."""
    kind = LedgerRecordType.SNAPSHOT if isinstance(advisory, LeaderAdvisory) else LedgerRecordType.UPDATE
    record = build_ledger_record(kind, *number, 1, ber.encode(ClusterMessage(choice=advisory)))
    data = memoryview(build_event(EventType.CLUSTER_STATE, record))
    frame = next_frame(data, 0, len(data), 1 << 20)
    assert frame is not None
    node.metadata.on_cluster_state(source, data, frame)


def sequence(number: LedgerNumber) -> LeaderMessageSequence:
    return LeaderMessageSequence(elector_term=number.term, sequence_number=number.sequence_number)


def test_an_advisory_is_of_its_leaders_term() -> None:
    """Recorded, it would be the term that the next election has to exceed."""
    bus = cluster()
    node = bus.nodes[1]
    before = node.records()
    for number in (LedgerNumber(2, 1), LedgerNumber((1 << 63) - 1, 1)):
        advise(node, 3, number, LeaderAdvisory(sequence_number=sequence(number)))
    assert node.records() == before
    assert node.metadata.number.term == 1


def info(lease_id: int) -> PartitionPrimaryInfo:
    return PartitionPrimaryInfo(partition_id=0, primary_node_id=3, primary_lease_id=lease_id)


def test_a_lease_that_no_fail_over_leads_to_is_not_recorded() -> None:
    bus = cluster()
    before = bus.nodes[1].records()
    lease = info(LEASE_JUMP_MAX + 2)
    bus.nodes[3].metadata.replicated.advise(
        lambda number: PartitionPrimaryAdvisory(sequence_number=number, partitions=(lease,))
    )
    bus.run()
    assert bus.nodes[1].records() == before
    assert bus.nodes[1].primaries == {0: (3, 1)}


class Liar(Bus):
    """A cluster whose node 1 says that its ledger goes furthest, and has `snapshot` when the leader asks for it."""

    snapshot: LeaderAdvisory | None = None
    told = 0

    def carry(self, source: int, target: int, event: bytes) -> None:
        data = memoryview(event)
        frame = next_frame(data, 0, len(data), 1 << 20)
        assert frame is not None
        if self.snapshot is not None and source == 1 and frame.type == EventType.CONTROL:
            message = ber.decode(ControlMessage, schema_message(data, frame.body, frame.end))
            match message.choice:
                case ClusterMessage(choice=ClusterStateFSMMessage(choice=FollowerLSNResponse())):
                    event = control(message.r_id, FollowerLSNResponse(sequence_number=sequence(FURTHEST)))
                case ClusterMessage(choice=ClusterStateFSMMessage(choice=RegistrationRequest())):
                    event = control(message.r_id, RegistrationRequest(sequence_number=sequence(FURTHEST)))
                case ClusterMessage(choice=ClusterStateFSMMessage(choice=FollowerClusterStateResponse())):
                    self.told += 1
                    event = control(message.r_id, FollowerClusterStateResponse(cluster_state_snapshot=self.snapshot))
                    self.snapshot = None
        super().carry(source, target, event)


def control(
    number: int | None, choice: FollowerLSNResponse | RegistrationRequest | FollowerClusterStateResponse
) -> bytes:
    message = ClusterMessage(choice=ClusterStateFSMMessage(choice=choice))
    return build_schema_event(ber.encode(ControlMessage(r_id=number, choice=message)))


@pytest.mark.parametrize(
    "lease",
    [
        info((1 << 31) - 1),
        info(LEASE_JUMP_MAX + 2),
        replace(info(2), partition_id=7),
        replace(info(2), partition_id=-1),
    ],
)
def test_a_follower_cannot_have_a_leader_take_any_lease(lease: PartitionPrimaryInfo) -> None:
    bus = Liar()
    bus.connect()
    bus.elect(3)
    bus.run()
    bus.snapshot = LeaderAdvisory(sequence_number=sequence(FURTHEST), partitions=(lease,))
    bus.elect(3)
    bus.run(5000)
    assert bus.told == 1
    state = bus.nodes[3].metadata.state
    assert list(state.primaries) == [0]
    assert state.primaries[0].primary_lease_id <= 3
    assert bus.healed == [1, 2, 3]


def test_a_queue_that_is_named_with_an_app_is_not_assigned() -> None:
    bus = cluster()
    outcomes, done = collector()
    request = ClusterMessage(choice=QueueAssignmentRequest(queue_uri="bmq://priority/q?id=foo"))
    bus.nodes[1].requests.send(3, request, done)
    bus.run()
    (status,) = outcomes
    assert isinstance(status, Status)
    assert status.code == ClusterError.UNKNOWN
    assert not bus.nodes[3].metadata.state.queues


def test_a_queue_of_a_partition_that_has_no_primary_stays() -> None:
    """A ledger may have such a queue from a time with more partitions."""
    bus = cluster()
    leader = bus.nodes[3].metadata
    queue = QueueInfo(uri="bmq://priority/q", key=b"12345", partition_id=9)
    leader.replicated.advise(lambda number: QueueAssignmentAdvisory(sequence_number=number, queues=(queue,)))
    bus.run()
    outcomes, done = collector()
    bus.nodes[1].metadata.unassign(queue, done)
    bus.run()
    (refusal,) = outcomes
    assert isinstance(refusal, Refusal)
    assert refusal.status.code == ClusterError.NOT_PRIMARY
    assert queue.uri in leader.state.queues
