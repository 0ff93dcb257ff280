"""The machines that nodes run on: a clock, a disk, and maybe a process. A step runs the core and sends what it made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from broker.core.clock import Now
from broker.core.config import NodeIdentity
from broker.core.messages import Full
from broker.core.node import Node
from broker.core.session import Session
from broker.opening import StoreDamaged, open_ledger, open_shards
from broker.store.names import next_timestamp
from broker.store.partition_files import PartitionLimits
from formats.control import ber
from formats.control.messages import ControlMessage, NegotiationMessage
from formats.guid import GuidGenerator
from formats.wire.ack import Ack, iter_acks
from formats.wire.event import EventType, iter_frames
from formats.wire.options import sub_queue_infos
from formats.wire.push import iter_pushes
from tests.broker.fakes import Crash, MemoryDirectory
from tests.broker.rig import Pushed
from tests.simulator.clock import MachineClock
from tests.simulator.disk import CAPACITY, Disk
from tests.simulator.network import Link, Taken

if TYPE_CHECKING:
    from tests.simulator.clients import Client
    from tests.simulator.world import World

__all__ = ["Death", "Host", "Item", "NodeEnd"]

LIMITS = PartitionLimits(journal=32 << 10, data=96 << 10, qlist=4 << 10)
LEDGER_SIZE = 16 << 10
START_AGAIN_US = 500_000
TICK_US = 250_000
EVENT_BYTES_MAX = 1 << 30
START_S = 1_795_237_864

Item = ControlMessage | NegotiationMessage | Ack | Pushed | EventType


class Death(Enum):
    """How a process ends."""

    KILL = "killed"
    IN_CALL = "killed between two calls to its disk"
    TORN = "killed between two bytes of a record"
    POWER = "its machine loses power"
    STOP = "stopped"


class NodeEnd:
    """A node's end of a client's link: whole events go to the session, as the shell does it."""

    def __init__(self, host: Host, node: Node, client: Client, session: Session) -> None:
        self.host = host
        self.machine = host.name
        self.client = client
        self.session = session
        self.link: Link | None = None
        self._node = node
        self._held = b""
        self._negotiated = False

    def arrived(self, data: bytes, taken: Taken | None) -> None:
        self.host.step(lambda: self._receive(data), taken)

    def _receive(self, data: bytes) -> None:
        buffer = bytearray(self._held + data)
        used = self.session.receive(memoryview(buffer))
        self._held = bytes(buffer[used:])
        buffer[:] = b"\xee" * len(buffer)

    def lost(self, reason: str) -> None:
        def disconnect() -> None:
            self._node.disconnect(self.session, reason)
            self.host.ends.pop(self.session, None)

        self.host.step(disconnect)

    def flush(self) -> None:
        """Send what the session has; a session that is finished closes its link."""
        link, session = self.link, self.session
        assert link is not None
        while session.output_size():
            data = bytes(session.take_output())
            session.output_sent()
            items = list(_decode(memoryview(data), self._negotiated))
            self._negotiated = True
            for item in items:
                self.client.tap(item)
            link.send(self, data, partial(self.client.handle, link, items))
        if session.finished:
            link.close(self, "the session is over")
            self.host.ends.pop(session, None)
            self._node.disconnect(session, "the session is over")


def _decode(view: memoryview, negotiated: bool) -> Iterator[Item]:
    """What a node sends to a client, read once for the records and for the client."""
    for frame in iter_frames(view, 0, len(view), EVENT_BYTES_MAX):
        if frame.type == EventType.PUSH:
            for push in iter_pushes(view, frame.body, frame.end):
                (info,) = sub_queue_infos(push.options)
                yield Pushed(push.queue_id, push.guid, bytes(push.data), info.sub_queue_id)
        elif frame.type == EventType.ACK:
            yield from iter_acks(view, frame.body, frame.end)
        elif frame.type == EventType.CONTROL:
            body = view[frame.body : frame.end]
            yield ber.decode(ControlMessage, body) if negotiated else ber.decode(NegotiationMessage, body)
            negotiated = True
        else:
            yield EventType(frame.type)


class Host:
    """One machine. `node` is None while no process runs; `refused` says why it would not start."""

    def __init__(self, world: World, node_id: int, drift_ppm: int) -> None:
        self.world = world
        self.node_id = node_id
        self.name = f"n{node_id}"
        self.disk = Disk(world.random)
        self.clock = MachineClock(world.clock, START_S, drift_ppm)
        self.node: Node | None = None
        self.refused = ""
        self.starts = 0
        self.ends: dict[Session, NodeEnd] = {}
        self.slow_us = 0  # how long its disk keeps a step waiting, at most
        self.tear_next = False
        self._now = Now()
        self._held: deque[tuple[Callable[[], None], Taken | None]] = deque()
        self._paused_until_us = 0

    # -- the process's life

    def start(self) -> None:
        """Start a process on what is on the disk."""
        if self.node is not None:
            return
        self.starts += 1
        self._now = now = Now()
        self._set_clock()
        directory = self.disk.directory

        def make_timestamp(prefix: str) -> str:
            return next_timestamp(prefix, directory.names(), datetime.fromtimestamp(now.wall_s, UTC))

        guids = GuidGenerator(bytes(5) + bytes((self.node_id,)), 0)
        try:
            opened = open_shards(directory, 1, self.node_id, LIMITS, now, make_timestamp)
            ledger = open_ledger(directory, LEDGER_SIZE, now, make_timestamp, opened)
            shards = {shard.partition_id: shard for shard, _ in opened}
            identity = NodeIdentity("local", self.node_id, self.name, "bmqbrkr.tsk", 1, 999_999, "simulator", 500, 4)
            node = Node(identity, now, self.world.domains.get, ledger, shards, lambda: guids.make(now.ms))
            node.start({shard.partition_id: recovered for shard, recovered in opened})
        except StoreDamaged as damage:
            self.refused = str(damage)
            self.disk.process_died()
            self.world.say(f"{self.name} does not start: {self.refused.splitlines()[1].strip()}")
            return
        except Full as full:
            self.disk.process_died()
            self.world.say(f"{self.name} does not start: {full}")
            self.world.clock.after(START_AGAIN_US, lambda: self.world.revive(self))
            return
        except Crash:
            self.world.say(f"{self.name} dies while it starts")
            self.disk.process_died()
            self.world.clock.after(START_AGAIN_US, lambda: self.world.revive(self))
            return
        self.refused = ""
        self.disk.rotten = None
        self.node = node
        self.world.say(f"{self.name} starts")
        self.world.started(self)
        self._tick_later(node)

    def die(self, how: Death) -> None:
        """The process is gone, in whichever way; no step of it is under way."""
        node = self.node
        if node is None:
            return
        self.world.say(f"{self.name} dies: {how.value}")
        if how is Death.STOP:
            with suppress(Crash):
                self._stop(node)
        self.node = None
        self._held.clear()
        self._paused_until_us = 0
        self.tear_next = False
        for end in self.ends.values():
            assert end.link is not None
            if how is Death.POWER:
                end.link.abandon(end)
            else:
                end.link.close(end, "the connection was reset", lose=how is not Death.STOP)
        self.ends.clear()
        if how in (Death.IN_CALL, Death.TORN):
            # Whoever asked for it did not know when.
            self.world.clock.after(START_AGAIN_US, lambda: self.world.revive(self))
        if how is Death.POWER:
            self.disk.power_lost()
            self.world.power_lost(self)
        else:
            self.disk.process_died()

    def _stop(self, node: Node) -> None:
        """A clean stop, as the composition root does it."""
        node.stopping = True
        for session in list(node.sessions.values()):
            node.disconnect(session, "the node stops")
        self._flush(node)
        for shard in node.shards.values():
            shard.files.close()
        node.ledger.close()

    def pause(self, us: int) -> None:
        """The process gets no time: what arrives waits."""
        until_us = self.world.clock.us + us
        if until_us > self._paused_until_us:
            self._paused_until_us = until_us
            self.world.clock.after(us, self._resume)

    def _resume(self) -> None:
        while self._held and self.world.clock.us >= self._paused_until_us:
            action, taken = self._held.popleft()
            self._step(action, taken)

    # -- steps

    def step(self, action: Callable[[], None], taken: Taken | None = None) -> None:
        """Run the core, then send what it has; `taken` is called if the process survived that."""
        if self.node is None:
            return
        if self._held or self.world.clock.us < self._paused_until_us:
            self._held.append((action, taken))
        else:
            self._step(action, taken)

    def _step(self, action: Callable[[], None], taken: Taken | None) -> None:
        node = self.node
        if node is None:
            return
        self._set_clock()
        before = self.disk.directory.after_crash() if self.tear_next else None
        written = self._written(node) if before is not None or self.slow_us else 0
        try:
            action()
        except Crash:
            self.die(Death.IN_CALL)
            return
        if before is not None and self._written(node) != written:
            self.disk.step_torn(before)
            self.die(Death.TORN)
            return
        self._flush(node)
        if taken is not None:
            taken()
        if self.slow_us and self._written(node) != written:
            self.pause(self.world.random.randrange(self.slow_us))

    def _written(self, node: Node) -> int:
        return sum(shard.sequence_number for shard in node.shards.values())

    def _flush(self, node: Node) -> None:
        dirty = node.dirty
        while dirty:
            sessions = sorted(dirty, key=lambda session: session.session_id)
            dirty.clear()
            for session in sessions:
                end = self.ends.get(session)
                if end is not None:
                    end.flush()
        self.world.records.step_ends()

    def _set_clock(self) -> None:
        self._now.ms = self.clock.ms
        self._now.wall_s = self.clock.wall_s

    def _tick_later(self, node: Node) -> None:
        def tick() -> None:
            if self.node is node:
                self.step(node.tick)
                self._tick_later(node)

        self.world.clock.after(TICK_US, tick)

    # -- links

    def accept(self, client: Client) -> None:
        """A client dials; it hears of the connection when the process has taken it."""
        node = self.node
        if node is None:
            client.refused()
            return

        def connect() -> None:
            session = node.connect(client.name)
            end = NodeEnd(self, node, client, session)
            end.link = self.world.network.connect(client, end)
            self.ends[session] = end
            client.connected(end.link)

        self.step(connect)

    def fill_disk(self, left: int) -> None:
        """So many bytes are left."""
        self.disk.directory.free = left
        self.world.records.is_short = True

    def free_disk(self) -> None:
        self.disk.directory.free = CAPACITY
        self.world.records.is_short = False

    def fast_disk(self) -> None:
        """Its disk is as fast as others."""
        self.slow_us = 0

    def recover(self) -> None:
        """Nothing ails it any longer; a process that is gone stays so."""
        self.free_disk()
        self.fast_disk()
        self.tear_next = False
        self.directory.steps_left = CAPACITY
        if self._paused_until_us > self.world.clock.us:
            self._paused_until_us = self.world.clock.us
            self.world.clock.after(0, self._resume)

    @property
    def directory(self) -> MemoryDirectory:
        return self.disk.directory
