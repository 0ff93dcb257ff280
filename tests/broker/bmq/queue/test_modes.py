"""Particularities of fanout, broadcast and memory queues, and of slow or old consumers."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.bmq.session.queue_user import PUSH_BYTES_HIGH
from formats.bmq.codes import AckStatus, PutFlag
from tests.broker.bmq.queue.posting import BROADCAST, FANOUT, QUEUE, ROOMY, numbers, post, producing, reading
from tests.broker.bmq.rig import APPS, READ, Client, Rig, guid, put_event, start


@pytest.fixture
def rig() -> Rig:
    return start()


@pytest.fixture
def producer(rig: Rig) -> Client:
    return producing(rig, QUEUE)


# -- fanout


def test_every_app_gets_every_message(rig: Rig) -> None:
    producer = producing(rig, FANOUT)
    foo, bar = reading(rig, FANOUT, "foo"), reading(rig, FANOUT, "bar")
    post(producer, 1, 2)
    assert (numbers(foo), numbers(bar)) == ([1, 2], [1, 2])
    assert numbers(reading(rig, FANOUT, "baz")) == [1, 2]


def test_a_message_goes_when_the_last_app_is_done(rig: Rig) -> None:
    producer = producing(rig, FANOUT)
    readers = {app: reading(rig, FANOUT, app) for app in APPS}
    post(producer, 1, 2)
    for app in APPS:
        assert guid(1) in rig.node.queues[FANOUT].messages
        readers[app].confirm(1, guid(1), sub_id=1)
    assert list(rig.node.queues[FANOUT].messages) == [guid(2)]
    assert not rig.faults()


def test_apps_confirm_apart(rig: Rig) -> None:
    producer = producing(rig, FANOUT)
    foo = reading(rig, FANOUT, "foo")
    post(producer, 1, 2)
    foo.confirm(1, guid(1), sub_id=1)
    foo.confirm(1, guid(1), sub_id=1)
    again = rig.restart()
    assert {app: numbers(reading(again, FANOUT, app)) for app in APPS} == {"foo": [2], "bar": [1, 2], "baz": [1, 2]}


def test_one_client_may_read_several_apps(rig: Rig) -> None:
    client = rig.connect()
    for sub_id, app in enumerate(APPS, 1):
        client.read(1, FANOUT, app, sub_id)
    post(producing(rig, FANOUT), 1)
    assert Counter(push.subscription_id for push in client.pushes()) == {1: 1, 2: 1, 3: 1}
    client.confirm(1, guid(1), sub_id=2)
    client.drop()
    assert numbers(reading(rig, FANOUT, "bar")) == []
    assert numbers(reading(rig, FANOUT, "foo")) == [1]


def test_two_readers_of_an_app_share_it(rig: Rig) -> None:
    readers = [reading(rig, FANOUT, "foo") for _ in range(2)]
    post(producing(rig, FANOUT), 1, 2, 3, 4)
    assert [numbers(reader) for reader in readers] == [[1, 3], [2, 4]]


def test_an_app_that_the_domain_does_not_name_gets_nothing(rig: Rig) -> None:
    stranger = reading(rig, FANOUT, "stranger")
    post(producing(rig, FANOUT), 1)
    assert numbers(stranger) == []
    stranger.confirm(1, guid(1), sub_id=1)
    assert guid(1) in rig.node.queues[FANOUT].messages
    stranger.close(1, f"{FANOUT}?id=stranger", READ, sub_id=1, app="stranger")


# -- broadcast


def test_broadcast_goes_to_everyone_who_listens(rig: Rig) -> None:
    producer = producing(rig, BROADCAST)
    post(producer, 1)
    consumers = [reading(rig, BROADCAST) for _ in range(3)]
    post(producer, 2, 3)
    assert [numbers(consumer) for consumer in consumers] == [[2, 3]] * 3
    assert numbers(reading(rig, BROADCAST)) == []


def test_broadcast_keeps_nothing_and_waits_for_nobody(rig: Rig) -> None:
    producer = producing(rig, BROADCAST)
    consumer = reading(rig, BROADCAST, messages_max=1)
    post(producer, 1, 2, 3)
    assert numbers(consumer) == [1, 2, 3]
    consumer.confirm(1, guid(1))
    consumer.drop()
    assert numbers(reading(rig, BROADCAST)) == []
    assert not rig.node.queues[BROADCAST].messages


def test_broadcast_drops_what_a_slow_consumer_does_not_take() -> None:
    rig = start(limits=ROOMY)
    producer = producing(rig, BROADCAST)
    slow, quick = reading(rig, BROADCAST), reading(rig, BROADCAST)
    big = b"x" * (1 << 20)
    for number in range(8):
        assert producer.post(1, guid(number), big) is AckStatus.SUCCESS
        assert len(quick.pushes()) == 1
    assert len(slow.pushes()) == 4
    post(producer, 9)
    assert numbers(slow) == [9]


# -- memory


def test_memory_queues_keep_messages_as_long_as_the_node_runs(rig: Rig) -> None:
    post(producing(rig, "bmq://memory/q"), 1, 2)
    consumer = reading(rig, "bmq://memory/q", messages_max=1)
    assert numbers(consumer) == [1]
    consumer.confirm(1, guid(1))
    assert numbers(consumer) == [2]
    assert rig.directory.files[rig.directory.find("data")].data.count(b"message") == 0
    again = rig.restart()
    assert numbers(reading(again, "bmq://memory/q")) == []
    assert not again.faults()


# -- back-pressure


def test_a_consumer_that_takes_nothing_is_spared_and_goes_on() -> None:
    rig = start(limits=ROOMY)
    producer = producing(rig, QUEUE)
    slow = reading(rig)
    big = b"x" * (1 << 20)
    for number in range(10):
        assert producer.post(1, guid(number), big) is AckStatus.SUCCESS
    assert not slow.session.client.ready
    assert PUSH_BYTES_HIGH < slow.session.output_size() < PUSH_BYTES_HIGH + (2 << 20)
    slow.take()
    assert slow.session.client.ready or slow.session.output_size() > PUSH_BYTES_HIGH
    assert [push.guid for push in slow.pushes()] == [guid(number) for number in range(10)]
    assert slow.session.client.ready


def test_others_take_what_a_slow_consumer_cannot() -> None:
    rig = start(limits=ROOMY)
    producer = producing(rig, QUEUE)
    slow, quick = reading(rig), reading(rig)
    big = b"x" * (1 << 20)
    for number in range(12):
        producer.put(1, guid(number), big)
        quick.take()
    assert len(quick.pushes()) == 8
    assert len(slow.pushes()) == 4


def test_a_slow_consumer_that_leaves_gives_back_what_it_did_not_read() -> None:
    rig = start(limits=ROOMY)
    producer = producing(rig, QUEUE)
    slow = reading(rig)
    big = b"x" * (1 << 20)
    for number in range(8):
        producer.put(1, guid(number), big)
    slow.drop()
    assert [push.guid for push in reading(rig).pushes()] == [guid(number) for number in range(8)]


# -- schemas


def with_schema(schema_id: int, number: int) -> bytes:
    flags = PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES
    return put_event(1, guid(number), b"properties", flags=flags, schema_id=schema_id)


def schemas(client: Client) -> list[int]:
    return [push.schema_id for push in client.pushes()]


def test_producers_of_different_shapes_get_different_schema_ids(rig: Rig) -> None:
    """A wire id is a number and a low bit that announces a new shape, which gets a number that no other shape has."""
    one, other, consumer = producing(rig, QUEUE), producing(rig, QUEUE), reading(rig)
    for client, schema_id, number in ((one, 3, 1), (other, 3, 2), (one, 2, 3), (other, 2, 4), (one, 5, 5), (one, 3, 6)):
        client.send(with_schema(schema_id, number))
    assert schemas(consumer) == [3, 5, 2, 4, 7, 9]


def test_a_late_reader_is_told_what_is_new_to_it(rig: Rig, producer: Client) -> None:
    first = reading(rig)
    for number, schema_id in enumerate((3, 2, 2)):
        producer.send(with_schema(schema_id, number))
    assert schemas(first) == [3, 2, 2]
    first.confirm(1, guid(0))
    first.drop()
    assert schemas(reading(rig)) == [3, 2]


def test_stored_schema_ids_are_not_given_to_others(rig: Rig, producer: Client) -> None:
    for number, schema_id in enumerate((3, 2, 5)):
        producer.send(with_schema(schema_id, number))
    again = rig.restart()
    producing(again, QUEUE).send(with_schema(3, 9))
    assert schemas(reading(again)) == [3, 2, 5, 7]


def test_older_clients_get_older_properties(rig: Rig, producer: Client) -> None:
    from formats.bmq.wire.properties import Property, PropertyType, decode_properties, encode_properties

    area = encode_properties([Property("name", PropertyType.STRING, "value")], 3)
    flags = PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES
    producer.put(1, guid(1), area + b"payload", flags=flags, schema_id=3)
    client = rig.connect(features="PROTOCOL_ENCODING:BER")
    client.read(1, QUEUE)
    (push,) = client.pushes()
    assert push.schema_id == 0
    (found,) = decode_properties(memoryview(push.payload), 0)
    assert (found.name, found.value) == ("name", "value")
    assert push.payload.endswith(b"payload")
