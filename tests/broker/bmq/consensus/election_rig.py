"""Elections in memory: one node, and a world of several."""

from __future__ import annotations

import errno
import random
from collections import deque

from broker.bmq.consensus.election import Election, ElectionTimes
from broker.bmq.consensus.election_table import ElectionRole, Event
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ElectionProposal,
    ElectionResponse,
    ElectorMessage,
    HeartbeatResponse,
    LeaderHeartbeat,
    LeadershipCessionNotification,
    ScoutingRequest,
    ScoutingResponse,
)
from formats.bmq.wire.event import iter_frames, schema_message
from formats.schema import Buffer

LENGTH_MAX = 1 << 30
STEP_MS = 10


def decode(event: Buffer) -> ElectorMessage:
    view = memoryview(event)
    (frame,) = iter_frames(view, 0, len(view), LENGTH_MAX)
    assert frame.type == EventType.ELECTOR
    return ber.decode(ElectorMessage, schema_message(view, frame.body, frame.end))


class Wires:
    """The links of one node: what it sends is kept."""

    def __init__(self, own_id: int, others: tuple[int, ...]) -> None:
        self.own_id = own_id
        self.other_ids = others
        self.up = set(others)
        self.sent: list[tuple[int, ElectorMessage]] = []

    def is_up(self, node_id: int) -> bool:
        return node_id in self.up

    def backlog(self, node_id: int) -> int:
        return 0

    def send(self, node_id: int, event: Buffer) -> None:
        if node_id in self.up:
            self.sent.append((node_id, decode(event)))

    def take(self) -> list[tuple[int, int, object]]:
        out: list[tuple[int, int, object]] = [(to, message.term, message.choice) for to, message in self.sent]
        self.sent.clear()
        return out


class One:
    """A node with its election, and a clock that the test moves."""

    def __init__(self, own_id: int = 1, nodes: int = 3, term: int = 0, quorum: int = 0) -> None:
        self.now, self.timers = Now(), Timers()
        self.wires = Wires(own_id, tuple(node for node in range(1, nodes + 1) if node != own_id))
        self.told: list[tuple[int | None, int]] = []
        self.kept: list[int] = []
        self.keeps = True
        self.silent: list[int] = []
        self.election = Election(
            self.wires,
            quorum or nodes // 2 + 1,
            self.now,
            self.timers,
            random.Random(own_id).randrange,
            lambda leader_id, term: self.told.append((leader_id, term)),
            ElectionTimes(),
            term,
            self._keep,
            self.silent.append,
        )

    def _keep(self, term: int) -> None:
        if not self.keeps:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.kept.append(term)

    def wait(self, ms: int) -> None:
        end = self.now.ms + ms
        while self.now.ms < end:
            self.now.ms += STEP_MS
            self.timers.run(self.now.ms)

    def receive(self, node_id: int, term: int, choice: object) -> list[tuple[int, int, object]]:
        self.election.receive(node_id, ElectorMessage(term=term, choice=choice))  # type: ignore[arg-type]
        return self.wires.take()

    def bring(self, role: ElectionRole) -> None:
        """Start the node and bring it into `role`, in term 1 if that takes an election; node 2 is the other."""
        election = self.election
        if role is ElectionRole.DORMANT:
            return
        self.wires.up.clear()
        election.start()
        self.wires.up.update(self.wires.other_ids)
        if role is ElectionRole.FOLLOWING:
            self.receive(2, 1, LeaderHeartbeat())
        elif role is ElectionRole.SUPPORTING:
            self.receive(2, 1, ElectionProposal())
        elif role is not ElectionRole.WAITING:
            self.wait(ElectionTimes().initial_wait_timeout_ms)
            if role is not ElectionRole.SCOUTING:
                self.receive(2, 0, ScoutingResponse(will_vote=True))
            if role is ElectionRole.LEADER:
                self.receive(2, 1, ElectionResponse())
        assert election.role is role
        self.wires.take()


# How each event is brought about, where the table has it: what is done to the node, with the other node's id.
def raise_event(one: One, event: Event) -> None:
    election, term = one.election, one.election.term
    messages: dict[Event, tuple[int, int, object]] = {
        Event.SUPPORTED: (3, 0, ScoutingResponse(will_vote=True)),
        Event.ELECTED: (2, term, ElectionResponse()),
        Event.OLD_HEARTBEAT: (3, term - 1, LeaderHeartbeat()),
        Event.OWN_HEARTBEAT: (2, term, LeaderHeartbeat()),
        Event.OTHER_HEARTBEAT: (3, term, LeaderHeartbeat()),
        Event.NEW_HEARTBEAT: (3, term + 1, LeaderHeartbeat()),
        Event.NEW_PROPOSAL: (3, term + 1, ElectionProposal()),
        Event.NEWER_TERM: (3, term + 1, HeartbeatResponse()),
        Event.CESSION: (2, term, LeadershipCessionNotification()),
        Event.OTHER_CESSION: (3, term, LeadershipCessionNotification()),
    }
    waits = {Event.WAITED: 8000, Event.UNSUPPORTED: 4000, Event.UNELECTED: 4000, Event.SILENCE: 21_000}
    if event in messages:
        node_id, message_term, choice = messages[event]
        election.receive(node_id, ElectorMessage(term=message_term, choice=choice))  # type: ignore[arg-type]
    elif event in waits:
        end = one.now.ms + waits[event]
        role = election.role
        while one.now.ms < end and election.role is role:
            one.wait(STEP_MS)
    elif event is Event.STARTED:
        election.start()
    elif event is Event.RETIRING:
        election.retire()
    elif event is Event.STOPPED:
        election.stop()
    elif event in (Event.LEADER_GONE, Event.QUORUM_GONE):
        one.wires.up.discard(2)
        election.node_down(2)
    elif event is Event.REFUSED:
        one.receive(2, 5, ScoutingResponse(will_vote=False))
        one.receive(3, 5, ScoutingResponse(will_vote=False))
    elif event is Event.OVERRULED:
        one.receive(0, term + 1, ScoutingRequest())
    elif event is Event.TERM_UNKEPT:
        one.keeps = False
        raise_event(one, Event.NEW_HEARTBEAT if election.role is ElectionRole.LEADER else Event.SUPPORTED)
    else:
        election.node_up(3)  # NODE_THERE, and as all are up: ALL_THERE


class World:
    """A set of nodes with delayed messages and links that can be cut."""

    def __init__(self, count: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.ids = tuple(range(1, count + 1))
        self.now, self.timers = Now(), Timers()
        self.links: dict[int, WorldLinks] = {}
        self.nodes: dict[int, Election] = {}
        self.terms = dict.fromkeys(self.ids, 0)
        self.queues: dict[tuple[int, int], deque[tuple[int, ElectorMessage]]] = {}
        self.leaders: dict[int, int] = {}
        self.cut: set[frozenset[int]] = set()

    def start(self, node_id: int) -> None:
        self.links[node_id] = WorldLinks(self, node_id)

        def on_leader(leader_id: int | None, term: int) -> None:
            if leader_id is not None:
                assert self.leaders.setdefault(term, leader_id) == leader_id, "two leaders in one term"

        def keep(term: int) -> None:
            assert term > self.terms[node_id]
            self.terms[node_id] = term

        election = Election(
            self.links[node_id],
            len(self.ids) // 2 + 1,
            self.now,
            self.timers,
            self.random.randrange,
            on_leader,
            term=self.terms[node_id],
            keep_term=keep,
        )
        election.start()
        self.nodes[node_id] = election
        for other in self.ids:
            if other in self.nodes and other != node_id and frozenset((other, node_id)) not in self.cut:
                self.connect(node_id, other)

    def connect(self, first: int, second: int) -> None:
        for here, there in ((first, second), (second, first)):
            self.queues[here, there] = deque()
            self.nodes[here].node_up(there)

    def disconnect(self, first: int, second: int) -> None:
        if self.queues.pop((first, second), None) is None:
            return
        del self.queues[second, first]
        for here, there in ((first, second), (second, first)):
            if here in self.nodes:
                self.nodes[here].node_down(there)

    def kill(self, node_id: int) -> None:
        del self.nodes[node_id]
        for other in self.ids:
            self.disconnect(other, node_id)

    def run(self, ms: int) -> None:
        end = self.now.ms + ms
        while self.now.ms < end:
            self.now.ms += STEP_MS
            self.timers.run(self.now.ms)
            for (sender, target), queue in list(self.queues.items()):
                while queue and queue[0][0] <= self.now.ms and target in self.nodes:
                    self.nodes[target].receive(sender, queue.popleft()[1])

    @property
    def leader(self) -> int:
        (leader,) = {node.leader_id for node in self.nodes.values()}
        assert leader is not None
        return leader


class WorldLinks:
    def __init__(self, world: World, own_id: int) -> None:
        self.world = world
        self.own_id = own_id
        self.other_ids = tuple(node for node in world.ids if node != own_id)

    def is_up(self, node_id: int) -> bool:
        return (self.own_id, node_id) in self.world.queues

    def backlog(self, node_id: int) -> int:
        return 0

    def send(self, node_id: int, event: Buffer) -> None:
        queue = self.world.queues.get((self.own_id, node_id))
        # Pending output of a dead process is dropped.
        if queue is not None and self.world.links[self.own_id] is self:
            queue.append((self.world.now.ms + self.world.random.randrange(30), decode(event)))
