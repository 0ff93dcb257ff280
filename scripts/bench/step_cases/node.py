"""The cases of scripts/benchmark-steps with one node."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from crc32c import crc32c

from broker.bmq.core.messages import Content
from broker.bmq.node.changes import reconfigure
from broker.bmq.node.node import READ_MS
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.queue.queue import Queue
from broker.bmq.relay.handover import retire
from broker.bmq.store.partition_files import PartitionLimits
from broker.bmq.store.removals import SLICE_RECORDS
from broker.shell.files.mapped_files import DataDirectory
from formats.bmq.codes import AckStatus
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from scripts.bench.step_cases.common import (
    DOMAINS,
    FANOUT,
    OTHER,
    PAYLOAD,
    POSTS_A_TICK,
    QUEUE,
    STRONG,
    STRONG_FANOUT,
    TTL_S,
    Outcome,
    do_nothing,
)
from tests.broker.bmq.rig import ACK, WRITE, Client, Rig, Wanted, guid, start

__all__ = ["CASES", "Bench"]

# Records left in a journal when the reference stops filling it, and messages that a consumer confirms at a time.
RECORDS_LEFT, CONFIRMED = 18, 1000


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
        queue = self.queue
        for number in range(self.messages):
            queue.post_one(guid(number), content)
            if number % POSTS_A_TICK == 0:
                self.pass_time(1)
                self.rig.node.tick()
        self.rest()

    def fill_awaiting(self) -> None:
        """Post messages that await copies; none arrives."""
        content = Content(PAYLOAD, crc32c(PAYLOAD), 0, False, 0)
        self.rig.node.partitions[0].kept.copies_wanted = 2
        self.rig.node.partitions[0].kept.is_copied = True
        queue, client = self.queue, self.producer.session.client
        queue.judge_copies()
        for number in range(self.messages):
            queue.post_one(guid(number), content)
            queue.acknowledge_later(guid(number), client, 1, number)
            if number % POSTS_A_TICK == 0:
                self.pass_time(1)
                self.rig.node.tick()
        self.rest()
        assert len(queue.awaiting) == self.messages

    def rest(self) -> None:
        while any(self.rig.node.end_step()):
            self.rig.now.ms += 1
        self.rig.node.dirty.clear()

    def restart_full(self) -> None:
        """Restart with files that have no room for pending records, as the reference can leave them."""
        rig, files = self.rig, self.rig.node.partitions[0].files
        limits = PartitionLimits(
            journal=files.journal_end + RECORDS_LEFT * JOURNAL_RECORD_SIZE, data=rig.limits.data, qlist=rig.limits.qlist
        )
        rig.stop()
        self.rig = start(rig.directory, domains=rig.domains, limits=limits, wall_s=rig.now.wall_s, ms=rig.now.ms)
        self.other = self.rig.connect()
        self.other.open(1, OTHER, WRITE | ACK)
        self._may_be_full = True
        assert self.rig.node.partitions[0].room.tight is not None
        self.rest()

    def consumer(self, *wanted: Wanted, app: str = "") -> Client:
        client = self.rig.connect()
        client.open(1, self.uri, 2, app, 1 if app else 0)
        client.subscribe(1, *wanted or (Wanted(),), app=app or "__default")
        return client

    def drain(self, *clients: Client) -> None:
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
            act = do_nothing
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
    """Measure one receipt that confirms all of them."""
    consumer = bench.consumer(Wanted())
    bench.fill_awaiting()
    partition = bench.rig.node.partitions[0]
    written = partition.sequence_number
    found = bench.measure(
        "copies of all arrive at once", lambda: partition.kept.copied(written), consumer, bench.producer
    )
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
    """Measure a primary that retires with all messages awaiting copies; `hand-over` measures its queue's clients."""
    bench.fill_awaiting()
    node, queue, partition = bench.rig.node, bench.queue, bench.rig.node.partitions[0]

    def end() -> None:
        del node.queues[STRONG]
        retire(queue)
        stores = dict(partition.records.stores)
        partition.deactivate()
        # The other queue stays, to see how long its posts take.
        partition.activate(partition.primary_lease_id + 1)
        partition.records.stores.update((key, store) for key, store in stores.items() if key != queue.key)

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
    return [bench.measure("rollover", bench.rig.node.partitions[0].roll_over)]


def tight(bench: Bench) -> list[Outcome]:
    """Measure confirms in a full journal: by one app, which frees no room, and by all."""
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
    _, firsts, longest, cpus, steps, totals, delays = zip(*parts, strict=True)
    return Outcome(case, max(firsts), max(longest), max(cpus), sum(steps), sum(totals), max(delays))


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
