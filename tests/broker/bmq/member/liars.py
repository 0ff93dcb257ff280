"""A cluster in memory of whose members one lies: what it sends is changed on the way, and more is sent in its name.

The liar's process itself is as the others are. A link on which the other side finds a FormatError is lost, and made
again; nothing else may be raised by anybody.
"""

from __future__ import annotations

from collections import deque
from random import Random

from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ConfigureStream,
    ConsumerInfo,
    ControlMessage,
    Expression,
    OpenQueue,
    QueueHandleParameters,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)
from formats.bmq.wire.event import build_schema_event, iter_frames
from formats.errors import FormatError
from tests.broker.bmq.member.member_bus import MemberClient, Members, Wire
from tests.broker.bmq.rig import ACK, LENGTH_MAX, READ, WRITE, guid, handle
from tests.broker.fakes import MemoryDirectory
from tests.fuzz.session_events import Maker, events_of, shown

__all__ = ["Liars"]

KINDS = (
    *(EventType.CONTROL, EventType.CONTROL, EventType.CONTROL, EventType.ELECTOR, EventType.CLUSTER_STATE),
    *(EventType.STORAGE, EventType.PARTITION_SYNC, EventType.REPLICATION_RECEIPT),
    *(EventType.PUT, EventType.ACK, EventType.PUSH, EventType.CONFIRM, EventType.REJECT),
)
QUEUES = ("bmq://priority/q", "bmq://fanout/q", "bmq://memory/q", "bmq://broadcast/q")


class Liars(Members):
    """`told` are the events that came to others from the liar and were not its own, the last of them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.maker = Maker(self.random)
        self.liar: int | None = None
        self.told: deque[str] = deque(maxlen=60)
        self.lost_links = 0
        super().__init__(3, partition_count=self.random.choice((1, 2)), spread=self.random.random() < 0.5)

    def start(self, node_id: int, directory: MemoryDirectory) -> None:
        super().start(node_id, directory)
        # Waits that are always the same would have two nodes stand in each other's way for ever.
        self.processes[node_id].member.election._random_below = self.random.randrange

    def step(self) -> bool:
        self.settle()
        some = False
        for (source, target), wire in list(self.wires.items()):
            while wire.events and self.wires.get((source, target)) is wire:
                some = True
                for event in events_of(wire.events.popleft()):
                    self._carry(source, target, event)
        return some

    def _carry(self, source: int, target: int, event: bytes) -> None:
        self.maker.show(event)
        if source != self.liar:
            self._deliver(source, target, event)
            return
        match self.random.randrange(20):
            case 0:
                self._lie(target, self.maker.changed_event(event))
            case 1:
                self._lie(target, self.maker.changed_event(event))
                self._deliver(source, target, event)
            case 2:
                self._deliver(source, target, event)
                self._lie(target, event)
            case 3:
                self._lie(target, self.maker.any_event(KINDS))
                self._deliver(source, target, event)
            case 4:
                pass
            case _:
                self._deliver(source, target, event)

    def _lie(self, target: int, event: bytes) -> None:
        assert self.liar is not None
        self.told.append(f"to {target}: {shown(event)}")
        self._deliver(self.liar, target, event)

    def _deliver(self, source: int, target: int, event: bytes) -> None:
        if (source, target) not in self.wires:
            return
        data = memoryview(event)
        try:
            for frame in iter_frames(data, 0, len(data), LENGTH_MAX):
                self.processes[target].member.receive(source, data, frame)
        except FormatError:
            self._relink(source, target)

    def _relink(self, one: int, other: int) -> None:
        """The link is lost, and made again at once."""
        self.lost_links += 1
        for here, there in ((one, other), (other, one)):
            self.wires[here, there] = Wire(deque())
        for here, there in ((one, other), (other, one)):
            self.processes[here].member.peer_down(there)
        for here, there in ((one, other), (other, one)):
            self.processes[here].member.peer_up(there, self.wires[here, there])

    def lie(self, count: int) -> None:
        """Let the liar tell `count` lies, while clients post and read everywhere."""
        clients = [self.connect(node_id) for node_id in self.ids]
        for client in clients:
            self._begin(client)
        self.liar = self.random.choice(self.ids)
        number = 0
        for _ in range(count):
            target = self.random.choice([each for each in self.ids if each != self.liar])
            self._lie(target, self.maker.any_event(KINDS))
            if self.random.random() < 0.3:
                number += 1
                client = self.random.choice(clients)
                client.put(self.random.randrange(1, 5), guid(number), b"payload %d" % number)
                client.pushes()
            self.run(self.random.choice((0, 0, 0, 0, 0, 0, 0, 100, 500)))

    def _begin(self, client: MemberClient) -> None:
        """Open queues, without waiting for answers: they may never come."""
        for queue_id, uri in enumerate(QUEUES, 1):
            app = "foo" if "fanout" in uri else ""
            self._ask(client, queue_id, handle(queue_id, uri, WRITE | ACK))
            info = SubQueueIdInfo(sub_id=1, app_id=app) if app else None
            uri = f"{uri}?id={app}" if app else uri
            self._ask(client, queue_id + 10, handle(queue_id + 10, uri, READ, sub_id_info=info), app)

    def _ask(self, client: MemberClient, number: int, parameters: QueueHandleParameters, app: str = "") -> None:
        requests: list[OpenQueue | ConfigureStream] = [OpenQueue(handle_parameters=parameters)]
        if parameters.flags & READ:
            consumer = ConsumerInfo(
                max_unconfirmed_messages=100,
                max_unconfirmed_bytes=1 << 20,
                consumer_priority=0,
                consumer_priority_count=1,
            )
            all_of_it = Subscription(s_id=number, expression=Expression(text=""), consumers=(consumer,))
            stream = StreamParameters(app_id=app or "__default", subscriptions=(all_of_it,))
            requests.append(ConfigureStream(q_id=parameters.q_id, stream_parameters=stream))
        for request in requests:
            client.send(build_schema_event(ber.encode(ControlMessage(r_id=number, choice=request))))

    def end(self) -> None:
        """The liar is gone: the others agree on who leads, and go on.

        More is not promised. A liar may have led, or been primary: what it has agreed on with one, and another never
        heard of, is for people to mend.
        """
        assert self.liar is not None
        self.kill(self.liar)
        self.liar = None

        def agreed() -> bool:
            leaders = {each.member.election.leader_id for each in self.processes.values()}
            return len(leaders) == 1 and leaders <= set(self.processes)

        self.until(agreed)
        self.run(2000)
