"""One life of a simulated RocketMQ node: the real one, with a disk and a clock that the world has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from random import Random

from broker.common.clock import Now
from broker.common.faults import Faults
from broker.common.files import Directory, StoreFile
from broker.common.timers import Timers
from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.administration.registration import NameserverLink, Nameservers
from broker.rocketmq.assembly.grpc import grpc_connect
from broker.rocketmq.broker.broker import Broker, Given, State, World
from broker.rocketmq.config.node import BROKER_READERS, LOCKED
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.delays.levels import make_due_time
from broker.rocketmq.flush_gate import Flushed, FlushGate
from broker.rocketmq.grpc.http2.session import GrpcSession
from broker.rocketmq.node import Node
from broker.rocketmq.remoting.session import Session
from broker.rocketmq.sending.transactions import TransactionTimes
from broker.rocketmq.settings import Settings
from broker.rocketmq.store.commit_log import CommitLog
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import Flush, MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.runs import Run
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.names import RETRY_PREFIX
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.options import DELAY_LEVELS, BrokerOptions, parse_delay_levels
from broker.rocketmq.tables.topics import Topics
from formats.rocketmq.files.checkpoints import TIMER_CHECKPOINT
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY
from formats.rocketmq.files.names import offset_name
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS, DelayOffsets
from formats.rocketmq.remoting.bodies.routes import Permission, TopicConfig
from formats.rocketmq.remoting.frame import Frame
from tests.broker.fakes import Crash
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.tree import Disk

__all__ = [
    "BROKER",
    "CLUSTER",
    "DELAYS_MS",
    "STORE",
    "Keeper",
    "Life",
    "Process",
    "Tear",
    "make_state",
    "make_world",
    "read_given",
]

CLUSTER, BROKER = "Simulated", "broker-s"
DELAYS_MS = parse_delay_levels(DELAY_LEVELS)
ENTRY_BYTES = CONSUME_QUEUE_ENTRY.size
STORE = StoreOptions(16 << 10, 100 * ENTRY_BYTES, 40, 150)
TIMES = TransactionTimes(check_interval_ms=4_000, timeout_ms=2_000, checks_max=1_000)
FLUSH_MS = 500
SYNC_FLUSH_MS = 5_000
_SIZE_BYTES = 4
_UNCHECKED = AccessOptions()
Keeper = Callable[[str], Callable[[bytes], None]]
# Makes the links of a broker to nameservers, by the request that each begins with.
MakeLinks = Callable[[Node, Callable[[], Frame | None]], list[NameserverLink]]


class Tear(Enum):
    """The place in the writing of a message at which a process is killed."""

    RECORD = "amid the record"
    ENTRY = "amid the entry of its queue"
    INDEX = "before it is in the index"


class _Flusher:
    """Flushes at once or, if it is slow, when somebody waits or the world lets it."""

    def __init__(self, wall_ms: Callable[[], int], *, is_slow: bool) -> None:
        self.is_slow = is_slow
        self._wall_ms = wall_ms
        self._begun: tuple[Callable[[], None], Flushed] | None = None
        self._since_ms = 0

    def begin(self, work: Callable[[], None], done: Flushed) -> None:
        self._begun, self._since_ms = (work, done), self._wall_ms()
        if not self.is_slow:
            self.complete()

    @property
    def running_ms(self) -> int | None:
        """The time for which a flush has been under way; None without one."""
        return None if self._begun is None else self._wall_ms() - self._since_ms

    def complete(self) -> None:
        """Complete the flush that is under way. May raise `Crash`."""
        if self._begun is not None:
            (work, done), self._begun = self._begun, None
            work()
            done(None)

    def wait(self, timeout_s: float) -> bool:
        self.complete()
        return True


def read_given(files: Mapping[str, bytes]) -> Given:
    """Read what a master goes on by."""
    timers = TIMER_CHECKPOINT.unpack(files["timers"]) if "timers" in files else None
    delays = DELAY_OFFSETS.read(files["delays"]) if "delays" in files else DelayOffsets()
    return Given(delays, timers, files.get("modes", b""))


def make_state(
    options: BrokerOptions,
    store: MessageStore,
    files: Mapping[str, bytes],
    keeper: Keeper,
    checks: AccessOptions | None = None,
) -> State:
    """Make the tables of a broker from its small files, each of which `keeper` finds the writer of."""
    access = AccessTables(files.get("users", b""), files.get("acls", b""), keeper("users"), keeper("acls"))
    return State(
        options,
        store,
        Topics(options, files.get("topics", b""), keeper("topics")),
        Groups(files.get("groups", b""), keeper("groups")),
        Offsets(files.get("offsets", b"")),
        Orders(files.get("orders", b"")),
        Settings({"brokerName": options.name}, BROKER_READERS, lambda changes: None, LOCKED),
        access,
        Guard(checks or AccessOptions(), access, CLUSTER),
        read_given(files),
        TIMES,
    )


def make_world(
    wall_ms: Callable[[], int],
    choose: Callable[[int], int],
    make_id: Callable[[], str],
    flush_log: Callable[[], None],
    keeper: Keeper,
) -> World:
    """Make the surroundings of a broker, whose topics have no queues elsewhere, and whose disk never counts as full."""
    return World(
        wall_ms,
        choose,
        make_id,
        flush_log,
        keeper("offsets"),
        keeper("delays"),
        keeper("timers"),
        keeper("orders"),
        keeper("modes"),
        lambda topic, _, done: done([]),
        lambda: 0.0,
    )


class Life:
    """The parts of a process that every simulated broker has: its steps, its end, and the flush beside the loop."""

    store: MessageStore
    node: Node
    now: Now
    broker: Broker
    _gate: FlushGate | None = None

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._ids = 0
        self._flush: Flush | None = None
        self._unflushed: list[StoreFile | Directory] = []

    def _make_id(self) -> str:
        self._ids += 1
        return f"MADE{self._wall_ms()}{self._ids}"

    def _flush_log(self) -> None:
        if self._gate is not None:
            self._gate.keep_order()

    def _end_round(self) -> bool:
        """End a round of a step, up to where output is to be sent; True if there is more to do. May raise `Crash`."""
        self.node.end_failed()
        has_more, _ = self.node.end_step()
        faults = self.node.faults
        if faults.of_sessions or faults.others:
            raise Violation(f"the node has stumbled over {faults.of_sessions + faults.others} fault(s)")
        return has_more

    def _flush_again(self) -> None:
        self.node.timers.at(self.now.ms + FLUSH_MS, self._begin_flush)

    def _begin_flush(self) -> None:
        flush = self.store.begin_flush()
        if flush is None:
            self._flush_again()
        else:
            self._flush, self._unflushed = flush, list(flush.files)

    def flush_some(self, most: int) -> bool:
        """Let the thread that flushes get on by some files; True if its flush has ended. May raise `Crash`."""
        if self._flush is None:
            return False
        for _ in range(min(most, len(self._unflushed))):
            self._unflushed.pop(0).flush()
        if self._unflushed:
            return False
        self.store.end_flush(self._flush)
        self._flush = None
        self._flush_again()
        return True

    def stop(self) -> None:
        """Stop as SIGTERM does it, when nobody is connected any longer. May raise `Crash`."""
        self.flush_some(len(self._unflushed))
        for session in list(self.node.sessions.values()):
            self.node.disconnect(session, "the node stops")
        self.broker.close()
        self.store.close()


class Process(Life):
    """A process with its sessions. `is_sync`: nothing is said before the log is on the disk, `is_slow`: in a while.

    `checks` are those of requests; `links` makes the links to nameservers. Raises `StoreDamaged` and `DiskFull` as the
    node does.
    """

    def __init__(
        self,
        disk: Disk,
        random: Random,
        wall_ms: Callable[[], int],
        *,
        is_sync: bool,
        is_slow: bool,
        checks: AccessOptions = _UNCHECKED,
        links: MakeLinks | None = None,
    ) -> None:
        super().__init__(wall_ms)
        self._disk = disk
        self._random = random
        self._start_ms = wall_ms()
        self.is_sync = is_sync
        self.options = BrokerOptions(
            CLUSTER, BROKER, address=Host("127.0.0.1", 10911), delay_levels_ms=DELAYS_MS, revive_queues=2
        )
        due = make_due_time(DELAYS_MS)
        self.store = open_store(disk.root, STORE, lambda ms: f"{ms:017d}", due)
        self.now = Now(0, 0)
        self.node = Node(self.now, Faults(self.now), Timers())
        self.flusher = _Flusher(wall_ms, is_slow=is_slow)
        self._gate = FlushGate(self.store, self.flusher, self.now, SYNC_FLUSH_MS) if is_sync else None
        state = make_state(self.options, self.store, disk.files, self._keeper, checks)
        self.topics, self._groups, self.access = state.topics, state.groups, state.access
        world = make_world(wall_ms, random.randrange, self._make_id, self._flush_log, self._keeper)
        registries = () if links is None else links(self.node, lambda: nameservers.hello())
        nameservers = Nameservers(self.options, state.topics, registries)
        self.broker = Broker(state, world, self.node.faults, nameservers)
        self.node.add(self.broker)
        if self._gate is not None:
            self.node.add(self._gate)
        self._connect_grpc = grpc_connect(state, self.node, self.broker, self._gate, wall_ms)
        self._flush_again()

    def _keeper(self, name: str) -> Callable[[bytes], None]:
        def keep(data: bytes) -> None:
            self._disk.files[name] = data

        return keep

    def make_topic(self, name: str, queues: int, kind: str = "MIXED") -> None:
        """Make a topic for messages of a kind, or of all, unless it is there."""
        if self.topics.get(name) is None:
            self.topics.put(TopicConfig(name, queues, queues, attributes={"message.type": kind}), self._wall_ms())

    def forbid_sending_back(self, group: str, *, is_forbidden: bool) -> None:
        """Forbid a group to give messages back, or permit it, by the permission of its retry topic."""
        perm = int(Permission.READ if is_forbidden else Permission.READ | Permission.WRITE)
        self.topics.put(TopicConfig(RETRY_PREFIX + group, 1, 1, perm), self._wall_ms())

    def set_back(self, ms: int) -> None:
        """Note that the time of day was set back: the clock that never goes back goes on."""
        self._start_ms -= ms

    def make_group(
        self, name: str, limit: int, *, is_ordered: bool = False, parent: str = "", is_exclusive: bool = False
    ) -> None:
        """Make a group whose messages are retried up to a limit, unless it is there; with a parent for lite topics.

        With `is_exclusive`, one client at a time is subscribed to a lite topic.
        """
        if name not in self._groups.table:
            attributes = {"lite.bind.topic": parent} if parent else {}
            if is_exclusive:
                attributes["lite.sub.model"] = "Exclusive"
            config = GroupConfig(name, retry_max_times=limit, consume_message_orderly=is_ordered, attributes=attributes)
            self._groups.put(config, self._wall_ms())

    def connect(self, port: int) -> Session:
        """Open the session of a client that connects."""
        return self.node.open(f"127.0.0.1:{port}", self.broker, self._gate)

    def connect_grpc(self, port: int) -> GrpcSession:
        """Open the session of a client of the gRPC service that connects."""
        session = self._connect_grpc(f"127.0.0.1:{port}", frozenset)
        assert isinstance(session, GrpcSession)
        return session

    # -- steps

    def set_clock(self) -> None:
        """Tell the node the time."""
        ms = self._wall_ms()
        self.now.ms, self.now.wall_s = ms - self._start_ms, ms // 1000

    def end_step(self) -> bool:
        """End a round of a step; True if there is more to do. May raise `Crash`."""
        return self._end_round()

    def before_sending(self) -> None:
        """Wait for the disk, if something is to be sent. May raise `Crash`: the power fails."""
        if self.node.dirty:
            if not self.flusher.is_slow:
                self._flush_log()
            self.node.dirty.clear()

    def tear(self, where: Tear, messages: int) -> None:
        """Have the process killed while it writes a message, when it has written some before."""
        log = self.store.log
        append = log.append
        left = messages

        def torn(offset: int, data: memoryview) -> None:
            nonlocal left
            records = list(_records(data))
            left -= len(records)
            append(offset, data)
            if left >= 0:
                return
            if where is Tear.RECORD:
                _unwrite(log, offset, len(data), self._random.randrange(len(data)))
            elif where is Tear.ENTRY:
                first = records[0]
                self._tear_entry(first.topic, first.queue_id, (offset, int.from_bytes(data[:_SIZE_BYTES], "big")))
            else:
                vars(self.store.index)["put"] = _crash
                return
            raise Crash

        vars(log)["append"] = torn

    def refuse(self, messages: int, refused: Callable[[], None]) -> None:
        """Have the disk be too full for one message, when it has had room for some before it; call `refused` then."""
        store, left = self.store, messages
        put = store.put

        def refusing(run: Run) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                del vars(store)["put"]
                refused()
                raise DiskFull("there is no room for one message")
            put(run)

        if "put" not in vars(store):
            vars(store)["put"] = refusing

    def spare(self) -> None:
        """Let the process live on: what `tear` and `refuse` have planned, and has not come, comes no more."""
        vars(self.store).pop("put", None)
        vars(self.store.log).pop("append", None)
        vars(self.store.index).pop("put", None)

    def _tear_entry(self, topic: str, queue_id: int, place: tuple[int, int]) -> None:
        """Write a part of the entry that a message has in its queue: its size at most."""
        queue = self.store.queues.get((topic, queue_id))
        if queue is None:
            return
        number = queue.end
        queue.add(*place, 0)
        start, at = divmod(number * ENTRY_BYTES, STORE.consume_queue_file_bytes)
        folder = self._disk.root.folder("consumequeue").folder(topic).folder(str(queue_id))
        data = folder.files[offset_name(start * STORE.consume_queue_file_bytes)].data
        kept = self._random.randrange(ENTRY_BYTES - 7)
        data[at + kept : at + ENTRY_BYTES] = bytes(ENTRY_BYTES - kept)


def _crash(*_: object) -> None:
    raise Crash


def _records(data: memoryview) -> Iterator[Record]:
    """Yield the records of a piece of a log."""
    at = 0
    while at < len(data):
        record = decode_record(data, at)
        assert isinstance(record, Record)
        yield record
        at += int.from_bytes(data[at : at + _SIZE_BYTES], "big")


def _unwrite(log: CommitLog, offset: int, size: int, kept: int) -> None:
    """Undo the unwritten part of a run: the bytes after its first size first, the size last."""
    file, place = log.files.place(offset)
    for number in range(kept, size):
        at = _SIZE_BYTES + number if number < size - _SIZE_BYTES else number - (size - _SIZE_BYTES)
        file.buffer[place + at] = 0
