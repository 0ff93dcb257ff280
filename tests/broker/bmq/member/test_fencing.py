"""Records that a node of a partition rejects: from another node, lease or payload; and records that it takes back."""

from __future__ import annotations

import pytest

from broker.bmq.replication.partition_table import State
from broker.bmq.replication.positions import NOWHERE, first_sync_point, on_wire
from broker.bmq.replication.replication import pack_records
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClusterMessage,
    ControlMessage,
    PartitionMessage,
    ReplicaDataRequest,
    ReplicaDataType,
    Status,
    StatusCategory,
)
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.wire.event import build_event, build_schema_event, next_frame, schema_message
from formats.bmq.wire.receipt import build_receipt_event
from tests.broker.bmq.replication.partition_bus import Bus, Node
from tests.broker.bmq.rig import guid


@pytest.fixture
def bus() -> Bus:
    bus = Bus()
    primary = bus.assign(0)
    bus.settle()
    primary.post(*range(5))
    bus.settle()
    return bus


def storage(bus: Bus, source: int, target: int) -> list[bytes]:
    """The STORAGE events that wait on a link."""
    return [event for event in bus.links[source, target] if event[4] & 0x3F == EventType.STORAGE]


def position(node: Node) -> RecordNumber:
    return node.partition.position


def test_a_receipt_of_an_older_lease_counts_for_nothing(bus: Bus) -> None:
    primary = bus.assign(0)
    bus.settle()
    assert position(primary).primary_lease_id == 2
    primary.acked.clear()
    primary.post(100)
    primary.receive(1, build_receipt_event(0, 1, 99))
    assert primary.acked == []
    primary.receive(1, build_receipt_event(0, *position(primary)))
    assert primary.acked == [100]


def test_with_five_nodes_the_receipts_of_two_replicas_are_waited_for() -> None:
    bus = Bus(count=5)
    primary = bus.assign(0)
    bus.settle()
    primary.post(100)
    primary.receive(1, build_receipt_event(0, *position(primary)))
    assert primary.acked == []
    primary.receive(1, build_receipt_event(0, *position(primary)))
    assert primary.acked == [], "the same replica once more"
    primary.receive(3, build_receipt_event(0, *position(primary)))
    assert primary.acked == [100]


def test_a_replica_takes_records_of_its_primary_alone(bus: Bus) -> None:
    primary, replica = bus.nodes[0], bus.nodes[2]
    before = position(replica)
    primary.post(100)
    primary.flush()
    (event,) = storage(bus, 0, 2)
    replica.receive(1, event)
    assert position(replica) == before
    replica.receive(0, event)
    assert position(replica) == position(primary) > before


def test_a_replica_takes_no_record_of_a_lease_that_it_does_not_know(bus: Bus) -> None:
    replica = bus.nodes[2]
    before = position(replica)
    primary = bus.assign(0, among=(0, 1))
    while not primary.serving:
        assert bus.step()
    files, first = primary.stored.files, bytearray()
    pack_records(first, files, 0, files.journal_end - JOURNAL_RECORD_SIZE, files.journal_end)
    assert position(primary) == (2, 1)
    event = bytes(build_event(EventType.STORAGE, first))
    replica.receive(0, event)
    assert position(replica) == before
    replica.partition.primary_changed(0, bus.lease_id)
    bus.settle(3000)
    assert position(replica).primary_lease_id == 2
    bus.check_equal()


def test_a_replica_obeys_its_primary_under_the_lease_that_it_knows_alone(bus: Bus) -> None:
    bus.assign(0)
    bus.settle()
    replica = bus.nodes[2]
    before = position(replica)
    request = ReplicaDataRequest(
        partition_id=0,
        primary_lease_id=1,
        replica_data_type=ReplicaDataType.DROP,
        begin_sequence_number=on_wire(NOWHERE),
        end_sequence_number=on_wire(before),
    )
    message = ClusterMessage(choice=PartitionMessage(choice=request))
    replica.receive(0, build_schema_event(ber.encode(ControlMessage(r_id=7, choice=message))))
    assert replica.partition.state is State.REPLICA_HEALED
    assert position(replica) == before
    (event,) = bus.links[2, 0]
    answer = memoryview(event)
    frame = next_frame(answer, 0, len(answer), len(answer))
    assert frame is not None
    decoded = ber.decode(ControlMessage, schema_message(answer, frame.body, frame.end))
    assert decoded.r_id == 7
    assert isinstance(decoded.choice, Status)
    assert decoded.choice.category is StatusCategory.REFUSED


def test_a_cut_keeps_the_last_record_that_both_have(bus: Bus) -> None:
    replica = bus.nodes[2]
    last = position(replica)
    wanted = RecordNumber(last.primary_lease_id, last.sequence_number - 2)
    assert replica.partition.copy.cut(wanted)
    assert position(replica) == wanted


def test_a_replica_takes_no_payload_with_another_checksum(bus: Bus) -> None:
    primary, replica = bus.nodes[0], bus.nodes[2]
    before = position(replica)
    primary.post(100)
    primary.flush()
    (event,) = storage(bus, 0, 2)
    at = event.index(b"message 100")
    replica.receive(0, event[:at] + b"M" + event[at + 1 :])
    assert position(replica) == before
    # It asks for what it has refused, and gets it whole.
    bus.settle(3000)
    assert guid(100) in bus.kept(2)
    bus.check_equal()


def test_a_rollover_is_finished_though_the_primary_dies_before_its_first_record_behind_it(bus: Bus) -> None:
    """The new files begin with a copy of the record that ended the old ones: a replica needs nothing more."""
    primary, replica = bus.nodes[0], bus.nodes[2]
    bus.links[0, 2].clear()
    primary.stored.roll_over()
    primary.flush()
    first, *_ = storage(bus, 0, 2)
    replica.receive(0, first)
    files = replica.stored.files
    assert not replica.partition.copy.rollovers.is_rolling
    assert files.timestamp == max(name for name in replica.directory.names() if name.endswith("journal"))[6:21]
    ended = RecordNumber(1, primary.stored.sequence_number - 1)
    assert position(replica) == first_sync_point(files) == ended
    assert bytes(files.journal.buffer[: files.journal_end]) == bytes(
        primary.stored.files.journal.buffer[: files.journal_end]
    )
    bus.kill(0)
    new = bus.assign(1)
    bus.settle(3000)
    new.post(100)
    bus.settle()
    assert new.acked == [100]
    bus.kill(2)
    bus.kill(1)
    again = bus.start(2)
    assert guid(100) in bus.kept(2)
    assert position(again).primary_lease_id == 2
