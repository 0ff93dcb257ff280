"""One message's way through a node, from the official client to the official client."""

from __future__ import annotations

import hashlib

import pytest
from blazingmq import AckStatus, CompressionAlgorithmType, PropertyType

from bmqctl.testing import NodeProcess
from tests.rigs.official import Connect, confirm, queue_name

DOMAINS = [
    "bmq.test.mem.priority",
    "bmq.test.persistent.priority",
    "bmq.test.persistent.priority.sc",
    "bmq.test.mmap.priority",
]

# Around the paddings to words and double words, one page, the client's blob buffers, and up to 1 MiB.
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 1023, 1024, 1025, 4095, 4096, 4097, 65_535, 65_536, (1 << 20) - 1, 1 << 20]

# Every type that the client has, with the values at its edges.
PROPERTIES = {
    "yes": (True, PropertyType.BOOL),
    "no": (False, PropertyType.BOOL),
    "short": (-(1 << 15), PropertyType.SHORT),
    "short_max": ((1 << 15) - 1, PropertyType.SHORT),
    "int": (-(1 << 31), PropertyType.INT32),
    "int_max": ((1 << 31) - 1, PropertyType.INT32),
    "long": (-(1 << 63), PropertyType.INT64),
    "long_max": ((1 << 63) - 1, PropertyType.INT64),
    "char": (b"\x07", PropertyType.CHAR),
    "text": ("Grüße, 世界", PropertyType.STRING),
    "no_text": ("", PropertyType.STRING),
    "bytes": (bytes(range(256)), PropertyType.BINARY),
    "no_bytes": (b"", PropertyType.BINARY),
}


def payload(size: int) -> bytes:
    """Bytes that are the same for a size, do not repeat, and end in a nonzero byte."""
    return hashlib.shake_128(size.to_bytes(4, "big")).digest(size - 1) + b"\x01"


@pytest.mark.parametrize("domain", DOMAINS)
def test_delivered_message_equals_the_posted_one(node: NodeProcess, connect: Connect, domain: str) -> None:
    producer, consumer = connect(node), connect(node)
    uri = queue_name(domain)
    consumer.open(uri, read=True)
    producer.open(uri, write=True)
    acks = producer.post_all(uri, map(payload, SIZES))
    assert {ack.status for ack in acks} == {AckStatus.SUCCESS}
    assert {ack.queue_uri for ack in acks} == {uri}
    delivered = consumer.wait_for_messages(len(SIZES))
    assert [message.data for message, _ in delivered] == [payload(size) for size in SIZES]
    assert [message.guid for message, _ in delivered] == [ack.guid for ack in acks]
    assert len({ack.guid for ack in acks}) == len(SIZES)
    assert {message.queue_uri for message, _ in delivered} == {uri}
    confirm(delivered)
    consumer.barrier()
    consumer.close(uri)
    # The next consumer gets nothing.
    consumer.open(uri, read=True)
    consumer.barrier()
    assert len(consumer.delivered) == len(SIZES)


@pytest.mark.parametrize("compression", list(CompressionAlgorithmType))
@pytest.mark.parametrize("size", [1, 2000])
def test_properties_keep_name_type_and_value(
    node: NodeProcess, connect: Connect, compression: CompressionAlgorithmType, size: int
) -> None:
    client = connect(node, message_compression_algorithm=compression)
    uri = queue_name()
    client.open(uri, read=True, write=True)
    values = {name: value for name, (value, _) in PROPERTIES.items()}
    types = {name: kind for name, (_, kind) in PROPERTIES.items()}
    for number in range(3):
        client.post(uri, payload(size), tag=number, properties=values, property_type_overrides=types)
    client.post(uri, payload(size), tag=3)
    client.post(uri, payload(size), tag=4, properties={"other": "shape"})
    delivered = [message for message, _ in client.wait_for_messages(5)]
    assert [message.data for message in delivered] == [payload(size)] * 5
    for message in delivered[:3]:
        assert message.properties == values
        assert message.property_types == types
    assert delivered[3].properties == {}
    assert delivered[4].properties == {"other": "shape"}


def test_one_producer_compresses_and_the_other_does_not(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    zlib = connect(node, message_compression_algorithm=CompressionAlgorithmType.ZLIB)
    plain, consumer = connect(node), connect(node)
    for producer in (zlib, plain):
        producer.open(uri, write=True)
    # Text that shrinks, noise that does not, and sizes below and above the one from which the client compresses.
    payloads = [b"abc" * 40_000, payload(100_000), b"x", b"y" * 1023, b"z" * 1024]
    sent = []
    for each in payloads:
        for producer in (zlib, plain):
            producer.post_all(uri, [each])
            sent.append(each)
    consumer.open(uri, read=True)
    consumer.wait_for_messages(len(sent))
    assert consumer.payloads() == sent


def test_a_message_waits_for_its_consumer(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    producer = connect(node)
    producer.open(uri, write=True)
    sent = [str(number).encode() for number in range(500)]
    producer.post_all(uri, sent)
    producer.close(uri)
    producer.stop()
    consumer = connect(node)
    consumer.open(uri, read=True)
    consumer.wait_for_messages(len(sent))
    assert consumer.payloads() == sent


def test_unconfirmed_messages_come_again_in_order(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    producer, first = connect(node), connect(node)
    producer.open(uri, write=True)
    first.open(uri, read=True)
    producer.post_all(uri, [str(number).encode() for number in range(100)])
    confirm(first.wait_for_messages(100)[10:90:2])
    first.barrier()
    first.stop()
    second = connect(node)
    second.open(uri, read=True)
    kept = [number for number in range(100) if number not in range(10, 90, 2)]
    second.wait_for_messages(len(kept))
    second.barrier()
    assert [int(data) for data in second.payloads()] == kept


def test_messages_of_many_queues_do_not_mix(node: NodeProcess, connect: Connect) -> None:
    producer, consumer = connect(node), connect(node)
    uris = [queue_name(DOMAINS[number % len(DOMAINS)]) for number in range(60)]
    for uri in uris:
        producer.open(uri, write=True)
        consumer.open(uri, read=True)
    for number in range(5):
        for uri in uris:
            producer.post(uri, f"{uri} {number}".encode(), tag=uri)
    producer.wait(lambda: len(producer.acks) == 5 * len(uris))
    consumer.wait_for_messages(5 * len(uris))
    for uri in uris:
        assert consumer.payloads(uri) == [f"{uri} {number}".encode() for number in range(5)]
    assert all(tag == ack.queue_uri for tag, ack in producer.acks)


def test_a_queue_can_be_closed_and_opened_again(node: NodeProcess, connect: Connect) -> None:
    client = connect(node)
    uri = queue_name()
    for number in range(5):
        client.open(uri, read=True, write=True)
        client.post_all(uri, [str(number).encode()])
        # Those before, unconfirmed, come again, and the new one after them.
        client.wait_for_messages(number + 1)
        assert [int(data) for data in client.payloads()] == list(range(number + 1))
        client.close(uri)
        client.delivered.clear()


def test_sessions_end_one_by_one(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    before = node.log.count("session starts")
    clients = [connect(node) for _ in range(20)]
    for client in clients:
        client.open(uri, read=True, write=True)
    for client in clients[:-1]:
        client.stop()
    clients[-1].post_all(uri, [b"still here"])
    clients[-1].wait_for_messages(1)
    assert node.log.count("session starts") == before + 20
