"""A queue whose waiting messages are packed, beside one whose messages are not: nobody can tell them apart."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.messages import Message
from broker.bmq.queue.backlog import Part
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.queue.queue import Queue
from formats.bmq.codes import AckStatus
from tests.broker.bmq.queue.posting import FANOUT, QUEUE, ROOMY, numbers, payload, post, producing, reading
from tests.broker.bmq.rig import APPS, LIMITS, NODE, READ, Client, Rig, Wanted, guid, start

PART = 3
NEVER = 1 << 40
# Clients say nothing for as long as a test waits.
PATIENT = replace(NODE, heartbeat_interval_ms=0)
TTL_S = 30
DOMAINS = (
    DomainConfig("priority", Mode.PRIORITY),
    DomainConfig("fanout", Mode.FANOUT, APPS),
    DomainConfig("memory", Mode.PRIORITY, persistent=False),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["post", "post", "wait", "wait"]), st.integers(1, 8)),
        st.tuples(
            st.sampled_from(["read", "read", "confirm", "confirm", "leave", "again", "get", "list", "late"]),
            st.integers(0, 50),
        ),
        st.tuples(st.sampled_from(["purge", "purge app", "expire", "restart"]), st.integers(0, 2)),
    ),
    min_size=10,
    max_size=60,
)


def begin(part: int, ttl_s: int | None = None, rig: Rig | None = None) -> Rig:
    domains = [replace(each, message_ttl_s=ttl_s) for each in DOMAINS]
    rig = rig or start(domains=domains, identity=PATIENT, limits=ROOMY)
    rig.node.work.part, rig.node.work.packed_after_ms = part, 0
    return rig


def packed(queue: Queue) -> int:
    """The number of messages that are packed."""
    return sum(part.size for part in queue.messages.older if part.packed is not None)


def state(message: Message) -> tuple[object, ...]:
    return (
        message.guid,
        message.size,
        message.checksum,
        message.outstanding,
        message.arrived_ms,
        message.offset,
        message.payload,
    )


@dataclass
class Side:
    """A node with one queue, its consumers and what they hold."""

    uri: str
    apps: tuple[str, ...]
    part: int
    rig: Rig = field(init=False)
    producer: Client = field(init=False)
    consumers: dict[int, tuple[Client, list[bytes]]] = field(default_factory=dict)
    posted: int = 0
    packed: int = 0

    def __post_init__(self) -> None:
        self.rig = begin(self.part, TTL_S)
        self.producer = producing(self.rig, self.uri)

    @property
    def queue(self) -> Queue:
        return self.rig.node.queues[self.uri]

    def apply(self, what: str, number: int) -> object:
        """Do a step; what can be seen of it."""
        result = getattr(self, "do_" + what.replace(" ", "_"))(number)
        pushed = []
        for client, held in self.consumers.values():
            pushes = client.pushes()
            held += [push.guid for push in pushes]
            pushed.append(pushes)
        self.packed += packed(self.queue)
        return result, pushed, list(self.queue.messages), self.queue.bytes, self.apps_state(), self.files()

    def apps_state(self) -> list[tuple[int, int]]:
        return [(app.messages, app.bytes) for app in self.queue.apps.values()]

    def files(self) -> dict[str, bytes]:
        partition = self.rig.node.partitions[0]
        files = partition.files
        return {
            "journal": bytes(files.journal.buffer[: files.journal_end]),
            "data": bytes(files.data.buffer[: files.data_end]),
        }

    def do_post(self, count: int) -> object:
        post(self.producer, *range(self.posted, self.posted + count))
        self.posted += count
        return None

    def do_again(self, number: int) -> object:
        """A producer repeats what it posted; it is stored once."""
        self.producer.put(1, guid(number), payload(number))
        self.posted = max(self.posted, number + 1)
        return [ack.status for ack in self.producer.acks()]

    def do_wait(self, count: int) -> object:
        for _ in range(count):
            self.rig.now.ms += 150
            self.rig.node.tick()
            self.rig.node.work.finish()
        return None

    def do_expire(self, number: int) -> object:
        self.rig.wait(TTL_S * 500 * number)
        return None

    def do_read(self, number: int) -> object:
        key = number % 4
        if key not in self.consumers:
            client = self.rig.connect()
            app = self.apps[key % len(self.apps)]
            client.open(1, self.uri, READ, app, int(bool(app)))
            client.subscribe(1, Wanted(messages_max=(2, 5, 100)[number % 3]), app=app or "__default")
            self.consumers[key] = (client, [])
        return None

    def do_confirm(self, number: int) -> object:
        for key, (client, held) in self.consumers.items():
            some = held[: number % 5] if number % 2 else held[-(number % 5) :]
            held[:] = [each for each in held if each not in some]
            if some:
                client.confirm(1, *some, sub_id=int(bool(self.apps[key % len(self.apps)])))
        return None

    def do_late(self, number: int) -> object:
        """A client that reconnected confirms a message that was with it before, and waits for another."""
        for key, (client, _) in self.consumers.items():
            client.confirm(1, guid(number), sub_id=int(bool(self.apps[key % len(self.apps)])))
        return None

    def do_leave(self, number: int) -> object:
        if self.consumers:
            key = sorted(self.consumers)[number % len(self.consumers)]
            self.consumers.pop(key)[0].drop()
            self.rig.node.work.finish()
        return None

    def do_get(self, number: int) -> object:
        message = self.queue.messages.get(guid(number))
        return message is not None and (state(message), bytes(self.queue.log.read(message)))

    def do_list(self, number: int) -> object:
        if number % 2:
            return [state(each) for each in self.queue.messages.values()]
        return [state(each) for each in self.queue.messages.peek(offset=number // 2)]

    def do_purge(self, number: int) -> object:
        result = purge(self.queue)
        for _, held in self.consumers.values():
            held.clear()
        self.rig.node.work.finish()
        return result

    def do_purge_app(self, number: int) -> object:
        app = list(self.queue.apps.values())[number % len(self.queue.apps)]
        result = purge_app(self.queue, app)
        for key, (_, held) in self.consumers.items():
            if self.apps[key % len(self.apps)] in (app.app_id, ""):
                held.clear()
        self.rig.node.work.finish()
        return result

    def do_restart(self, number: int) -> object:
        if self.queue.config.persistent:
            self.consumers.clear()
            self.rig = begin(self.part, rig=self.rig.restart(identity=PATIENT))
            self.producer = producing(self.rig, self.uri)
        return None


def check(queue: Queue) -> None:
    """Each message is in one place for each app that wants it: by itself, or in a part."""
    kept = {message.guid: message for message in queue.messages.peek()}
    for app in queue.apps.values():
        found = [*app.redelivery, *app.aside.values(), *(each for each in app.pending if isinstance(each, Message))]
        found += [message for stream in app.streams for message, _ in stream.unconfirmed.values()]
        places = [each.guid for each in found if each.outstanding & app.bit and kept.get(each.guid) is each]
        for part in app.pending:
            if isinstance(part, Part):
                places += [each.guid for each in part.peek() if each.outstanding & app.bit]
        assert sorted(places) == sorted(each.guid for each in kept.values() if each.outstanding & app.bit)


def run(uri: str, apps: tuple[str, ...], steps: list[tuple[str, int]]) -> int:
    ours, other = Side(uri, apps, PART), Side(uri, apps, NEVER)
    for what, number in steps:
        assert ours.apply(what, number) == other.apply(what, number), (what, number)
        check(ours.queue)
    assert not other.packed
    for side in (ours, other):
        for client, _ in side.consumers.values():
            client.disconnect()
        side.consumers.clear()
    for app in apps:
        sides = [reading(side.rig, uri, app).pushes() for side in (ours, other)]
        assert sides[0] == sides[1]
    return ours.packed


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_histories_of_a_queue(steps: list[tuple[str, int]]) -> None:
    run(QUEUE, ("",), steps)


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_histories_of_a_fanout(steps: list[tuple[str, int]]) -> None:
    run(FANOUT, APPS, steps)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_histories_of_a_queue_in_memory(steps: list[tuple[str, int]]) -> None:
    run("bmq://memory/q", ("",), steps)


def waiting(rig: Rig, count: int, uri: str = QUEUE) -> Queue:
    """A queue of messages that are packed as far as possible."""
    post(producing(rig, uri), *range(count))
    settle(rig)
    return rig.node.queues[uri]


def settle(rig: Rig) -> None:
    for _ in range(3):
        rig.now.ms += 150
        rig.node.tick()
        rig.node.work.finish()


def test_waiting_messages_are_packed() -> None:
    queue = waiting(begin(4), 11)
    app = queue.apps["__default"]
    assert packed(queue) == 8
    assert len(app.pending) == 2 + 3
    assert [*queue.messages.loose, *queue.messages.unpacked] == []


def test_a_repetition_of_a_packed_message_is_acknowledged_and_not_stored() -> None:
    rig = begin(4)
    queue = waiting(rig, 8)
    producer = producing(rig)
    producer.put(1, guid(2), payload(2))
    assert [ack.status for ack in producer.acks()] == [AckStatus.SUCCESS]
    assert (len(queue.messages), packed(queue)) == (8, 8)


def test_an_app_gets_packed_messages_in_order_as_far_as_it_has_room() -> None:
    rig = begin(4)
    queue = waiting(rig, 12)
    consumer = reading(rig, messages_max=6)
    assert numbers(consumer) == list(range(6))
    assert packed(queue) == 4
    consumer.confirm(1, *map(guid, range(6)))
    assert numbers(consumer) == list(range(6, 12))


def test_messages_confirmed_by_one_app_are_packed_for_another() -> None:
    rig = begin(4)
    queue = waiting(rig, 8, FANOUT)
    consumer = reading(rig, FANOUT, "foo")
    assert numbers(consumer) == list(range(8))
    assert packed(queue) == 0
    settle(rig)
    assert packed(queue) == 0
    consumer.confirm(1, *map(guid, range(8)), sub_id=1)
    settle(rig)
    assert packed(queue) == 8
    assert [each.outstanding for each in queue.messages.peek()] == [queue.all_apps & ~queue.apps["foo"].bit] * 8
    for app in ("bar", "baz"):
        assert numbers(reading(rig, FANOUT, app)) == list(range(8))


def test_message_that_was_looked_up_is_packed_again() -> None:
    rig = begin(4)
    queue = waiting(rig, 8)
    message = queue.messages[guid(5)]
    assert packed(queue) == 4
    settle(rig)
    # Somebody has it in hand.
    assert (message.size, packed(queue)) == (1, 4)
    del message
    settle(rig)
    assert packed(queue) == 8


def test_messages_about_to_be_delivered_are_not_packed() -> None:
    rig = begin(4)
    consumer = reading(rig, messages_max=1)
    queue = waiting(rig, 21)
    assert numbers(consumer) == [0]
    # The first 4 that wait are left alone, and the last 4 are too few with the next.
    assert [isinstance(each, Part) for each in queue.apps["__default"].pending] == [False] * 4 + [True] * 4
    rig.node.work.packed_after_ms = 5000
    post(producing(rig), *range(21, 30))
    settle(rig)
    assert packed(queue) == 16
    rig.now.ms += 5000
    settle(rig)
    assert packed(queue) == 24


def test_a_consumer_that_keeps_up_leaves_nothing_to_pack() -> None:
    rig = begin(2)
    producer, consumer = producing(rig), reading(rig)
    for number in range(20):
        post(producer, number)
        settle(rig)
        queue = rig.node.queues[QUEUE]
        assert (packed(queue), queue.messages.older) == (0, [])
        if number >= 4:
            consumer.confirm(1, guid(number - 4))


def test_restored_messages_are_packed_at_once() -> None:
    rig = begin(4)
    waiting(rig, 20)
    restarted = start_with_part(rig, 4)
    queue = restarted.node.queues[QUEUE]
    assert packed(queue) == 16
    assert numbers(reading(restarted)) == list(range(20))


def start_with_part(rig: Rig, part: int) -> Rig:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("broker.bmq.core.work.PART", part)
        return rig.restart()


def test_messages_in_the_way_of_others_are_left_where_they_are() -> None:
    """A stuck consumer holds the first ones; later ones that wait are packed."""
    rig = begin(4)
    consumer = reading(rig, messages_max=3)
    queue = waiting(rig, 30)
    assert numbers(consumer) == [0, 1, 2]
    assert packed(queue) == 20
    assert queue.messages.older[0].entries.keys() == {guid(number) for number in range(7)}
    consumer.drop()
    rig.node.work.finish()
    assert numbers(reading(rig)) == list(range(30))


def test_messages_expire_packed_or_not() -> None:
    rig = begin(4, ttl_s=100)
    queue = waiting(rig, 10)
    rig.now.ms += 50_000
    post(producing(rig), *range(10, 20))
    settle(rig)
    assert packed(queue) == 20
    rig.wait(51_000)
    assert list(queue.messages) == [guid(number) for number in range(10, 20)]
    assert numbers(reading(rig)) == list(range(10, 20))


def test_a_purge_of_a_queue_lets_go_of_packed_messages() -> None:
    rig = begin(4)
    queue = waiting(rig, 10)
    assert purge(queue)[0] == 10
    rig.node.work.finish()
    assert (len(queue.messages), rig.node.partitions[0].records.due) == (0, 0)
    producer = producing(rig)
    producer.put(1, guid(2), payload(2))
    assert [ack.status for ack in producer.acks()] == [AckStatus.SUCCESS]
    assert not queue.messages


def test_a_purge_of_an_app_whose_messages_are_packed() -> None:
    rig = begin(4)
    queue = waiting(rig, 9, FANOUT)
    assert purge_app(queue, queue.apps["bar"])[0] == 9
    rig.node.work.finish()
    settle(rig)
    assert packed(queue) == 8
    assert numbers(reading(rig, FANOUT, "bar")) == []
    assert numbers(reading(rig, FANOUT, "foo")) == list(range(9))


def test_packed_messages_are_where_a_rollover_has_moved_them() -> None:
    rig = start(limits=LIMITS)
    rig.node.work.part, rig.node.work.packed_after_ms = 4, 0
    queue = waiting(rig, 12, FANOUT)
    producer = producing(rig)
    consumer = reading(rig)
    first = rig.node.partitions[0].files
    number = 100
    while rig.node.partitions[0].files is first:
        assert number < 2000
        producer.put(1, guid(number), payload(number) * 100)
        consumer.confirm(1, guid(number))
        number += 1
        settle(rig)
    settle(rig)
    assert packed(queue) == 12
    for app in APPS:
        assert numbers(reading(rig, FANOUT, app)) == list(range(12))
