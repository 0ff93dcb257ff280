"""Whole events and single messages: the same files, and the same output, from the same input."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from crc32c import crc32c

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import EventType
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.wire.event import build_event
from formats.bmq.wire.put import append_put
from tests.broker.bmq.random_events import CountedBulk, RandomEvents, Row
from tests.broker.bmq.rig import ACK, WRITE, Client, Rig, Wanted, guid, start
from tests.broker.fakes import MemoryDirectory

DOMAINS = (
    DomainConfig("priority", Mode.PRIORITY),
    DomainConfig("fanout", Mode.FANOUT, ("foo", "bar")),
    DomainConfig("strong", Mode.PRIORITY, strong=True),
    DomainConfig("narrow", Mode.PRIORITY, queue_messages_max=25),
    DomainConfig("memory", Mode.PRIORITY, persistent=False),
)
# With the small limits, the partition rolls over again and again, and gets full.
SMALL = PartitionLimits(journal=16 << 10, data=24 << 10, qlist=4 << 10)
LARGE = PartitionLimits(journal=1 << 20, data=4 << 20, qlist=16 << 10)
NAMES = tuple(config.name for config in DOMAINS)


class Result(NamedTuple):
    files: dict[str, bytes]
    outputs: list[bytes]
    whole_puts: int
    whole_confirms: int


class Play:
    """A node, and clients whose events follow from a seed."""

    def __init__(self, seed: int, *, whole: bool) -> None:
        self.random = random.Random(seed)
        limits = self.random.choice((SMALL, LARGE, LARGE))
        self.rig: Rig = start(MemoryDirectory(chunk=1 << 12), domains=DOMAINS, limits=limits)
        assert self.rig.node.bulk is not None
        self.counts = CountedBulk(self.rig.node.bulk)
        self.rig.node.bulk = self.counts if whole else None
        kept = self.rig.node.partitions[0].kept
        kept.copies_wanted, kept.is_copied = 2, True
        self.outputs: list[bytes] = []
        self.events = RandomEvents(self.random, range(len(NAMES)), (9, 1))
        self.producers = [self._producer() for _ in range(2)]
        self.consumers: list[Client] = []
        self.got: dict[int, list[Row]] = {}

    def _producer(self) -> Client:
        client = self.rig.connect()
        for queue_id, name in enumerate(NAMES):
            client.open(queue_id, f"bmq://{name}/q", WRITE | ACK)
        return client

    def put(self) -> None:
        events = self.events.posts()
        self.random.choice(self.producers).send(events)

    def confirm(self) -> None:
        index = self.random.randrange(max(1, len(self.consumers)))
        got = self.got.get(index)
        if got:
            events = self.events.confirms(got)
            if self.consumers[index].session.is_client:
                self.consumers[index].send(events)

    def join(self) -> None:
        rng = self.random
        if len(self.consumers) >= 5:
            return
        client = self.rig.connect()
        for queue_id, name in enumerate(NAMES):
            app = rng.choice(("foo", "bar")) if name == "fanout" else ""
            client.open(queue_id, f"bmq://{name}/q", 2, app, 1 if app else 0)
            room = rng.choice((5, 1000, 1000))
            client.subscribe(
                queue_id,
                Wanted(messages_max=room, bytes_max=rng.choice((500, 1 << 20, 1 << 20))),
                app=app or "__default",
            )
        self.consumers.append(client)

    def leave(self) -> None:
        if self.consumers and self.random.random() < 0.3:
            self.random.choice(self.consumers).session.end("gone")

    def copied(self) -> None:
        partition = self.rig.node.partitions[0]
        kept = partition.kept
        kept.copied(self.random.randint(kept.copied_number, partition.sequence_number))

    def read(self) -> None:
        for number, client in enumerate([*self.producers, *self.consumers]):
            if self.random.random() < 0.7:
                self.outputs.append(client.take())
                at = number - len(self.producers)
                if at >= 0:
                    rows = self.got.setdefault(at, [])
                    rows += [(push.queue_id, push.guid, 1 if push.queue_id == 1 else 0) for push in client.pushes()]

    def pass_time(self) -> None:
        self.rig.now.ms += self.random.choice((1, 50, 1000))
        self.rig.now.wall_s += 1
        self.rig.node.tick()

    def run(self, steps: int) -> Result:
        acts: list[Callable[[], None]] = [
            self.put,
            self.confirm,
            self.read,
            self.copied,
            self.pass_time,
            self.leave,
            self.join,
        ]
        self.join()
        for _ in range(steps):
            self.random.choices(acts, (10, 10, 10, 4, 2, 1, 1))[0]()
            self.rig.node.end_step()
        files = {name: bytes(content.data) for name, content in self.rig.directory.files.items()}
        return Result(files, self.outputs, self.counts.whole_puts, self.counts.whole_confirms)


@pytest.mark.parametrize("seeds", range(8))
def test_whole_events_write_and_send_the_same(seeds: int) -> None:
    puts = confirms = 0
    for seed in range(seeds * 10, seeds * 10 + 10):
        whole, single = (Play(seed, whole=each).run(60) for each in (True, False))
        assert whole.outputs == single.outputs, seed
        assert whole.files == single.files, seed
        puts += whole.whole_puts
        confirms += whole.whole_confirms
    assert puts > 20
    assert confirms > 10


def test_a_process_killed_within_a_write_keeps_whole_records() -> None:
    """DATA is written before the journal, whose records are kept as far as they were written."""
    rig = start(MemoryDirectory(chunk=1 << 12), domains=DOMAINS, limits=LARGE)
    producer = rig.connect()
    producer.open(1, "bmq://priority/q", WRITE | ACK)
    assert producer.post(1, guid(1), b"first").value == 0
    partition = rig.node.partitions[0]
    before, name = partition.files.journal_end, partition.files.journal.name
    body = bytearray()
    for number in range(2, 7):
        append_put(body, 1, guid(number), b"%d" % number, crc32c(b"%d" % number))
    producer.send(build_event(EventType.PUT, bytes(body)))
    assert partition.files.journal_end == before + 5 * JOURNAL_RECORD_SIZE
    for written in range(0, 5 * JOURNAL_RECORD_SIZE + 1, 15):
        directory = rig.directory.after_crash()
        end = before + 5 * JOURNAL_RECORD_SIZE
        directory.files[name].data[before + written : end] = bytes(end - before - written)
        again = rig.restart(directory)
        messages = again.node.queues["bmq://priority/q"].messages
        assert list(messages) == [guid(number) for number in range(1, 2 + written // JOURNAL_RECORD_SIZE)], written
        assert [bytes(messages[each].guid) for each in messages] == list(messages)
        assert not [fault for fault in again.faults() if written % JOURNAL_RECORD_SIZE == 0], written
