"""Events of many messages at a proxy: what they are for is the same whether they are taken whole or one by one."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from crc32c import crc32c

from broker.bmq.proxy.proxy import BridgeLimits
from broker.bmq.relay.posts import Posts
from broker.bmq.relay.relay import RelayQueue
from formats.bmq.codes import AckStatus, PutFlag
from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.event import EventType, build_event
from formats.bmq.wire.push import append_push
from formats.bmq.wire.put import append_put
from tests.broker.bmq.proxy.test_bridging import Bridge
from tests.broker.bmq.proxy.test_proxy import FANOUT, QUEUE
from tests.broker.bmq.rig import ACK, READ, WRITE, Wanted, guid

OTHER = "bmq://priority/other"
PAYLOADS = [b"x" * size for size in (1, 2, 3, 4, 5, 1000)]


def puts(*posts: tuple[int, int, bytes], flags: int = PutFlag.ACK_REQUESTED, schema_id: int = 0) -> bytes:
    """An event of posts: queue id, the GUID's number, payload."""
    out = bytearray()
    for queue_id, number, payload in posts:
        append_put(out, queue_id, guid(number), payload, crc32c(payload), flags, 0, schema_id)
    return build_event(EventType.PUT, out)


def relay_of(it: Bridge, uri: str = QUEUE) -> RelayQueue:
    queue = it.proxy.node.queues[uri]
    assert isinstance(queue, RelayQueue)
    return queue


@pytest.fixture(params=[1, 3])
def it(request: pytest.FixtureRequest) -> Bridge:
    it = Bridge(request.param)
    it.producer.open(7, QUEUE, WRITE | ACK)
    it.consumer.read(5, QUEUE)
    return it


def one_by_one(*_: object) -> NoReturn:
    raise AssertionError("one by one")


def test_a_whole_event_goes_through(it: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RelayQueue, "post", one_by_one)
    it.producer.send(puts(*((7, number, payload) for number, payload in enumerate(PAYLOADS))))
    numbers = range(len(PAYLOADS))
    assert [(ack.guid, ack.status, ack.queue_id) for ack in it.producer.acks()] == [(guid(n), 0, 7) for n in numbers]
    pushes = it.consumer.pushes()
    assert [(push.guid, push.payload, push.queue_id) for push in pushes] == [
        (guid(number), payload, 5) for number, payload in enumerate(PAYLOADS)
    ]
    relay, root = relay_of(it), it.root.node.queues[QUEUE]
    assert (relay.usage.messages, relay.usage.bytes) == (len(PAYLOADS), sum(map(len, PAYLOADS)))
    assert relay.posts.room.messages == relay.posts.room.bytes == 0
    monkeypatch.setattr(RelayQueue, "_confirm_each", one_by_one)
    it.consumer.confirm(5, *(guid(number) for number in numbers))
    assert not root.messages
    assert not relay.messages
    app = relay.apps["__default"]
    assert relay.usage.messages == relay.usage.bytes == app.messages == app.bytes == 0
    seen = relay.statistics
    assert (seen.puts, seen.acks, seen.pushes, seen.confirms) == (len(PAYLOADS),) * 4
    assert seen.put_bytes == seen.push_bytes == sum(map(len, PAYLOADS))


def test_an_event_for_two_queues(it: Bridge) -> None:
    it.producer.open(8, OTHER, WRITE | ACK)
    it.consumer.read(6, OTHER)
    it.producer.send(puts((7, 1, b"a"), (8, 2, b"b"), (7, 3, b"c"), (8, 4, b"d")))
    assert sorted((ack.guid, ack.queue_id) for ack in it.producer.acks()) == [
        (guid(1), 7),
        (guid(2), 8),
        (guid(3), 7),
        (guid(4), 8),
    ]
    pushes = it.consumer.pushes()
    assert [push.payload for push in pushes if push.queue_id == 5] == [b"a", b"c"]
    assert [push.payload for push in pushes if push.queue_id == 6] == [b"b", b"d"]
    it.consumer.send(build_confirm_event([(5, guid(1), 0), (6, guid(2), 0), (5, guid(3), 0), (6, guid(4), 0)]))
    assert not it.root.node.queues[QUEUE].messages
    assert not it.root.node.queues[OTHER].messages


def test_a_duplicate_in_an_event_is_kept_once(it: Bridge) -> None:
    it.producer.send(puts((7, 1, b"a"), (7, 2, b"b"), (7, 1, b"a")))
    assert {(ack.guid, ack.status) for ack in it.producer.acks()} == {(guid(1), 0), (guid(2), 0)}
    assert it.consumer.payloads() == [b"a", b"b"]


def test_one_of_an_event_is_damaged(it: Bridge) -> None:
    event = bytearray(puts((7, 1, b"a" * 8), (7, 2, b"b" * 8), (7, 3, b"c" * 8)))
    event[event.index(b"b" * 8)] ^= 1
    it.producer.send(bytes(event))
    found = {ack.guid: ack.status for ack in it.producer.acks()}
    assert found == {guid(1): 0, guid(2): AckStatus.UNKNOWN, guid(3): 0}
    assert it.consumer.payloads() == [b"a" * 8, b"c" * 8]


@pytest.mark.parametrize("cut", [4, 36, 44, 48])
def test_an_event_that_ends_too_early_ends_the_session(it: Bridge, cut: int) -> None:
    body = puts((7, 1, b"aaaa"), (7, 2, b"bbbb"))[8:]
    it.producer.send(build_event(EventType.PUT, body[: len(body) - cut]))
    # Half of it is a message.
    assert it.producer.session.finished == (cut != len(body) // 2)


def test_an_event_that_has_room_in_part() -> None:
    it = Bridge(limits=BridgeLimits(messages_max=2))
    it.producer.open(7, QUEUE, WRITE | ACK)
    it.consumer.read(5, QUEUE)
    it.links[0].blocked = True
    it.producer.send(puts((7, 1, b"a"), (7, 2, b"b"), (7, 3, b"c")))
    assert [(ack.guid, ack.status) for ack in it.producer.acks()] == [(guid(3), AckStatus.LIMIT_MESSAGES)]


def test_a_whole_event_is_sent_again() -> None:
    it = Bridge(2)
    it.producer.open(7, QUEUE, WRITE | ACK)
    it.consumer.read(5, QUEUE)
    it.links[0].up_blocked = True
    it.producer.send(puts(*((7, number, payload) for number, payload in enumerate(PAYLOADS))))
    assert it.producer.acks() == []
    assert relay_of(it).posts.room.bytes == sum(map(len, PAYLOADS))
    it.crash()
    it.restart()
    assert [ack.guid for ack in it.producer.acks()] == [guid(number) for number in range(len(PAYLOADS))]
    assert it.consumer.payloads() == PAYLOADS
    assert relay_of(it).posts.room.bytes == 0


def test_a_whole_event_that_comes_again_while_it_waits_is_kept_once() -> None:
    it = Bridge(2)
    it.producer.open(7, QUEUE, WRITE | ACK)
    it.consumer.read(5, QUEUE)
    it.links[0].up_blocked = True
    event = puts(*((7, number, payload) for number, payload in enumerate(PAYLOADS)))
    it.producer.send(event)
    it.producer.send(event)
    room = relay_of(it).posts.room
    assert (room.messages, room.bytes) == (len(PAYLOADS), sum(map(len, PAYLOADS)))
    it.crash()
    it.restart()
    assert {ack.guid for ack in it.producer.acks()} == {guid(number) for number in range(len(PAYLOADS))}
    assert it.consumer.payloads() == PAYLOADS
    assert room.messages == room.bytes == 0


def test_no_more_than_the_consumer_may_have() -> None:
    it = Bridge()
    it.producer.open(7, QUEUE, WRITE | ACK)
    it.consumer.open(5, QUEUE, READ)
    it.consumer.subscribe(5, Wanted(messages_max=2))
    it.producer.send(puts(*((7, number, b"%d" % number) for number in range(5))))
    assert it.consumer.payloads() == [b"0", b"1"]
    it.consumer.confirm(5, guid(0), guid(1))
    assert it.consumer.payloads() == [b"2", b"3"]
    # Confirms of a message that the proxy lacks, and of messages that it has.
    it.consumer.confirm(5, guid(9), guid(2), guid(3))
    assert it.consumer.payloads() == [b"4"]


def test_two_apps_and_two_consumers_of_one() -> None:
    it = Bridge()
    it.producer.open(7, FANOUT, WRITE | ACK)
    it.consumer.read(5, FANOUT, app="foo", sub_id=1)
    other = it.tree.client(it.proxy.node)
    other.read(5, FANOUT, app="foo", sub_id=1)
    third = it.tree.client(it.proxy.node)
    third.read(6, FANOUT, app="bar", sub_id=1)
    it.producer.send(puts(*((7, number, b"%d" % number) for number in range(6))))
    first, second = it.consumer.pushes(), other.pushes()
    assert len(first) == len(second) == 3
    assert {push.payload for push in first + second} == {b"%d" % number for number in range(6)}
    assert third.payloads() == [b"%d" % number for number in range(6)]
    it.consumer.confirm(5, *(push.guid for push in first), sub_id=1)
    other.confirm(5, *(push.guid for push in second), sub_id=1)
    assert len(it.root.node.queues[FANOUT].messages) == 6
    third.confirm(6, *(guid(number) for number in range(6)), sub_id=1)
    assert not it.root.node.queues[FANOUT].messages
    assert not relay_of(it, FANOUT).messages


def test_events_left_to_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that the quick way leaves to others, with everything as it was."""
    it = Bridge()
    it.producer.open(7, QUEUE, WRITE | ACK)
    taken: list[bool] = []
    forward = Posts.forward

    def forwarded(self: Posts, *args: Any) -> bool:
        taken.append(forward(self, *args))
        return taken[-1]

    monkeypatch.setattr(Posts, "forward", forwarded)
    it.producer.send(puts((7, 1, b"a")))
    it.producer.send(puts((7, 2, b"a"), flags=0))
    it.producer.send(puts((9, 3, b"a")))
    assert taken == [True, False]
    assert {ack.guid: ack.status for ack in it.producer.acks()} == {guid(1): 0, guid(3): AckStatus.UNKNOWN}
    assert set(it.root.node.queues[QUEUE].messages) == {guid(1), guid(2)}


def test_a_push_of_a_message_that_is_here_sends_nothing() -> None:
    it = Bridge()
    it.producer.open(7, QUEUE, WRITE | ACK)
    it.consumer.read(5, QUEUE)
    it.producer.send(puts((7, 1, b"a")))
    assert it.consumer.payloads() == [b"a"]
    body = bytearray()
    append_push(body, relay_of(it).queue_id, guid(1), b"a", 1, 0, 0, 0)
    it.links[0].lower.receive(memoryview(build_event(EventType.PUSH, bytes(body))))
    it.proxy.node.end_step()
    assert it.consumer.take() == b""
