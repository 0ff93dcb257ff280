"""Messages that a primary pushes to a replica which heals its copy of the partition, and lacks them until then."""

from __future__ import annotations

import pytest

from broker.bmq.queue.purges import purge
from broker.bmq.relay.relay import RelayQueue
from formats.bmq.control.messages import OpenQueue
from tests.broker.bmq.relay.hop_rig import DOMAINS, QUEUE, HopClient, World
from tests.broker.bmq.relay.test_order_at_reference import sent_to
from tests.broker.bmq.rig import ACK, WRITE, guid

MANY = 40


@pytest.fixture
def world() -> World:
    world = World(DOMAINS)
    world.make_primary(0)
    return world


@pytest.fixture
def consumer(world: World) -> HopClient:
    consumer = world.client(1)
    consumer.read(1, QUEUE, messages_max=1000)
    return consumer


@pytest.fixture
def producer(world: World, consumer: HopClient) -> HopClient:
    producer = world.client(0)
    producer.open(1, QUEUE, WRITE | ACK)
    post(producer, 0)
    assert values(consumer) == [0]
    return producer


def post(producer: HopClient, *numbers: int) -> None:
    for number in numbers:
        producer.put(1, guid(number), b"%d" % number)
    producer.acks()


def values(consumer: HopClient) -> list[int]:
    return [int(payload) for payload in consumer.payloads()]


def relay_of(world: World) -> RelayQueue:
    relay = world.nodes[1].rig.node.queues[QUEUE]
    assert isinstance(relay, RelayQueue)
    return relay


@pytest.mark.parametrize("amount", [1, 1000])
def test_they_are_delivered_in_order_when_the_copy_is_healed(
    world: World, producer: HopClient, consumer: HopClient, amount: int
) -> None:
    opens = sent_to(world, 0).count(OpenQueue.__name__)
    world.uncopied.add(1)
    post(producer, *range(1, MANY // 2))
    world.wait(1000)
    # A primary of the reference's tells again that it is active when the copy is healed.
    world.nodes[1].queues.primary_active(0, 0, True)
    post(producer, *range(MANY // 2, MANY))
    assert values(consumer) == []
    if amount == 1:
        world.slice(amount)
    world.uncopied.clear()
    world.wait(300)
    post(producer, MANY)
    world.wait(100)
    assert values(consumer) == list(range(1, MANY + 1))
    # It need not be opened again: a primary of the reference's would not push again what it has pushed.
    assert sent_to(world, 0).count(OpenQueue.__name__) == opens
    consumer.confirm(1, *(guid(number) for number in range(MANY + 1)))
    assert not relay_of(world).messages
    assert not world.nodes[0].rig.node.queues[QUEUE].messages


@pytest.mark.parametrize("told", [False, True])
def test_one_that_is_removed_meanwhile_holds_up_nothing(
    world: World, producer: HopClient, consumer: HopClient, told: bool
) -> None:
    world.uncopied.add(1)
    post(producer, 1, 2)
    root = world.nodes[0].rig.node.queues[QUEUE]
    purge(root)
    world.run()
    if told:
        world.nodes[1].queues.purged(0, root.key, ({guid(1), guid(2)},), heals=True)
    post(producer, 3)
    world.uncopied.clear()
    world.wait(500)
    assert values(consumer) == [3]
    post(producer, 4)
    assert values(consumer) == [4]


@pytest.mark.parametrize("heals", [False, True])
def test_a_purge_of_earlier_messages_leaves_them(
    world: World, producer: HopClient, consumer: HopClient, heals: bool
) -> None:
    """A copy learns of the purge after the push of a message that was posted after it."""
    world.uncopied.add(1)
    post(producer, 2, 3)
    world.nodes[1].queues.purged(0, relay_of(world).key, ({guid(1)},), heals=heals)
    world.uncopied.clear()
    world.wait(300)
    assert values(consumer) == [2, 3]


def test_a_purge_that_heals_the_copy_leaves_later_messages_with_their_consumer(
    world: World, producer: HopClient, consumer: HopClient
) -> None:
    """A copy that is fetched again gets the record of the purge once more."""
    post(producer, 1, 2, 3)
    relay = relay_of(world)
    world.nodes[1].queues.purged(0, relay.key, ({guid(1): 0}, {guid(2): 0}), heals=True)
    assert list(relay.messages) == [guid(0), guid(3)]
    world.nodes[1].queues.purged(0, relay.key, (), heals=False)
    assert not relay.messages


@pytest.mark.parametrize("removed", [1, 2, 3])
def test_the_removal_of_one_of_them_leaves_the_others(
    world: World, producer: HopClient, consumer: HopClient, removed: int
) -> None:
    opens = sent_to(world, 0).count(OpenQueue.__name__)
    world.uncopied.add(1)
    post(producer, 1, 2, 3)
    consumer.confirm(1, guid(removed))
    world.run()
    assert guid(removed) not in world.nodes[0].rig.node.queues[QUEUE].messages
    world.nodes[1].queues.removed(0, relay_of(world).key, guid(removed))
    world.uncopied.clear()
    world.wait(300)
    assert values(consumer) == [number for number in (1, 2, 3) if number != removed]
    assert sent_to(world, 0).count(OpenQueue.__name__) == opens
    lacking = relay_of(world).arrivals.lacking
    assert not lacking.waiting
    assert not lacking.removed


@pytest.mark.parametrize("is_purged", [False, True])
def test_one_that_was_posted_again_after_its_removal_is_delivered(
    world: World, producer: HopClient, consumer: HopClient, is_purged: bool
) -> None:
    """A copy that heals learns late of the removal of the first message with this GUID."""
    world.uncopied.add(1)
    post(producer, 1, 2)
    queues, key = world.nodes[1].queues, relay_of(world).key
    if is_purged:
        queues.purged(0, key, ({guid(1)},), heals=True)
    else:
        queues.removed(0, key, guid(1))
    world.uncopied.clear()
    world.wait(300)
    assert values(consumer) == [1, 2]


@pytest.mark.parametrize("is_purged", [False, True])
def test_one_that_was_posted_again_and_is_held_comes_back(
    world: World, producer: HopClient, consumer: HopClient, is_purged: bool
) -> None:
    """A copy still has the first message when the second is pushed, and learns of the removal when a consumer holds it.

    The root holds the second to be there: when its consumer leaves, another one there gets it.
    """
    post(producer, 1)
    assert values(consumer) == [1]
    world.uncopied.add(1)
    queues, key = world.nodes[1].queues, relay_of(world).key
    if is_purged:
        queues.purged(0, key, ({guid(1)},), heals=True)
    else:
        queues.removed(0, key, guid(1))
    other = world.client(1)
    other.read(1, QUEUE, messages_max=1000)
    world.uncopied.clear()
    world.wait(300)
    consumer.drop()
    world.wait(300)
    assert sorted(values(other)) == [0, 1]


def test_if_there_are_too_many_the_queue_is_opened_again(
    world: World,
    producer: HopClient,
    consumer: HopClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("broker.bmq.relay.pending_pushes._WAITING_MAX", 5)
    world.uncopied.add(1)
    post(producer, *range(1, 10))
    assert "#QUEUE_UNKNOWN_MESSAGE" in caplog.text
    assert not relay_of(world).arrivals.lacking.waiting
    assert relay_of(world).upstream is None
    world.uncopied.clear()
    world.wait(500)
    assert values(consumer) == list(range(1, 10))
