"""Events that come in one go are taken together, and as if each had come by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from crc32c import crc32c

from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.event import EVENT_HEADER_SIZE
from tests.broker.bmq.relay.hop_rig import DOMAINS, QUEUE, World
from tests.broker.bmq.rig import ACK, READ, WRITE, Client, Rig, guid, put_event, start
from tests.broker.bmq.rig import DOMAINS as OF_ONE_NODE

PRIORITY = "bmq://priority/q"


def posts(*numbers: int, queue_id: int = 1) -> bytes:
    return b"".join(put_event(queue_id, guid(number), b"message %d" % number) for number in numbers)


def overlong(number: int) -> bytes:
    """An event whose message is a word longer than the event: with four more bytes of 1, it is valid."""
    event = bytearray(put_event(1, guid(number), b"message", crc32c(b"message" + b"\1" * 4)))
    words = int.from_bytes(event[EVENT_HEADER_SIZE : EVENT_HEADER_SIZE + 4], "big")
    event[EVENT_HEADER_SIZE : EVENT_HEADER_SIZE + 4] = (words + 1).to_bytes(4, "big")
    return bytes(event)


@pytest.fixture(params=["root", "relay"])
def sides(request: pytest.FixtureRequest) -> tuple[Client, Client]:
    """A producer at the node that stores the queue or at a relay, and a consumer."""
    world = World(DOMAINS)
    world.make_primary(0)
    producer, consumer = world.client(0 if request.param == "root" else 1), world.client(0)
    producer.open(1, QUEUE, WRITE | ACK)
    consumer.read(1, QUEUE)
    return producer, consumer


def test_posts_and_confirms_in_several_events_are_taken(sides: tuple[Client, Client]) -> None:
    producer, consumer = sides
    producer.send(posts(1, 2, 3))
    assert [(ack.guid, ack.status) for ack in producer.acks()] == [(guid(number), 0) for number in (1, 2, 3)]
    assert [push.payload for push in consumer.pushes()] == [b"message 1", b"message 2", b"message 3"]
    consumer.send(b"".join(build_confirm_event([(1, guid(number), 0)]) for number in (1, 2, 3)))
    assert not consumer.node.queues[QUEUE].messages


def test_events_before_garbage_are_taken(sides: tuple[Client, Client]) -> None:
    producer, consumer = sides
    producer.send(posts(1, 2) + b"\xff" * 8)
    assert producer.session.finished
    assert [push.payload for push in consumer.pushes()] == [b"message 1", b"message 2"]


def test_confirms_before_a_malformed_event_are_taken(sides: tuple[Client, Client]) -> None:
    producer, consumer = sides
    producer.send(posts(1, 2))
    assert len(consumer.pushes()) == 2
    malformed = bytearray(build_confirm_event([(1, guid(2), 0)]))
    malformed[EVENT_HEADER_SIZE] = 0xFF
    consumer.send(build_confirm_event([(1, guid(1), 0)]) + bytes(malformed))
    assert consumer.session.finished
    assert list(consumer.node.queues[QUEUE].messages) == [guid(2)]


def test_no_message_reaches_into_the_next_event(sides: tuple[Client, Client]) -> None:
    """The next event would begin with a word that belongs to no message: the one before it is malformed."""
    producer, consumer = sides
    following = bytearray(posts(3))
    following[EVENT_HEADER_SIZE:EVENT_HEADER_SIZE] = b"\1\1\1\1"
    following[:4] = len(following).to_bytes(4, "big")
    producer.send(posts(1) + overlong(2) + bytes(following))
    assert producer.session.finished
    assert [push.payload for push in consumer.pushes()] == [b"message 1"]


def test_each_poster_hears_of_its_own_messages_when_replicas_have_them() -> None:
    rig: Rig = start(domains={name: replace(config, strong=True) for name, config in OF_ONE_NODE.items()})
    kept = rig.node.partitions[0].kept
    kept.copies_wanted, kept.is_copied = 2, True
    one, other, consumer = rig.connect(), rig.connect(), rig.connect()
    one.open(1, PRIORITY, WRITE | ACK)
    other.open(2, PRIORITY, WRITE | ACK)
    consumer.open(1, PRIORITY, READ)
    consumer.configure(1)
    one.send(posts(1, 2))
    other.send(posts(3, 4, queue_id=2))
    one.send(posts(5))
    assert not one.acks()
    assert not consumer.pushes()
    kept.copied(rig.node.partitions[0].sequence_number)
    assert [(ack.queue_id, ack.guid, ack.status) for ack in one.acks()] == [(1, guid(n), 0) for n in (1, 2, 5)]
    assert [(ack.queue_id, ack.guid, ack.status) for ack in other.acks()] == [(2, guid(n), 0) for n in (3, 4)]
    assert [push.payload for push in consumer.pushes()] == [b"message %d" % n for n in (1, 2, 3, 4, 5)]
    assert not rig.node.queues[PRIORITY].awaiting
