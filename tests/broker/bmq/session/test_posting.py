"""Runs of posts and confirms: what they write and send is what their messages write and send one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.messages import Message
from broker.bmq.partition.records import PartitionRecords
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import EventType
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.padding import WORD
from formats.bmq.wire.confirm import build_confirm_event, iter_confirms
from formats.bmq.wire.event import build_event, iter_frames
from formats.bmq.wire.put import PUT_HEADER, append_put
from tests.broker.bmq.random_events import RandomEvents, Row
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


class Play:
    """A node, and clients whose events follow from a seed."""

    def __init__(self, seed: int, *, whole: bool) -> None:
        self.random = random.Random(seed)
        self.whole = whole
        limits = self.random.choice((SMALL, LARGE, LARGE))
        self.rig: Rig = start(MemoryDirectory(chunk=1 << 12), domains=DOMAINS, limits=limits)
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
        self._send(self.random.choice(self.producers), events)

    def _send(self, client: Client, events: bytes) -> None:
        for event in [events] if self.whole else single_events(events):
            client.send(event)

    def confirm(self) -> None:
        index = self.random.randrange(max(1, len(self.consumers)))
        got = self.got.get(index)
        if got:
            events = self.events.confirms(got)
            if self.consumers[index].session.is_client:
                self._send(self.consumers[index], events)

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
        return Result(files, self.outputs)


def single_events(events: bytes) -> list[bytes]:
    """Divide events of posts or confirms into events of one message."""
    view = memoryview(events)
    found: list[bytes] = []
    for frame in iter_frames(view, 0, len(view), len(view)):
        if frame.type == EventType.CONFIRM:
            found += [build_confirm_event([each]) for each in iter_confirms(view, frame.body, frame.end)]
            continue
        at = frame.body
        while at < frame.end:
            end = at + PUT_HEADER.unpack(view, at).message_words * WORD
            found.append(build_event(EventType.PUT, events[at:end]))
            at = end
    return found


@pytest.mark.parametrize("seeds", range(8))
def test_runs_write_and_send_the_same_as_their_messages_one_by_one(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[int] = []
    settled: list[int] = []
    append, settle = StoredPartition.append, PartitionRecords.settle

    def count_posts(self: StoredPartition, key: bytes, run: Sequence[Message], *rest: Any) -> bool:
        posted.append(len(run))
        return append(self, key, run, *rest)

    def count_confirms(self: PartitionRecords, key: bytes, app_key: bytes, run: Sequence[Message], *rest: Any) -> None:
        settled.append(len(run))
        settle(self, key, app_key, run, *rest)

    monkeypatch.setattr(StoredPartition, "append", count_posts)
    monkeypatch.setattr(PartitionRecords, "settle", count_confirms)
    for seed in range(seeds * 10, seeds * 10 + 10):
        whole = Play(seed, whole=True).run(60)
        longer = [sum([size > 1 for size in sizes]) for sizes in (posted, settled)]
        single = Play(seed, whole=False).run(60)
        assert longer == [sum([size > 1 for size in sizes]) for sizes in (posted, settled)], "runs of one"
        assert whole.outputs == single.outputs, seed
        assert whole.files == single.files, seed
    assert longer[0] > 20
    assert longer[1] > 10


@pytest.mark.parametrize("count", [1, 2, 3, 7, 32])
def test_a_queue_keeps_what_was_posted_and_not_confirmed_in_its_order(count: int) -> None:
    """Compare runs of `count` messages with a model: the messages in a list, the consumer's in another."""
    rng = random.Random(count)
    rig = start(MemoryDirectory(chunk=1 << 12), domains=DOMAINS, limits=LARGE)
    producer, consumer = rig.connect(), rig.connect()
    producer.open(1, "bmq://priority/q", WRITE | ACK)
    consumer.read(1, "bmq://priority/q")
    kept: list[bytes] = []
    acked: list[bytes] = []
    number = 0
    for _ in range(12):
        body, run = bytearray(), []
        for _ in range(count):
            number += 1
            # A few are posted again; such a one ends a run, and is acknowledged once more.
            again = bool(kept) and rng.random() < 0.1
            run.append(rng.choice(kept) if again else guid(number))
            data = run[-1] * rng.choice((1, 5))
            append_put(body, 1, run[-1], data, crc32c(data))
        producer.send(build_event(EventType.PUT, bytes(body)))
        assert [(ack.guid, ack.status) for ack in producer.acks()] == [(each, 0) for each in run]
        kept += [each for each in dict.fromkeys(run) if each not in kept]
        acked += [each.guid for each in consumer.pushes()]
        confirmed = [each for each in kept if rng.random() < 0.5]
        consumer.send(build_confirm_event([(1, each, 0) for each in confirmed]))
        kept = [each for each in kept if each not in confirmed]
        queue = rig.node.queues["bmq://priority/q"]
        assert list(queue.messages) == kept
        assert queue.usage.messages == len(kept)
    assert acked == list(dict.fromkeys(acked)), "each was delivered once"
    assert list(rig.restart().node.queues["bmq://priority/q"].messages) == kept


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
