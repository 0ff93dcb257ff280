"""Outages of a proxy's upstream: clients stay connected, and notice only that answers take longer."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from broker.bmq.proxy.proxy import BridgeLimits
from broker.bmq.relay.confirms import UNSENT_CONFIRMS_MAX
from broker.bmq.relay.guests import Guests
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import OpenQueueResponse
from tests.broker.bmq.proxy.test_proxy import BROADCAST, DOMAINS, FANOUT, QUEUE, pushes_on
from tests.broker.bmq.proxy.tree import Below, Link, Tree, TreeClient
from tests.broker.bmq.rig import ACK, READ, WRITE, Rig, guid


class Bridge:
    """A producer and a consumer at a proxy, below `hops` others, and a root that can go away and come back."""

    def __init__(self, hops: int = 1, limits: BridgeLimits | None = None, consumers_max: int = 0) -> None:
        self.tree = Tree({name: replace(domain, consumers_max=consumers_max) for name, domain in DOMAINS.items()})
        self.root = self.tree.root()
        above = self.root.node
        self.links: list[Link] = []
        for number in range(hops):
            self.proxy: Below = self.tree.proxy(f"proxy{number}", limits=limits)
            self.links.append(self.tree.join(self.proxy, above))
            above = self.proxy.node
        self.producer = self.tree.client(self.proxy.node)
        self.consumer = self.tree.client(self.proxy.node)

    def crash(self) -> None:
        self.tree.rigs.remove(self.root)
        self.tree.cut(self.links[0])

    def come_back(self) -> None:
        self.root = self.root.restart(make_door=Guests)
        self.tree.rigs.append(self.root)

    def restart(self) -> None:
        self.come_back()
        self.reach()

    def reach(self) -> None:
        """Let the proxies find the root that is back."""
        self.links[0] = self.tree.join(self.tree.proxies[0], self.root.node)
        self.tree.wait(500)


@pytest.mark.parametrize("hops", [1, 3])
def test_the_cluster_is_killed_for_a_minute(hops: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    it = Bridge(hops)
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    acked = [it.producer.post(0, guid(number), b"%d" % number) for number in range(10)]
    assert acked == [AckStatus.SUCCESS] * 10
    before = it.consumer.pushes()
    assert [push.guid for push in before] == [guid(number) for number in range(10)]
    it.crash()
    # Some confirms have no way up, as the posts have none.
    it.consumer.confirm(0, *(guid(number) for number in range(5)))
    for number in range(10, 20):
        it.producer.put(0, guid(number), b"%d" % number)
        it.tree.wait(6000)
    assert it.producer.acks() == []
    assert not it.producer.session.finished
    it.restart()
    assert [(ack.guid, ack.status) for ack in it.producer.acks()] == [(guid(number), 0) for number in range(10, 20)]
    # The consumer's messages, confirmed or not, do not come again.
    assert [push.guid for push in it.consumer.pushes()] == [guid(number) for number in range(10, 20)]
    assert len(it.root.node.queues[QUEUE].messages) == 15
    it.consumer.confirm(0, *(guid(number) for number in range(5, 20)))
    assert not it.root.node.queues[QUEUE].messages
    assert it.producer.post(0, guid(30), b"on") is AckStatus.SUCCESS
    assert it.consumer.payloads() == [b"on"]
    assert "Sent ReopenQueue request" in caplog.text
    assert ": state restored" in caplog.text
    assert all(each.proxy.room.messages == each.proxy.room.bytes == 0 for each in it.tree.proxies)


@pytest.mark.parametrize("hops", [1, 2])
def test_another_consumer_has_taken_the_place_meanwhile(hops: int) -> None:
    """The consumer below gets its messages as soon as there is room again; the producer beside it need not wait."""
    it = Bridge(hops, consumers_max=1)
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    it.crash()
    it.come_back()
    other = it.tree.client(it.root.node)
    other.read(0, QUEUE)
    it.reach()
    assert it.producer.post(0, guid(1), b"1") is AckStatus.SUCCESS
    assert other.payloads() == [b"1"]
    it.tree.wait(6000)
    other.disconnect()
    assert it.producer.post(0, guid(2), b"2") is AckStatus.SUCCESS
    it.tree.wait(5500)
    assert it.consumer.payloads() == [b"1", b"2"]


def test_an_ack_that_was_lost() -> None:
    """The post is known by its GUID when it comes again."""
    it = Bridge()
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    it.links[0].blocked = True
    it.producer.put(0, guid(1), b"1")
    assert len(it.root.node.queues[QUEUE].messages) == 1
    it.crash()
    it.restart()
    assert [(ack.guid, ack.status) for ack in it.producer.acks()] == [(guid(1), 0)]
    assert it.consumer.payloads() == [b"1"]
    assert len(it.root.node.queues[QUEUE].messages) == 1


def test_a_confirm_that_was_lost() -> None:
    """A confirm on its way when the upstream dies: it goes up again, before the message could come again."""
    it = Bridge(2)
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    assert [it.producer.post(0, guid(number), b"%d" % number) for number in range(3)] == [0, 0, 0]
    assert len(it.consumer.pushes()) == 3
    it.links[0].up_blocked = True
    it.consumer.confirm(0, guid(0), guid(2))
    assert len(it.root.node.queues[QUEUE].messages) == 3
    it.crash()
    it.restart()
    assert it.consumer.pushes() == []
    assert list(it.root.node.queues[QUEUE].messages) == [guid(1)]
    # They are not kept for ever.
    it.tree.wait(41_000)
    assert it.proxy.node.queues[QUEUE].confirms.take() == []  # type: ignore[attr-defined]
    assert not it.proxy.node.queues[QUEUE].confirms._sent  # type: ignore[attr-defined]


def test_posts_are_kept_within_bounds() -> None:
    it = Bridge(limits=BridgeLimits(bytes_max=100, messages_max=8))
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.producer.open(1, "bmq://priority/other", WRITE | ACK)
    it.crash()
    for number in range(4):
        it.producer.put(number % 2, guid(number), b"x" * 20)
    assert it.producer.acks() == []
    # The bounds are for all queues together.
    assert it.producer.post(1, guid(10), b"x" * 21) is AckStatus.LIMIT_BYTES
    for number in range(4, 8):
        it.producer.put(number % 2, guid(number), b"y")
    assert it.producer.post(0, guid(11), b"y") is AckStatus.LIMIT_MESSAGES
    it.restart()
    assert sorted(ack.guid for ack in it.producer.acks()) == sorted(guid(number) for number in range(8))
    assert it.proxy.proxy.room.messages == it.proxy.proxy.room.bytes == 0
    assert it.producer.post(0, guid(11), b"x" * 100) is AckStatus.SUCCESS


def test_posts_are_given_up_when_they_would_not_be_known_again() -> None:
    it = Bridge()
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.crash()
    it.producer.put(0, guid(1), b"1")
    it.tree.wait(DOMAINS["priority"].deduplication_time_ms - 1000)
    assert it.producer.acks() == []
    it.tree.wait(2000)
    assert [ack.status for ack in it.producer.acks()] == [AckStatus.UNKNOWN]


def test_a_producer_comes_back() -> None:
    """The producer's unanswered posts are repeated, and go all the way up."""
    it = Bridge(3)
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    it.crash()
    it.producer.put(0, guid(1), b"1")
    it.producer.drop()
    it.restart()
    assert it.consumer.payloads() == []
    it.producer = it.tree.client(it.proxy.node)
    it.producer.open(0, QUEUE, WRITE | ACK)
    assert it.producer.post(0, guid(1), b"1") is AckStatus.SUCCESS
    assert it.consumer.payloads() == [b"1"]


def test_a_consumer_takes_over_from_another_while_it_opens() -> None:
    """The upstream never saw the app closed: what it had sent for the one, is the other's."""
    it = Bridge()
    it.producer.open(0, FANOUT, WRITE | ACK)
    it.consumer.read(0, FANOUT, "foo", 1)
    assert [it.producer.post(0, guid(number), b"%d" % number) for number in range(3)] == [0, 0, 0]
    link = it.links[0]
    link.blocked = True
    other = it.tree.client(it.proxy.node)
    other.ask_later(FANOUT, READ, "foo")
    it.consumer.drop()
    link.blocked = False
    it.tree.run()
    (answer,) = other.taken()
    assert isinstance(answer, OpenQueueResponse)
    other.configure(0, "foo")
    assert [push.guid for push in other.pushes()] == [guid(number) for number in range(3)]
    other.confirm(0, *(guid(number) for number in range(3)), sub_id=1)
    assert not it.root.node.queues[FANOUT].apps["foo"].messages
    other.drop()
    assert "foo" not in it.proxy.node.queues[FANOUT].apps


def test_requests_wait() -> None:
    it = Bridge(2)
    it.crash()
    sent: list[TreeClient] = []
    for _ in range(2):
        client = it.tree.client(it.proxy.node)
        client.ask_later(FANOUT, READ, "foo")
        sent.append(client)
    sent[0].drop()
    it.tree.wait(30_000)
    assert sent[1].taken() == []
    it.restart()
    (answer,) = sent[1].taken()
    assert isinstance(answer, OpenQueueResponse)
    # Nothing is left of the one that went in the meantime.
    (stream,) = it.root.node.queues[FANOUT].apps["foo"].streams
    assert stream.readers == 1


def test_subscriptions_configured_during_a_delivery() -> None:
    it = Bridge()
    it.consumer.read(0, FANOUT, "foo", 1)
    other = it.tree.client(it.proxy.node)
    other.read(0, FANOUT, "bar", 1)
    it.crash()
    it.consumer.configure(0, "foo", subscription_id=1, messages_max=3, bytes_max=30, priority=7)
    other.drop()
    it.restart()
    (stream,) = it.root.node.queues[FANOUT].apps["foo"].streams
    (subscription,) = stream.subscriptions
    assert (subscription.messages_max, subscription.priority) == (3, 7)
    assert not it.root.node.queues[FANOUT].apps["bar"].streams


def test_broadcasts() -> None:
    it = Bridge()
    it.producer.open(0, BROADCAST, WRITE | ACK)
    it.consumer.read(0, BROADCAST)
    it.crash()
    assert it.producer.post(0, guid(1), b"1") is AckStatus.SUCCESS
    it.restart()
    assert it.proxy.proxy.room.messages == 0
    assert it.producer.post(0, guid(2), b"2") is AckStatus.SUCCESS
    assert it.consumer.payloads() == [b"1", b"2"]


@pytest.mark.slow
def test_confirms_of_what_nobody_has_are_not_kept_without_bound() -> None:
    it = Bridge()
    it.consumer.read(0, QUEUE)
    it.crash()
    for first in range(0, 2 * UNSENT_CONFIRMS_MAX, 5000):
        it.consumer.confirm(0, *(guid(number) for number in range(first, first + 5000)))
    queue = it.proxy.node.queues[QUEUE]
    assert len(queue.confirms.take()) == UNSENT_CONFIRMS_MAX  # type: ignore[attr-defined]


def test_a_link_that_is_behind_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link of another proxy gets more; the messages not sent wait at the root, once."""
    monkeypatch.setattr("broker.bmq.relay.downstream.PUSH_BYTES_HIGH", 3_000)
    it = Bridge()
    beside = it.tree.proxy("beside")
    it.tree.join(beside, it.root.node)
    it.consumer.read(0, FANOUT, "foo", 1)
    quick = it.tree.client(beside.node)
    quick.read(0, FANOUT, "bar", 1)
    producer = it.tree.client(it.root.node)
    producer.open(0, FANOUT, WRITE | ACK)
    it.links[0].blocked = True
    for number in range(100):
        producer.post(0, guid(number), b"x" * 300)
    assert len(it.links[0].upper.out.data) < 6_000
    assert len(quick.pushes()) == 100
    it.links[0].blocked = False
    it.tree.run()
    assert [push.guid for push in it.consumer.pushes()] == [guid(number) for number in range(100)]
    assert len(pushes_on(it.links[0].down)) == 100


def test_a_client_that_takes_nothing_does_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.bmq.session.client.PUSH_BYTES_HIGH", 3_000)
    it = Bridge()
    slow, quick = it.tree.client(it.proxy.node), it.tree.client(it.proxy.node)
    slow.read(0, QUEUE)
    quick.read(0, QUEUE)
    it.producer.open(0, QUEUE, WRITE | ACK)
    got = 0
    for number in range(100):
        it.producer.put(0, guid(number), b"x" * 300)
        got += len(quick.pushes())
    assert got > 80
    assert slow.session.output_size() < 6_000
    assert got + len(slow.pushes()) == 100


def test_the_root_goes_on_without_the_proxy() -> None:
    it = Bridge(2)
    it.producer.open(0, QUEUE, WRITE | ACK)
    it.consumer.read(0, QUEUE)
    assert it.producer.post(0, guid(1), b"1") is AckStatus.SUCCESS
    other = it.tree.client(it.root.node)
    other.read(0, QUEUE)
    it.crash()
    # Messages of the proxies' consumers go to others, also when a broker dies.
    assert isinstance(it.root, Rig)
    assert other.payloads() == [b"1"]
