"""Watermarks and limits: which state a meter is in, and what it says when."""

from __future__ import annotations

import pytest

from broker.bmq.core.messages import Full
from broker.bmq.core.pretty import pretty_bytes, pretty_interval, pretty_number
from broker.bmq.queue.capacity import Fullness, Usage

NORMAL, HIGH, FULL = Fullness.NORMAL, Fullness.HIGH_WATERMARK, Fullness.FULL


@pytest.fixture
def usage() -> Usage:
    usage = Usage("queue [bmq://d/q]", details=lambda: "\nmore")
    usage.set_limits(10, 1000)
    return usage


def test_states_rise_at_watermarks_and_fall_below_them(usage: Usage) -> None:
    states = []
    for _ in range(11):
        usage.add(1)
        states.append(usage.state)
    assert states == [NORMAL] * 7 + [HIGH] * 2 + [FULL] * 2
    states = []
    for _ in range(11):
        usage.remove(1)
        states.append(usage.state)
    assert states == [FULL] * 2 + [HIGH] * 4 + [NORMAL] * 5


def test_bytes_and_messages_both_count(usage: Usage) -> None:
    usage.add(800)
    assert usage.state is HIGH
    usage.add(200)
    assert usage.state is FULL
    usage.remove(800)
    assert usage.state is NORMAL


def test_alarms_are_raised_once_on_the_way_up(usage: Usage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for _ in range(11):
        usage.add(30)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert caplog.messages == [
        "ALARM [CAPACITY_STATE_HIGH_WATERMARK] for 'queue [bmq://d/q]': "
        "[Messages (STATE_HIGH_WATERMARK): 8 (limit: 10), Bytes (STATE_NORMAL): 240  B (limit: 1000  B)]\nmore",
        "ALARM [CAPACITY_STATE_FULL] for 'queue [bmq://d/q]': [Messages (STATE_FULL): 10 (limit: 10), "
        "Bytes (STATE_NORMAL): 300  B (limit: 1000  B)]\nmore",
    ]
    caplog.clear()
    usage.remove(330, 11)
    (line,) = caplog.messages
    assert line.startswith("[CAPACITY_STATE_NORMAL] for 'queue [bmq://d/q]': [Messages (STATE_NORMAL): 0 ")


def test_the_one_message_that_goes_beyond_is_the_last(usage: Usage) -> None:
    for _ in range(11):
        usage.check()
        usage.add(1)
    assert usage.at_limit
    with pytest.raises(Full) as full:
        usage.check()
    assert full.value.status == "LIMIT_MESSAGES"
    usage.remove(1)
    usage.check()
    usage.add(2000)
    usage.remove(5, 5)
    with pytest.raises(Full) as full:
        usage.check()
    assert full.value.status == "LIMIT_BYTES"


def test_a_domain_is_as_full_as_its_queues_together() -> None:
    domain = Usage("domain")
    domain.set_limits(3, 0)
    queues = [Usage("one", domain), Usage("other", domain)]
    for number in range(4):
        queues[number % 2].add(5)
    assert (domain.messages, domain.bytes) == (4, 20)
    assert domain.at_limit
    with pytest.raises(Full, match="domain holds 4 messages of 3"):
        queues[0].check()
    queues[1].remove(5)
    queues[0].check()


def test_without_limits_nothing_is_full() -> None:
    usage = Usage()
    usage.add(1 << 60)
    assert not usage.at_limit
    usage.check()
    assert usage.state is NORMAL


def test_limits_may_change(usage: Usage) -> None:
    for _ in range(5):
        usage.add(1)
    usage.set_limits(4, 0)
    assert usage.state is FULL
    with pytest.raises(Full):
        usage.check()
    usage.set_limits(0, 0)
    assert usage.state is NORMAL
    usage.check()


def test_ratios_move_the_watermark(usage: Usage) -> None:
    usage.set_limits(10, 1000, 0.5, 1.0)
    for _ in range(5):
        usage.add(1)
    assert usage.state is HIGH


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0  B"),
        (1023, "1023  B"),
        (1024, "1.00 KB"),
        (1536, "1.50 KB"),
        (5 << 30, "5.00 GB"),
        (1 << 60, "1024.00 PB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert pretty_bytes(size) == text


def test_numbers_and_times_for_people() -> None:
    assert pretty_number(1234567) == "1,234,567"
    assert [pretty_interval(ns) for ns in (5, 1500, 2_000_000, 1_000_000_000, 90_000_000_000)] == [
        "5 ns",
        "1.50 us",
        "2.00 ms",
        "1.00 s",
        "1.50 m",
    ]


def test_restored_usage_raises_no_alarm(usage: Usage, caplog: pytest.LogCaptureFixture) -> None:
    domain = Usage("domain")
    domain.set_limits(5, 0)
    usage.parent = domain
    for _ in range(12):
        usage.restore(1)
    assert (usage.messages, domain.bytes, usage.state, domain.state) == (12, 12, FULL, FULL)
    assert not caplog.messages
    with pytest.raises(Full):
        usage.check()
