"""The runner of scripts/benchmark-steps: the longest step of a node with very many messages stored.

The node is the broker's own core on mapped files in a temporary directory, without its shell, so that each step can be
measured: first the one that begins a case, then all that the node does by itself until nothing is left to do.
Between these steps another client posts a message; its wait for the acknowledgment is the other figure.
Clock times include other load on the machine; CPU times are the process's own.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from crc32c import crc32c

from broker.bmq.core.config import DEFAULT_APP_ID, DomainConfig, Mode
from broker.bmq.core.messages import Content
from broker.bmq.node.changes import reconfigure
from broker.bmq.node.node import READ_MS
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.queue.queue import Queue, Subscription
from broker.bmq.relay.handover import retire
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.upstream import UpstreamState
from broker.bmq.replication.positions import NOWHERE, Position
from broker.bmq.store.partition_files import PartitionLimits
from broker.bmq.store.removals import SLICE_RECORDS
from broker.shell.files import DataDirectory
from formats.bmq.codes import AckStatus, EventType, PropertyType
from formats.bmq.control.messages import NodeStatus
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.wire.event import iter_frames, next_frame
from formats.bmq.wire.options import SubQueueInfo
from formats.bmq.wire.properties import Property, encode_properties
from formats.bmq.wire.push import Push, PushFlag
from formats.bmq.wire.rda import limited
from tests.broker.bmq.member.member_bus import Members, Process
from tests.broker.bmq.relay.hop_rig import HopClient, World
from tests.broker.bmq.rig import ACK, LENGTH_MAX, START_S, WRITE, Client, Rig, Wanted, guid, start

MESSAGES = 1_000_000
PAYLOAD = b"x" * 64
OTHER = "bmq://other/q"
QUEUE, FANOUT = "bmq://steps/q", "bmq://fanout/q"
STRONG, STRONG_FANOUT = "bmq://strong/q", "bmq://strong-fanout/q"
POISON = "bmq://poison/q"
ATTEMPTS = 5
TTL_S = 3600
# Number of posts between two simulated seconds.
POSTS_A_TICK = 50_000
WANTED_MS = 50.0
# Number of records to be cut from the end of a journal.
RECORDS_CUT = 100
# The reference fills a journal until so many records are left; and consumers confirm so many messages at a time.
RECORDS_LEFT, CONFIRMED = 18, 1000

DOMAINS = (
    DomainConfig("steps", Mode.PRIORITY, message_ttl_s=TTL_S),
    DomainConfig("fanout", Mode.FANOUT, ("foo", "bar")),
    DomainConfig("other", Mode.PRIORITY),
    DomainConfig("poison", Mode.PRIORITY, delivery_attempts_max=ATTEMPTS),
    DomainConfig("strong", Mode.PRIORITY, strong=True),
    DomainConfig("strong-fanout", Mode.FANOUT, ("foo", "bar"), strong=True),
)


class Outcome(NamedTuple):
    """The result of a case; times are in milliseconds."""

    case: str
    first_ms: float  # the step that begins it
    longest_ms: float
    longest_cpu_ms: float
    steps: int
    total_ms: float
    delay_ms: float  # of another client's acknowledgment, at most


class Bench:
    """A node with many messages in one queue, whose steps are measured."""

    def __init__(self, folder: Path, messages: int, uri: str = QUEUE) -> None:
        limits = PartitionLimits(journal=messages * 240 + (1 << 20), data=messages * 160 + (1 << 22), qlist=1 << 16)
        directory: Any = DataDirectory(folder, folder / "archive")
        self.rig: Rig = start(directory, domains=DOMAINS, limits=limits)
        self.messages = messages
        self.uri = uri
        self._numbers = iter(range(1 << 22, 1 << 23))
        self._may_be_full = False
        self.other = self.rig.connect()
        self.other.open(1, OTHER, WRITE | ACK)
        self.producer = self.rig.connect()
        self.producer.open(1, uri, WRITE | ACK)

    @property
    def queue(self) -> Queue:
        return self.rig.node.queues[self.uri]

    def fill(self) -> None:
        content = Content(PAYLOAD, crc32c(PAYLOAD), 0, False, 0)
        post = self.queue.post
        for number in range(self.messages):
            post(guid(number), content)
            if number % POSTS_A_TICK == 0:
                self.pass_time(1)
                self.rig.node.tick()
        self.rest()

    def fill_awaiting(self) -> None:
        """Messages that wait for copies, whose producer waits to hear of them: nobody says that he has any."""
        content = Content(PAYLOAD, crc32c(PAYLOAD), 0, False, 0)
        self.rig.node.shards[0].copies_wanted = 2
        self.rig.node.shards[0].is_copied = True
        queue, session = self.queue, self.producer.session
        queue.judge_copies()
        for number in range(self.messages):
            queue.post(guid(number), content)
            queue.acknowledge_later(guid(number), session, 1, number)
            if number % POSTS_A_TICK == 0:
                self.pass_time(1)
                self.rig.node.tick()
        self.rest()
        assert len(queue.awaiting) == self.messages

    def rest(self) -> None:
        """Finish all work that the node has begun."""
        while any(self.rig.node.end_step()):
            self.rig.now.ms += 1
        self.rig.node.dirty.clear()

    def restart_full(self) -> None:
        """Begin anew with files that have no room for what is due: as the reference leaves them."""
        rig, files = self.rig, self.rig.node.shards[0].files
        limits = PartitionLimits(
            journal=files.journal_end + RECORDS_LEFT * JOURNAL_RECORD_SIZE, data=rig.limits.data, qlist=rig.limits.qlist
        )
        rig.stop()
        self.rig = start(rig.directory, domains=rig.domains, limits=limits, wall_s=rig.now.wall_s, ms=rig.now.ms)
        self.other = self.rig.connect()
        self.other.open(1, OTHER, WRITE | ACK)
        self._may_be_full = True
        assert self.rig.node.shards[0].tight is not None
        self.rest()

    def consumer(self, *wanted: Wanted, app: str = "") -> Client:
        client = self.rig.connect()
        client.open(1, self.uri, 2, app, 1 if app else 0)
        client.subscribe(1, *wanted or (Wanted(),), app=app or "__default")
        return client

    def drain(self, *clients: Client) -> None:
        """Let consumers take all messages that the node has for them."""
        while True:
            more = any(self.rig.node.end_step())
            self.rig.now.ms += 1
            for client in clients:
                if client.session.output_size():
                    client.session.take_output()
                    client.session.output_sent()
                    more = True
            if not more:
                return

    def measure(self, case: str, action: Callable[[], object], *consumers: Client) -> Outcome:
        """Measure a step, and all that follow from it."""
        node, times, cpu_times, delays = self.rig.node, [], [], []
        more, act = True, action
        while more:
            self.rig.now.ms += 1
            wall, cpu = time.perf_counter(), time.process_time()
            act()
            more = any(node.end_step())
            between, cpu_after = time.perf_counter(), time.process_time()
            status = self.other.post(1, guid(next(self._numbers)), PAYLOAD)
            assert status is AckStatus.SUCCESS or self._may_be_full, status
            times.append((between - wall) * 1000)
            cpu_times.append((cpu_after - cpu) * 1000)
            delays.append((time.perf_counter() - wall) * 1000)
            for client in consumers:
                if client.session.output_size():
                    client.session.take_output()
                    client.session.output_sent()
                    more = True
            act = _nothing
        return Outcome(case, times[0], max(times), max(cpu_times), len(times), sum(times), max(delays))

    def ticks(self, case: str, count: int) -> Outcome:
        """Measure `count` ticks at their usual interval; return the one that took the most CPU time."""
        found = []
        for _ in range(count):
            self.rig.now.ms += READ_MS
            found.append(self.measure(case, self.rig.node.tick))
        return max(found, key=lambda each: each.longest_cpu_ms)

    def pass_time(self, seconds: int) -> None:
        self.rig.now.ms += seconds * 1000
        self.rig.now.wall_s += seconds

    def close(self) -> None:
        self.rig.stop()


class ClusterBench:
    """Three members of a cluster, each with a replica of very many messages in one queue, whose steps are measured.

    Each event sent to a node is a step, and so is each piece of its own work.
    """

    def __init__(self, folder: Path, messages: int) -> None:
        limits = PartitionLimits(journal=messages * 240 + (1 << 20), data=messages * 160 + (1 << 22), qlist=1 << 16)
        self.messages = messages
        domains = {each.name: each for each in DOMAINS}
        self.cluster = Members(
            limits=limits, directory_of=lambda node_id: _directory(folder / str(node_id)), domains=domains
        )
        self._times: dict[int, list[tuple[float, float]]] = {}
        self._moved = False  # in the last step
        self.resting: set[int] = set()  # nodes that are so slow that they have yet to do anything
        self.kept_back: EventType | None = None  # what no replica is sent
        nodes = self.cluster.processes.values()
        self.until(lambda: all(each.member.status is NodeStatus.AVAILABLE for each in nodes))
        client = self.cluster.connect(self.primary.node_id)
        client.open(1, QUEUE, WRITE | ACK)
        self.primary.node.disconnect(client.session, "gone")

    @property
    def primary(self) -> Process:
        (primary,) = [each for each in self.cluster.processes.values() if each.node.shards[0].active]
        return primary

    @property
    def replica(self) -> Process:
        """One of those that are not primary."""
        return next(each for each in self.cluster.processes.values() if each is not self.primary)

    def fill(self, numbers: range | None = None) -> None:
        content = Content(PAYLOAD, crc32c(PAYLOAD), 0, False, 0)
        queue = self.primary.node.queues[QUEUE]
        for number in numbers or range(self.messages):
            queue.post(guid(number), content)
            if number % 1000 == 0:
                self._step()
            if number % POSTS_A_TICK == 0:
                # A leader silent for so long would not be followed any longer.
                self._tick()
        self.until(lambda: not self._step())

    def _timed(self, process: Process, act: Callable[[], object]) -> object:
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = act()
        took = (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000
        self._times.setdefault(process.node_id, []).append(took)
        return outcome

    def _step(self) -> bool:
        """Let every node take a step and receive what was sent; return True if there was anything to do."""
        cluster, moved = self.cluster, False
        cluster.now.ms += 1
        for process in list(cluster.processes.values()):
            process.now.ms = cluster.now.ms
            if process.node_id in self.resting:
                continue
            moved |= bool(self._timed(process, lambda process=process: any(process.node.end_step())))  # type: ignore[misc]
        for (source, target), wire in list(cluster.wires.items()):
            if wire.events and _type_of(wire.events[0]) != self.kept_back and target not in self.resting:
                moved = True
                process, data = cluster.processes[target], memoryview(wire.events.popleft())
                self._timed(process, lambda: _receive(process, source, data))  # noqa: B023 - called at once
        self._moved = moved
        return moved

    def _tick(self) -> None:
        self.cluster.now.ms += 100
        for process in self.cluster.processes.values():
            process.now.ms = self.cluster.now.ms
            process.now.wall_s = START_S + (self.cluster.now.ms - 1_000_000) // 1000
            self._timed(process, process.node.tick)

    def until(self, wanted: Callable[[], object]) -> None:
        """Continue until a condition holds and nothing is left to do."""
        end = self.cluster.now.ms + 600_000
        while self._step() or not wanted():
            if not self._moved or self.cluster.now.ms % 100 == 0:
                self._tick()
            assert self.cluster.now.ms < end, "that did not come about"

    def measure(
        self, case: str, action: Callable[[], object], wanted: Callable[[], object], at: Process | None = None
    ) -> list[Outcome]:
        """Measure an action at the primary, or `at` another node, and all steps that follow, by node."""
        primary_id, self._times = self.primary.node_id, {}
        self._timed(at or self.primary, action)
        self.until(wanted)
        found = []
        for node_id, times in sorted(self._times.items()):
            who = f"{case}, node {node_id}{' (primary before)' if node_id == primary_id else ''}"
            walls, cpus = [wall for wall, _ in times], [cpu for _, cpu in times]
            found.append(Outcome(who, times[0][0], max(walls), max(cpus), len(times), sum(walls), 0.0))
        return found

    def close(self) -> None:
        for process in self.cluster.processes.values():
            for shard in process.node.shards.values():
                shard.close()


class _Hops(World):
    """Members of a cluster that say themselves who is primary; each has its shard in files."""

    def __init__(self, folder: Path, limits: PartitionLimits) -> None:
        self._folder = folder
        self._limits = limits
        super().__init__(DOMAINS)
        self.make_primary(0)

    def _add(self, node_id: int, rig: Rig) -> None:
        rig.stop()
        directory = _directory(self._folder / str(node_id))
        super()._add(node_id, start(directory, domains=self.domains, limits=self._limits))


class HopBench:
    """A hop in a member of a cluster, with very many messages that came down, and the steps that the member takes.

    They are put into what the hop gets from its primary, which knows nothing of them: its steps are no matter here.
    """

    def __init__(self, folder: Path, messages: int) -> None:
        limits = PartitionLimits(journal=messages * 240 + (1 << 20), data=messages * 160 + (1 << 22), qlist=1 << 16)
        self.messages = messages
        self.world = _Hops(folder, limits)
        self.hop = self.world.nodes[1]
        self.node = self.hop.rig.node
        self.data = encode_properties([Property("x", PropertyType.INT32, 7)], 0) + PAYLOAD

    def reader(self, *wanted: Wanted, takes: bool = True) -> HopClient:
        """A consumer; if it `takes` nothing, its link has room for nothing."""
        client = self.world.client(1)
        client.open(1, POISON, 2)
        client.session.ready = takes
        client.subscribe(1, *wanted or (Wanted(messages_max=self.messages, bytes_max=1 << 40),))
        client.session.ready = takes
        return client

    @property
    def queue(self) -> Queue:
        return self.node.queues[POISON]

    def push(self) -> None:
        """All messages come down."""
        relay = self.queue
        assert isinstance(relay, RelayQueue)
        flags = int(PushFlag.MESSAGE_PROPERTIES)
        (subscription_id,) = relay._app_ids
        infos = (SubQueueInfo(subscription_id, limited(ATTEMPTS)),)
        for number in range(self.messages):
            relay.on_push(Push(flags, 0, guid(number), 0, 0, memoryview(b""), memoryview(self.data)), infos)
            if number % 1000 == 0:
                self.rest()
        self.rest()

    def rest(self) -> None:
        """Finish all work that the member has begun, and deliver its clients' messages."""
        while self._step():
            self._take()
        self._take()

    def _step(self) -> bool:
        self.hop.rig.now.ms += 1
        more = any(self.node.end_step())
        self.hop.queues.flush()
        return more

    def _take(self) -> None:
        """Deliver everything that was sent, without any reaction."""
        self.hop.links.sent.clear()
        for session in self.node.sessions.values():
            if session.output_size():
                session.take_output()

    def measure(self, case: str, action: Callable[[], object]) -> Outcome:
        """Measure a step, and all that follow from it."""
        times, cpu_times = [], []
        more, act = True, action
        while more:
            wall, cpu = time.perf_counter(), time.process_time()
            act()
            more = self._step()
            times.append((time.perf_counter() - wall) * 1000)
            cpu_times.append((time.process_time() - cpu) * 1000)
            self._take()
            act = _nothing
        return Outcome(case, times[0], max(times), max(cpu_times), len(times), sum(times), 0.0)

    def close(self) -> None:
        for hop in self.world.nodes.values():
            hop.rig.stop()


def _directory(folder: Path) -> Any:
    folder.mkdir()
    return DataDirectory(folder, folder / "archive")


def _type_of(event: bytes) -> int:
    """The type in an event's header."""
    frame = next_frame(memoryview(event), 0, len(event), LENGTH_MAX)
    assert frame is not None
    return frame.type


def _receive(process: Process, source: int, data: memoryview) -> None:
    for frame in iter_frames(data, 0, len(data), LENGTH_MAX):
        process.member.receive(source, data, frame)


def cluster_rollover(bench: ClusterBench) -> list[Outcome]:
    bench.fill()
    files = {each.node_id: each.node.shards[0].files for each in bench.cluster.processes.values()}
    others = bench.cluster.processes.values()
    return bench.measure(
        "rollover in a cluster",
        bench.primary.node.shards[0].roll_over,
        lambda: all(each.node.shards[0].files is not files[each.node_id] for each in others),
    )


def hand_over(bench: ClusterBench) -> list[Outcome]:
    """Measure a primary that becomes a replica."""
    bench.fill()
    old = bench.primary
    return bench.measure("a primary hands over", old.member.retire, lambda: _is_served(bench, old))


def take_over(bench: ClusterBench) -> list[Outcome]:
    bench.fill()
    old = bench.primary
    return bench.measure(
        "a primary is killed", lambda: bench.cluster.without(old.node_id), lambda: _is_served(bench, old)
    )[1:]


def cut(bench: ClusterBench) -> list[Outcome]:
    """Measure a replica that loses its last records and receives them again."""
    return _cut(bench, "a replica is cut", RECORDS_CUT)


def cut_half(bench: ClusterBench) -> list[Outcome]:
    return _cut(bench, "a replica loses half of all", bench.messages // 2)


def _cut(bench: ClusterBench, case: str, records: int) -> list[Outcome]:
    bench.fill()
    primary = bench.primary.member.partitions[0]
    node_id, end = next(each for each in bench.cluster.processes if each != bench.primary.node_id), primary.position

    def drop() -> None:
        assert primary.stream is not None
        primary.stream.forget(node_id)
        primary.drop_behind(node_id, Position(end.lease_id, end.number - records))

    replica = bench.cluster.processes[node_id].member.partitions[0]
    slices = bench.cluster.processes[node_id].node.work.slices
    found = bench.measure(
        case,
        drop,
        lambda: replica.is_healed and bench.cluster.processes[node_id].node.work.slices > slices,
    )
    assert replica.position == bench.primary.member.partitions[0].position
    return found


def hop_moves(bench: HopBench) -> list[Outcome]:
    """A consumer has all messages, and the root comes to its node and goes away; then it is lost."""
    queues, primary = bench.hop.queues, bench.world.primary
    consumer = bench.reader()
    bench.push()
    queues.primary_active(0, primary or 0, False)
    queues.restored(0)
    root = bench.node.serve_queue(POISON, bench.node.domains["poison"])
    content = Content(bench.data, crc32c(bench.data), 0, True, 0)
    for number in range(bench.messages):
        root.post(guid(number), content)
    bench.rest()
    held = consumer.session.handles[1].streams[0].unconfirmed
    comes = bench.measure("a hop becomes the root", lambda: queues.activated(0))
    held = consumer.session.handles[1].streams[0].unconfirmed
    assert len(held) == bench.messages
    goes = bench.measure("a root becomes a hop", lambda: queues.deactivated(0))
    held = consumer.session.handles[1].streams[0].unconfirmed
    assert len(held) == len(bench.queue.messages) == bench.messages
    queues.primary_active(0, primary or 0, True)
    relay = bench.queue
    assert isinstance(relay, RelayQueue)
    relay._read = lambda guid: content
    lost = bench.measure("a hop's consumer is lost with all", lambda: consumer.session.end("gone"))
    assert not relay.messages
    return [comes, goes, lost]


def hop_waits(bench: HopBench) -> list[Outcome]:
    """All messages wait at a hop, for a consumer whose link has no room."""
    consumer = bench.reader(Wanted("x > 1", messages_max=bench.messages, bytes_max=1 << 40), takes=False)
    bench.push()
    relay = bench.queue
    assert len(relay.messages) == bench.messages
    other = [Subscription(relay.apps["__default"].streams[0], 1, 0, bench.messages, 1 << 40, "x > 8")]
    stream = consumer.session.handles[1].streams[0]
    unwanted = bench.measure("a hop's consumer wants others", lambda: relay.reconfigure(stream, other, _nothing))
    assert not relay.messages
    return [unwanted]


def hop_lost(bench: HopBench) -> list[Outcome]:
    """All messages wait at a hop, for a consumer whose link has no room."""
    bench.reader(takes=False)
    bench.push()
    relay = bench.queue
    assert len(relay.messages) == bench.messages
    lost = bench.measure("a hop's upstream is lost", lambda: bench.hop.queues.primary_active(0, 0, False))
    assert not relay.messages
    return [lost]


def hop_resends(bench: HopBench) -> list[Outcome]:
    """Posts and confirms are kept at a hop without an upstream; the next one gets all, and acknowledges nothing."""
    bench.reader()
    client = bench.world.client(1)
    client.open(1, POISON, WRITE | ACK)
    bench.rest()
    relay = bench.queue
    assert isinstance(relay, RelayQueue)
    bench.hop.queues.primary_active(0, 0, False)
    content = Content(bench.data, crc32c(bench.data), 0, True, 0)
    for number in range(bench.messages):
        relay.post(guid(number), content)
        relay.acknowledge_later(guid(number), client.session, 1, number)
        relay.confirms.send(DEFAULT_APP_ID, (guid(bench.messages + number),))
        if number % 1000 == 0:
            bench.rest()
    bench.hop.queues.primary_active(0, 0, True)
    bench.rest()
    sent = bench.measure("a hop's new upstream gets all", relay.openings._all_opened)
    assert relay.openings.state is UpstreamState.OPEN
    bench.hop.rig.now.ms += relay.config.deduplication_time_ms
    expired = bench.measure("posts at a hop are given up", lambda: relay.timers.run(relay.now.ms))
    while relay.unacknowledged:
        again = bench.measure(expired.case, lambda: relay.timers.run(relay.now.ms))
        expired = max(expired, again, key=lambda outcome: outcome.longest_cpu_ms)
    return [sent, expired]


def summary(bench: ClusterBench) -> list[Outcome]:
    """A replica is asked how much is stored."""
    bench.fill()
    replica = bench.replica
    found: list[object] = []
    asked = bench.measure(
        "STORAGE SUMMARY at a replica",
        lambda: found.append(replica.member.partitions[0].copy.stored()),
        lambda: found,
        at=replica,
    )
    ((counts,),) = [each.values() for each in found if isinstance(each, dict)]
    assert counts == (bench.messages, bench.messages * len(PAYLOAD)), counts
    return asked


def _roll_over(bench: ClusterBench) -> None:
    """The primary rolls over, and is through with it; whoever rests is not."""
    shard = bench.primary.node.shards[0]
    before = shard.files
    shard.roll_over()
    bench.until(lambda: shard.files is not before)


def rollover_again(bench: ClusterBench) -> list[Outcome]:
    """The primary is through with two rollovers before a replica has begun with the first."""
    bench.fill()
    replica, primary = bench.replica, bench.primary
    bench.resting.add(replica.node_id)
    _roll_over(bench)
    _roll_over(bench)
    files = primary.node.shards[0].files
    found = bench.measure(
        "the primary has rolled over twice",
        bench.resting.clear,
        lambda: replica.node.shards[0].files.journal_end == files.journal_end,
    )
    assert replica.member.partitions[0].position == primary.member.partitions[0].position
    return found


def _place(bench: ClusterBench, replica: Process) -> None:
    """A replica has rolled over, and has yet to find where its messages are."""
    before = replica.node.shards[0].files
    bench.primary.node.shards[0].roll_over()
    while replica.node.shards[0].files is before:
        bench._step()
    bench.resting.add(replica.node_id)
    bench.fill(range(bench.messages, bench.messages + 2 * RECORDS_CUT))


def drop_placing(case: str, records: int | None) -> Callable[[ClusterBench], list[Outcome]]:
    """A replica that has rolled over, and has yet to find where its messages are, is told to drop records, or all."""

    def run(bench: ClusterBench) -> list[Outcome]:
        bench.fill()
        replica, primary = bench.replica, bench.primary.member.partitions[0]
        _place(bench, replica)
        end = primary.position
        begin = NOWHERE if records is None else Position(end.lease_id, end.number - records)
        old = replica.node.shards[0].files
        drops = replica.member.partitions[0]

        def drop() -> None:
            assert primary.stream is not None
            primary.stream.forget(replica.node_id)
            primary.drop_behind(replica.node_id, begin)
            bench.resting.clear()

        work, slices = replica.node.work, replica.node.work.slices
        found = bench.measure(
            case,
            drop,
            lambda: (
                drops.is_healed
                and work.slices > slices
                and (records is not None or replica.node.shards[0].files is not old)
            ),
        )
        assert drops.position == bench.primary.member.partitions[0].position
        return found

    return run


def backlog(bench: ClusterBench) -> list[Outcome]:
    """A primary, as the reference's may, sends all its live records before the end of those that heal a replica."""
    bench.fill(range(100))
    replica, primary = bench.replica, bench.primary.member.partitions[0]
    assert primary.stream is not None
    end = primary.position
    bench.kept_back = EventType.PARTITION_SYNC
    primary.stream.forget(replica.node_id)
    primary.drop_behind(replica.node_id, Position(end.lease_id, end.number - 50))
    events: list[bytes] = []
    wire = bench.cluster.wires[bench.primary.node_id, replica.node_id]
    while not (wire.events and _type_of(wire.events[0]) == EventType.PARTITION_SYNC):
        bench._step()
        bench._tick()
    events.append(wire.events.popleft())
    bench.kept_back = None
    bench.fill(range(100, 100 + bench.messages))
    assert not replica.member.partitions[0].is_healed
    return bench.measure(
        "a backlog is written",
        lambda: wire.events.extendleft(events),
        lambda: replica.member.partitions[0].position == bench.primary.member.partitions[0].position,
    )


def _is_served(bench: ClusterBench, old: Process) -> bool:
    """Return True if another primary serves the partition, and all others have it."""
    nodes = bench.cluster.processes.values()
    return any(each.node.shards[0].active for each in nodes if each is not old) and all(
        each.member.partitions[0].is_healed for each in nodes
    )


def _nothing() -> None:
    """Do nothing: the node continues by itself."""


Cases = dict[str, tuple[str, Callable[[Bench], list[Outcome]]]]


def put_aside(bench: Bench) -> list[Outcome]:
    bench.consumer(Wanted("x > 1"))
    bench.fill()
    other = bench.consumer(Wanted("x > 1"))
    changed = bench.measure("another expression, all put aside", lambda: other.subscribe(1, Wanted("x > 2")))
    same = bench.measure("the same expressions, all put aside", lambda: other.subscribe(1, Wanted("x > 2", count=2)))
    leaves = bench.measure("its consumer leaves", lambda: bench.rig.node.disconnect(other.session, "gone"))
    return [changed, same, leaves]


def outstanding(bench: Bench) -> list[Outcome]:
    first, second = bench.consumer(Wanted()), bench.consumer(Wanted())
    bench.fill()
    bench.drain(first, second)
    third = bench.consumer(Wanted(messages_max=0))
    configured = bench.measure("configure with half of all unconfirmed", lambda: first.subscribe(1, Wanted(count=2)))
    left = bench.measure("a consumer leaves with half of all", lambda: first.session.end("gone"), second)
    both = bench.measure("the other leaves with all", lambda: second.session.end("gone"))
    joined = bench.measure("a consumer joins and gets all", lambda: third.subscribe(1, Wanted()), third)
    return [configured, left, both, joined]


def expiry(bench: Bench) -> list[Outcome]:
    bench.fill()
    bench.pass_time(TTL_S + 10)
    return [bench.measure("all messages expire", bench.rig.node.tick)]


def purged(bench: Bench) -> list[Outcome]:
    bench.fill()
    consumer = bench.consumer(Wanted())
    bench.drain(consumer)
    bench.ticks("what was removed is read, nothing", bench.messages // SLICE_RECORDS + 2)
    purged = bench.measure("purge of a queue", lambda: purge(bench.queue))
    return [purged, bench.ticks("what it removed is read", 2 * bench.messages // SLICE_RECORDS + 4)]


def awaiting_copied(bench: Bench) -> list[Outcome]:
    """One receipt confirms all of them."""
    consumer = bench.consumer(Wanted())
    bench.fill_awaiting()
    shard = bench.rig.node.shards[0]
    written = shard.sequence_number
    found = bench.measure("copies of all arrive at once", lambda: shard.copied(written), consumer, bench.producer)
    assert not bench.queue.awaiting
    return [found]


def awaiting_purged(bench: Bench) -> list[Outcome]:
    bench.fill_awaiting()
    purged = bench.measure("purge of all that await copies", lambda: purge(bench.queue), bench.producer)
    assert not bench.queue.messages
    return [purged]


def awaiting_stripped(bench: Bench) -> list[Outcome]:
    bench.fill_awaiting()
    foo, bar = bench.queue.apps["foo"], bench.queue.apps["bar"]
    first = bench.measure("purge of an app whose messages await", lambda: purge_app(bench.queue, foo), bench.producer)
    last = bench.measure("purge of the last that wants them", lambda: purge_app(bench.queue, bar), bench.producer)
    assert not bench.queue.messages
    return [first, last]


def awaiting_forgotten(bench: Bench) -> list[Outcome]:
    """The primary's office ends: what becomes of its queue's clients is in `hand-over`."""
    bench.fill_awaiting()
    node, queue, shard = bench.rig.node, bench.queue, bench.rig.node.shards[0]

    def end() -> None:
        del node.queues[STRONG]
        retire(queue)
        stores = dict(shard.stores)
        shard.deactivate()
        # The other queue stays, to see how long its posts take.
        shard.activate(shard.primary_lease_id + 1)
        shard.stores.update((key, store) for key, store in stores.items() if key != queue.key)

    return [bench.measure("a primary forgets all that await", end)]


def apps(bench: Bench) -> list[Outcome]:
    bench.fill()
    domain = bench.rig.node.domains["fanout"]

    def change(*app_ids: str) -> Callable[[], None]:
        return lambda: reconfigure(bench.rig.node, domain, replace(domain.config, app_ids=app_ids))

    return [
        bench.measure("an app is added", change("foo", "bar", "baz")),
        bench.measure("purge of an app", lambda: purge_app(bench.queue, bench.queue.apps["bar"])),
        bench.measure("the last app with messages is removed", change("bar", "baz")),
    ]


def rollover(bench: Bench) -> list[Outcome]:
    bench.fill()
    return [bench.measure("rollover", bench.rig.node.shards[0].roll_over)]


def tight(bench: Bench) -> list[Outcome]:
    """The journal is full to the brim, and its messages are confirmed: by one app, which makes no room, and by all."""
    bench.fill()
    bench.restart_full()
    consumers = [bench.consumer(Wanted(), app=app) for app in ("foo", "bar")]
    bench.drain(*consumers)
    found = []
    for case, consumer, count in (
        ("a full journal: one app confirms all", consumers[0], bench.messages),
        ("a full journal: all apps confirm some", consumers[1], 4 * CONFIRMED),
    ):
        parts = [
            bench.measure(case, partial(consumer.confirm, 1, *map(guid, range(at, at + CONFIRMED)), sub_id=1))
            for at in range(0, count, CONFIRMED)
        ]
        found.append(_together(case, parts))
    return [*found, bench.measure("a full journal: a purge", lambda: purge(bench.queue))]


def _together(case: str, parts: list[Outcome]) -> Outcome:
    """Several as one."""
    _, firsts, longest, cpus, steps, totals, delays = zip(*parts, strict=True)
    return Outcome(case, max(firsts), max(longest), max(cpus), sum(steps), sum(totals), max(delays))


CLUSTER_CASES: dict[str, Callable[[ClusterBench], list[Outcome]]] = {
    "backlog": backlog,
    "cluster-rollover": cluster_rollover,
    "cut": cut,
    "cut-half": cut_half,
    "cut-placing": drop_placing("a replica is cut that has just rolled over", RECORDS_CUT),
    "anew": drop_placing("a replica that has just rolled over begins anew", None),
    "summary": summary,
    "rollover-again": rollover_again,
    "hand-over": hand_over,
    "take-over": take_over,
}

HOP_CASES: dict[str, Callable[[HopBench], list[Outcome]]] = {
    "hop-lost": hop_lost,
    "hop-moves": hop_moves,
    "hop-waits": hop_waits,
    "hop-resends": hop_resends,
}

CASES: Cases = {
    "put-aside": (QUEUE, put_aside),
    "outstanding": (QUEUE, outstanding),
    "expiry": (QUEUE, expiry),
    "purge": (QUEUE, purged),
    "apps": (FANOUT, apps),
    "awaiting-copied": (STRONG, awaiting_copied),
    "awaiting-purged": (STRONG, awaiting_purged),
    "awaiting-stripped": (STRONG_FANOUT, awaiting_stripped),
    "awaiting-forgotten": (STRONG, awaiting_forgotten),
    "rollover": (QUEUE, rollover),
    "tight": (FANOUT, tight),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmark-steps", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help="how many are stored")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=sorted((*CASES, *HOP_CASES, *CLUSTER_CASES)),
        default=[*CASES, *HOP_CASES, *CLUSTER_CASES],
        metavar="CASE",
        help="of these",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args()
    gc.disable()
    found: list[Outcome] = []
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="benchmark-steps-") as folder:
            if name in CLUSTER_CASES:
                cluster = ClusterBench(Path(folder), options.messages)
                found += CLUSTER_CASES[name](cluster)
                cluster.close()
                del cluster
            elif name in HOP_CASES:
                hops = HopBench(Path(folder), options.messages)
                found += HOP_CASES[name](hops)
                hops.close()
                del hops
            else:
                uri, run = CASES[name]
                bench = Bench(Path(folder), options.messages, uri)
                found += run(bench)
                bench.close()
                del bench
        gc.collect()
        print(f"{name}: done", file=sys.stderr)
    if options.json:
        print(json.dumps([each._asdict() for each in found], indent=2))
        return
    print(f"{options.messages} messages; milliseconds, wanted below {WANTED_MS:.0f} for the longest step")
    print(f"{'case':40} {'first':>8} {'longest':>8} {'CPU':>8} {'delay':>8} {'steps':>7} {'total':>8}")
    for each in found:
        print(
            f"{each.case:40} {each.first_ms:8.1f} {each.longest_ms:8.1f} {each.longest_cpu_ms:8.1f} "
            f"{each.delay_ms:8.1f} {each.steps:7} {each.total_ms:8.0f}"
        )


if __name__ == "__main__":
    main()
