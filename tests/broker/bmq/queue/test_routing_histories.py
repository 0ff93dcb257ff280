"""Random histories of one queue: no message is lost, appears twice at a time, or waits while somebody could take it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.core.config import MessageThrottle
from broker.bmq.queue.queue import App, Message, Queue
from broker.bmq.queue.routing import Group
from formats.bmq.codes import AckStatus, PropertyType, PutFlag
from formats.bmq.wire.properties import Property, encode_properties, properties_size
from tests.broker.bmq.rig import ACK, APPS, DOMAINS, READ, WRITE, Client, Rig, Wanted, guid, start
from tests.families import examples

TEXTS = ["", "x == 0", "x != 0", "x > 1", "x > 1 && x < 4", "y == 1", "!exists(y)"]
WANTED = st.builds(
    Wanted,
    text=st.sampled_from(TEXTS),
    priority=st.integers(0, 2),
    messages_max=st.sampled_from([0, 1, 2, 100]),
    count=st.integers(1, 3),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.integers(0, 5), st.just(())),
        st.tuples(st.just("post"), st.integers(0, 5), st.just(())),
        st.tuples(st.sampled_from(["confirm", "confirm", "close", "drop", "wait"]), st.integers(0, 50), st.just(())),
        st.tuples(st.just("subscribe"), st.integers(0, 3), st.lists(WANTED, max_size=3).map(tuple)),
    ),
    min_size=15,
    max_size=80,
)


@dataclass
class History:
    """A queue, up to four consumers of it, and what each of them holds."""

    uri: str
    apps: tuple[str, ...]
    rig: Rig
    producer: Client = field(init=False)
    consumers: dict[int, tuple[Client, dict[bytes, int]]] = field(default_factory=dict)
    posted: int = 0
    confirmed: set[tuple[str, bytes]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.producer = self.rig.connect()
        self.producer.open(1, self.uri, WRITE | ACK)

    @property
    def queue(self) -> Queue:
        return self.rig.node.queues[self.uri]

    def app_of(self, number: int) -> str:
        return self.apps[number % len(self.apps)]

    def apply(self, what: str, number: int, wanted: tuple[Wanted, ...]) -> None:
        if what == "post":
            self.post(number)
        elif what == "subscribe":
            self.subscribe(number, wanted)
        elif what == "wait":
            self.rig.wait(1000)
        elif self.consumers:
            key = sorted(self.consumers)[number % len(self.consumers)]
            client, held = self.consumers[key]
            if what == "confirm":
                if held:
                    id = list(held)[number % len(held)]
                    del held[id]
                    client.confirm(1, id, sub_id=int(bool(self.app_of(key))))
                    self.confirmed.add((self.app_of(key), id))
            else:
                app = self.app_of(key)
                if what == "close":
                    client.close(1, self.uri, READ, sub_id=int(bool(app)), app=app)
                else:
                    client.drop()
                del self.consumers[key]
        self.hear()
        self.check()

    def post(self, number: int) -> None:
        properties = [Property("x", PropertyType.INT32, number)]
        if number % 2:
            properties.append(Property("y", PropertyType.INT32, 1))
        area = encode_properties(properties, number % 2)
        flags = PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES
        self.producer.put(1, guid(self.posted), area + b"%d" % self.posted, flags=flags, schema_id=number % 2)
        assert [ack.status for ack in self.producer.acks()] == [AckStatus.SUCCESS]
        self.posted += 1

    def subscribe(self, key: int, wanted: tuple[Wanted, ...]) -> None:
        app = self.app_of(key)
        if key not in self.consumers:
            client = self.rig.connect()
            client.open(1, self.uri, READ, app, int(bool(app)))
            self.consumers[key] = (client, {})
        self.consumers[key][0].subscribe(1, *wanted, app=app or "__default")

    def hear(self) -> None:
        """Let each consumer take its messages, and check that no consumer of the app holds one of them already."""
        for key, (client, held) in self.consumers.items():
            for push in client.pushes():
                number = int(push.payload[properties_size(push.payload) :])
                assert push.guid == guid(number)
                app = self.app_of(key)
                holders = [each for other, (_, each) in self.consumers.items() if self.app_of(other) == app]
                assert not any(push.guid in each for each in holders)
                assert (app, push.guid) not in self.confirmed
                held[push.guid] = number

    def check(self) -> None:
        for app in self.queue.apps.values():
            self.check_app(app)
        wanted = {
            guid(number)
            for number in range(self.posted)
            if any((app, guid(number)) not in self.confirmed for app in self.apps)
        }
        assert set(self.queue.messages) == wanted
        if self.queue.config.persistent:
            due = sum(message.outstanding.bit_count() for message in self.queue.messages.values())
            assert self.rig.node.partitions[0].records.due == due

    def check_app(self, app: App) -> None:
        """Every message that the app wants is in one place, and waits only for want of room."""
        waiting = [*app.redelivery, *(each for each in app.pending if isinstance(each, Message))]
        places: list[Message] = [*waiting, *app.aside.values()]
        places += [message for stream in app.streams for message, _ in stream.unconfirmed.values()]
        found = [message for message in places if message.outstanding & app.bit]
        wanted = [message for message in self.queue.messages.values() if message.outstanding & app.bit]
        assert sorted(found, key=id) == sorted(wanted, key=id)
        assert app.messages == len(wanted)
        for stream in app.streams:
            for subscription in stream.subscriptions:
                used = sum(1 for _, by in stream.unconfirmed.values() if by is subscription)
                assert subscription.holds == used
                assert not (subscription.messages_freed and subscription.messages_left > 0)
                assert not (subscription.bytes_freed and subscription.bytes_left > 0)
        if any(message.outstanding & app.bit for message in waiting):
            assert not any(map(has_room, app.groups.values()))
        for message in app.aside.values():
            values = self.queue.delivery.properties(message, self.queue.log.read(message))
            best = max((group.priority for group in app.groups.values() if group.matches(values)), default=None)
            matching = [each for each in app.groups.values() if each.matches(values) and each.priority == best]
            assert not any(map(has_room, matching))

    def drain(self) -> None:
        """Check that a consumer without limits receives all remaining messages, in order."""
        for client, _ in self.consumers.values():
            client.disconnect()
        self.consumers.clear()
        for app in self.apps:
            client = self.rig.connect()
            client.read(1, self.uri, app, int(bool(app)))
            left = [n for n in range(self.posted) if (app, guid(n)) not in self.confirmed]
            assert [push.guid for push in client.pushes()] == [guid(number) for number in left]


def has_room(group: Group) -> bool:
    return any(each.messages_left > 0 and each.bytes_left > 0 for each in group.subscriptions)


def run(uri: str, apps: tuple[str, ...], steps: list[tuple[str, int, tuple[Wanted, ...]]], attempts: int = 0) -> None:
    rig = start(domains=[replace(config, delivery_attempts_max=attempts) for config in DOMAINS.values()])
    rig.configure(throttle=MessageThrottle(0, 0, 0, 0))
    history = History(uri, apps, rig)
    for step in steps:
        history.apply(*step)
    history.drain()


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_histories_of_a_queue(steps: list[tuple[str, int, tuple[Wanted, ...]]]) -> None:
    run("bmq://priority/q", ("",), steps)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_histories_of_a_fanout(steps: list[tuple[str, int, tuple[Wanted, ...]]]) -> None:
    run("bmq://fanout/q", APPS, steps)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_histories_in_memory_with_attempts_counted(steps: list[tuple[str, int, tuple[Wanted, ...]]]) -> None:
    run("bmq://memory/q", ("",), steps, attempts=60)
