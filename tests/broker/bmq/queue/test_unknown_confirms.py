"""Confirms of messages that a root has not got."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from broker.bmq.queue import unknown_confirms
from broker.bmq.queue.unknown_confirms import CONFIRMS_KEPT_MS, KeptConfirms, UnknownConfirms
from broker.common.clock import Now
from formats.bmq.codes import AckStatus
from tests.broker.bmq.rig import ACK, APPS, READ, WRITE, guid, start

# Limits of a queue and of a node.
OF_QUEUE, OF_NODE = 1 << 8, 1 << 9
MANY = range(OF_QUEUE)


@dataclass
class Keeper:
    """A node that keeps confirms."""

    now: Now = field(default_factory=Now)

    def __post_init__(self) -> None:
        self.kept = KeptConfirms(self.now)

    def queue(self) -> UnknownConfirms:
        return UnknownConfirms(self.kept)

    def wait(self, ms: int) -> None:
        self.now.ms += ms
        self.kept.tick()


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setattr(unknown_confirms, "CONFIRMS_KEPT_MAX", OF_QUEUE)
    monkeypatch.setattr(unknown_confirms, "NODE_CONFIRMS_MAX", OF_NODE)
    return Keeper()


def test_the_latest_of_an_app_are_kept(keeper: Keeper) -> None:
    queue = keeper.queue()
    for number in range(OF_QUEUE + 3):
        queue.add(guid(number), "foo")
    assert keeper.kept.count == OF_QUEUE
    taken = queue.take()
    assert len(taken) == OF_QUEUE
    assert (taken[0], taken[-1]) == ((0, guid(3), "foo"), (0, guid(OF_QUEUE + 2), "foo"))
    assert keeper.kept.count == 0
    assert queue.take() == []


def test_repetitions_count_once_as_the_last(keeper: Keeper) -> None:
    queue = keeper.queue()
    for ms in MANY:
        keeper.now.ms = ms
        queue.add(guid(1), "foo")
    queue.add(guid(2), "foo")
    queue.add(guid(1), "foo")
    assert keeper.kept.count == 2
    last = MANY[-1]
    assert queue.take() == [(last, guid(2), "foo"), (last, guid(1), "foo")]


def test_all_are_taken_in_the_order_of_their_time(keeper: Keeper) -> None:
    queue = keeper.queue()
    for ms, app in enumerate(["foo", "bar", "foo", "baz"]):
        keeper.now.ms = ms
        queue.add(guid(ms), app)
    assert queue.take() == [(0, guid(0), "foo"), (1, guid(1), "bar"), (2, guid(2), "foo"), (3, guid(3), "baz")]


def test_old_ones_are_neither_taken_nor_found(keeper: Keeper) -> None:
    queue = keeper.queue()
    queue.add(guid(0), "foo")
    keeper.now.ms = 1
    queue.add(guid(0), "bar")
    keeper.now.ms = CONFIRMS_KEPT_MS
    assert queue.apps_of(guid(0)) == ["bar"]
    assert queue.take() == [(1, guid(0), "bar")]


def test_which_apps_were_done_with_a_message_before_it_came(keeper: Keeper) -> None:
    queue, other = keeper.queue(), keeper.queue()
    for app in ("foo", "bar", "foo"):
        queue.add(guid(1), app)
    assert queue.apps_of(guid(1)) == ["foo", "bar"]
    assert queue.apps_of(guid(2)) == []
    assert other.apps_of(guid(1)) == ()


def test_an_idle_queue_keeps_none_for_long(keeper: Keeper) -> None:
    queue = keeper.queue()
    for number in range(10):
        queue.add(guid(number), "foo")
    keeper.wait(CONFIRMS_KEPT_MS - 1)
    assert keeper.kept.count == 10
    queue.add(guid(9), "foo")
    keeper.wait(1)
    assert keeper.kept.count == 10
    keeper.wait(unknown_confirms.FORGET_MS)
    assert keeper.kept.count == 1
    keeper.wait(CONFIRMS_KEPT_MS)
    assert keeper.kept.count == 0
    assert queue.apps_of(guid(9)) == ()


def test_very_many_are_dropped_some_at_a_time(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_confirms, "FORGOTTEN_AT_ONCE", 10)
    monkeypatch.setattr(unknown_confirms, "APPS_AT_ONCE", 3)
    queues = [keeper.queue() for _ in range(5)]
    for number in range(15):
        queues[0].add(guid(number), "foo")
    for queue in queues[1:]:
        queue.add(guid(1), "foo")
        queue.add(guid(1), "bar")
    keeper.now.ms = CONFIRMS_KEPT_MS - 1
    queues[2].add(guid(2), "foo")
    counts = [keeper.kept.count]
    for _ in range(6):
        keeper.wait(unknown_confirms.FORGET_MS)
        counts.append(keeper.kept.count)
    assert counts == [24, 14, 7, 4, 1, 1, 1]
    assert queues[2].apps_of(guid(2)) == ["foo"]


def test_an_app_with_very_many_displaces_none_of_another(keeper: Keeper) -> None:
    queue = keeper.queue()
    for number in MANY:
        queue.add(guid(number), "loud")
    for number in range(100):
        queue.add(guid(number), "quiet")
    for number in MANY:
        queue.add(guid(OF_QUEUE + number), "loud")
    assert keeper.kept.count == OF_QUEUE // 2 + 100
    taken = queue.take()
    assert [guid for _, guid, app in taken if app == "quiet"] == [guid(number) for number in range(100)]
    assert len(taken) == OF_QUEUE // 2 + 100


def test_no_more_are_taken_than_a_queue_may_keep(keeper: Keeper) -> None:
    queue = keeper.queue()
    for number in MANY:
        queue.add(guid(number), "foo")
    queue.add(guid(0), "bar")
    assert len(queue.take()) == OF_QUEUE // 2 + 1
    assert keeper.kept.count == 0


def test_all_queues_together_have_a_limit(keeper: Keeper) -> None:
    quiet, *loud = [keeper.queue() for _ in range(4)]
    quiet.add(guid(1), "foo")
    for number in MANY:
        for queue in loud:
            queue.add(guid(number), "foo")
    assert keeper.kept.count == OF_NODE
    assert quiet.apps_of(guid(1)) == ["foo"]
    taken = [queue.take() for queue in loud]
    assert sum(map(len, taken)) == OF_NODE - 1
    assert all(each[-1][1] == guid(MANY[-1]) for each in taken)
    assert min(map(len, taken)) > OF_NODE // 4 - 1


def test_the_limits_hold_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_confirms, "CONFIRMS_KEPT_MAX", 12)
    monkeypatch.setattr(unknown_confirms, "NODE_CONFIRMS_MAX", 30)
    random, keeper = Random(1), Keeper()
    queues = [keeper.queue() for _ in range(8)]
    for _ in range(5000):
        queue = random.choice(queues)
        match random.choices(["add", "take", "wait"], [100, 2, 1])[0]:
            case "add":
                number, app = guid(random.randrange(40)), random.choice(APPS)
                queue.add(number, app)
                assert app in queue.apps_of(number) or keeper.kept.count == 30
            case "take":
                taken = queue.take()
                assert len(taken) <= 12
                assert [ms for ms, _, _ in taken] == sorted(ms for ms, _, _ in taken)
            case _:
                keeper.wait(random.randrange(CONFIRMS_KEPT_MS // 2))
        assert keeper.kept.count <= 30
    for queue in queues:
        queue.take()
    assert keeper.kept.count == 0


def test_an_app_does_not_get_a_message_whose_confirm_came_first() -> None:
    """One hop had it from the last primary, which another's post had reached."""
    rig = start()
    consumers = {app: rig.connect() for app in APPS}
    for app, consumer in consumers.items():
        consumer.open(1, "bmq://fanout/q", READ, app, 1)
        consumer.configure(1, app)
    consumers[APPS[0]].confirm(1, guid(1), sub_id=1)
    producer = rig.connect()
    producer.open(1, "bmq://fanout/q", WRITE | ACK)
    assert producer.post(1, guid(1), b"1") is AckStatus.SUCCESS
    assert consumers[APPS[0]].pushes() == []
    for app in APPS[1:]:
        assert [push.guid for push in consumers[app].pushes()] == [guid(1)]
        consumers[app].confirm(1, guid(1), sub_id=1)
    assert list(rig.node.queues["bmq://fanout/q"].messages) == []
    assert list(rig.restart().node.queues["bmq://fanout/q"].messages) == []


def test_a_node_forgets_old_ones_of_an_idle_queue() -> None:
    rig = start()
    consumer = rig.connect()
    consumer.read(1, "bmq://priority/q")
    consumer.confirm(1, *[guid(1)] * 1000)
    assert rig.node.kept_confirms.count == 1
    rig.now.ms += CONFIRMS_KEPT_MS
    rig.node.tick()
    assert rig.node.kept_confirms.count == 0


def test_a_post_that_all_apps_had_confirmed_before_it_came_is_remembered() -> None:
    """The confirms themselves are forgotten sooner than the message."""
    rig = start()
    consumer, producer = rig.connect(), rig.connect()
    consumer.read(1, "bmq://priority/q")
    consumer.confirm(1, guid(1))
    producer.open(1, "bmq://priority/q", WRITE | ACK)
    assert producer.post(1, guid(1), b"1") is AckStatus.SUCCESS
    rig.now.ms += CONFIRMS_KEPT_MS
    assert producer.post(1, guid(1), b"1") is AckStatus.SUCCESS
    assert consumer.pushes() == []
