"""Replication as the reference did it: what its primaries sent makes its replicas' files, and we send the same."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from broker.bmq.assembly.opening import open_partitions
from broker.bmq.links.requests import Requests
from broker.bmq.replication.copying.replica_files import ReplicaFiles
from broker.bmq.replication.healing_pace import HealingPace
from broker.bmq.replication.partition import ReplicatedPartition
from broker.bmq.replication.partition_table import State
from broker.bmq.replication.positions import offset_behind, on_wire, position_at
from broker.bmq.replication.replication import pack_records
from broker.bmq.store.partition_files import PartitionLimits
from broker.bmq.store.peaks import Peak
from broker.bmq.store.recovery import RecoveredMessage, RecoveredQueue, recover
from broker.bmq.store.removals import Removed
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClusterMessage,
    ControlMessage,
    PartitionMessage,
    PrimaryStateRequest,
    PrimaryStateResponse,
    PrimaryStatusAdvisory,
    ReplicaDataRequest,
)
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.wire.event import EventType, Frame, next_frame, schema_message
from formats.bmq.wire.receipt import Receipt, parse_receipt
from formats.bmq.wire.storage import StorageFlag, StorageMessage, iter_storage
from formats.schema import Buffer
from tests.broker.fakes import MemoryDirectory
from tests.golden.archives import unpack_store
from tests.golden.captures import streams

LIMITS = PartitionLimits(journal=2 << 20, data=8 << 20, qlist=4 << 10)

# The links on which one node sent to another: all of the first lease; the second, live; the second, to a node that had
# been killed and came back.
FIRST, SECOND, HEALING = "06.48154-30202.s2c", "05.40530-30201.c2s", "27.56362-30202.c2s"
# Answers in the first link's other direction, and in that of the second.
FIRST_RECEIPTS, SECOND_RECEIPTS = "06.48154-30202.c2s", "05.40530-30201.s2c"
HEALING_ANSWERS = "27.56362-30202.s2c"


@cache
def captured() -> dict[str, bytes]:
    wanted = (FIRST, SECOND, HEALING, FIRST_RECEIPTS, SECOND_RECEIPTS, HEALING_ANSWERS)
    return {
        name.split("cluster.")[-1].removesuffix(".bin"): data
        for name, data in streams("wire-cluster")
        if any(each in name for each in wanted)
    }


def events(name: str, *kinds: EventType) -> Iterator[tuple[memoryview, Frame]]:
    """The events of a kind; the capture ends within one when the node was killed."""
    data = memoryview(captured()[name])
    frame = next_frame(data, 0, len(data), 1 << 30)
    while frame is not None:
        if frame.type in kinds:
            yield data, frame
        frame = next_frame(data, frame.end, len(data), 1 << 30)


def messages(name: str, *kinds: EventType) -> Iterator[StorageMessage]:
    for data, frame in events(name, *kinds):
        yield from iter_storage(data, frame.body, frame.end)


def bodies(name: str, kind: EventType) -> bytes:
    return b"".join(data[frame.body : frame.end] for data, frame in events(name, kind))


class Nothing:
    """A restoration without effect, for partitions without queues to serve."""

    def begin(self, queues: Mapping[bytes, RecoveredQueue], newest_s: int) -> None: ...

    def remember(self, key: bytes, guids: bytes) -> None: ...

    def remember_before(self, key: bytes, removed: Removed) -> None: ...

    def take(self, found: RecoveredMessage) -> None: ...

    def peaked(self, key: bytes, app_key: bytes, peak: Peak) -> None: ...

    def end(self) -> None: ...

    def give_up(self) -> None: ...


class Unheard:
    """A listener that does nothing; see `PartitionListener`."""

    def on_restore(self, partition_id: int) -> Nothing:
        return Nothing()

    def on_active(self, partition_id: int) -> None: ...

    def on_passive(self, partition_id: int) -> None: ...

    def on_primary_status(self, partition_id: int, node_id: int, active: bool) -> None: ...

    def on_outdated(self, partition_id: int, lease_id: int) -> None: ...

    def on_removed(self, partition_id: int, queue_key: bytes, guid: bytes) -> None: ...

    def on_purged(
        self, partition_id: int, queue_key: bytes, guids: Sequence[Container[bytes]], heals: bool
    ) -> None: ...

    def describe(self, node_id: int) -> str:
        return str(node_id)


@pytest.fixture(scope="module")
def copy() -> ReplicaFiles:
    """A replica of ours that got all that the primaries sent."""
    directory = MemoryDirectory(chunk=8 << 20)
    ((stored, recovered),) = open_partitions(directory, 1, 0, LIMITS, Now(1, 1), lambda prefix: "20261121_000000")
    copy = ReplicaFiles(stored, recovered)
    for name in (FIRST, SECOND):
        for message in messages(name, EventType.STORAGE):
            copy.write(message)
    copy.end_event()
    return copy


@pytest.mark.parametrize("node", ["cluster-node0", "cluster-node2"])
def test_a_replica_writes_the_files_of_the_references_nodes(copy: ReplicaFiles, node: str, tmp_path: Path) -> None:
    store = unpack_store(node, tmp_path)
    files = copy.records.files
    ends = {"journal": files.journal_end, "data": files.data_end, "qlist": files.qlist_end}
    for kind, file in (("journal", files.journal), ("data", files.data), ("qlist", files.qlist)):
        (path,) = store.glob(f"*.bmq_{kind}")
        written = path.read_bytes()
        assert bytes(file.buffer[: ends[kind]]) == written[: ends[kind]]
        # When they stopped, they wrote one more sync point.
        assert len(written) - ends[kind] == (60 if kind == "journal" else 0)


def test_missing_records_are_sent_as_the_reference_sends_them(copy: ReplicaFiles) -> None:
    start = offset_behind(copy.records.files, RecordNumber(1, 1941))
    end = offset_behind(copy.records.files, RecordNumber(2, 17405))
    assert start is not None
    assert end is not None
    body = bytearray()
    assert pack_records(body, copy.records.files, 0, start, end, bytes_max=1 << 30) == end
    assert body == bodies(HEALING, EventType.PARTITION_SYNC)


def test_live_records_are_sent_as_the_reference_sends_them(copy: ReplicaFiles) -> None:
    awaited = {
        int.from_bytes(message.record[2:8], "big")
        for message in messages(SECOND, EventType.STORAGE)
        if message.flags & StorageFlag.RECEIPT_REQUESTED
    }
    start = offset_behind(copy.records.files, RecordNumber(1, 1941))
    assert start is not None
    body = bytearray()
    pack_records(body, copy.records.files, 0, start, copy.records.files.journal_end, awaited, 1 << 30)
    assert body == bodies(SECOND, EventType.STORAGE)


@pytest.mark.parametrize(("sent", "answered"), [(FIRST, FIRST_RECEIPTS), (SECOND, SECOND_RECEIPTS)])
def test_the_references_receipts_name_messages_that_ask_for_one(sent: str, answered: str) -> None:
    """Ours do: they name the last of a step (see `ReplicatedPartition.flush`)."""
    asking = {
        (int.from_bytes(message.record[8:12], "big"), int.from_bytes(message.record[2:8], "big"))
        for message in messages(sent, EventType.STORAGE)
        if message.flags & StorageFlag.RECEIPT_REQUESTED
    }
    receipts = [
        parse_receipt(data, frame.body, frame.end) for data, frame in events(answered, EventType.REPLICATION_RECEIPT)
    ]
    assert asking
    assert {(receipt.primary_lease_id, receipt.sequence_number) for receipt in receipts} <= asking
    numbers = [receipt.sequence_number for receipt in receipts]
    assert numbers == sorted(numbers)
    assert receipts[-1] == Receipt(0, max(number for _, number in asking), receipts[-1].primary_lease_id)


# -- a replica of ours, healed by the reference's primary


class Link:
    """The link to the primary: what was sent on it."""

    own_id = 2
    other_ids = (0, 1)

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def is_up(self, node_id: int) -> bool:
        return True

    def send(self, node_id: int, event: Buffer) -> None:
        self.sent.append(bytes(event))

    def backlog(self, node_id: int) -> int:
        return 0

    def takes_removals(self, node_id: int) -> bool:
        return False


def control(data: memoryview, frame: Frame) -> ControlMessage:
    return ber.decode(ControlMessage, schema_message(data, frame.body, frame.end))


def about_partition(name: str) -> list[ControlMessage]:
    found = [control(data, frame) for data, frame in list(events(name, EventType.CONTROL))[1:]]
    return [each for each in found if isinstance(each.choice, ClusterMessage) and _is_about_partition(each.choice)]


def _is_about_partition(message: ClusterMessage) -> bool:
    return isinstance(message.choice, PartitionMessage | PrimaryStatusAdvisory)


def test_a_replica_of_ours_is_healed_by_the_references_primary(copy: ReplicaFiles) -> None:
    """The node was killed at the end of the first lease, and came back towards the end of the second."""
    now, timers, link = Now(1, 1), Timers(), Link()
    directory = MemoryDirectory(chunk=8 << 20)
    ((stored, recovered),) = open_partitions(directory, 1, 2, LIMITS, now, lambda prefix: "20261121_000000")
    before = ReplicaFiles(stored, recovered)
    for message in messages(FIRST, EventType.STORAGE):
        before.write(message)
    before.end_event()
    requests = Requests(link, now, timers)
    partition = ReplicatedPartition(
        stored, recover(stored.files), link, requests, now, timers, 2, HealingPace(now, timers), Unheard()
    )
    partition.primary_changed(1, 2)
    data = memoryview(captured()[HEALING])
    frame = next_frame(data, 0, len(data), 1 << 30)
    assert frame is not None
    frame = next_frame(data, frame.end, len(data), 1 << 30)  # after the negotiation
    while frame is not None:
        if frame.type == EventType.STORAGE:
            partition.on_storage(1, data, frame)
        elif frame.type == EventType.PARTITION_SYNC:
            partition.on_sync(1, data, frame)
        elif frame.type == EventType.CONTROL:
            said = control(data, frame)
            if isinstance(said.choice, ClusterMessage) and _is_about_partition(said.choice):
                part = said.choice.choice
                if isinstance(part, PartitionMessage) and isinstance(part.choice, PrimaryStateResponse):
                    said = ControlMessage(r_id=1, choice=said.choice)  # our request's number
                assert requests.received(1, said) or partition.on_control(1, said)
        partition.flush()
        frame = next_frame(data, frame.end, len(data), 1 << 30)
    assert partition.state is State.REPLICA_HEALED
    assert partition.primary_is_active
    files = stored.files
    assert bytes(files.journal.buffer[: files.journal_end]) == bytes(
        copy.records.files.journal.buffer[: files.journal_end]
    )
    assert bytes(files.data.buffer[: files.data_end]) == bytes(copy.records.files.data.buffer[: files.data_end])
    # It said the same as the reference's replica.
    answers = [memoryview(event) for event in link.sent]
    frames = [(view, next_frame(view, 0, len(view), 1 << 30)) for view in answers]
    controls = [control(view, frame) for view, frame in frames if frame and frame.type == EventType.CONTROL]
    theirs = about_partition(HEALING_ANSWERS)
    assert [each.choice for each in controls] == [each.choice for each in theirs]
    assert controls[1].r_id == theirs[1].r_id
    receipts = [
        parse_receipt(view, frame.body, frame.end)
        for view, frame in frames
        if frame and frame.type == EventType.REPLICATION_RECEIPT
    ]
    last_of_theirs = [
        parse_receipt(data, frame.body, frame.end)
        for data, frame in events(HEALING_ANSWERS, EventType.REPLICATION_RECEIPT)
    ][-1]
    assert receipts[-1] == last_of_theirs


# -- a primary of ours, and the reference's replica


def test_a_primary_of_ours_heals_the_references_replica(copy: ReplicaFiles) -> None:
    """The requests of the reference's replica, and the answers that it got, except for the lease."""
    now, timers, link = Now(1, 1), Timers(), Link()
    directory = MemoryDirectory(chunk=8 << 20)
    ((stored, recovered),) = open_partitions(directory, 1, 2, LIMITS, now, lambda prefix: "20261121_000000")
    before = ReplicaFiles(stored, recovered)
    last = RecordNumber(2, 17405)
    for name in (FIRST, SECOND):
        for message in messages(name, EventType.STORAGE):
            if position_at(message.record) <= last:
                before.write(message)
    before.end_event()
    requests = Requests(link, now, timers)
    pace = HealingPace(now, timers)
    partition = ReplicatedPartition(stored, recover(stored.files), link, requests, now, timers, 1, pace, Unheard())
    partition.primary_changed(2, 3)
    assert partition.is_primary
    link.sent.clear()
    (asking, *_) = about_partition(HEALING_ANSWERS)
    assert isinstance(asking.choice, ClusterMessage)
    assert isinstance(asking.choice.choice, PartitionMessage)
    request = asking.choice.choice.choice
    assert isinstance(request, PrimaryStateRequest)
    request = replace(request, primary_lease_id=3)
    partition.on_control(0, ControlMessage(r_id=2, choice=ClusterMessage(choice=PartitionMessage(choice=request))))
    partition.flush()
    while partition.heals:
        now.ms += 1
        pace.end_step(awaited=False)
        partition.heal()
    said = [memoryview(event) for event in link.sent]
    frames = [(view, frame) for view in said if (frame := next_frame(view, 0, len(view), 1 << 30))]
    choices = [_part(control(view, frame)) for view, frame in frames if frame.type == EventType.CONTROL]
    theirs = [_part(each) for each in about_partition(HEALING)]
    start = next(n for n, each in enumerate(theirs) if isinstance(each, PrimaryStateResponse))
    response, push, active = theirs[start : start + 3]
    sync_point = on_wire(RecordNumber(3, 2))  # the second of the new lease: (2, 3) is in the journal
    assert isinstance(response, PrimaryStateResponse)
    assert isinstance(push, ReplicaDataRequest)
    assert isinstance(active, PrimaryStatusAdvisory)
    assert choices == [
        replace(response, primary_lease_id=3, latest_sequence_number=sync_point),
        replace(push, primary_lease_id=3, end_sequence_number=sync_point),
        replace(active, primary_lease_id=3),
    ]
    sent = b"".join(view[frame.body : frame.end] for view, frame in frames if frame.type == EventType.PARTITION_SYNC)
    expected = bodies(HEALING, EventType.PARTITION_SYNC)
    assert sent[: len(expected)] == expected
    assert len(sent) - len(expected) == 2 * 72  # the sync points


def _part(message: ControlMessage) -> object:
    assert isinstance(message.choice, ClusterMessage)
    part = message.choice.choice
    return part.choice if isinstance(part, PartitionMessage) else part
