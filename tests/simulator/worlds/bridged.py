"""A mixed world: a BlazingMQ node, a RocketMQ node, and a bridge from a queue of the one to a topic of the other.

The bridge has the flow and the destination of the product; connections and time are the world's. The judge checks the
promise of the manual: a message is confirmed only once the target has acknowledged it, so that it is there for good;
and messages are there in the order of the queue, by their first copies and by their last ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.bridge.flow import Action, Answer, CarriedMessage, Flow, FlowOptions, Send
from bmqctl.carrying.bridge.mapping import to_rocketmq
from bmqctl.carrying.bridge.rocketmq_destination import RocketDestination
from bmqctl.client.remoting.link import LinkLost
from bmqctl.client.remoting.routes import Place
from broker.rocketmq.store.errors import DiskFull
from formats.rocketmq.files.record import Blank, decode_record
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from tests.broker.fakes import Crash
from tests.simulator.actors.clients import Client, Consumer
from tests.simulator.judges.invariants import Post, Violation, name_of
from tests.simulator.machines.ends import Item as Received
from tests.simulator.rocketmq.process import BROKER, Process, Tear
from tests.simulator.rocketmq.tree import FLUSHES_MAX, Disk
from tests.simulator.rocketmq.wire import Connection
from tests.simulator.worlds.features import Feature, shape_of
from tests.simulator.worlds.world import APPS, FANOUT, PRIORITY, World

__all__ = ["BridgedWorld"]

TOPIC = "t0"
BEGIN_MS = 1_700_000_000_000
STEP_US = 10_000
TICK_US = 50_000
FAULT_US = 800_000
AWAY_US_MAX = 2_000_000
ENOUGH_ROOM = 1 << 40
LITTLE_ROOM = 3_000
# The features that no world with a bridge has: the bridge is a queue's only consumer, and repeats by itself.
NOT_BRIDGED = frozenset({Feature.HOLDERS, Feature.REPEATS, Feature.ADMISSION})


class Target:
    """The machine of the RocketMQ node, and the bridge's connection to it."""

    def __init__(self, world: BridgedWorld, random: Random) -> None:
        self._world = world
        self._random = random
        self._disk = Disk(Random(random.random()), random.choice((512, 4096)))
        self._is_slow = random.random() < 0.5
        self.process: Process | None = None
        self.connection: Connection | None = None
        # The names of all messages of the log, in their order, and the end of what was read of it.
        self.names: list[str] = []
        self._read = 0
        self._ticks = 0

    def _now_ms(self) -> int:
        return BEGIN_MS + self._world.clock.us // 1000

    def start(self) -> None:
        """Start a process, unless one runs; it begins later if its disk is too full."""
        if self.process is not None:
            return
        self._disk.shared.flushes_left = FLUSHES_MAX
        try:
            random = Random(self._random.random())
            self.process = Process(self._disk, random, self._now_ms, is_sync=True, is_slow=self._is_slow)
        except DiskFull:
            self._disk.process_died()
            return
        self._world.say("the target starts")
        self.process.make_topic(TOPIC, 1)
        self.names.clear()
        self._read = self.process.store.log.begin
        self.look()
        for guid in self._world.bridge.settled:
            self.check_has(guid)

    def connect(self) -> bool:
        """Connect the bridge; False if no process runs."""
        if self.process is not None and self.connection is None:
            session = self.process.connect(40_000)
            self.connection = Connection(self.process.node, session, HeaderEncoding.JSON, lambda frame: None)
        return self.connection is not None

    def cut(self) -> None:
        """End the bridge's connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            if self.process is not None:
                self.process.node.disconnect(connection.session, "the connection was reset")
            connection.lost()
            self._world.bridge.target_lost()

    def die(self, *, loses_power: bool) -> None:
        """End the process, or its machine."""
        self._world.say(f"the target {'loses power' if loses_power else 'is killed'}")
        self.process = None
        if loses_power:
            self._disk.power_lost()
        else:
            self._disk.process_died()
        self.cut()

    # -- faults

    def plan_crash(self) -> None:
        """Have the machine lose power between two flushes, or the process be killed while it writes."""
        if self._random.random() < 0.5:
            self._disk.shared.flushes_left = self._random.randrange(6)
        elif self.process is not None:
            self.process.tear(self._random.choice(list(Tear)), self._random.randrange(3))

    def fill_disk(self) -> None:
        self._disk.shared.free = self._random.randrange(LITTLE_ROOM)

    def heal(self) -> None:
        """Let everything be well from now on."""
        self._disk.shared.free, self._disk.shared.flushes_left = ENOUGH_ROOM, FLUSHES_MAX
        if self.process is not None:
            self.process.spare()
        self.start()

    # -- steps

    def step(self) -> None:
        """Let the process answer what has come."""
        self._ticks += 1
        try:
            if self.process is not None:
                self._run(self.process)
        except Crash:
            self.die(loses_power=not self._disk.shared.flushes_left)
            self._world.clock.after(self._random.randrange(AWAY_US_MAX), self.start)

    def _run(self, process: Process) -> None:
        process.set_clock()
        if process.flusher.running_ms is not None and self._random.random() < 0.3:
            process.flusher.complete()
        connection = self.connection
        if connection is not None and self._world.clock.us >= connection.held_until_ms * 1000:
            connection.deliver(len(connection.outgoing))
        if self._ticks % 10 == 0:
            process.node.tick()
        while process.end_step():
            process.before_sending()
        process.before_sending()
        if connection is not None:
            connection.read()
        process.flush_some(self._random.choice((0, 0, 1, 100)))

    # -- what it has

    def look(self) -> None:
        """Read what is new in the log."""
        assert self.process is not None
        log = self.process.store.log
        while self._read < log.end:
            file, place = log.files.place(self._read)
            record = decode_record(file.buffer, place)
            assert record is not None
            if isinstance(record, Blank):
                self._read += record.size
                continue
            self._read += int.from_bytes(file.buffer[place : place + 4], "big")
            if record.topic == TOPIC:
                self.names.append(bytes(record.body).decode().split(" ", 3)[0] + " " + _number(record.body))

    def check_has(self, guid: bytes) -> None:
        """Check that a message is in the topic that the source may forget."""
        post = self._world.records.posts[guid]
        if _key(post) not in self.names:
            raise Violation(f"{name_of(post)} was confirmed to its source, and its target does not have it")


def _number(body: bytes | bytearray | memoryview) -> str:
    return bytes(body).decode().split(" ", 3)[2]


def _key(post: Post) -> str:
    return f"{post.producer} {post.number}"


class _TargetLink:
    """The connection as the destination knows it; see `RemotingLink.ask`."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def ask(self, code: Any, fields: dict[str, str], take: Any, timeout_s: float, body: bytes = b"") -> None:
        connection = self._target.connection
        if connection is None:
            raise LinkLost("not connected")

        def answered(frame: Frame | None) -> None:
            take("disconnected" if frame is None else frame)

        connection.ask(code, fields, answered, bytes(body))


class BridgeClient(Consumer):
    """The bridge: a consumer of the source that hands to a destination what it gets, by the product's decisions."""

    world: BridgedWorld

    def __init__(self, world: BridgedWorld, random: Random) -> None:
        super().__init__(world, "bridge", [(PRIORITY, "")])
        self._own = random
        self.target = Target(world, random)
        self.settled: dict[bytes, None] = {}
        self._options = FlowOptions(batch_messages=random.choice((1, 3, 512)))
        self._begin()

    def _begin(self) -> None:
        """Begin a process of the bridge, which knows nothing of the last one."""
        self.flow = Flow(self._options, 1)
        self._actions: list[Action] = []
        self._is_acting = False
        end = RocketEnd("target", 0, TOPIC)
        trying: Any = None  # it is for connections, which the world makes
        self._destination = RocketDestination(end, [Place(TOPIC, BROKER, 0)], 10.0, trying, lambda text: None)
        link: Any = _TargetLink(self.target)
        self._destination._links = [link]
        this: Any = self
        self._destination._bridge = this

    def reach_target(self) -> None:
        """Connect to the target if it is not connected."""
        if not self.is_away and not self.flow.is_up and self.target.connect():
            self._do(self.flow.destination_up())

    def target_lost(self) -> None:
        self._do(self.flow.destination_down(self._now_s))

    @property
    def _now_s(self) -> float:
        return self.world.clock.us / 1_000_000

    def tick(self) -> None:
        """Go on after pauses."""
        if self.flow.due_s is not None and self.flow.due_s <= self._now_s:
            self._do(self.flow.tick(self._now_s))

    def die(self, us: int) -> None:
        """End the process, and begin another one after a while."""
        self.world.say("the bridge is killed")
        self.leave(us)
        self._begin()
        self.target.cut()

    # -- see `bmqctl.carrying.bridge.carrying.Bridge`

    def answered(self, lane: int, batch: int, answers: Sequence[Answer], *, one_by_one: bool = False) -> None:
        self._do(self.flow.answered(lane, batch, answers, self._now_s, one_by_one=one_by_one))

    def _do(self, actions: Sequence[Action]) -> None:
        self._actions.extend(actions)
        if self._is_acting:
            return
        self._is_acting = True
        while self._actions:
            action = self._actions.pop(0)
            if isinstance(action, Send):
                self._destination.send(action)
            else:
                self._settle(action.items)
        self._is_acting = False

    def _settle(self, items: list[CarriedMessage]) -> None:
        """Confirm what came over this link; what came over another one is delivered again."""
        if self.target.process is not None:
            self.target.look()
        guids = [item.token[1] for item in items if item.token[0] is self.link]
        for guid in guids:
            self.target.check_has(guid)
            self.settled[guid] = None
        self.confirm([(0, guid) for guid in guids])

    # -- see `Consumer`

    def forget(self) -> None:
        super().forget()
        self.flow.source_lost()

    def received(self, item: Received) -> None:
        payload, guid = item.payload, item.guid  # type: ignore[union-attr]
        self.got += 1
        made = to_rocketmq(payload, (), guid, f"U{guid.hex()}")
        size = len(made.body) + len(made.properties)
        self._do(self.flow.take(0, [CarriedMessage((self.link, guid), made, size)]))

    def confirm_kept(self) -> None:
        """Do nothing: all that it got is on its way."""


class BridgedWorld(World):
    """A node of BlazingMQ whose queue is carried to a topic of a RocketMQ node."""

    bridge: BridgeClient

    def __init__(self, seed: int) -> None:
        self._own = Random(f"bridged {seed}")
        super().__init__(seed, features=shape_of(seed, NOT_BRIDGED).features)

    def make_clients(self) -> list[Client]:
        self.bridge = BridgeClient(self, Random(self._own.random()))
        readers = [Consumer(self, f"f{app}", [(FANOUT, app)]) for app in APPS]
        return [*self.make_producers(), self.bridge, *readers]

    def run(self, steps: int = 2000) -> None:
        self.bridge.target.start()
        self._step()
        self._fault()
        super().run(steps)

    def _step(self) -> None:
        self.clock.after(STEP_US, self._step)
        self.bridge.reach_target()
        self.bridge.target.step()
        self.bridge.tick()

    def _fault(self) -> None:
        if not self.is_busy:
            return
        random, bridge = self._own, self.bridge
        with self.chances.at("bridge", random) as is_taken:
            self.clock.after(int(random.expovariate(1) * FAULT_US) + 1, self._fault)
            if not is_taken:
                return
            kinds = (self.kill, self.kill_bridge, self.cut, self.hold, self.fill, bridge.target.plan_crash)
            kind = random.choice(kinds)
            self.say(f"fault of the bridge or its target: {kind.__name__.replace('_', ' ')}")
            kind()

    def kill(self) -> None:
        target = self.bridge.target
        if target.process is not None:
            target.die(loses_power=self._own.random() < 0.5)
        self.clock.after(self._own.randrange(AWAY_US_MAX), target.start)

    def kill_bridge(self) -> None:
        self.bridge.die(self._own.randrange(AWAY_US_MAX))

    def cut(self) -> None:
        self.bridge.target.cut()

    def hold(self) -> None:
        """The target reads nothing for a while."""
        if self.bridge.target.connection is not None:
            until_us = self.clock.us + self._own.randrange(AWAY_US_MAX)
            self.bridge.target.connection.held_until_ms = until_us // 1000

    def fill(self) -> None:
        self.bridge.target.fill_disk()
        self.clock.after(self._own.randrange(AWAY_US_MAX), self.bridge.target.heal)

    def rest(self) -> None:
        self.bridge.target.heal()
        super().rest()
        self._judge_order()

    def unrest(self) -> str:
        self.bridge.target.start()
        return super().unrest()

    def _judge_order(self) -> None:
        """Check the order of the first and of the last copies of each producer's messages."""
        posts = {_key(post): post for post in self.records.posts.values() if post.uri == PRIORITY}
        names = [name for name in self.bridge.target.names if not self._is_anywhere(posts[name])]
        for copies, what in ((dict.fromkeys(names), "first"), (dict.fromkeys(reversed(names)), "last")):
            last: dict[str, int] = {}
            for name in copies if what == "first" else reversed(list(copies)):
                post = posts[name]
                if post.number < last.get(post.producer, 0):
                    raise Violation(f"the {what} copy of {name_of(post)} is after that of {last[post.producer]}")
                last[post.producer] = post.number

    def _is_anywhere(self, post: Post) -> bool:
        """Return whether the queue itself may have had a message after later ones."""
        return post.unsure or post.again or post.renewed or self.records.is_unordered(post, "__default")
