"""Confirms may be read a moment later, if nobody waits for what they do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bmq.queue.handles import SLACK_BYTES, SLACK_MESSAGES
from broker.bmq.queue.routing import SLACK_SUBSCRIPTIONS_MAX
from broker.bmq.session.client import WAITING_HANDLES_MAX
from formats.bmq.wire.confirm import build_confirm_event
from tests.broker.bmq.rig import ACK, DOMAINS, READ, WRITE, Client, Wanted, guid, start

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"
LIMITED = "bmq://limited/q"


def can_wait(client: Client) -> bool:
    return client.session.input_can_wait


def post(producer: Client, *numbers: int) -> None:
    for number in numbers:
        producer.put(1, guid(number), b"message")


def test_confirms_of_a_consumer_can_wait() -> None:
    rig = start()
    producer, consumer = rig.connect(), rig.connect()
    producer.open(1, QUEUE, WRITE | ACK)
    consumer.read(1, QUEUE)
    assert not can_wait(consumer)
    post(producer, 1, 2, 3, 4)
    assert not can_wait(producer)
    consumer.confirm(1, guid(1))
    assert can_wait(consumer)
    consumer.confirm(1, guid(2), guid(3))
    assert can_wait(consumer)


def test_other_input_cannot_wait() -> None:
    rig = start()
    producer, consumer = rig.connect(), rig.connect()
    producer.open(1, QUEUE, WRITE | ACK)
    consumer.read(1, QUEUE)
    post(producer, 1, 2)
    consumer.confirm(1, guid(1))
    consumer.open(2, "bmq://priority/other", READ)
    assert not can_wait(consumer)
    consumer.confirm(1, guid(2))
    assert can_wait(consumer)
    consumer.open(3, "bmq://priority/third", WRITE)
    consumer.confirm(1, guid(2))
    assert not can_wait(consumer), "its posts would wait behind its confirms"


def test_the_front_of_an_event_cannot_wait() -> None:
    rig = start()
    producer, consumer = rig.connect(), rig.connect()
    producer.open(1, QUEUE, WRITE | ACK)
    consumer.read(1, QUEUE)
    post(producer, 1, 2)
    event = build_confirm_event([(1, guid(1), 0)])
    consumer.send(event[:-1])
    assert not can_wait(consumer), "it may be a request"
    consumer.send(event[-1:])
    assert can_wait(consumer)


@pytest.mark.parametrize(
    ("messages_max", "bytes_max", "waits"),
    [
        (SLACK_MESSAGES + 1, SLACK_BYTES + 7, True),
        (SLACK_MESSAGES, SLACK_BYTES + 7, False),
        (SLACK_MESSAGES + 1, SLACK_BYTES + 6, False),
    ],
)
def test_the_consumer_may_be_sent_many_more(messages_max: int, bytes_max: int, waits: bool) -> None:
    rig = start()
    producer, consumer = rig.connect(), rig.connect()
    producer.open(1, QUEUE, WRITE | ACK)
    consumer.read(1, QUEUE, messages_max=messages_max, bytes_max=bytes_max)
    post(producer, 1, 2)
    consumer.confirm(1, guid(1))
    assert can_wait(consumer) is waits


def test_no_message_waits_for_a_confirm() -> None:
    rig = start()
    producer, one, other = rig.connect(), rig.connect(), rig.connect()
    producer.open(1, FANOUT, WRITE | ACK)
    one.read(1, FANOUT, "foo", 1)
    other.read(1, FANOUT, "bar", 1, messages_max=1)
    post(producer, 1, 2)
    one.confirm(1, guid(1), sub_id=1)
    assert can_wait(one), "only the other app's messages wait"
    other.confirm(1, guid(1), sub_id=1)
    assert not can_wait(other)


@pytest.mark.parametrize("more", [0, 1])
def test_the_queue_is_not_near_its_limit(more: int) -> None:
    limit = 400
    high = limit * 8 // 10
    domain = replace(DOMAINS["priority"], name="limited", queue_messages_max=limit)
    rig = start(domains=[domain])
    producer, consumer = rig.connect(), rig.connect()
    producer.open(1, LIMITED, WRITE | ACK)
    consumer.read(1, LIMITED)
    post(producer, *range(high - SLACK_MESSAGES + more))
    consumer.confirm(1, guid(0))
    assert can_wait(consumer) is not bool(more)


@pytest.mark.parametrize("more", [0, 1])
def test_a_client_of_many_subscriptions_does_not_wait(more: int) -> None:
    rig = start()
    producer, consumer = rig.connect(), rig.connect()
    producer.open(1, QUEUE, WRITE | ACK)
    consumer.open(1, QUEUE, READ)
    consumer.subscribe(1, *[Wanted()] * (SLACK_SUBSCRIPTIONS_MAX + more))
    post(producer, 1)
    consumer.confirm(1, guid(1))
    assert can_wait(consumer) is not bool(more)


def test_a_client_of_many_queues_does_not_wait() -> None:
    rig = start()
    producer, consumer = rig.connect(), rig.connect()
    producer.open(1, QUEUE, WRITE | ACK)
    post(producer, 1, 2)
    consumer.read(1, QUEUE)
    for number in range(2, WAITING_HANDLES_MAX + 1):
        consumer.open(number, f"bmq://priority/{number}", READ)
    consumer.confirm(1, guid(1))
    assert can_wait(consumer)
    consumer.open(WAITING_HANDLES_MAX + 1, "bmq://priority/one-more", READ)
    consumer.confirm(1, guid(2))
    assert not can_wait(consumer)
