"""Several nodes' `Metadata` on a bus in memory: messages are delayed, links cut, nodes killed, disks kept.

Elections are the test's: `elect` tells the nodes that can see the leader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from broker.bmq.consensus.metadata import Metadata, QueueChange
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.ledger import Advisory, Ledger
from broker.bmq.links.requests import Requests
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import ControlMessage, NodeStatus
from formats.bmq.disk.ledger import LedgerRecordType
from formats.bmq.disk.numbers import LedgerNumber
from formats.bmq.stores.recover import iter_ledger
from formats.bmq.stores.validate import FileView, validate_ledger
from formats.bmq.wire.event import next_frame, schema_message
from formats.schema import Buffer
from tests.broker.fakes import MemoryDirectory

START_S = 1_800_000_000
LEDGER_SIZE = 1 << 14

FANOUT = DomainConfig("fanout", Mode.FANOUT, app_ids=("foo", "bar"))
PRIORITY = DomainConfig("priority", Mode.PRIORITY)
LIMITED = DomainConfig("limited", Mode.PRIORITY, queues_max=2)
DOMAINS = {config.name: config for config in (FANOUT, PRIORITY, LIMITED)}


class WatchedLedger(Ledger):
    """A ledger that notes each commit in `commits`."""

    commits: list[tuple[LedgerNumber, Advisory]]

    def commit(self, number: LedgerNumber, committed: LedgerNumber, record: bytes) -> Advisory:
        advisory = super().commit(number, committed, record)
        self.commits.append((committed, advisory))
        return advisory


@dataclass
class Node:
    """One node's process: it begins with what is on its disk."""

    bus: Bus
    node_id: int
    directory: MemoryDirectory
    alive: bool = True
    primaries: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    changes: list[QueueChange] = field(default_factory=list)
    commits: list[tuple[LedgerNumber, Advisory]] = field(default_factory=list)
    sent: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = self.bus.now
        self.timers = Timers()
        ledger = WatchedLedger(self.directory, self.bus.ledger_size, self.now, self.bus.make_timestamp)
        ledger.commits = self.commits
        ledger.recover()
        self.at_first = dict(ledger.state.queues)
        self.requests = Requests(self, self.now, self.timers)
        self.metadata = Metadata(
            self,
            self.requests,
            ledger,
            self.now,
            self.timers,
            self,
            quorum=len(self.bus.ids) // 2 + 1,
            partition_count=self.bus.partition_count,
            resolve_domain=DOMAINS.get,
            spread=self.bus.spread,
            watchdog_ms=1000,
        )

    # -- see `MetadataListener`

    def on_queues(self, change: QueueChange) -> None:
        self.changes.append(change)

    def on_agreed(self) -> None:
        """Do nothing."""

    def on_healed(self, leads: bool) -> None:
        """Do nothing."""

    def on_primary(self, partition_id: int, node_id: int | None, primary_lease_id: int) -> None:
        assert self.primaries.get(partition_id) != (node_id, primary_lease_id)
        assert primary_lease_id >= self.primaries.get(partition_id, (None, 0))[1]
        self.primaries[partition_id] = (node_id, primary_lease_id)
        assert self.metadata.primary_of(partition_id) == (node_id, primary_lease_id)

    # -- Links

    @property
    def own_id(self) -> int:
        return self.node_id

    @property
    def other_ids(self) -> tuple[int, ...]:
        return tuple(each for each in self.bus.ids if each != self.node_id)

    def is_up(self, node_id: int) -> bool:
        return self.alive and frozenset((self.node_id, node_id)) in self.bus.links

    def send(self, node_id: int, event: Buffer) -> None:
        if self.is_up(node_id):
            self.sent.append((node_id, bytes(event)))
            self.bus.carry(self.node_id, node_id, bytes(event))

    def backlog(self, node_id: int) -> int:
        return 0

    # -- what comes in

    def receive(self, node_id: int, event: bytes) -> None:
        data = memoryview(event)
        frame = next_frame(data, 0, len(data), 1 << 26)
        assert frame is not None
        if frame.type == EventType.CLUSTER_STATE:
            self.metadata.on_cluster_state(node_id, data, frame)
            return
        message = ber.decode(ControlMessage, bytes(schema_message(data, frame.body, frame.end)))
        if not self.requests.received(node_id, message):
            self.metadata.on_control(node_id, message)

    # -- what is on the disk

    def records(self) -> list[tuple[LedgerNumber, LedgerRecordType, bytes]]:
        """The records of its ledger's newest file, with their bytes."""
        found = []
        for name in self.directory.names()[-1:]:
            data = self.directory.files[name].data
            for record in iter_ledger(data):
                number = LedgerNumber(record.header.elector_term, record.header.sequence_number)
                kind = LedgerRecordType(record.header.record_type)
                found.append((number, kind, bytes(data[record.offset : record.end])))
        return found

    def faults(self) -> list[str]:
        return [
            f"{name}: {fault}"
            for name in self.directory.names()
            for fault in validate_ledger(FileView(name, self.directory.files[name].data))
        ]


class Bus:
    """The nodes, their links, and what is on its way."""

    def __init__(
        self,
        count: int = 3,
        *,
        seed: int | None = None,
        partition_count: int = 1,
        spread: bool = False,
        ledger_size: int = LEDGER_SIZE,
    ) -> None:
        self.ids = tuple(range(1, count + 1))
        self.random = None if seed is None else Random(seed)
        self.partition_count = partition_count
        self.spread = spread
        self.ledger_size = ledger_size
        self.now = Now(START_S, 1000)
        self.links: set[frozenset[int]] = set()
        self.term = 0
        self.flows: dict[tuple[int, int], deque[tuple[int, bytes]]] = {}
        self._timestamps = 0
        self.nodes = {node_id: Node(self, node_id, MemoryDirectory()) for node_id in self.ids}

    def make_timestamp(self, prefix: str) -> str:
        self._timestamps += 1
        return f"20270115_{self._timestamps:06}"

    # -- links

    def connect(self, *ids: int) -> None:
        """Have a link between each two of these (or all) nodes that are alive."""
        for one in ids or self.ids:
            for other in ids or self.ids:
                if one < other:
                    self.connect_pair(one, other)

    def connect_pair(self, one: int, other: int) -> None:
        pair = frozenset((one, other))
        if pair in self.links or not (self.nodes[one].alive and self.nodes[other].alive):
            return
        self.links.add(pair)
        self.flows[one, other] = deque()
        self.flows[other, one] = deque()
        for here, there in ((one, other), (other, one)):
            self.nodes[here].metadata.node_up(there)
            self.nodes[here].metadata.node_status(there, NodeStatus.STARTING)

    def cut(self, one: int, other: int) -> None:
        """Lose a link, and what is on its way."""
        pair = frozenset((one, other))
        if pair not in self.links:
            return
        self.links.discard(pair)
        del self.flows[one, other], self.flows[other, one]
        for here, there in ((one, other), (other, one)):
            if self.nodes[here].alive:
                self.nodes[here].requests.node_down(there)
                self.nodes[here].metadata.node_down(there)

    def kill(self, node_id: int) -> None:
        self.nodes[node_id].alive = False
        for other in self.ids:
            if other != node_id:
                self.cut(node_id, other)

    def restart(self, node_id: int, *, wiped: bool = False) -> Node:
        """A new process on the disk that the last one left."""
        directory = MemoryDirectory() if wiped else self.nodes[node_id].directory.after_crash()
        self.nodes[node_id] = Node(self, node_id, directory)
        return self.nodes[node_id]

    def carry(self, source: int, target: int, event: bytes) -> None:
        delay = 1 if self.random is None else self.random.randrange(1, 30)
        flow = self.flows[source, target]
        due = max(self.now.ms + delay, flow[-1][0] if flow else 0)
        flow.append((due, event))

    # -- time

    def step(self) -> bool:
        """Deliver what is due at one moment, links in turn; False when nothing is on its way."""
        heads = [flow[0][0] for flow in self.flows.values() if flow]
        if not heads:
            return False
        self.now.ms = max(self.now.ms, min(heads))
        self.now.wall_s = START_S + self.now.ms // 1000
        for (source, target), flow in sorted(self.flows.items()):
            if flow and flow[0][0] <= self.now.ms and self.flows.get((source, target)) is flow:
                self.nodes[target].receive(source, flow.popleft()[1])
        return True

    def run(self, ms: int = 0) -> None:
        """Let time pass, then run until no message is in flight."""
        end = self.now.ms + ms
        while True:
            for node in self.nodes.values():
                if node.alive:
                    node.timers.run(self.now.ms)
            heads = [flow[0][0] for flow in self.flows.values() if flow]
            if heads and (min(heads) <= end or not ms):
                self.step()
            elif self.now.ms < end:
                self.now.ms = min(end, self.now.ms + 50, *(heads or [end]))
                self.now.wall_s = START_S + self.now.ms // 1000
            else:
                return

    # -- elections

    def elect(self, leader_id: int, *followers: int) -> None:
        """A new term: the leader, and the nodes with a link to it (or only those given), hear of it."""
        self.term += 1
        for node_id in followers or self.ids:
            node = self.nodes[node_id]
            if node.alive and (node_id == leader_id or node.is_up(leader_id)):
                node.metadata.leader_changed(leader_id, self.term)
        if leader_id not in followers:
            self.nodes[leader_id].metadata.leader_changed(leader_id, self.term)

    def set_available(self, *ids: int) -> None:
        """Nodes say that they serve; everybody with a link hears it at once."""
        for node_id in ids or self.ids:
            for node in self.nodes.values():
                if node.alive and (node.node_id == node_id or node.is_up(node_id)):
                    node.metadata.node_status(node_id, NodeStatus.AVAILABLE)

    @property
    def healed(self) -> list[int]:
        return [node_id for node_id, node in self.nodes.items() if node.alive and node.metadata.healed]


def cluster(count: int = 3, leader_id: int = 3, **options: object) -> Bus:
    """A cluster that has started: all nodes are healed and available."""
    bus = Bus(count, **options)  # type: ignore[arg-type]
    bus.connect()
    bus.elect(leader_id)
    bus.run()
    assert bus.healed == list(bus.ids)
    bus.set_available()
    return bus


def collector() -> tuple[list[object], Callable[[object], None]]:
    """A list, and what puts outcomes into it."""
    outcomes: list[object] = []
    return outcomes, outcomes.append
