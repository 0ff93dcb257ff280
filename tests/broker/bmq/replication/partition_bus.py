"""One partition on several nodes, on a bus in memory: links are cut, nodes killed and restarted, disks kept.

The test chooses the primary. A primary posts messages to one queue and counts which of them are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from crc32c import crc32c

from broker.bmq.assembly.opening import open_partitions
from broker.bmq.core.history import History
from broker.bmq.core.messages import Content, Full, Held, Message, message_of
from broker.bmq.core.work import Work
from broker.bmq.links.requests import Requests
from broker.bmq.replication.healing_pace import HealingPace
from broker.bmq.replication.partition import ReplicatedPartition
from broker.bmq.replication.partition_table import State
from broker.bmq.store.names import next_timestamp
from broker.bmq.store.partition_files import PartitionLimits
from broker.bmq.store.peaks import Peak
from broker.bmq.store.recovery import Recovered, RecoveredMessage, RecoveredQueue, recover
from broker.bmq.store.removals import Removed
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import ControlMessage
from formats.bmq.wire.event import next_frame, schema_message
from formats.bmq.wire.receipt import parse_receipt
from formats.bmq.wire.recovery import iter_chunks
from formats.schema import Buffer
from tests.broker.bmq.rig import START_S, guid, store_faults
from tests.broker.fakes import MemoryDirectory

__all__ = ["KEY", "Bus", "Node", "payload"]

KEY = b"queue"
URI = "bmq://priority/q"
APP = ("__default", b"\0" * 5)
LIMITS = PartitionLimits(journal=64 << 10, data=256 << 10, qlist=4 << 10)
STEPS_MAX = 20_000


def payload(number: int) -> bytes:
    return b"message %d " % number + b"x" * (number * 37 % 300)


@dataclass
class Node:
    """One node's process; it begins with what is on its disk."""

    bus: Bus
    node_id: int
    directory: MemoryDirectory
    store: dict[bytes, Message] = field(default_factory=dict)
    posted: list[int] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)  # that had waited
    serving: bool = False
    restored_s: int = 0  # the time of the newest record, when it began to serve
    gone: dict[bytes, bytes] = field(default_factory=dict)  # when it began to serve
    events: list[EventType] = field(default_factory=list)  # that came
    outdated: list[int] = field(
        default_factory=list
    )  # the leases of the newest records, when its own was none to write under

    def __post_init__(self) -> None:
        self.now, self.timers = self.bus.now, Timers()

        def make_timestamp(prefix: str) -> str:
            return next_timestamp(prefix, self.directory.names(), datetime.fromtimestamp(self.now.wall_s, UTC))

        ((self.stored, recovered),) = open_partitions(
            self.directory,
            1,
            self.node_id,
            self.bus.limits,
            self.now,
            make_timestamp,
            outlives_power=self.bus.outlives_power,
            heals=True,
        )
        self.work = Work(self.now, self.bus.amount)
        if self.bus.amount:
            self.stored.work_with(self.work)
        self.requests = Requests(self, self.now, self.timers)
        self.pace = HealingPace(self.now, self.timers)
        self.partition = ReplicatedPartition(
            self.stored,
            recovered,
            self,
            self.requests,
            self.now,
            self.timers,
            self.bus.quorum,
            self.pace,
            self,
        )

    # -- Links

    @property
    def own_id(self) -> int:
        return self.node_id

    @property
    def other_ids(self) -> tuple[int, ...]:
        return tuple(each for each in range(self.bus.count) if each != self.node_id)

    def is_up(self, node_id: int) -> bool:
        return self.bus.is_up(self.node_id, node_id)

    def send(self, node_id: int, event: Buffer) -> None:
        if self.is_up(node_id):
            self.bus.links[self.node_id, node_id].append(bytes(event))

    def backlog(self, node_id: int) -> int:
        return sum(map(len, self.bus.links[self.node_id, node_id]))

    def takes_removals(self, node_id: int) -> bool:
        return self.bus.takes_removals

    # -- the primary's queue

    # -- what is put back, see `broker.bmq.replication.take_over.Restoring`

    def on_restore(self, partition_id: int) -> Node:
        self.restored: dict[bytes, Message] = {}
        self.history = History(300_000)
        self.gone = {}
        return self

    def begin(self, queues: Mapping[bytes, RecoveredQueue], newest_s: int) -> None:
        self.restored_s = newest_s
        for key in queues:
            self.stored.register(key, self.restored)

    def remember(self, key: bytes, guids: bytes) -> None:
        self.gone[key] = self.gone.get(key, b"") + guids
        if key == KEY:
            self.history.restore(guids, self.bus.now.ms)

    def remember_before(self, key: bytes, removed: Removed) -> None:
        if key == KEY:
            self.history.restore(b"", self.bus.now.ms, (removed,))

    def take(self, found: RecoveredMessage) -> None:
        content = Content(b"", 0, found.compression, found.has_properties, found.schema_id)
        message = self.restored[found.guid] = message_of(found.guid, found.size, content, 1)
        message.offset = found.offset
        self.stored.adopt(1)

    def peaked(self, key: bytes, app_key: bytes, peak: Peak) -> None:
        """Ignore it, as nothing is counted."""

    def end(self) -> None:
        self.store = self.restored

    def give_up(self) -> None:
        """Remove nothing, as messages are in the store only."""

    def on_active(self, partition_id: int) -> None:
        self.serving = True
        if KEY not in self.stored.records.stores:
            self.stored.append_queue(URI, KEY, [APP])
            self.stored.register(KEY, self.store)

    def on_primary_status(self, partition_id: int, node_id: int, active: bool) -> None:
        """Do nothing."""

    def on_removed(self, partition_id: int, queue_key: bytes, guid: bytes) -> None:
        """Do nothing."""

    def on_purged(self, partition_id: int, queue_key: bytes, guids: Sequence[Container[bytes]], heals: bool) -> None:
        """Do nothing."""

    def on_outdated(self, partition_id: int, lease_id: int) -> None:
        self.outdated.append(lease_id)

    def describe(self, node_id: int) -> str:
        return f"[node{node_id}, {node_id}] from {self.node_id}"

    def on_passive(self, partition_id: int) -> None:
        assert self.stored.active, "the partition is still whole"
        self.serving = False

    def post(self, *numbers: int) -> None:
        assert self.serving
        for number in numbers:
            data = payload(number)
            content = Content(data, crc32c(data), 0, False, 0)
            message = message_of(guid(number), len(data), content, 1)
            try:
                self.stored.append(KEY, (message,), (data,), b"", 1)
            except Held:
                self.stored.rollovers.when_open(lambda number=number: self._post_held(number), len(data))  # type: ignore[misc]
                continue
            self.store[message.guid] = message
            self.posted.append(number)
            written = self.stored.sequence_number
            self.stored.kept.await_copies(
                written,
                message,
                lambda message, number=number: self.acked.append(number),  # type: ignore[misc]
            )

    def _post_held(self, number: int) -> None:
        try:
            self.post(number)
        except Full:
            self.refused.append(number)

    def remove(self, *numbers: int) -> None:
        for number in numbers:
            self.stored.records.remove(KEY, self.store.pop(guid(number)))

    # -- steps

    def receive(self, node_id: int, event: bytes) -> None:
        view = memoryview(event)
        frame = next_frame(view, 0, len(view), 1 << 29)
        assert frame is not None
        assert frame.end == len(view)
        kind = EventType(frame.type)
        self.events.append(kind)
        if kind is EventType.STORAGE:
            self.partition.on_storage(node_id, view, frame)
        elif kind is EventType.PARTITION_SYNC:
            self.partition.on_sync(node_id, view, frame)
        elif kind is EventType.RECOVERY:
            for chunk in iter_chunks(view, frame.body, frame.end):
                self.partition.on_recovery(node_id, chunk)
        elif kind is EventType.REPLICATION_RECEIPT:
            self.partition.on_receipt(node_id, parse_receipt(view, frame.body, frame.end), frame.body)
        else:
            message = ber.decode(ControlMessage, schema_message(view, frame.body, frame.end))
            if not self.requests.received(node_id, message):
                assert self.partition.on_control(node_id, message) or message.r_id is not None
        self.flush()

    def flush(self) -> bool:
        """End a step; whether there is more to do, or to send."""
        has_tasks = self.work.end_step()
        self.partition.flush()
        self.pace.end_step(awaited=bool(self.stored.kept.awaiting))
        self.partition.heal()
        return self.partition.busy or has_tasks

    def files(self) -> dict[str, bytes]:
        """Return the contents of the three files, headers included."""
        files = self.stored.files
        parts = {"journal": (files.journal, files.journal_end), "data": (files.data, files.data_end)}
        parts["qlist"] = (files.qlist, files.qlist_end)
        for file, end in parts.values():
            assert not any(file.buffer[end:]), f"{file.name}: something behind its end"
        return {name: bytes(file.buffer[:end]) for name, (file, end) in parts.items()}


@dataclass
class Bus:
    """The nodes of a cluster; events on a link come in order, links one after the other."""

    count: int = 3
    limits: PartitionLimits = field(default_factory=lambda: LIMITS)
    outlives_power: bool = False
    amount: int = 0  # of work in a slice; 0 for nodes without long tasks
    takes_removals: bool = True  # as nodes of ours do, which say so

    def __post_init__(self) -> None:
        self.now = Now(START_S, 1_000_000)
        self.quorum = self.count // 2 + 1
        self.links: dict[tuple[int, int], deque[bytes]] = {
            (a, b): deque() for a in range(self.count) for b in range(self.count) if a != b
        }
        self.cut: set[frozenset[int]] = set()
        self.nodes: dict[int, Node] = {}
        self.disks = [MemoryDirectory() for _ in range(self.count)]
        self.lease_id = 0
        self.primary_id: int | None = None
        for node_id in range(self.count):
            self.start(node_id)

    def is_up(self, one: int, other: int) -> bool:
        return other in self.nodes and one in self.nodes and frozenset((one, other)) not in self.cut

    # -- faults

    def start(self, node_id: int) -> Node:
        node = Node(self, node_id, self.disks[node_id])
        self.nodes[node_id] = node
        for other in list(self.nodes):
            if other != node_id and self.is_up(node_id, other):
                self._connect(node_id, other)
        return node

    def kill(self, node_id: int) -> None:
        del self.nodes[node_id]
        self.disks[node_id] = self.disks[node_id].after_crash()
        for other in self.nodes:
            self._disconnect(node_id, other)

    def restart(self, node_id: int) -> Node:
        """Start a node, and tell it who is primary, as the cluster's state does."""
        node = self.start(node_id)
        node.partition.primary_changed(self.primary_id, self.lease_id)
        return node

    def part(self, *nodes: int) -> None:
        """Cut some nodes off from the others."""
        for one in nodes:
            for other in set(self.nodes) - set(nodes):
                self.cut.add(frozenset((one, other)))
                self._disconnect(one, other)

    def join(self) -> None:
        cut, self.cut = self.cut, set()
        for one, other in map(sorted, cut):
            if self.is_up(one, other):
                self._connect(one, other)

    def _connect(self, one: int, other: int) -> None:
        self.nodes[one].partition.node_up(other)
        self.nodes[other].partition.node_up(one)

    def _disconnect(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.links[here, there].clear()
            if here in self.nodes:
                self.nodes[here].partition.node_down(there)
                self.nodes[here].requests.node_down(there)

    # -- roles

    def assign(self, primary_id: int, among: tuple[int, ...] | None = None) -> Node:
        """The cluster's state names a primary, under a new lease; those `among` learn of it."""
        self.lease_id += 1
        self.primary_id = primary_id
        for node_id in among if among is not None else tuple(self.nodes):
            self.nodes[node_id].partition.primary_changed(primary_id, self.lease_id)
        return self.nodes[primary_id]

    # -- time

    def step(self) -> bool:
        """Deliver one event of each link; False when there was none, and none is to come."""
        moved = False
        for node in list(self.nodes.values()):
            moved |= node.flush()
        for (source, target), link in self.links.items():
            if link and source in self.nodes and target in self.nodes:
                self.nodes[target].receive(source, link.popleft())
                moved = True
        return moved

    def settle(self, ms: int = 0) -> None:
        """Step until nothing moves, then let `ms` pass."""
        for _ in range(STEPS_MAX):
            if not self.step():
                break
        else:
            raise AssertionError("it does not settle")
        for _ in range(0, ms, 100):
            self.now.ms += 100
            for node in list(self.nodes.values()):
                node.timers.run(self.now.ms)
            for _ in range(STEPS_MAX):
                if not self.step():
                    break

    def run(self, ms: int) -> None:
        self.settle(ms)
        self.now.wall_s += ms // 1000

    # -- looks

    def states(self) -> list[State]:
        return [self.nodes[node_id].partition.state for node_id in sorted(self.nodes)]

    def check_equal(self) -> None:
        """All nodes' files are the same, byte by byte, and valid; what is kept can be read back at the replicas."""
        first, *others = [self.nodes[node_id].files() for node_id in sorted(self.nodes)]
        for other in others:
            for name, data in first.items():
                assert other[name] == data, name
        for node in self.nodes.values():
            assert store_faults(node.directory) == []
            recovered = recover(node.stored.files)
            if node.partition.state is State.REPLICA_HEALED:
                self.check_counts(node, recovered)
                for message in recovered.messages:
                    content = node.partition.read(message.queue_key, message.guid)
                    assert content is not None
                    assert len(content.data) == message.size
                    assert crc32c(content.data) == content.crc32c
                    assert bytes(content.data).startswith(b"message ")

    def check_counts(self, node: Node, recovered: Recovered) -> None:
        """Check that a replica's counts equal those of its files."""
        wanted: dict[bytes, tuple[int, int]] = {}
        for message in recovered.messages:
            count, size = wanted.get(message.queue_key, (0, 0))
            wanted[message.queue_key] = count + 1, size + message.size
        stored = node.partition.copy.index.places.stored()
        assert {key: each for key, each in stored.items() if each != (0, 0)} == wanted

    def kept(self, node_id: int) -> list[bytes]:
        return [message.guid for message in recover(self.nodes[node_id].stored.files).messages]
