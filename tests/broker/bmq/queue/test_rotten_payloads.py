"""A payload that rots under a node that runs alone: it is not delivered and not removed, and others are."""

from __future__ import annotations

import pytest

from broker.bmq.core.messages import Message
from tests.broker.bmq.rig import ACK, READ, WRITE, Client, Rig, Wanted, guid, start

QUEUE = "bmq://priority/q"


def filled(uri: str = QUEUE, count: int = 5) -> tuple[Rig, Client]:
    rig = start()
    producer = rig.connect()
    producer.open(1, uri, WRITE | ACK)
    for number in range(count):
        producer.put(1, guid(number), b"message %d" % number)
    return rig, producer


def message_of(rig: Rig, number: int, uri: str = QUEUE) -> Message:
    return rig.node.queues[uri].messages[guid(number)]


def rot(rig: Rig, number: int, uri: str = QUEUE, at: int = 12, mask: int = 4) -> None:
    partition = rig.node.partitions[0]
    partition.files.data.buffer[message_of(rig, number, uri).offset + at] ^= mask


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "ALARM [STORAGE]" in record.getMessage()]


@pytest.mark.parametrize("at", [0, 3, 4, 12, 20])
def test_it_is_withheld_and_others_are_delivered(at: int, caplog: pytest.LogCaptureFixture) -> None:
    rig, _ = filled()
    rot(rig, 2, at=at, mask=0x40 if at == 0 else 4)
    client = rig.connect()
    client.read(1, QUEUE)
    got = client.payloads()
    if b"message 2" not in got:
        assert got == [b"message 0", b"message 1", b"message 3", b"message 4"]
        (alarm,) = told(caplog)
        assert guid(2).hex().upper() in alarm
        assert "no other node has it" in alarm
    else:
        # A bit of the header that has no part in finding the payload.
        assert got == [b"message %d" % number for number in range(5)]
        assert at == 3
    assert guid(2) in rig.node.queues[QUEUE].messages
    for number in (0, 1, 3, 4):
        client.confirm(1, guid(number))
    assert list(rig.node.queues[QUEUE].messages) == [guid(2)]


def test_later_consumer_does_not_get_it_either_and_one_alarm_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    rig, producer = filled()
    rot(rig, 2)
    for _ in range(3):
        client = rig.connect()
        client.read(1, QUEUE)
        assert b"message 2" not in client.payloads()
        rig.node.disconnect(client.session, "it leaves")
    producer.put(1, guid(9), b"goes on")
    client = rig.connect()
    client.read(1, QUEUE)
    assert client.payloads()[-1] == b"goes on"
    assert len(told(caplog)) == 1


def test_it_is_not_matched_with_expressions_either() -> None:
    rig, _ = filled()
    rot(rig, 0)
    client = rig.connect()
    client.open(1, QUEUE, READ)
    client.subscribe(1, Wanted("x > 1"), Wanted(""))
    assert client.payloads() == [b"message %d" % number for number in range(1, 5)]
    assert guid(0) in rig.node.queues[QUEUE].messages


def test_every_app_of_a_fanout_queue_gets_the_others() -> None:
    uri = "bmq://fanout/q"
    rig, _ = filled(uri)
    rot(rig, 4, uri)
    for number, app in enumerate(("foo", "bar", "baz"), 1):
        client = rig.connect()
        client.read(1, uri, app, number)
        assert client.payloads() == [b"message %d" % number for number in range(4)]
    assert guid(4) in rig.node.queues[uri].messages


def test_an_operator_can_purge_it() -> None:
    rig, _ = filled()
    rot(rig, 2)
    client = rig.connect()
    client.read(1, QUEUE)
    assert len(client.payloads()) == 4
    queue = rig.node.queues[QUEUE]
    queue.drop(message_of(rig, 2))
    assert guid(2) not in queue.messages
