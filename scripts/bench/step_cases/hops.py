"""The cases of scripts/benchmark-steps with a primary and a hop."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c

from broker.bmq.core.messages import Content
from broker.bmq.node.node import Node
from broker.bmq.node.role import Role
from broker.bmq.queue.queue import Queue, Subscription
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.upstream import UpstreamState
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import DEFAULT_APP_ID, PropertyType
from formats.bmq.wire.options import SubQueueInfo
from formats.bmq.wire.properties import Property, encode_properties
from formats.bmq.wire.push import Push, PushFlag
from formats.bmq.wire.rda import limited
from scripts.bench.step_cases.common import ATTEMPTS, DOMAINS, PAYLOAD, POISON, Outcome, do_nothing, open_directory
from tests.broker.bmq.relay.hop_rig import HopClient, World
from tests.broker.bmq.rig import ACK, WRITE, Rig, Wanted, guid, start

__all__ = ["HOP_CASES", "HopBench"]


class _Hops(World):
    """Members of a cluster that elect their primary; each has its partition in files."""

    def __init__(self, folder: Path, limits: PartitionLimits) -> None:
        self._folder = folder
        self._limits = limits
        super().__init__(DOMAINS)
        self.make_primary(0)

    def _start(self, node_id: int, make_role: Callable[[Node], Role]) -> Rig:
        directory = open_directory(self._folder / str(node_id))
        return start(directory, domains=self.domains, limits=self._limits, make_role=make_role)


class HopBench:
    """A hop in a member of a cluster, with very many messages from upstream, and the steps that the member takes.

    The bench injects the messages into the hop's input; the primary does not know them, and its steps are not measured.
    """

    def __init__(self, folder: Path, messages: int) -> None:
        limits = PartitionLimits(journal=messages * 240 + (1 << 20), data=messages * 160 + (1 << 22), qlist=1 << 16)
        self.messages = messages
        self.world = _Hops(folder, limits)
        self.hop = self.world.nodes[1]
        self.node = self.hop.rig.node
        self.data = encode_properties([Property("x", PropertyType.INT32, 7)], 0) + PAYLOAD

    def reader(self, *wanted: Wanted, takes: bool = True) -> HopClient:
        """A consumer; without `takes`, its link has no room."""
        client = self.world.client(1)
        client.open(1, POISON, 2)
        client.session.client.ready = takes
        client.subscribe(1, *wanted or (Wanted(messages_max=self.messages, bytes_max=1 << 40),))
        client.session.client.ready = takes
        return client

    @property
    def queue(self) -> Queue:
        return self.node.queues[POISON]

    def push(self) -> None:
        relay = self.queue
        assert isinstance(relay, RelayQueue)
        flags = int(PushFlag.MESSAGE_PROPERTIES)
        (subscription_id,) = relay._asked.app_ids
        infos = (SubQueueInfo(subscription_id, limited(ATTEMPTS)),)
        for number in range(self.messages):
            relay.arrivals.on_push(Push(flags, 0, guid(number), 0, 0, memoryview(b""), memoryview(self.data)), infos)
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
        """Deliver everything that was sent, without reactions."""
        self.hop.links.sent.clear()
        for session in self.node.sessions.values():
            if session.output_size():
                session.take_output()

    def measure(self, case: str, action: Callable[[], object]) -> Outcome:
        times, cpu_times = [], []
        more, act = True, action
        while more:
            wall, cpu = time.perf_counter(), time.process_time()
            act()
            more = self._step()
            times.append((time.perf_counter() - wall) * 1000)
            cpu_times.append((time.process_time() - cpu) * 1000)
            self._take()
            act = do_nothing
        return Outcome(case, times[0], max(times), max(cpu_times), len(times), sum(times), 0.0)

    def close(self) -> None:
        for hop in self.world.nodes.values():
            hop.rig.stop()


def hop_moves(bench: HopBench) -> list[Outcome]:
    """A consumer has all messages; a root opens at its node and leaves; then the consumer is lost."""
    queues, primary = bench.hop.queues, bench.world.primary
    consumer = bench.reader()
    bench.push()
    queues.primary_active(0, primary or 0, False)
    queues.restored(0)
    root = bench.node.serve_queue(POISON, bench.node.domains["poison"])
    content = Content(bench.data, crc32c(bench.data), 0, True, 0)
    for number in range(bench.messages):
        root.post_one(guid(number), content)
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
    relay.arrivals.read = lambda guid: content
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
    unwanted = bench.measure("a hop's consumer wants others", lambda: relay.reconfigure(stream, other, do_nothing))
    assert not relay.messages
    return [unwanted]


def hop_lost(bench: HopBench) -> list[Outcome]:
    """A hop loses its upstream while all messages wait at it, for a consumer whose link has no room."""
    bench.reader(takes=False)
    bench.push()
    relay = bench.queue
    assert len(relay.messages) == bench.messages
    lost = bench.measure("a hop's upstream is lost", lambda: bench.hop.queues.primary_active(0, 0, False))
    assert not relay.messages
    return [lost]


def hop_resends(bench: HopBench) -> list[Outcome]:
    """A hop without an upstream keeps posts and confirms; the next upstream gets all and acknowledges none."""
    bench.reader()
    client = bench.world.client(1)
    client.open(1, POISON, WRITE | ACK)
    bench.rest()
    relay = bench.queue
    assert isinstance(relay, RelayQueue)
    bench.hop.queues.primary_active(0, 0, False)
    content = Content(bench.data, crc32c(bench.data), 0, True, 0)
    for number in range(bench.messages):
        relay.post_one(guid(number), content)
        relay.acknowledge_later(guid(number), client.session.client, 1, number)
        relay.confirms.send(DEFAULT_APP_ID, (guid(bench.messages + number),))
        if number % 1000 == 0:
            bench.rest()
    bench.hop.queues.primary_active(0, 0, True)
    bench.rest()
    sent = bench.measure("a hop's new upstream gets all", relay.openings.all_opened)
    assert relay.opens.state is UpstreamState.OPEN
    bench.hop.rig.now.ms += relay.config.deduplication_time_ms
    expired = bench.measure("posts at a hop are given up", lambda: relay.around.timers.run(relay.now.ms))
    while relay.unacknowledged:
        again = bench.measure(expired.case, lambda: relay.around.timers.run(relay.now.ms))
        expired = max(expired, again, key=lambda outcome: outcome.longest_cpu_ms)
    return [sent, expired]


HOP_CASES: dict[str, Callable[[HopBench], list[Outcome]]] = {
    "hop-lost": hop_lost,
    "hop-moves": hop_moves,
    "hop-waits": hop_waits,
    "hop-resends": hop_resends,
}
