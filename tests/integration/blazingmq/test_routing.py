"""Routing of messages: shares and priorities, apps, broadcast, and limits of unconfirmed messages."""

from __future__ import annotations

import pytest
from blazingmq import AckStatus

from bmqctl.testing import NodeProcess
from tests.rigs.official import Client, Connect, confirm, queue_name

FANOUT = "bmq.test.persistent.fanout"
APPS = ("foo", "bar", "baz")


def numbers(client: Client, uri: str | None = None) -> list[int]:
    return [int(data) for data in client.payloads(uri)]


def post_numbers(producer: Client, uri: str, *span: int) -> None:
    acks = producer.post_all(uri, [str(number).encode() for number in range(*span)])
    assert {ack.status for ack in acks} == {AckStatus.SUCCESS}


@pytest.mark.parametrize("domain", ["bmq.test.persistent.priority", "bmq.test.mem.priority"])
def test_equal_consumers_share(node: NodeProcess, connect: Connect, domain: str) -> None:
    uri = queue_name(domain)
    producer, *consumers = (connect(node) for _ in range(4))
    producer.open(uri, write=True)
    for consumer in consumers:
        consumer.open(uri, read=True, consumer_priority=3)
    post_numbers(producer, uri, 300)
    for consumer in consumers:
        consumer.wait_for_messages(100)
        consumer.barrier()
    shares = [numbers(consumer) for consumer in consumers]
    assert sorted(number for share in shares for number in share) == list(range(300))
    assert [len(share) for share in shares] == [100] * 3
    assert all(share == sorted(share) for share in shares)


def test_the_highest_priority_gets_all(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    producer, low, high, also_high = (connect(node) for _ in range(4))
    producer.open(uri, write=True)
    low.open(uri, read=True, consumer_priority=-1)
    post_numbers(producer, uri, 10)
    low.wait_for_messages(10)
    high.open(uri, read=True, consumer_priority=5)
    post_numbers(producer, uri, 10, 30)
    high.wait_for_messages(20)
    also_high.open(uri, read=True, consumer_priority=5)
    post_numbers(producer, uri, 30, 50)
    also_high.wait_for_messages(10)
    for consumer in (low, high, also_high):
        consumer.barrier()
    assert numbers(low) == list(range(10))
    assert sorted(numbers(high) + numbers(also_high)) == list(range(10, 50))
    assert len(numbers(high)) == 30
    # The higher ones go, and the lower one gets what they did not confirm, in order, and all that is new.
    confirm(high.delivered[:20])
    high.barrier()
    high.stop()
    also_high.close(uri)
    post_numbers(producer, uri, 50, 60)
    low.wait_for_messages(10 + 20 + 10)
    low.barrier()
    assert sorted(numbers(low)[10:30]) == list(range(30, 50))
    assert numbers(low)[30:] == list(range(50, 60))


def test_a_consumer_can_lower_its_priority(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    producer, one, two = (connect(node) for _ in range(3))
    producer.open(uri, write=True)
    one.open(uri, read=True, consumer_priority=2)
    two.open(uri, read=True, consumer_priority=1)
    post_numbers(producer, uri, 5)
    one.wait_for_messages(5)
    one.configure(uri, consumer_priority=0)
    post_numbers(producer, uri, 5, 10)
    two.wait_for_messages(5)
    one.barrier()
    assert (numbers(one), numbers(two)) == (list(range(5)), list(range(5, 10)))


def test_every_app_gets_all(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name(FANOUT)
    producer, foo, bars = connect(node), connect(node), [connect(node), connect(node)]
    producer.open(uri, write=True)
    foo.open(f"{uri}?id=foo", read=True)
    for bar in bars:
        bar.open(f"{uri}?id=bar", read=True)
    post_numbers(producer, uri, 100)
    assert [message.queue_uri for message, _ in foo.wait_for_messages(100)] == [f"{uri}?id=foo"] * 100
    for bar in bars:
        bar.wait_for_messages(50)
        bar.barrier()
    assert numbers(foo) == list(range(100))
    assert sorted(numbers(bars[0]) + numbers(bars[1])) == list(range(100))
    # Messages confirmed by one app stay for the others; an app that comes late gets all from the start.
    confirm(foo.delivered)
    foo.barrier()
    foo.open(f"{uri}?id=baz", read=True)
    foo.wait_for_messages(100, f"{uri}?id=baz")
    assert numbers(foo, f"{uri}?id=baz") == list(range(100))
    foo.close(f"{uri}?id=foo")
    foo.open(f"{uri}?id=foo", read=True)
    foo.barrier()
    assert len(foo.of(f"{uri}?id=foo")) == 100


def test_one_session_reads_all_apps(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name("bmq.test.mem.fanout")
    client = connect(node)
    client.open(uri, write=True)
    for app in APPS:
        client.open(f"{uri}?id={app}", read=True)
    post_numbers(client, uri, 50)
    client.wait_for_messages(150)
    for app in APPS:
        assert numbers(client, f"{uri}?id={app}") == list(range(50))


def test_an_app_that_the_domain_does_not_name_gets_nothing(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name(FANOUT)
    client = connect(node)
    client.open(uri, write=True)
    client.open(f"{uri}?id=nobody", read=True)
    post_numbers(client, uri, 5)
    client.barrier()
    assert client.delivered == []


@pytest.mark.parametrize("domain", ["bmq.test.mem.broadcast", "bmq.test.mmap.broadcast"])
def test_broadcast_reaches_who_listens(node: NodeProcess, connect: Connect, domain: str) -> None:
    uri = queue_name(domain)
    producer, one, two, late = (connect(node) for _ in range(4))
    producer.open(uri, write=True)
    # Nobody listens: acknowledged, and gone.
    post_numbers(producer, uri, 10)
    one.open(uri, read=True)
    two.open(uri, read=True)
    post_numbers(producer, uri, 10, 20)
    late.open(uri, read=True)
    post_numbers(producer, uri, 20, 30)
    for client, expected in ((one, 20), (two, 20), (late, 10)):
        client.wait_for_messages(expected)
        client.barrier()
    assert numbers(one) == numbers(two) == list(range(10, 30))
    assert numbers(late) == list(range(20, 30))


def test_no_more_than_the_limit_is_unconfirmed(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    client = connect(node)
    client.open(uri, read=True, write=True, max_unconfirmed_messages=10)
    post_numbers(client, uri, 100)
    client.barrier()
    assert len(client.delivered) == 10
    # It was full: more comes when four fifths are unconfirmed.
    confirm(client.delivered[:1])
    client.barrier()
    assert len(client.delivered) == 10
    confirm(client.delivered[1:2])
    client.wait_for_messages(12)
    client.barrier()
    assert len(client.delivered) == 12
    client.configure(uri, max_unconfirmed_messages=25)
    client.wait_for_messages(27)
    client.barrier()
    assert len(client.delivered) == 27
    # Less than what is out already: nothing comes until enough is confirmed.
    client.configure(uri, max_unconfirmed_messages=5)
    confirm(client.delivered[2:22])
    client.barrier()
    assert len(client.delivered) == 27
    confirm(client.delivered[22:25])
    client.wait_for_messages(30)
    client.barrier()
    assert numbers(client) == list(range(30))


def test_no_more_than_the_limit_of_bytes_is_unconfirmed(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    client = connect(node)
    client.open(uri, read=True, write=True, max_unconfirmed_bytes=10_000)
    client.post_all(uri, [bytes([number + 1]) * 3000 for number in range(20)])
    client.barrier()
    # The one that reaches the limit still goes out.
    assert len(client.delivered) == 4
    confirm(client.delivered[:1])
    client.barrier()
    assert len(client.delivered) == 4
    confirm(client.delivered[1:2])
    client.wait_for_messages(6)
    client.barrier()
    assert len(client.delivered) == 6
    client.configure(uri, max_unconfirmed_bytes=1 << 20)
    client.wait_for_messages(20)
    assert [data[0] for data in client.payloads()] == list(range(1, 21))


def test_a_message_larger_than_the_limit_still_comes(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    client = connect(node)
    client.open(uri, read=True, write=True, max_unconfirmed_bytes=100)
    client.post_all(uri, [b"x" * 5000, b"y" * 5000])
    confirm(client.wait_for_messages(1))
    client.wait_for_messages(2)


def test_a_limit_of_nothing_is_a_pause(node: NodeProcess, connect: Connect) -> None:
    uri = queue_name()
    client = connect(node)
    client.open(uri, read=True, write=True, max_unconfirmed_messages=0)
    post_numbers(client, uri, 3)
    client.barrier()
    assert client.delivered == []
    client.configure(uri, max_unconfirmed_messages=2)
    confirm(client.wait_for_messages(2))
    client.wait_for_messages(3)
    assert numbers(client) == [0, 1, 2]


def test_a_long_backlog_does_not_shut_the_other_way(node: NodeProcess, connect: Connect) -> None:
    """The node does not read from a client for which much output waits, and resumes afterwards."""
    uri = queue_name("bmq.test.mem.priority")
    producer, consumer = connect(node), connect(node)
    producer.open(uri, write=True)
    # Twice what the node keeps ready for one client, in a pace that the client's buffers decide.
    producer.post_all(uri, [b"x" * 100_000] * 84)
    for _ in range(6):
        consumer.delivered.clear()
        consumer.open(uri, read=True, max_unconfirmed_bytes=1 << 30)
        consumer.wait_for_messages(84)
        consumer.barrier()
        consumer.close(uri)
