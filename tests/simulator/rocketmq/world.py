"""A world of one RocketMQ node and its clients, made of a seed: first faults, then none, and what is owed must come."""

from __future__ import annotations

from functools import partial
from itertools import chain
from zlib import crc32

from tests.broker.fakes import Crash
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.changes import CHANGING
from tests.simulator.rocketmq.lives import BEGIN_MS, POWER, Death, RocketNode
from tests.simulator.rocketmq.owed import what_is_owed
from tests.simulator.rocketmq.producers import WAITING_MAX
from tests.simulator.rocketmq.proxied import NAMES, Proxied
from tests.simulator.rocketmq.stores import Judged
from tests.simulator.rocketmq.tree import FLUSHES_MAX

__all__ = ["ROCKETMQ_STEPS", "RocketWorld"]

ROCKETMQ_STEPS = 400
TICK_MS = 100
HEARTBEAT_MS = 30_000
GAPS_MS = (0, 0, 1, 5, 20, 100, 300)
# In a patient world messages come again while there are faults, which are rare; consumers die more often.
PATIENT_GAPS_MS = (0, 1, 100, 500, 1_000, 1_000)
PATIENT_LUCK = 0.2
CONSUMER_LUCK = 0.03
# In worlds with gRPC, the chance that a group is forbidden to give messages back, and for how long.
FORBIDDEN_LUCK = 0.01
FORBIDDEN_MS_MAX = 20_000
# In the end, some worlds set the time of day back; delayed messages come by this time all the same.
SET_BACK_LUCK = 0.3
SET_BACK_MS = 3_600_000
AFTER_MS_MAX = 60_000
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
REFUSED_LUCK, REFUSED_AFTER_MAX = 0.03, 5
# The chances of a step that the proxy loses a connection, that it ends, or that one of the nameservers does.
CUT_LUCK, PROXY_LUCK, NAMESERVER_LUCK = 0.015, 0.005, 0.02
RESTART_MS = 20_000
# The network holds back the requests of a producer for at most this time: questions about its transactions cross them.
HELD_MS_MAX = 12_000
# Held back again and again, they come after this time. With a heartbeat before, that is less than the two minutes after
# which the broker closes a connection over which nothing comes.
HELD_IN_ALL_MS_MAX = 85_000

_KILLS = (Death.STOP, Death.KILL, Death.UNANSWERED, Death.TORN)


class RocketWorld(RocketNode):
    """A world. With `lines`, its events are added to them."""

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
            size = 0
            if self.wall_ms >= connection.held_until_ms:
                size, connection.free_ms = len(connection.outgoing), self.wall_ms
            if size and self.random.random() < 0.1:
                size = self.random.randrange(size)
            if size:
                connection.deliver(size)
        self._end_step()
        if self.wall_ms - self._ticked_ms >= TICK_MS:
            self._ticked_ms = self.wall_ms
            process.node.tick()
            if self.proxied is not None:
                self.proxied.tick()
            self._end_step()
        process.flush_some(self.random.choice((0, 0, 1, 2, 100)))

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
            deaths = _KILLS + POWER if self.is_sync else _KILLS
            death = self.random.choice(deaths)
            if death in (Death.STOP, Death.KILL, Death.POWER):
                self.die(death)
            else:
                self._inject(f"the process {death.value}")
                self._plan(death)
        elif luck < 0.035:
            self.note("the disk is full")
            self.disk.shared.free = self.random.randrange(LITTLE_ROOM)
        elif luck < 0.06 and self.is_full:
            self._inject("the disk has room")
            self.make_room()
        elif luck > 0.97:
            producer = self.random.choice(self.producers)
            self._inject(f"the requests of {producer.name} are held back")
            until_ms = self.wall_ms + self.random.randrange(HELD_MS_MAX)
            producer.link.held_until_ms = min(until_ms, producer.link.free_ms + HELD_IN_ALL_MS_MAX)

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

    def _disturb(self, proxied: Proxied) -> None:
        """Cut one of the proxy's connections, or end it or a nameserver, and start that again."""
        luck = self._proxying.random()
        here = [each for each in self.connections if each.node is proxied.proxy.node]
        if luck < CUT_LUCK:
            self._inject("the proxy loses a connection to the broker")
            for connection in here:
                connection.doubt()
            proxied.cut_broker(self._proxying.randrange)
        elif luck < CUT_LUCK + PROXY_LUCK:
            self._inject("the proxy is killed")
            self.promises.outlived()
            self.reconnect(*here, before=proxied.restart_proxy)
        elif luck < CUT_LUCK + PROXY_LUCK + NAMESERVER_LUCK and self.wall_ms - self._restarted_ms > RESTART_MS:
            name = self._proxying.choice(NAMES)
            self._inject(f"the nameserver {name} is killed")
            self._restarted_ms = self.wall_ms
            lost = [each for each in self.connections if each.node is proxied.nameservers[name].node]
            self.reconnect(*lost, before=partial(proxied.restart_nameserver, name))

    def run(self, steps: int) -> None:
        """Run the world to its end. `Violation` if anything is not as it was promised."""
        for _ in range(steps):
            with self.chances.at("step", self.random, self._forbidding, self._refusing, self._proxying) as is_taken:
                if is_taken and self.proxied is not None:
                    self._disturb(self.proxied)
                if is_taken and self._has_grpc:
                    self._forbid()
                if is_taken and self._refuses and self._refusing.random() < REFUSED_LUCK:
                    self._inject("the disk is too full for one message")
                    self.process.refuse(self._refusing.randrange(REFUSED_AFTER_MAX), self.lacked_room)
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
        self.make_room()
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
        self.make_room()
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
        if self.proxied is not None:
            self.proxied.set_back(SET_BACK_MS)
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
