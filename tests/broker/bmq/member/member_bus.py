"""Whole members in memory: nodes with elections, metadata and partitions, joined by links that lose nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from broker.bmq.assembly.nodes import make_member, open_store
from broker.bmq.consensus.election import ElectionTimes
from broker.bmq.core.config import DomainConfig
from broker.bmq.links.admission import Admission, KnownNode
from broker.bmq.links.origins import Origins
from broker.bmq.member.config import MemberConfig
from broker.bmq.member.peers import Peers
from broker.bmq.node.node import Basis
from broker.bmq.queue.queue import Queue
from broker.bmq.store.names import next_timestamp
from broker.bmq.store.partition_files import PartitionLimits
from broker.common.clock import Now
from formats.bmq.control.messages import ControlMessage
from formats.bmq.wire.event import iter_frames
from formats.schema import Buffer
from tests.broker.bmq.rig import DOMAINS, LENGTH_MAX, LIMITS, NODE, START_S, Client, Request, identity, store_faults
from tests.broker.fakes import MemoryDirectory

TIMES = ElectionTimes(800, 300, 400, 400, 200, 100, 5)


@dataclass
class Wire:
    """One end of a link: what is sent goes to the other end's node with the next step."""

    events: deque[bytes]
    backlog: int = 0
    takes_removals: bool = True
    takes_early: bool = True

    def send_event(self, event: Buffer) -> None:
        self.events.append(bytes(event))

    def fail(self, error: Exception) -> None:
        raise error

    def end(self, reason: str) -> None:
        raise AssertionError(reason)


class Process:
    """One node's process on its disk."""

    def __init__(self, members: Members, node_id: int, directory: Any) -> None:
        self.node_id = node_id
        self.directory = directory
        now = self.now = Now(members.now.wall_s + members.off_s.get(node_id, 0), members.now.ms)

        def make_timestamp(prefix: str) -> str:
            return next_timestamp(prefix, directory.names(), datetime.fromtimestamp(now.wall_s, UTC))

        store = open_store(directory, members.partition_count, node_id, members.limits, 64 << 10, now, make_timestamp)
        guids = (bytes((node_id,)) + number.to_bytes(15, "big") for number in range(1, 1 << 20))
        basis = Basis(replace(NODE, node_id=node_id), now, members.domains.get, guids.__next__)
        others = [each for each in members.ids if each != node_id]
        config = MemberConfig(members.elector_quorum, members.spread, TIMES)
        # The first node is the first to stand for election.
        self.node, self.role = make_member(basis, store, others, config, lambda below: 10 * node_id % below)
        self.member = self.role.member
        hosts = {each: f"host{each}" for each in members.ids}
        origins = Origins(hosts, node_id, now, lambda host, done: None)
        admission = Admission({each: KnownNode(name) for each, name in hosts.items()}, origins)
        # The links come by `peer_up`: nobody dials.
        peers = Peers(self.node, self.member, lambda node_id: None, admission)
        self.role.attach(peers, {each: f"{name}:30114" for each, name in hosts.items()})
        self.term = 0


class MemberClient(Client):
    """A client of one node; what it asks is answered when the nodes have spoken to each other."""

    members: Members

    def ask(self, choice: Request) -> object:
        self._requests += 1
        self.send(self._schema_event(ControlMessage(r_id=self._requests, choice=choice)))
        answers: list[ControlMessage] = []

        def answered() -> bool:
            answers.extend(self._pick(ControlMessage))
            return bool(answers)

        self.members.run()
        self.members.until(answered)
        (answer,) = answers
        assert answer.r_id == self._requests
        return answer.choice


class Members:
    """The processes and the links among them."""

    def __init__(
        self,
        count: int = 3,
        *,
        partition_count: int = 1,
        spread: bool = False,
        elector_quorum: int | None = None,
        limits: PartitionLimits = LIMITS,
        directory_of: Callable[[int], Any] = lambda node_id: MemoryDirectory(),
        domains: dict[str, DomainConfig] | None = None,
    ) -> None:
        self.ids = tuple(range(count))
        self.partition_count = partition_count
        self.spread = spread
        self.limits = limits
        self.elector_quorum = count // 2 + 1 if elector_quorum is None else elector_quorum
        self.domains: dict[str, DomainConfig] = dict(DOMAINS if domains is None else domains)
        self.now = Now(START_S, 1_000_000)
        self.off_s: dict[int, int] = {}  # by node: how wrong its wall clock is
        self.processes: dict[int, Process] = {}
        self.wires: dict[tuple[int, int], Wire] = {}
        for node_id in self.ids:
            self.start(node_id, directory_of(node_id))

    def start(self, node_id: int, directory: Any) -> None:
        process = self.processes[node_id] = Process(self, node_id, directory)
        process.member.start()
        for other in list(self.processes):
            if other != node_id:
                for here, there in ((node_id, other), (other, node_id)):
                    self.wires[here, there] = Wire(deque())
                self.processes[node_id].member.peer_up(other, self.wires[node_id, other])
                self.processes[other].member.peer_up(node_id, self.wires[other, node_id])

    def kill(self, node_id: int) -> MemoryDirectory:
        """The process is gone; its disk."""
        gone = self.without(node_id)
        directory: MemoryDirectory = gone.directory
        return directory.after_crash()

    def without(self, node_id: int) -> Process:
        """The process is gone."""
        gone = self.processes.pop(node_id)
        for other, process in self.processes.items():
            del self.wires[node_id, other], self.wires[other, node_id]
            process.member.peer_down(node_id)
        return gone

    def settle(self) -> None:
        """Let all nodes do what they have to do, long tasks included."""
        for process in self.processes.values():
            while any(process.node.end_step()) or process.node.rest():
                pass

    def step(self) -> bool:
        """Settle all nodes and deliver what they sent; whether there was anything."""
        self.settle()
        some = False
        for (source, target), wire in list(self.wires.items()):
            while wire.events and self.wires.get((source, target)) is wire:
                some = True
                data = memoryview(wire.events.popleft())
                for frame in iter_frames(data, 0, len(data), LENGTH_MAX):
                    self.processes[target].member.receive(source, data, frame)
        return some

    def run(self, ms: int = 0) -> None:
        """Let time pass, and deliver all messages."""
        end = self.now.ms + ms
        while True:
            while self.step():
                pass
            if self.now.ms >= end:
                return
            self.now.ms += 100
            self.now.wall_s = START_S + (self.now.ms - 1_000_000) // 1000
            for process in self.processes.values():
                process.now.ms = self.now.ms
                process.now.wall_s = self.now.wall_s + self.off_s.get(process.node_id, 0)
                process.node.tick()

    def until(self, wanted: Callable[[], object], ms: int = 60_000) -> None:
        """Run until something is so."""
        end = self.now.ms + ms
        while not wanted():
            assert self.now.ms < end, "that did not come about"
            self.run(100)

    @property
    def leader(self) -> Process:
        (leader,) = [each for each in self.processes.values() if each.member.metadata.is_active_leader]
        return leader

    def connect(self, node_id: int) -> MemberClient:
        client = MemberClient(self.processes[node_id].node)
        client.members = self
        client.negotiate(identity())
        return client

    def queue(self, node_id: int, uri: str) -> Queue | None:
        return self.processes[node_id].node.queues.get(uri)

    def faults(self) -> list[str]:
        return [str(fault) for each in self.processes.values() for fault in store_faults(each.directory)]


def members(**options: int) -> Members:
    """A cluster that serves."""
    cluster = Members(**options)  # type: ignore[arg-type]
    cluster.until(lambda: all(each.member.status.name == "AVAILABLE" for each in cluster.processes.values()))
    return cluster
