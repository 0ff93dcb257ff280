"""A node among C++ nodes: given what they sent in the captures, it sends what the C++ node sent in its place.

The captures are of a cluster of nodes 1 to 3: node 3 leads in term 1; it is killed, node 1 leads in term 2, and node 3
comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.bmq.consensus.cluster_table import State
from broker.bmq.consensus.known_queues import QueueChange
from broker.bmq.consensus.metadata import Metadata
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.ledger import Ledger
from broker.bmq.links.requests import Requests
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClusterMessage,
    ClusterStateFSMMessage,
    ControlMessage,
    FollowerLSNRequest,
    LeaderAdvisory,
    LeaderAdvisoryAck,
    LeaderAdvisoryCommit,
    NodeStatus,
    QueueAssignmentAdvisory,
    QueueAssignmentRequest,
    RegistrationRequest,
    RegistrationResponse,
    Status,
    StatusCategory,
)
from formats.bmq.disk.ledger import parse_ledger_record
from formats.bmq.disk.numbers import LedgerNumber
from formats.bmq.stores.recover import iter_ledger
from formats.bmq.wire.event import iter_frames, schema_message
from formats.schema import Buffer
from tests.broker.fakes import MemoryDirectory
from tests.golden.archives import map_file, only, unpack_store
from tests.golden.captures import streams

DOMAIN = DomainConfig("any", Mode.PRIORITY)


class Said(NamedTuple):
    """One message about the cluster's state: its event, what it says, and a record's time."""

    event: bytes
    r_id: int | None
    choice: object
    wall_s: int = 0


@cache
def captured(source: int, target: int) -> tuple[Said, ...]:
    """All that one node said to another about the cluster's state, on the connection at the start."""
    numbers = {(1, 3): ("04", "c2s"), (3, 1): ("04", "s2c"), (2, 3): ("06", "c2s"), (3, 2): ("06", "s2c")}
    numbers |= {(1, 2): ("05", "c2s"), (2, 1): ("05", "s2c")}
    number, direction = numbers[source, target]
    for name, data in streams("wire-cluster"):
        if f"cluster.{number}." in name and f".{direction}." in name:
            return tuple(said(memoryview(data)))
    raise AssertionError(number)


def said(data: memoryview) -> Iterator[Said]:
    start = 0
    for frame in iter_frames(data, 0, len(data), 1 << 26):
        event, start = bytes(data[start : frame.end]), frame.end
        if frame.type == EventType.CLUSTER_STATE:
            record = parse_ledger_record(data, frame.body)
            yield Said(event, None, ber.decode(ClusterMessage, record.body).choice, record.header.timestamp)
        elif frame.type == EventType.CONTROL and b"PROTOCOL_ENCODING" not in event:
            message = ber.decode(ControlMessage, bytes(schema_message(data, frame.body, frame.end)))
            choice: object = message.choice
            if isinstance(choice, Status) and "plica" not in choice.message:
                yield Said(event, message.r_id, choice)
            elif isinstance(choice, ClusterMessage):
                inner = choice.choice
                if isinstance(inner, ClusterStateFSMMessage):
                    yield Said(event, message.r_id, inner.choice)
                elif isinstance(inner, QueueAssignmentRequest):
                    yield Said(event, message.r_id, inner)


class Unheard:
    """A listener that does nothing; see `MetadataListener`."""

    def on_primary(self, partition_id: int, node_id: int | None, primary_lease_id: int) -> None: ...

    def on_queues(self, change: QueueChange) -> None: ...

    def on_agreed(self) -> None: ...

    def on_healed(self, leads: bool) -> None: ...


class Alone:
    """One node of ours; the others are what was captured."""

    def __init__(self, own_id: int, directory: MemoryDirectory | None = None) -> None:
        self.own_id = own_id
        self.other_ids = tuple({1, 2, 3} - {own_id})
        self.up = set(self.other_ids)
        self.sent: dict[int, list[Said]] = {node_id: [] for node_id in self.other_ids}
        self.now = Now(1, 1)
        timers = Timers()
        self.directory = directory or MemoryDirectory()
        ledger = Ledger(self.directory, 1 << 20, self.now, lambda prefix: "20270115_000001")
        ledger.recover()
        self.requests = Requests(self, self.now, timers)
        self.metadata = Metadata(
            self,
            self.requests,
            ledger,
            self.now,
            timers,
            Unheard(),
            quorum=2,
            partition_count=1,
            resolve_domain=lambda name: DOMAIN,
        )
        for node_id in self.other_ids:
            self.metadata.node_up(node_id)
            self.metadata.node_status(node_id, NodeStatus.STARTING)

    def is_up(self, node_id: int) -> bool:
        return node_id in self.up

    def send(self, node_id: int, event: Buffer) -> None:
        self.sent[node_id] += said(memoryview(event))

    def backlog(self, node_id: int) -> int:
        return 0

    def lose(self, node_id: int) -> None:
        self.up.discard(node_id)
        self.requests.node_down(node_id)
        self.metadata.node_down(node_id)

    def hear(self, node_id: int, message: Said) -> None:
        data = memoryview(message.event)
        (frame,) = iter_frames(data, 0, len(data), 1 << 26)
        # Answers bear the time of the C++ node's own, within the same second.
        self.now.wall_s = message.wall_s or self.now.wall_s
        if frame.type == EventType.CLUSTER_STATE:
            self.metadata.on_cluster_state(node_id, data, frame)
            return
        control = ber.decode(ControlMessage, bytes(schema_message(data, frame.body, frame.end)))
        if not self.requests.received(node_id, control):
            assert self.metadata.on_control(node_id, control)


def untimed(messages: list[Said] | tuple[Said, ...]) -> list[tuple[int | None, object]]:
    return [(message.r_id, message.choice) for message in messages]


@pytest.mark.parametrize("own_id", [1, 2])
def test_a_follower_answers_as_the_reference_does(own_id: int) -> None:
    node = Alone(own_id)
    theirs = captured(3, own_id)
    assert isinstance(theirs[0].choice, FollowerLSNRequest)
    node.hear(3, theirs[0])
    node.metadata.leader_changed(3, 1)
    for message in theirs[1:]:
        if not isinstance(message.choice, Status):
            node.hear(3, message)
    expected = [message for message in captured(own_id, 3) if not isinstance(message.choice, QueueAssignmentRequest)]
    assert untimed(node.sent[3]) == untimed(expected)
    # Where the second was the same, so are the bytes: checksums and all.
    same = [ours.event == other.event for ours, other in zip(node.sent[3], expected, strict=True)]
    assert same.count(True) >= len(same) - 2
    assert node.metadata.fsm_state is State.FOL_HEALED
    assert len(node.metadata.state.queues) == 5
    assert node.metadata.primary_of(0) == (3, 1)


def start_as_leader() -> Alone:
    """Our node 3 in place of theirs, up to where all nodes are healed."""
    node = Alone(3)
    node.metadata.leader_changed(3, 1)
    first, second = captured(1, 3), captured(2, 3)
    at_1, at_2 = iter(first), iter(second)
    node.hear(1, next(at_1))
    node.hear(2, next(at_2))
    registration = next(at_1)
    assert isinstance(registration.choice, RegistrationRequest)
    node.hear(1, registration)
    node.hear(2, next(at_2))
    for message in (next(at_1), next(at_1), next(at_2), next(at_2)):
        assert isinstance(message.choice, LeaderAdvisoryAck)
        node.hear(1 if message in first else 2, message)
    return node


def test_a_leader_heals_as_the_reference_does() -> None:
    node = start_as_leader()
    assert node.metadata.is_active_leader
    for node_id in (1, 2):
        theirs = untimed(captured(3, node_id))
        ours = untimed(node.sent[node_id])
        kinds = {type(choice) for _, choice in ours}
        assert kinds == {FollowerLSNRequest, RegistrationResponse, LeaderAdvisory, LeaderAdvisoryCommit}
        assert ours == theirs[: len(ours)]


def test_a_leader_assigns_as_the_reference_does() -> None:
    node = start_as_leader()
    before = len(node.sent[1])
    request = next(message for message in captured(1, 3) if isinstance(message.choice, QueueAssignmentRequest))
    node.hear(1, request)
    ack = next(message for message in captured(1, 3) if _acks(message, 5))
    node.hear(1, ack)
    advised, answer, commit = [message.choice for message in node.sent[1][before:]]
    theirs = [message.choice for message in captured(3, 1)[before : before + 3]]
    assert isinstance(advised, QueueAssignmentAdvisory)
    assert isinstance(theirs[0], QueueAssignmentAdvisory)
    (ours,), (other,) = advised.queues, theirs[0].queues
    assert ours.key != other.key
    assert (ours.uri, ours.partition_id, ours.app_ids) == (other.uri, other.partition_id, other.app_ids)
    assert advised.sequence_number == theirs[0].sequence_number
    assert answer == Status(category=StatusCategory.SUCCESS, code=0, message="") == theirs[1]
    assert commit == theirs[2]


def _acks(message: Said, number: int) -> bool:
    choice = message.choice
    return isinstance(choice, LeaderAdvisoryAck) and choice.sequence_number_acked.sequence_number == number


def test_a_node_records_what_the_reference_recorded(tmp_path: Path) -> None:
    """Node 1 follows, sees its leader die, leads, and heals the old leader: its ledger is the C++ node's."""
    node = Alone(1)
    first, *others = captured(3, 1)
    node.hear(3, first)
    node.metadata.leader_changed(3, 1)
    for message in others:
        if not isinstance(message.choice, Status):
            node.hear(3, message)
    for node_id in (1, 2):
        node.metadata.node_status(node_id, NodeStatus.AVAILABLE)
    node.lose(3)
    before = len(node.sent[2])
    node.metadata.leader_changed(1, 2)
    refusal, registration, ack, late_ack = captured(2, 1)
    asked = node.sent[2][before].r_id
    assert refusal.r_id == captured(1, 2)[0].r_id
    assert asked is not None
    node.requests.received(2, ControlMessage(r_id=asked, choice=refusal.choice))  # type: ignore[arg-type]
    node.hear(2, registration)
    node.hear(2, ack)
    assert node.metadata.is_active_leader
    assert node.metadata.primary_of(0) == (1, 2)
    told = [choice for _, choice in untimed(node.sent[2][before + 1 :])]
    theirs = [choice for _, choice in untimed(captured(1, 2)[1:4])]
    assert [_settled(choice) for choice in told] == [_settled(choice) for choice in theirs]

    # Node 3 comes back and registers: in the capture, its connection is another.
    node.up.add(3)
    node.metadata.node_up(3)
    number = LedgerNumber(1, 14)
    sequence = registration.choice.sequence_number  # type: ignore[attr-defined]
    assert (sequence.elector_term, sequence.sequence_number) == number
    request = ClusterStateFSMMessage(choice=RegistrationRequest(sequence_number=sequence))
    node.metadata.on_control(3, ControlMessage(r_id=9, choice=ClusterMessage(choice=request)))
    node.hear(2, late_ack)

    data = map_file(only(unpack_store("cluster-node0", tmp_path), ".bmq_csl"))
    (name,) = node.directory.names()
    ours = list(iter_ledger(node.directory.files[name].data))
    golden = list(iter_ledger(data))
    assert [record.header[:2] + record.header[5:7] for record in ours] == [
        record.header[:2] + record.header[5:7] for record in golden
    ]
    for our, their in zip(ours, golden, strict=True):
        assert _settled(ber.decode(ClusterMessage, our.body).choice) == _settled(
            ber.decode(ClusterMessage, their.body).choice
        )
    # Records received as a follower are in the file byte by byte.
    followed = sum(record.header.elector_term == 1 for record in golden)
    assert followed == 14
    end = golden[followed - 1].end
    assert bytes(node.directory.files[name].data[8:end]) == bytes(data[8:end])


def _settled(choice: object) -> object:
    """The reference puts queues into a snapshot in the order of a hash table."""
    if isinstance(choice, LeaderAdvisory):
        return choice.sequence_number, choice.partitions, sorted(choice.queues, key=lambda info: info.uri)
    return choice
