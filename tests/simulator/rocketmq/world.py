"""A world of one RocketMQ node and its clients, made of a seed: first faults, then none, and what is owed must come."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from itertools import chain
from random import Random
from typing import Protocol
from zlib import crc32

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.store.errors import DiskFull
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from tests.broker.fakes import Crash
from tests.simulator.judges.invariants import Violation
from tests.simulator.play import NotedWorld
from tests.simulator.rocketmq.calls import Calls, credential
from tests.simulator.rocketmq.changes import CHANGING, ROOT, Changing, Form
from tests.simulator.rocketmq.consumers import Beginning, PullGroup
from tests.simulator.rocketmq.grpc_clients import GrpcPopGroup, GrpcProducer
from tests.simulator.rocketmq.lite import LITE_TOPICS, PARENT, LiteGroup, LiteProducer
from tests.simulator.rocketmq.locks import LockClients
from tests.simulator.rocketmq.ordered import OrderedGroup
from tests.simulator.rocketmq.owed import what_is_owed
from tests.simulator.rocketmq.poppers import PopGroup
from tests.simulator.rocketmq.pops import Filter
from tests.simulator.rocketmq.process import Process, Tear
from tests.simulator.rocketmq.producers import WAITING_MAX, Link, Producer
from tests.simulator.rocketmq.promises import Promises
from tests.simulator.rocketmq.stores import Judged, Kept, judge_store
from tests.simulator.rocketmq.tree import FLUSHES_MAX, Disk
from tests.simulator.rocketmq.wire import Connection

__all__ = ["ROCKETMQ_STEPS", "RocketWorld"]

ROCKETMQ_STEPS = 400
BEGIN_MS = 1_700_000_000_000
TICK_MS = 100
HEARTBEAT_MS = 30_000
GAPS_MS = (0, 0, 1, 5, 20, 100, 300)
# In a patient world messages come again while there are faults, which are rare; consumers die more often.
PATIENT_GAPS_MS = (0, 1, 100, 500, 1_000, 1_000)
PATIENT_LUCK = 0.2
CONSUMER_LUCK = 0.03
# Worlds in which rights change, and of the others those in which a topic does. Their clients act this often.
GUARDED_LUCK = 0.25
CHANGING_LUCK = 0.4
CHANGING_SHARE = 3
# Of the worlds in which rights change, those in which requests need no signature.
UNSIGNED_LUCK = 0.35
# In worlds with gRPC, the chance that a group is forbidden to give messages back, and for how long.
FORBIDDEN_LUCK = 0.01
FORBIDDEN_MS_MAX = 20_000
# In the end, some worlds set the time of day back; delayed messages come by this time all the same.
SET_BACK_LUCK = 0.3
SET_BACK_MS = 3_600_000
AFTER_MS_MAX = 60_000
# Worlds with clients that speak gRPC, with a group that pops in order, and with lite topics.
GRPC_LUCK = 0.35
ORDERED_LUCK = 0.3
LITE_LUCK = 0.25
# Worlds with clients that lock queues, and those in which a group pops with a filter.
LOCKS_LUCK = 0.3
FILTER_LUCK = 0.35
# A group in order retries for ever.
RETRIES_MAX = 10_000
# A slow flush of the log takes at most this time and a step.
FLUSHING_MS_MAX = 1_000
# In the end, everything has come by then.
CALM_MS = 900_000
CALM_STEP_MS = 400
CALM_STEPS = 20
CALM_ACTIONS = 8
# After a loss of power that may have taken anything, producers go on for this number of steps.
MORE_STEPS = 60
LITTLE_ROOM = 2_000
# The network holds back the requests of a producer for at most this time: questions about its transactions cross them.
HELD_MS_MAX = 12_000
ENOUGH_ROOM = 1 << 40


class Death(Enum):
    """The end of a process, or of its machine."""

    STOP = "stops"
    KILL = "is killed between two steps"
    UNANSWERED = "is killed before it answers"
    TORN = "is to be killed while it writes"
    POWER = "loses power between two steps"
    UNFLUSHED = "loses power before it has flushed a step"
    FLUSHING = "is to lose power between two flushes"


_KILLS = (Death.STOP, Death.KILL, Death.UNANSWERED, Death.TORN)
_POWER = (Death.POWER, Death.UNFLUSHED, Death.FLUSHING, Death.FLUSHING)


class _Client(Protocol):
    """A client of the broker."""

    @property
    def name(self) -> str: ...

    def connect(self) -> None: ...

    def heartbeat(self) -> None: ...

    def act(self) -> None: ...


class RocketWorld(NotedWorld):
    """A world. With `lines`, its events are added to them."""

    BEGIN_MS = BEGIN_MS

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(f"rocketmq {seed}")
        self.wall_ms = BEGIN_MS
        self.is_sync = self.random.random() < 0.7
        self.topics = {"t0": self.random.choice((1, 2, 4)), "t1": 1}
        self.promises = Promises()
        self.disk = Disk(Random(self.random.random()), self.random.choice((512, 4096)))
        self.producers = [Producer(self, f"p{number}") for number in range(self.random.choice((1, 2, 3)))]
        own = Random(f"rocketmq {seed} patience")
        self.is_patient = own.random() < 0.4
        # Flushes of the log end in a later step.
        self.is_slow = False
        self.pullers = [PullGroup(self, "g0"), PullGroup(self, "g1", self.random.choice((None, "A")))]
        self.poppers = [PopGroup(self, "g2", "t0")]
        if self.is_patient:
            beginnings = (Beginning.START, Beginning.END, Beginning.TIME)
            self.pullers = [
                PullGroup(self, group.name, group.tag, beginning, own.choice((2, 3, 4)), is_patient=True)
                for group, beginning in zip(self.pullers, own.sample(beginnings, 2), strict=True)
            ]
            self.is_slow = own.random() < 0.5
            self.poppers = [PopGroup(self, "g2", "t0", own.choice((2, 3, 4)), own.choice((0, 1)))]
        own = Random(f"rocketmq {seed} grpc")
        has_grpc, limit = own.random() < GRPC_LUCK, own.choice((2, 3, 4)) if self.is_patient else None
        if has_grpc:
            self.producers.append(GrpcProducer(self, "r0"))
            self.poppers.append(GrpcPopGroup(self, "g3", "t0", limit))
        # A popper that acknowledges several messages in one request.
        self.poppers[0].acks_together = own.random() < 0.3
        has_order = own.random() < ORDERED_LUCK
        old = Random(f"rocketmq {seed} old handles")
        self.ordered = [OrderedGroup(self, "g4", "t1", old, is_grpc=has_grpc)] if has_order else []
        own = Random(f"rocketmq {seed} filters")
        for popper in self.poppers:
            if own.random() < FILTER_LUCK:
                popper.filter = own.choice((Filter("TAG", "A", "A"), Filter("SQL92", "TAGS = 'B'", "B")))
        self.locks = [LockClients(self)] if own.random() < LOCKS_LUCK else []
        self.has_lite = Random(f"rocketmq {seed} lite").random() < LITE_LUCK
        if self.has_lite:
            self.producers.append(LiteProducer(self, "l"))
            own = Random(f"rocketmq {seed} lite clients")
            self.ordered += [LiteGroup(self, f"gl{each}", each, own) for each in LITE_TOPICS]
        self.limits = {"g3": limit} if has_grpc and limit is not None else {}
        self.consumers: tuple[PullGroup | PopGroup | OrderedGroup, ...] = (
            *self.pullers,
            *self.poppers,
            *self.ordered,
        )
        own = Random(f"rocketmq {seed} changes")
        self.is_guarded = own.random() < GUARDED_LUCK
        has_changes = self.is_guarded or own.random() < CHANGING_LUCK
        is_signed = self.is_guarded and Random(f"rocketmq {seed} signatures").random() >= UNSIGNED_LUCK
        self.checks = AccessOptions(authentication=is_signed, authorization=self.is_guarded)
        form = Form(is_signed=is_signed)
        self.changing = (
            [Changing(self, own, form, is_guarded=self.is_guarded, has_grpc=has_grpc)] if has_changes else []
        )
        # Own streams, so that other draws stay as they are: faults of a group over gRPC, and the end.
        self._forbidding, self._ending = Random(f"rocketmq {seed} forbidden"), Random(f"rocketmq {seed} end")
        self._forbidden_until_ms: int | None = None
        self._has_grpc = has_grpc
        self.connections: list[Link] = []
        self._ports = 40_000
        self._ticked_ms = self.wall_ms
        self.was_full = False
        self._planned: Death | None = None
        self._is_begun = False
        # Producers answer questions then, and send nothing.
        self._is_calm = False
        self._clients: tuple[_Client, ...] = (
            *self.producers,
            *self.consumers,
            *self.locks,
            *self.changing * CHANGING_SHARE,
        )
        self.process: Process
        self.open()

    # -- what clients see of it

    @property
    def time_ms(self) -> int:
        return self.wall_ms

    @property
    def client_names(self) -> list[str]:
        return [client.name for client in dict.fromkeys(self._clients)]

    def connect(self, name: str, asked: Callable[[Frame], None], encoding: HeaderEncoding | None = None) -> Connection:
        """Connect a client; unless it says how, it writes headers in either way."""
        self._ports += 1
        session: Session = self.process.connect(self._ports)
        if encoding is None:
            encoding = self.random.choice(list(HeaderEncoding))
        connection = Connection(session, encoding, asked)
        if self.is_guarded:
            connection.user = ROOT
        self.connections.append(connection)
        return connection

    def connect_grpc(self, name: str) -> Calls:
        """Connect a client to the gRPC service."""
        self._ports += 1
        headers = credential(*ROOT) if self.is_guarded else {}
        calls = Calls(self.process.connect_grpc(self._ports), name, headers)
        self.connections.append(calls)
        return calls

    # -- lives of the process

    def open(self) -> None:
        """Start the process, on what the last one has left."""
        while True:
            try:
                self.process = Process(
                    self.disk,
                    Random(self.random.random()),
                    lambda: self.wall_ms,
                    is_sync=self.is_sync,
                    is_slow=self.is_slow,
                    checks=self.checks,
                )
                break
            except DiskFull:
                if not self.was_full:
                    raise
                self.note("the disk is too full to start")
                self.disk.shared.free = ENOUGH_ROOM
                self.disk.process_died()
        for topic, queues in self.topics.items():
            self.process.make_topic(topic, queues)
        if self.has_lite:
            self.process.make_topic(PARENT, 1, "LITE")
        if not self._is_begun:
            self._is_begun = True
            for changing in self.changing:
                changing.prepare(self.process)
        if self.is_patient:
            for group in self.pullers:
                self.process.make_group(group.name, group.limit)
        for name, limit in self.limits.items():
            self.process.make_group(name, limit)
        if self._has_grpc:
            # A process that was killed may not have written the last change.
            self.process.forbid_sending_back("g3", is_forbidden=self._forbidden_until_ms is not None)
        for ordered in self.ordered:
            is_lite = isinstance(ordered, LiteGroup)
            self.process.make_group(
                ordered.name,
                RETRIES_MAX,
                is_ordered=True,
                parent=PARENT if is_lite else "",
                is_exclusive=isinstance(ordered, LiteGroup) and ordered.is_pair,
            )
        self.judge()
        self.connections = []
        self._beaten_ms = self.wall_ms
        for client in dict.fromkeys(self._clients):
            client.connect()

    def judge(self, judged: Judged | None = None) -> list[Kept]:
        """Judge the store as it is, but for what was judged already."""
        store = self.process.store
        return judge_store(store, self.promises, self.random, is_indexed=not self.was_full, judged=judged)

    def die(self, death: Death) -> None:
        """End the process, and start the next one."""
        self.note(f"the process {death.value}")
        self._planned = None
        if death is Death.STOP:
            self.process.stop()
        else:
            for consumer in (*self.consumers, *self.changing):
                consumer.broker_died()
        for connection in self.connections:
            connection.lost()
        self.promises.died()
        if death in _POWER:
            self.promises.forget_untold()
            self.disk.power_lost()
        else:
            self.disk.process_died()
        self.open()

    def _lose_consumer(self, group: PullGroup | PopGroup | OrderedGroup) -> None:
        """End the process of a consumer, and start it again."""
        self.note(f"the consumer of {group.name} dies")
        old = group.link
        self.process.node.disconnect(old.session, "the consumer is gone")
        self.connections.remove(old)
        old.lost()
        group.connect()

    def _plan(self, death: Death) -> None:
        """Have the process die in one of the next steps."""
        self._planned = death
        if death is Death.TORN:
            self.process.tear(self.random.choice(list(Tear)), self.random.randrange(3))
        elif death is Death.FLUSHING:
            self.disk.shared.flushes_left = self.random.randrange(6)

    # -- steps

    def step(self, acting: int) -> None:
        """Let some clients do something, the process answer, and time pass."""
        self.clock.steps += 1
        if self.wall_ms - self._beaten_ms >= HEARTBEAT_MS:
            self._beaten_ms = self.wall_ms
            for client in dict.fromkeys(self._clients):
                client.heartbeat()
        clients = self._clients[len(self.producers) :] if self._is_calm else self._clients
        for _ in range(acting):
            client = self.random.choice(clients)
            if self._is_calm or client.name not in self.silent:
                client.act()
        try:
            self._run()
        except Crash:
            assert self._planned is not None
            self.die(self._planned)
            return
        # During a flush answers wait.
        if self.process.flusher.running_ms is None:
            for group in self.pullers:
                group.check_held()
            self._check_answers()

    def _check_answers(self) -> None:
        """Check that producers have the answers to all that the broker has read, now that the disk has everything."""
        for producer in self.producers:
            connection = producer.link
            if connection.waiting and not connection.outgoing:
                raise Violation(f"{producer.name} waits for {connection.waiting} answers, and no flush is under way")

    def _run(self) -> None:
        process = self.process
        process.set_clock()
        running_ms = process.flusher.running_ms
        if running_ms is not None and (running_ms >= FLUSHING_MS_MAX or self.random.random() < 0.6):
            process.flusher.complete()
        for connection in self.connections:
            size = 0 if self.wall_ms < connection.held_until_ms else len(connection.outgoing)
            if size and self.random.random() < 0.1:
                size = self.random.randrange(size)
            if size:
                connection.deliver(size)
        self._end_step()
        if self.wall_ms - self._ticked_ms >= TICK_MS:
            self._ticked_ms = self.wall_ms
            process.node.tick()
            self._end_step()
        process.flush_some(self.random.choice((0, 0, 1, 2, 100)))

    def _end_step(self) -> None:
        process = self.process
        has_more = True
        while has_more:
            has_more = process.end_step()
            if self._planned is Death.UNFLUSHED and process.store.flushed < process.store.log.end:
                raise Crash
            has_output = bool(process.node.dirty)
            process.before_sending()
            if self._planned is Death.UNANSWERED and has_output:
                raise Crash
            for connection in self.connections:
                connection.read()

    def _inject(self, text: str) -> None:
        """Note a fault, which is no event."""
        self.chances.note(self.wall_ms - BEGIN_MS, text)

    def _fault(self) -> None:
        luck = self.random.random()
        if self.is_patient:
            if 0.9 < luck < 0.9 + CONSUMER_LUCK:
                self._lose_consumer(self.random.choice(self.consumers))
            luck = min(luck / PATIENT_LUCK, 1.0) if luck < 0.5 else luck
        if luck < 0.03 and self._planned is None:
            deaths = _KILLS + _POWER if self.is_sync else _KILLS
            death = self.random.choice(deaths)
            if death in (Death.STOP, Death.KILL, Death.POWER):
                self.die(death)
            else:
                self._inject(f"the process {death.value}")
                self._plan(death)
        elif luck < 0.035:
            self.note("the disk is full")
            self.was_full = True
            self.disk.shared.free = self.random.randrange(LITTLE_ROOM)
        elif luck < 0.06 and self.was_full:
            self._inject("the disk has room")
            self.disk.shared.free = ENOUGH_ROOM
        elif luck > 0.97:
            producer = self.random.choice(self.producers)
            self._inject(f"the requests of {producer.name} are held back")
            producer.link.held_until_ms = self.wall_ms + self.random.randrange(HELD_MS_MAX)

    def _forbid(self) -> None:
        """Forbid the group that speaks gRPC to give messages back, or permit it again."""
        until_ms = self._forbidden_until_ms
        if until_ms is not None and self.wall_ms >= until_ms:
            self._inject("g3 may give messages back")
            self._forbidden_until_ms = None
            self.process.forbid_sending_back("g3", is_forbidden=False)
        elif until_ms is None and self._forbidding.random() < FORBIDDEN_LUCK:
            self._inject("g3 may not give messages back")
            self._forbidden_until_ms = self.wall_ms + self._forbidding.randrange(FORBIDDEN_MS_MAX)
            self.process.forbid_sending_back("g3", is_forbidden=True)

    def run(self, steps: int) -> None:
        """Run the world to its end. `Violation` if anything is not as it was promised."""
        for _ in range(steps):
            with self.chances.at("step", self.random, self._forbidding) as is_taken:
                if is_taken and self._has_grpc:
                    self._forbid()
                if is_taken:
                    self._fault()
            self.step(self.random.choice((0, 1, 1, 2, 3, 6)))
            self.wall_ms += self.random.choice(PATIENT_GAPS_MS if self.is_patient else GAPS_MS)
        self._count()
        if not self.is_sync and self.random.random() < 0.5:
            self._lose_power()
        else:
            self._calm()

    def _count(self) -> None:
        self.records.acked = sum(sent.is_acked for sent in self.promises.messages.values())
        self.note(f"{self.records.acked} messages acknowledged")

    def _lose_power(self) -> None:
        """Lose power where nobody waited for the disk: what had been flushed is there, whole, and the store opens."""
        store = self.process.store
        kept = self.judge()
        flushed = store.flushed
        certain = {
            key: sum(entry.physical_offset + entry.size <= flushed for entry in store.get(*key, 0, queue.end))
            for key, queue in store.queues.items()
        }
        for group in self.pullers:
            group.queues.clear()
        self.promises.lost_power()
        self.note(f"{len(kept)} messages, {sum(certain.values())} in all certain")
        self.die(Death.POWER)
        for key, least in certain.items():
            if key[0] != CHANGING and self.process.store.span(*key)[1] < least:
                raise Violation(f"queue {key} had {least} messages on the disk, and has fewer")
        self._go_on()

    def _go_on(self) -> None:
        """Send more to a store that may be shorter than positions in other files: what is acknowledged now, comes."""
        self.disk.shared.free = ENOUGH_ROOM
        self.disk.shared.flushes_left = FLUSHES_MAX
        self._clients = (*self.producers,)
        for _ in range(MORE_STEPS):
            self.step(self.random.choice((0, 1, 3)))
            self.wall_ms += self.random.choice(GAPS_MS)
        end_ms, judged = self.wall_ms + CALM_MS, Judged()
        while owed := next(what_is_owed(self.judge(judged), self.promises, (), ()), ""):
            if self.wall_ms > end_ms:
                raise Violation(owed)
            for _ in range(CALM_STEPS):
                self.step(0)
                self.wall_ms += CALM_STEP_MS

    def _calm(self) -> None:
        """Go on without faults until everything has come that is owed."""
        self._planned = None
        self.disk.shared.free = ENOUGH_ROOM
        # A death that was planned, and has not come, comes no more: stopping the process flushes and writes.
        self.disk.shared.flushes_left = FLUSHES_MAX
        self.process.spare()
        self._forbidden_until_ms = None
        self.die(self.random.choice((Death.STOP, Death.KILL)))
        self._is_calm = True
        for group in self.pullers:
            group.back_luck = 0.0
        for popper in self.poppers:
            popper.is_careful = True
        for ordered in self.ordered:
            ordered.is_careful = True
        for changing in self.changing:
            changing.settle()
        end_ms = self.wall_ms + CALM_MS
        judged = Judged()
        while owed := self._find_owed(judged):
            if self.wall_ms > end_ms:
                raise Violation(owed)
            for _ in range(CALM_STEPS):
                self.step(CALM_ACTIONS)
                self.wall_ms += CALM_STEP_MS
        self.judge()
        self._answer_all()
        if self._ending.random() < SET_BACK_LUCK:
            self._set_back(judged)
        self._digest_files()

    def _answer_all(self) -> None:
        """Wait until every request has its answer."""
        end_ms = self.wall_ms + AFTER_MS_MAX
        while waiting := [each for each in self.connections if each.waiting]:
            if self.wall_ms > end_ms:
                client = next((each.name for each in self.consumers if each.link in waiting), "a client")
                raise Violation(f"{client} waits for {waiting[0].waiting} answers, {AFTER_MS_MAX // 1000} s after all")
            self.step(0)
            self.wall_ms += CALM_STEP_MS

    def _set_back(self, judged: Judged) -> None:
        """Set the time of day back while messages are delayed: none waits longer than its level says."""
        producer = self.producers[0]
        for _ in range(WAITING_MAX):
            producer.send_delayed()
        while producer.link.waiting:
            self.step(0)
            self.wall_ms += 1
        self.note(f"the time of day is set back by {SET_BACK_MS} ms")
        for now_ms in ("wall_ms", "_ticked_ms", "_beaten_ms"):
            setattr(self, now_ms, getattr(self, now_ms) - SET_BACK_MS)
        self.process.set_back(SET_BACK_MS)
        for sent in self.promises.messages.values():
            sent.due_ms = 0
        end_ms = self.wall_ms + AFTER_MS_MAX
        while owed := next(what_is_owed(self.judge(judged), self.promises, (), ()), ""):
            if self.wall_ms > end_ms:
                raise Violation(f"{AFTER_MS_MAX // 1000} s after the time of day was set back, {owed}")
            self.step(0)
            self.wall_ms += CALM_STEP_MS

    def _find_owed(self, judged: Judged) -> str:
        """Say one promise that is still open; empty if there is none."""
        owed = what_is_owed(self.judge(judged), self.promises, self.pullers, self.poppers)
        changing = (each.what_is_owed() for each in self.changing)
        ordered = (each.what_is_owed(self.process.store.span(each.topic, 0)[1]) for each in self.ordered)
        return next(chain(owed, *changing, *ordered), "")

    def _digest_files(self) -> None:
        """Add all bytes of the node's files to the digest: worlds of one digest have written the same."""
        for name, data in (*self.disk.root.contents(), *sorted(self.disk.files.items())):
            self.digest = crc32(data, crc32(name.encode(), self.digest))
