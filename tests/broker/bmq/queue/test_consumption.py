"""Queues that consumers do not keep up with: when that is an alarm, what it says, and when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bmq.node.changes import reconfigure
from formats.bmq.codes import PropertyType, PutFlag
from formats.bmq.wire.properties import Property, encode_properties
from tests.broker.bmq.queue.posting import FANOUT, QUEUE, post, producing, reading
from tests.broker.bmq.rig import DOMAINS, READ, Rig, Wanted, guid, start

STUCK = "ALARM [QUEUE_STUCK] Queue '"
WELL = "no longer appears to be stuck."


@pytest.fixture
def rig() -> Rig:
    return start(domains=[replace(config, idle_time_max_ms=3000) for config in DOMAINS.values()])


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")


def test_a_message_that_waits_too_long_raises_an_alarm_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    producer, consumer = producing(rig), reading(rig, messages_max=1)
    post(producer, 1)
    rig.wait(10_000)
    assert STUCK not in caplog.text  # unconfirmed, but not waiting
    post(producer, 2)
    rig.wait(2000)
    assert STUCK not in caplog.text
    rig.wait(1000)
    assert f"{STUCK}{QUEUE}' Messages [current: 2 / 0], Bytes [current: 2  B / 0  B]" in caplog.text
    assert ", max idle time 3.00 s appears to be stuck. It" in caplog.text
    assert "appears to be stuck. It currently has 1 consumers.\n  1. client:42@10.0.0.1:5000" in caplog.text
    assert "\nFor appId: __default\n\nPut aside list size: 0\nRedelivery list size: 0\n" in caplog.text
    assert "10 oldest messages in the queue:\n    0: " + guid(1).hex().upper() in caplog.text
    rig.wait(12_000)
    assert caplog.text.count(STUCK) == 1
    consumer.confirm(1, guid(1))
    assert f"Queue '{QUEUE}?id=__default' {WELL}" in caplog.text
    post(producer, 3)
    rig.wait(3000)
    assert caplog.text.count(STUCK) == 2


def test_a_slow_queue_is_not_stuck(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    producer, consumer = producing(rig), reading(rig, messages_max=1)
    for number in range(10):
        post(producer, number)
        rig.wait(2000)
        consumer.confirm(1, guid(number))
    assert STUCK not in caplog.text


def test_queue_without_consumers_is_stuck(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    post(producing(rig), 1)
    rig.wait(3000)
    assert "It currently has 0 consumers." in caplog.text
    reading(rig)
    assert WELL in caplog.text


def test_returned_message_may_be_late_already(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    post(producing(rig), 1)
    consumer = reading(rig)
    rig.wait(1000)
    consumer.drop()
    rig.wait(2000)
    assert "Redelivery list size: 1" in caplog.text


def test_only_the_app_that_is_late_is_named(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    producer = producing(rig, FANOUT)
    reading(rig, FANOUT, "foo")
    reading(rig, FANOUT, "baz")
    post(producer, 1)
    rig.wait(3000)
    assert f"{STUCK}{FANOUT}?id=bar' " in caplog.text
    assert caplog.text.count(STUCK) == 1
    reading(rig, FANOUT, "bar")
    assert f"Queue '{FANOUT}?id=bar' {WELL}" in caplog.text


def test_report_shows_messages_put_aside_and_the_subscriptions(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    producer, consumer = producing(rig), rig.connect()
    consumer.open(1, QUEUE, READ)
    consumer.subscribe(1, Wanted("x == 1"))
    area = encode_properties([Property("x", PropertyType.INT32, 0)], 0)
    producer.put(1, guid(1), area + b"msg", flags=PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES)
    rig.wait(3000)
    assert "Put aside list size: 1\nRedelivery list size: 0\n" in caplog.text
    assert "Consumer subscription expressions: \nx == 1\n" in caplog.text
    assert f"Oldest message in the 'Put aside' list:\nGUID {' ' * 28} Size" in caplog.text
    assert "Message Properties: [ x (INT32) = 0 ]" in caplog.text


def test_expired_messages_end_it(caplog: pytest.LogCaptureFixture) -> None:
    rig = start(domains=[replace(DOMAINS["priority"], idle_time_max_ms=3000, message_ttl_s=5)])
    post(producing(rig), 1)
    rig.wait(3000)
    assert STUCK in caplog.text
    rig.wait(6000)
    assert WELL in caplog.text


def test_the_limit_may_change(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    domain_of = rig.node.domains
    producer = producing(rig)
    post(producer, 1)
    domain = domain_of["priority"]
    reconfigure(rig.node, domain, replace(domain.config, idle_time_max_ms=1000))
    rig.wait(1000)
    assert STUCK in caplog.text
    reconfigure(rig.node, domain, replace(domain.config, idle_time_max_ms=0))
    caplog.clear()
    post(producer, 2)
    rig.wait(60_000)
    assert "stuck" not in caplog.text


def test_a_broadcast_is_never_stuck(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    post(producing(rig, "bmq://broadcast/q"), 1)
    rig.wait(10_000)
    assert STUCK not in caplog.text


def test_nothing_a_peer_sends_begins_a_line_of_an_alarm(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    producer, consumer = producing(rig), rig.connect()
    consumer.open(1, QUEUE, READ)
    consumer.subscribe(1, Wanted('x == "\nALARM [FORGED]"'))
    area = encode_properties([Property("x\nALARM", PropertyType.STRING, "\nALARM [FORGED]")], 0)
    producer.put(1, guid(1), area + b"msg", flags=PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES)
    rig.wait(3000)
    (alarm,) = [text for text in caplog.messages if text.startswith("ALARM [QUEUE_STUCK]")]
    assert not [line for line in alarm.splitlines()[1:] if line.startswith("ALARM")]
