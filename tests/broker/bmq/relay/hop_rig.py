"""Members of a cluster joined in memory: nodes with clients, and links of bytes between them; who is primary is said.

Election, ledger and replication are left out: all nodes see one state of the cluster, and a node's copy of a partition
is what the primary has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import cast

from broker.bmq.assembly.opening import open_partitions
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.ledger import ClusterState, app_infos
from broker.bmq.core.messages import Content
from broker.bmq.links.requests import Requests
from broker.bmq.member.queues import ClusterQueues
from broker.bmq.member.queues_ports import Copies
from broker.bmq.node.node import Node
from broker.bmq.node.role import Role
from broker.bmq.node.single import SingleNode
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.handles import Refusal
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.relay.guests import Guests
from broker.bmq.store.recovery import Recovered
from formats.bmq.control import ber
from formats.bmq.control.messages import ClientType, ControlMessage, QueueHandleParameters, QueueInfo
from formats.bmq.disk.keys import DEFAULT_APP_KEY, derive_key
from formats.bmq.wire.event import EventType, iter_frames, schema_message
from formats.schema import Buffer
from tests.broker.bmq.rig import Client, Rig, identity, start

APPS = ("foo", "bar")
DOMAINS = (
    DomainConfig("priority", Mode.PRIORITY),
    DomainConfig("fanout", Mode.FANOUT, APPS),
    DomainConfig("broadcast", Mode.BROADCAST, persistent=False),
    DomainConfig("memory", Mode.PRIORITY, persistent=False),
    DomainConfig("poison", Mode.FANOUT, APPS, delivery_attempts_max=3),
)
QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"

LENGTH_MAX = 1 << 26


class Places:
    """The state of the cluster, shared by all nodes."""

    def __init__(self) -> None:
        self.state = ClusterState()

    def assign_queue(self, uri: str, config: DomainConfig, done: Callable[[QueueInfo | Refusal], None]) -> None:
        if uri not in self.state.queues:
            keys: list[tuple[str, bytes]] = []
            for app_id in config.queue_app_ids:
                key = DEFAULT_APP_KEY if app_id == "__default" else derive_key(app_id, 1, {each for _, each in keys})
                keys.append((app_id, key))
            taken = {info.key for info in self.state.queues.values()}
            info = QueueInfo(uri=uri, key=derive_key(uri, 1, taken), partition_id=0, app_ids=app_infos(keys))
            self.state.queues[uri] = info
        done(self.state.queues[uri])


@dataclass
class Links:
    """One node's; what is sent waits in `sent` until the world carries it over."""

    own_id: int
    other_ids: tuple[int, ...]
    up: set[int] = field(default_factory=set)
    foreign: set[int] = field(default_factory=set)  # nodes of the reference, as this one sees them
    sent: dict[int, bytearray] = field(default_factory=dict)

    def is_up(self, node_id: int) -> bool:
        return node_id in self.up

    def send(self, node_id: int, event: Buffer) -> None:
        if node_id in self.up:
            self.sent.setdefault(node_id, bytearray()).extend(event)

    def takes_early(self, node_id: int) -> bool:
        return node_id not in self.foreign

    def fail(self, node_id: int, error: Exception) -> None:
        raise error

    def backlog(self, node_id: int) -> int:
        return 0


class HopRole(SingleNode):
    """The role of one node: its queues are placed as a member places them, and all else is as with a single node."""

    def __init__(self, node: Node, links: Links, places: Places, copies: Copies) -> None:
        super().__init__(node, Guests(node))
        self.links = links
        self.requests = Requests(links, node.now, node.timers)
        self.queues = ClusterQueues(node, links, self.requests, places, copies)

    def place(self, name: str, domain: DomainInUse, parameters: QueueHandleParameters, opened: Opened) -> None:
        self.queues.place(name, domain, parameters, opened)


@dataclass
class OneCopy:
    """The copies of the partition, as one node has them; see `Copies`."""

    world: World
    node_id: int

    def read(self, partition_id: int, queue_key: bytes, guid: bytes) -> Content | None:
        return self.world.read(queue_key, guid) if self.takes_pushes(partition_id) else None

    def takes_pushes(self, partition_id: int) -> bool:
        return self.node_id not in self.world.uncopied

    def is_behind(self, node_id: int) -> bool:
        return False

    def may_lack(self, node_id: int, partition_id: int) -> bool:
        return False


@dataclass
class Hop:
    """One node."""

    rig: Rig
    links: Links
    requests: Requests
    queues: ClusterQueues


class World:
    """`nodes` by id. After what a test does, `run` lets everything happen that follows from it."""

    def __init__(self, domains: Iterable[DomainConfig], node_ids: Iterable[int] = (0, 1)) -> None:
        self.domains = {config.name: config for config in domains}
        self.ids = tuple(node_ids)
        self.places = Places()
        self.nodes: dict[int, Hop] = {}
        self.primary: int | None = None
        self.leases = 0
        self.uncopied: set[int] = set()  # nodes with outdated copies of the partition
        self.wire: list[tuple[int, int, bytes]] = []  # all that was sent: from, to, bytes
        self.does_slices = False  # between what is carried over
        for node_id in self.ids:
            self._add(node_id)
        for one in self.ids:
            for other in self.ids:
                if one < other:
                    self.join(one, other)

    def _add(self, node_id: int) -> None:
        links = Links(node_id, tuple(each for each in self.ids if each != node_id))

        def make_role(node: Node) -> HopRole:
            return HopRole(node, links, self.places, OneCopy(self, node_id))

        rig = self._start(node_id, make_role)
        rig.node.ledger.state.queues = self.places.state.queues
        role = rig.node.role
        assert isinstance(role, HopRole)
        self.nodes[node_id] = Hop(rig, links, role.requests, role.queues)

    def _start(self, node_id: int, make_role: Callable[[Node], Role]) -> Rig:
        """Begin a node on an empty folder of its own."""
        return start(domains=self.domains, make_role=make_role)

    def read(self, key: bytes, guid: bytes) -> Content | None:
        for hop in self.nodes.values():
            for queue in hop.rig.node.queues.values():
                if queue.is_root and queue.key == key and guid in queue.messages:
                    message = queue.messages[guid]
                    data = bytes(queue.log.read(message))
                    return Content(data, 0, message.compression, message.has_properties, message.schema_id)
        return None

    def slice(self, amount: int) -> None:
        """Let the nodes do their long tasks in slices of this size; others are served between two slices."""
        self.does_slices = True
        for hop in self.nodes.values():
            hop.rig.node.work.amount = hop.rig.node.work.left = amount

    # -- what happens to nodes

    def join(self, one: int, other: int) -> None:
        for own, peer in ((one, other), (other, one)):
            self.nodes[own].links.up.add(peer)
        for own, peer in ((one, other), (other, one)):
            self.nodes[own].queues.peer_up(peer)

    def part(self, one: int, other: int) -> None:
        for own, peer in ((one, other), (other, one)):
            hop = self.nodes[own]
            hop.links.up.discard(peer)
            hop.links.sent.pop(peer, None)
            hop.requests.node_down(peer)
            hop.queues.peer_down(peer)

    def make_primary(self, node_id: int | None, files_of: Rig | None = None, *, fails: bool = False) -> None:
        """A node serves the partition from now on, empty or with a copy of another node's files, unless it `fails`."""
        old, self.primary = self.primary, node_id
        self.leases += 1
        for hop in self.nodes.values():
            hop.queues.primary_changed(0, node_id, self.leases)
        if old is not None and old in self.nodes:
            self.nodes[old].queues.deactivated(0)
            self.nodes[old].rig.node.partitions[0].deactivate()
        if node_id is None:
            return
        hop = self.nodes[node_id]
        recovered = Recovered({}, [], 0, 0, 0, 0)
        if files_of is not None:
            now = hop.rig.now
            hop.rig.directory = files_of.directory.after_crash()
            opened = open_partitions(hop.rig.directory, 1, 0, files_of.limits, now, lambda prefix: prefix)
            partition, recovered = opened[0]
            cast(dict[int, StoredPartition], hop.rig.node.partitions)[0] = partition
        hop.queues.restoring(0).put_back(recovered)
        if files_of is not None:
            partition.activate(recovered.primary_lease_id + 1)
        if fails:
            hop.queues.deactivated(0)
            return
        hop.queues.activated(0)
        for other, replica in self.nodes.items():
            if other != node_id:
                replica.queues.primary_active(0, node_id, True)
        self.run()

    def crash(self, node_id: int) -> Rig:
        """The node is gone; what it had in files."""
        hop = self.nodes[node_id]
        for other in tuple(hop.links.up):
            self.part(node_id, other)
        del self.nodes[node_id]
        if self.primary == node_id:
            self.primary = None
        return hop.rig

    def wait(self, ms: int) -> None:
        for _ in range(0, ms, 100):
            for hop in self.nodes.values():
                hop.rig.now.ms += 100
                hop.rig.node.timers.run(hop.rig.now.ms)
            self.run()

    # -- clients

    def client(self, node_id: int, client_type: ClientType = ClientType.TCPCLIENT) -> HopClient:
        """Connect a client, or a proxy's link if it is a TCPBROKER."""
        client = HopClient(self.nodes[node_id].rig.node)
        client.world = self
        client.negotiate(replace(identity(client_type), cluster_node_id=-1))
        del client.inbox[:]  # a proxy learns at once which node leads
        return client

    # -- bytes

    def run(self) -> None:
        """Carry over what the nodes send until nothing more is sent."""
        while True:
            for hop in self.nodes.values():
                hop.queues.flush()
            moved = False
            for node_id, hop in list(self.nodes.items()):
                for peer, data in list(hop.links.sent.items()):
                    del hop.links.sent[peer]
                    if data:
                        moved = True
                        self.wire.append((node_id, peer, bytes(data)))
                        self._deliver(node_id, peer, data)
                if self.does_slices:
                    moved |= hop.rig.node.work.end_step()
            if not moved and not self._tell_removed():
                return

    def _tell_removed(self) -> bool:
        """Hops hear of what the primary has removed, as from the records that it sends; whether there was something."""
        told = False
        for hop in self.nodes.values():
            for queue in list(hop.rig.node.queues.values()):
                root = self.nodes[self.primary].rig.node.queues.get(queue.uri) if self.primary is not None else None
                if queue.is_root or root is None:
                    continue
                for each in [each for each in queue.messages if each not in root.messages]:
                    told = True
                    hop.queues.removed(0, root.key, each)
        return told

    def _deliver(self, source: int, target: int, data: bytearray) -> None:
        hop = self.nodes[target]
        view = memoryview(bytearray(data))
        end = 0
        for frame in iter_frames(view, 0, len(view), LENGTH_MAX):
            end = frame.end
            match frame.type:
                case EventType.CONTROL:
                    message = ber.decode(ControlMessage, schema_message(view, frame.body, frame.end))
                    if not hop.requests.received(source, message):
                        assert hop.queues.on_control(source, message), message
                case EventType.PUT:
                    hop.queues.on_put(source, view, frame)
                case EventType.PUSH:
                    hop.queues.on_push(source, view, frame)
                case EventType.ACK:
                    hop.queues.on_ack(source, view, frame)
                case EventType.CONFIRM:
                    hop.queues.on_confirm(source, view, frame)
                case EventType.REJECT:
                    hop.queues.on_reject(source, view, frame)
        assert end == len(view)
        view.obj[:] = b"\xee" * len(view)  # type: ignore[index]


@dataclass
class HopClient(Client):
    """A client whose requests may need other nodes before they are answered."""

    world: World | None = None

    def send(self, data: bytes) -> None:
        super().send(data)
        if self.world is not None:
            self.world.run()

    def drop(self) -> None:
        super().drop()
        if self.world is not None:
            self.world.run()

    def take(self) -> bytes:
        output = super().take()
        # Its link has room again.
        if self.world is not None:
            self.world.run()
        return output
