"""A RocketMQ node and its clients, which a seed makes, and the lives of its process on one disk."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from random import Random
from typing import Protocol

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.store.errors import DiskFull
from formats.rocketmq.remoting.bodies.routes import MASTER_ID, TOPIC_ROUTE
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, HeaderEncoding
from tests.broker.fakes import Crash
from tests.simulator.judges.invariants import Violation
from tests.simulator.play import NotedWorld
from tests.simulator.rocketmq.calls import Calls, credential
from tests.simulator.rocketmq.changes import ROOT, Changing, Form
from tests.simulator.rocketmq.consumers import Beginning, PullGroup
from tests.simulator.rocketmq.grpc_clients import GrpcPopGroup, GrpcProducer
from tests.simulator.rocketmq.lite import LITE_TOPICS, PARENT, LiteGroup, LiteProducer
from tests.simulator.rocketmq.members import LockClients, Members
from tests.simulator.rocketmq.ordered import OrderedGroup
from tests.simulator.rocketmq.poppers import PopGroup
from tests.simulator.rocketmq.pops import Filter
from tests.simulator.rocketmq.process import BROKER, Process, Tear
from tests.simulator.rocketmq.producers import Link, Producer
from tests.simulator.rocketmq.promises import Promises
from tests.simulator.rocketmq.proxied import ADDRESS, NAMES, Proxied
from tests.simulator.rocketmq.stores import Judged, Kept, judge_store
from tests.simulator.rocketmq.strangers import INSPECTED, Inspector, Intruder, Registrar
from tests.simulator.rocketmq.tree import Disk
from tests.simulator.rocketmq.wire import Connection

__all__ = ["BEGIN_MS", "POWER", "Death", "RocketNode"]

BEGIN_MS = 1_700_000_000_000
# Worlds in which rights change, and of the others those in which a topic does. Their clients act this often.
GUARDED_LUCK = 0.25
CHANGING_LUCK = 0.4
CHANGING_SHARE = 3
# Of the worlds in which rights change, those in which requests need no signature.
UNSIGNED_LUCK = 0.35
# Of the others, those in which requests need no rights.
UNAUTHORIZED_LUCK = 0.35
# Worlds with clients that speak gRPC, with a group that pops in order, and with lite topics.
GRPC_LUCK = 0.35
ORDERED_LUCK = 0.3
LITE_LUCK = 0.25
# Worlds with clients that lock queues, and those in which a group pops with a filter.
AT_ONCE_LUCK = 0.4
# Worlds in which the disk is too full for a single message at times.
REFUSING_LUCK = 0.3
LOCKS_LUCK = 0.3
INTRUDER_LUCK = 0.25
MEMBERS_LUCK = INSPECTOR_LUCK = 0.3
FILTER_LUCK = 0.35
# The part of the worlds without users that have a proxy, and of their clients that connect to it.
PROXIED_LUCK, BY_PROXY_LUCK = 0.5, 0.7
# A group in order retries for ever.
RETRIES_MAX = 10_000
ENOUGH_ROOM = 1 << 40
# The time in which a broker, which stores notes every three seconds, notes a commit that it has answered; and the time
# in which the note is on the platter, where senders wait for that.
NOTED_MS, FLUSHED_MS = 4_500, 10_000


class Death(Enum):
    """The end of a process, or of its machine."""

    STOP = "stops"
    KILL = "is killed between two steps"
    UNANSWERED = "is killed before it answers"
    TORN = "is to be killed while it writes"
    POWER = "loses power between two steps"
    UNFLUSHED = "loses power before it has flushed a step"
    FLUSHING = "is to lose power between two flushes"


POWER = (Death.POWER, Death.UNFLUSHED, Death.FLUSHING, Death.FLUSHING)


class _Client(Protocol):
    """A client of the broker."""

    @property
    def name(self) -> str: ...

    def connect(self) -> None: ...

    def heartbeat(self) -> None: ...

    def act(self) -> None: ...


class RocketNode(NotedWorld):
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
        own = Random(f"rocketmq {seed} hidden at once")
        self.poppers[0].at_once = own if own.random() < AT_ONCE_LUCK else None
        has_order = own.random() < ORDERED_LUCK
        old = Random(f"rocketmq {seed} old handles")
        self.ordered = [OrderedGroup(self, "g4", "t1", old, is_grpc=has_grpc)] if has_order else []
        own = Random(f"rocketmq {seed} filters")
        for popper in self.poppers:
            if own.random() < FILTER_LUCK:
                popper.filter = own.choice((Filter("TAG", "A", "A"), Filter("SQL92", "TAGS = 'B'", "B")))
        self.locks = [LockClients(self)] if own.random() < LOCKS_LUCK else []
        own = Random(f"rocketmq {seed} intruder")
        self.intruders = [Intruder(self, own)] if own.random() < INTRUDER_LUCK else []
        own = Random(f"rocketmq {seed} members")
        self.members = [Members(self, own)] if own.random() < MEMBERS_LUCK else []
        own = Random(f"rocketmq {seed} inspector")
        self.inspectors = [Inspector(self, own, self.pullers)] if own.random() < INSPECTOR_LUCK else []
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
        has_rights = not is_signed or Random(f"rocketmq {seed} rights").random() >= UNAUTHORIZED_LUCK
        self.checks = AccessOptions(authentication=is_signed, authorization=self.is_guarded and has_rights)
        form = Form(is_signed=is_signed, needs_rights=has_rights)
        self.changing = (
            [Changing(self, own, form, is_guarded=self.is_guarded, has_grpc=has_grpc)] if has_changes else []
        )
        # Own streams, so that other draws stay as they are: faults of a group over gRPC, and the end.
        self._forbidding, self._ending = Random(f"rocketmq {seed} forbidden"), Random(f"rocketmq {seed} end")
        self._refusing = Random(f"rocketmq {seed} refused")
        self._refuses = self._refusing.random() < REFUSING_LUCK
        # Only what the broker stores for itself.
        self._refuses_own = Random(f"rocketmq {seed} refused own").random() < 0.5
        self._forbidden_until_ms: int | None = None
        self._has_grpc = has_grpc
        self.connections: list[Link] = []
        self._ports = 40_000
        self._ticked_ms = self.wall_ms
        # When the disk last came to have room, or had none for a single message.
        self._room_ms = -1
        self._planned: Death | None = None
        self._is_begun = False
        # Producers answer questions then, and send nothing.
        self._is_calm = False
        self._clients: tuple[_Client, ...] = (
            *self.producers,
            *self.consumers,
            *self.locks,
            *self.changing * CHANGING_SHARE,
            *self.intruders,
            *self.members,
            *self.inspectors,
        )
        self._proxying = Random(f"rocketmq {seed} proxied")
        self.proxied: Proxied | None = None
        if not self.is_guarded and self._proxying.random() < PROXIED_LUCK:
            self.proxied = Proxied(lambda: self.wall_ms)
        self.registrars = [Registrar(self, self._proxying, name) for name in NAMES] if self.proxied is not None else []
        self._clients += (*self.registrars,)
        # The clients that connect to the proxy, if there is one.
        self._by_proxy = {
            each.name
            for each in (*self.producers, *self.consumers)
            if not isinstance(each, (LiteProducer, LiteGroup)) and self._proxying.random() < BY_PROXY_LUCK
        }
        self._restarted_ms = self.wall_ms
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
        if encoding is None:
            encoding = self.random.choice(list(HeaderEncoding))
        if self.proxied is not None and name in self._by_proxy:
            proxy = self.proxied.proxy
            connection = Connection(proxy.node, proxy.connect(self._ports), encoding, asked, BROKER)
            for topic, queues in self.topics.items():
                fields = {"topic": topic}
                connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, partial(_routed, topic, queues))
        else:
            connection = Connection(self.process.node, self.process.connect(self._ports), encoding, asked)
        if self.is_guarded:
            connection.user = ROOT
        connection.free_ms = self.wall_ms
        self.connections.append(connection)
        return connection

    def connect_grpc(self, name: str) -> Calls:
        """Connect a client to the gRPC service."""
        self._ports += 1
        headers = credential(*ROOT) if self.is_guarded else {}
        is_proxied = self.proxied is not None and name.partition("-")[0] in self._by_proxy
        part = self.proxied.proxy if self.proxied is not None and is_proxied else self.process
        calls = Calls(part.node, part.connect_grpc(self._ports), name, headers)
        calls.may_lack_types = is_proxied
        self.connections.append(calls)
        return calls

    def connect_nameserver(self, name: str) -> Connection:
        """Connect an administrator to a nameserver."""
        assert self.proxied is not None
        self._ports += 1
        part = self.proxied.nameservers[name]
        connection = Connection(part.node, part.connect(self._ports), HeaderEncoding.JSON, lambda frame: None)
        self.connections.append(connection)
        return connection

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
                    links=None if self.proxied is None else self.proxied.links,
                )
                break
            except DiskFull:
                if not self.is_full:
                    raise
                self.note("the disk is too full to start")
                self.make_room()
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
        for _ in self.inspectors:
            self.process.make_group(INSPECTED, RETRIES_MAX)
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
        if self.proxied is not None:
            self.proxied.serve(self.process.node, str(self.process.options.address), self.process.connect)
            self.process.set_clock()
            for each in (self.process.node, self.proxied):
                each.tick()
                self._end_step()
        for client in dict.fromkeys(self._clients):
            client.connect()

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
            has_more = (self.proxied is not None and self.proxied.carry()) or has_more
            for connection in self.connections:
                connection.read()
            over = [each for each in self.connections if each.is_over]
            if over:
                self.reconnect(*over)

    @property
    def is_full(self) -> bool:
        """True while the disk has little room or none."""
        return self.disk.shared.free <= ENOUGH_ROOM // 2

    def was_full_since(self, ms: int) -> bool:
        """Return whether the disk may have lacked room at a time or later."""
        return self.is_full or self._room_ms >= ms

    def lacked_room(self) -> None:
        """Note that the disk had no room for a single message."""
        self._room_ms = self.wall_ms

    def make_room(self) -> None:
        """Give the disk room for everything."""
        if self.is_full:
            self.disk.shared.free, self._room_ms = ENOUGH_ROOM, self.wall_ms

    def judge(self, judged: Judged | None = None) -> list[Kept]:
        """Judge the store as it is, but for what was judged already."""
        store = self.process.store
        return judge_store(store, self.promises, self.random, is_indexed=not self.was_full_since(0), judged=judged)

    def die(self, death: Death) -> None:
        """End the process, and start the next one."""
        self.note(f"the process {death.value}")
        self._planned = None
        if death is Death.STOP:
            self.process.stop()
        else:
            for consumer in (*self.consumers, *self.changing):
                consumer.broker_died()
        if self.proxied is not None:
            self.proxied.broker_died()
        for connection in self.connections:
            connection.lost()
            if connection.node is not self.process.node:
                connection.node.disconnect(connection.session, "the client connects again")
        self.promises.died(self._noted_ms(death))
        if death in POWER:
            self.promises.forget_untold()
            self.disk.power_lost()
        else:
            self.disk.process_died()
        self.open()

    def _noted_ms(self, death: Death) -> int:
        """Return the time by which commits were answered that the process has certainly noted on its disk."""
        noted_ms = self.wall_ms - NOTED_MS - (FLUSHED_MS if death in POWER else 0)
        is_sure = not self.is_full and (self.is_sync or death not in POWER)
        return noted_ms if is_sure and self._room_ms <= noted_ms else 0

    def _lose_consumer(self, group: PullGroup | PopGroup | OrderedGroup) -> None:
        """End the process of a consumer, and start it again."""
        self.note(f"the consumer of {group.name} dies")
        self.reconnect(group.link)

    def disconnect(self, link: Link) -> None:
        """End a connection."""
        link.node.disconnect(link.session, "the client is gone")
        self.connections.remove(link)
        link.lost()

    def reconnect(self, *links: Link, before: Callable[[], None] = lambda: None) -> None:
        """End connections, whose clients connect again, when something has happened `before`."""
        clients = [each for each in (*self.producers, *self.consumers, *self.registrars) if each.link in links]
        for link in links:
            self.disconnect(link)
        before()
        for client in clients:
            client.connect()

    def _plan(self, death: Death) -> None:
        """Have the process die in one of the next steps."""
        self._planned = death
        if death is Death.TORN:
            self.process.tear(self.random.choice(list(Tear)), self.random.randrange(3))
        elif death is Death.FLUSHING:
            self.disk.shared.flushes_left = self.random.randrange(6)


def _routed(topic: str, queues: int, answer: Frame | None) -> None:
    """Check that a proxy sends clients of a topic to itself."""
    if answer is None:
        return
    if answer.code != ResponseCode.SUCCESS:
        raise Violation(f"the route of {topic} is answered with {answer.code}: {answer.remark}")
    route = TOPIC_ROUTE.read(answer.body)
    told = [each.broker_addrs for each in route.broker_datas], [each.read_queue_nums for each in route.queue_datas]
    if told != ([{MASTER_ID: ADDRESS}], [queues]):
        raise Violation(f"the route of {topic}, which has {queues} queues, is {told}")
