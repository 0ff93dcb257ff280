"""Subscriptions with expressions: who gets what, what is put aside, and for whom it waits."""

from __future__ import annotations

import tracemalloc
import zlib
from dataclasses import replace

import pytest

from broker.bmq.queue.delivery import EXIT_LINES_MAX
from broker.bmq.queue.queue import Queue
from formats.bmq import expressions
from formats.bmq.codes import AckStatus, CompressionAlgorithm, PropertyType, PutFlag
from formats.bmq.disk.journal import CONFIRM_RECORD, MESSAGE_RECORD, ConfirmReason, RecordType, scan, select
from formats.bmq.wire.application_data import build_application_data
from formats.bmq.wire.properties import Property, encode_properties, properties_size
from tests.broker.bmq.rig import ACK, APPS, DOMAINS, READ, WRITE, Client, Rig, Wanted, guid, start

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"
BROADCAST = "bmq://broadcast/q"
FLAGS = PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES


@pytest.fixture
def rig() -> Rig:
    return start()


@pytest.fixture
def producer(rig: Rig) -> Client:
    return producing(rig)


def producing(rig: Rig, uri: str = QUEUE) -> Client:
    client = rig.connect()
    client.open(1, uri, WRITE | ACK)
    return client


def subscribing(rig: Rig, *wanted: Wanted, uri: str = QUEUE, app: str = "") -> Client:
    client = rig.connect()
    client.open(1, uri, READ, app, 1 if app else 0)
    client.subscribe(1, *wanted, app=app or "__default")
    return client


def post(client: Client, *numbers: int, name: str = "x", schema_id: int = 0) -> None:
    """Post messages whose number is a property, and their payload."""
    for number in numbers:
        area = encode_properties([Property(name, PropertyType.INT32, number)], schema_id)
        client.put(1, guid(number + 1000), area + b"%d" % number, flags=FLAGS, schema_id=schema_id)
    assert {ack.status for ack in client.acks()} == {AckStatus.SUCCESS}


def numbers(client: Client) -> list[int]:
    """The received payloads, which follow the properties."""
    return [int(push.payload[properties_size(push.payload) :]) for push in client.pushes()]


def confirm(client: Client, *numbers: int, sub_id: int = 0) -> None:
    client.confirm(1, *(guid(number + 1000) for number in numbers), sub_id=sub_id)


def queue(rig: Rig, uri: str = QUEUE) -> Queue:
    return rig.node.queues[uri]


# -- matching


@pytest.mark.parametrize("schema_id", [0, 1])
def test_only_what_matches_comes(rig: Rig, producer: Client, schema_id: int) -> None:
    consumer = subscribing(rig, Wanted("x <= 1"))
    post(producer, 0, 1, 2, -5, schema_id=schema_id)
    assert numbers(consumer) == [0, 1, -5]


def test_message_without_a_match_waits_for_a_subscription(rig: Rig, producer: Client) -> None:
    first = subscribing(rig, Wanted("x >= 1"))
    post(producer, 0, 1, 2)
    assert numbers(first) == [1, 2]
    assert len(queue(rig).apps["__default"].aside) == 1
    second = subscribing(rig, Wanted("x >= 0 || x < 0"))
    assert numbers(second) == [0]
    assert not queue(rig).apps["__default"].aside


def test_a_consumer_may_change_what_it_wants(rig: Rig, producer: Client) -> None:
    consumer = subscribing(rig, Wanted("x >= 4"))
    post(producer, *range(6))
    assert numbers(consumer) == [4, 5]
    consumer.subscribe(1, Wanted("x >= 2"))
    assert numbers(consumer) == [2, 3]
    consumer.subscribe(1, Wanted())
    assert numbers(consumer) == [0, 1]


def test_several_subscriptions_of_one_consumer(rig: Rig, producer: Client) -> None:
    consumer = subscribing(rig, Wanted("x < 0"), Wanted("x > 0"), Wanted("x == 0"))
    post(producer, 5, -5, 0, 7)
    assert [push.subscription_id for push in consumer.pushes()] == [2, 1, 3, 2]


def test_messages_without_properties_match_only_those_who_want_all(rig: Rig, producer: Client) -> None:
    consumer = subscribing(rig, Wanted("!exists(x)"), Wanted("x == 1"))
    other = subscribing(rig, Wanted(priority=-1))
    producer.post(1, guid(1), b"no properties")
    assert [push.subscription_id for push in consumer.pushes()] == [1]
    consumer.subscribe(1, Wanted("x == 1"))
    producer.post(1, guid(2), b"no properties")
    assert len(other.pushes()) == 1


def test_properties_of_the_older_encoding_are_read_through_its_compression(rig: Rig, producer: Client) -> None:
    consumer = subscribing(rig, Wanted("x == 7"))
    area = encode_properties([Property("x", PropertyType.INT64, 7)], 0)
    data, compression = build_application_data(area, b"a" * 5000, 0, CompressionAlgorithm.ZLIB)
    assert compression is CompressionAlgorithm.ZLIB
    producer.put(1, guid(1), data, flags=FLAGS, compression=compression)
    producer.put(1, guid(2), b"no zlib" * 9, flags=FLAGS, compression=compression)
    assert [push.guid for push in consumer.pushes()] == [guid(1)]


def test_a_message_that_inflates_to_very_much_is_not_inflated(rig: Rig, producer: Client) -> None:
    consumer = subscribing(rig, Wanted("x == 7"))
    area = encode_properties([Property("x", PropertyType.INT64, 7)], 0)
    large = zlib.compress(area + bytes(32 << 20))
    tracemalloc.start()
    producer.put(1, guid(1), large, flags=FLAGS, compression=1)
    producer.put(1, guid(2), zlib.compress(b"\0\xff\xff\xff" + bytes(100)), flags=FLAGS, compression=1)
    producer.put(1, guid(3), zlib.compress(b"\0"), flags=FLAGS, compression=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert [push.guid for push in consumer.pushes()] == [guid(1)]


def test_expressions_are_applied_to_what_a_restart_found(rig: Rig, producer: Client) -> None:
    post(producer, *range(6))
    again = rig.restart()
    consumer = subscribing(again, Wanted("x >= 4"))
    assert numbers(consumer) == [4, 5]
    assert numbers(subscribing(again, Wanted("x < 4"))) == [0, 1, 2, 3]


# -- priorities and turns


def test_the_highest_priority_with_an_expression_gets_all_that_match(rig: Rig, producer: Client) -> None:
    high, low = subscribing(rig, Wanted("x >= 0", 10)), subscribing(rig, Wanted("x >= 0", 5))
    post(producer, 0, 1)
    assert (numbers(high), numbers(low)) == ([0, 1], [])
    high.subscribe(1, Wanted("x >= 0", 1))
    post(producer, 2, 3)
    assert (numbers(high), numbers(low)) == ([], [2, 3])


def test_lower_priorities_get_what_does_not_match_above(rig: Rig, producer: Client) -> None:
    high, low = subscribing(rig, Wanted("x >= 10", 5)), subscribing(rig, Wanted("x >= 0", 1))
    post(producer, 10, 1, 11, 2)
    assert (numbers(high), numbers(low)) == ([10, 11], [1, 2])


def test_lower_priorities_do_not_get_what_has_no_room_above(rig: Rig, producer: Client) -> None:
    high, low = subscribing(rig, Wanted("x >= 10", 5, messages_max=1)), subscribing(rig, Wanted("x >= 0", 1))
    post(producer, 10, 11, 12, 1)
    assert (numbers(high), numbers(low)) == ([10], [1])
    confirm(high, 10)
    assert (numbers(high), numbers(low)) == ([11], [])
    # They may have it when those above are gone.
    high.drop()
    assert numbers(low) == [11, 12]


def test_equals_take_turns(rig: Rig, producer: Client) -> None:
    consumers = [subscribing(rig, Wanted("x >= 0")) for _ in range(3)]
    post(producer, *range(9))
    assert [numbers(consumer) for consumer in consumers] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_a_consumer_may_ask_for_several_messages_in_a_row(rig: Rig, producer: Client) -> None:
    one, two = subscribing(rig, Wanted("x >= 0", count=2)), subscribing(rig, Wanted("x >= 0"))
    post(producer, *range(6))
    assert (numbers(one), numbers(two)) == ([0, 1, 3, 4], [2, 5])


# -- room


def test_subscriptions_have_their_limits_each(rig: Rig, producer: Client) -> None:
    consumer = subscribing(rig, Wanted("x < 0", messages_max=1), Wanted("x >= 0", messages_max=2))
    post(producer, -1, -2, 1, 2, 3, -3)
    assert numbers(consumer) == [-1, 1, 2]
    confirm(consumer, -1)
    assert numbers(consumer) == [-2]
    confirm(consumer, 1, 2)
    assert numbers(consumer) == [3]
    confirm(consumer, -2)
    assert numbers(consumer) == [-3]


def test_bytes_count_per_subscription(rig: Rig, producer: Client) -> None:
    consumer = subscribing(rig, Wanted("x < 0", bytes_max=1), Wanted("x >= 0"))
    post(producer, -1, -2, 1, 2)
    assert numbers(consumer) == [-1, 1, 2]
    confirm(consumer, -1)
    assert numbers(consumer) == [-2]


def test_message_that_waits_for_room_goes_to_the_first_consumer_with_room(rig: Rig, producer: Client) -> None:
    """A message that matches two subscriptions waits for both, and comes once."""
    one = subscribing(rig, Wanted("x > 0", messages_max=1))
    two = subscribing(rig, Wanted("x > 1", messages_max=1))
    other = subscribing(rig, Wanted("x < 0"))
    post(producer, 1, 2, 3, 4, -1)
    assert (numbers(one), numbers(two), numbers(other)) == ([1], [2], [-1])
    confirm(two, 2)
    assert (numbers(one), numbers(two)) == ([], [3])
    confirm(one, 1)
    assert (numbers(one), numbers(two)) == ([4], [])
    confirm(one, 4)
    confirm(two, 3)
    assert (numbers(one), numbers(two)) == ([], [])
    assert not queue(rig).messages or set(queue(rig).messages) == {guid(999)}


def test_full_consumers_stop_the_delivery(rig: Rig, producer: Client, caplog: pytest.LogCaptureFixture) -> None:
    consumer = subscribing(rig, Wanted("x > 0", messages_max=1))
    caplog.set_level("INFO")
    post(producer, 1)
    line = "appId = '__default' does not have any subscription capacity; early exits delivery at "
    line += guid(1002).hex().upper()
    assert line not in caplog.text
    post(producer, 2, 3)
    assert caplog.text.count("early exits") == 1
    assert line in caplog.text
    app = queue(rig).apps["__default"]
    assert (len(app.pending), len(app.aside)) == (2, 0)
    confirm(consumer, 1)
    assert numbers(consumer) == [1, 2]
    assert caplog.text.count("early exits") == 2


def test_lines_about_nobody_having_room_are_few(rig: Rig, producer: Client, caplog: pytest.LogCaptureFixture) -> None:
    consumer = subscribing(rig, Wanted("x > 0", messages_max=1))
    caplog.set_level("INFO")
    post(producer, *range(1, EXIT_LINES_MAX + 10))
    for number in range(1, EXIT_LINES_MAX + 5):
        confirm(consumer, number)
    assert caplog.text.count("early exits") == EXIT_LINES_MAX


def test_a_pause_of_one_subscription_is_none_of_the_other(rig: Rig, producer: Client) -> None:
    consumer = subscribing(rig, Wanted("x < 0", messages_max=0), Wanted("x >= 0"))
    post(producer, -1, 1)
    assert numbers(consumer) == [1]
    consumer.subscribe(1, Wanted("x < 0"), Wanted("x >= 0"))
    assert numbers(consumer) == [-1]


def test_unconfirmed_messages_count_against_the_same_subscription_after_a_change(rig: Rig, producer: Client) -> None:
    consumer = subscribing(rig, Wanted("x > 0", messages_max=2))
    post(producer, 1, 2, 3, 4)
    assert numbers(consumer) == [1, 2]
    consumer.subscribe(1, Wanted("x < 0"), Wanted("x > 0", messages_max=3))
    assert numbers(consumer) == [3]
    confirm(consumer, 1)
    assert numbers(consumer) == [4]


# -- redelivery


def test_message_put_aside_keeps_its_place(rig: Rig, producer: Client) -> None:
    first = subscribing(rig, Wanted("x > 3"))
    post(producer, *range(6))
    assert numbers(first) == [4, 5]
    first.drop()
    assert numbers(subscribing(rig, Wanted("x >= 0"))) == list(range(6))


def test_a_message_put_aside_can_be_confirmed_by_who_had_it_before(rig: Rig, producer: Client) -> None:
    first = subscribing(rig, Wanted("x > 0"))
    post(producer, 1)
    first.drop()
    second = subscribing(rig, Wanted("x < 0"))
    confirm(second, 1)
    assert not queue(rig).messages
    assert numbers(subscribing(rig, Wanted())) == []


# -- apps


def test_apps_have_their_own_subscriptions(rig: Rig) -> None:
    producer = producing(rig, FANOUT)
    consumers = {app: subscribing(rig, Wanted(f"x >= {n}"), uri=FANOUT, app=app) for n, app in enumerate(APPS)}
    post(producer, 0, 1, 2)
    assert [numbers(consumer) for consumer in consumers.values()] == [[0, 1, 2], [1, 2], [2]]


def test_broadcast_goes_once_to_each_consumer_that_wants_it(rig: Rig) -> None:
    producer = producing(rig, BROADCAST)
    low = subscribing(rig, Wanted("x >= 0"), uri=BROADCAST)
    all_, less, more = (subscribing(rig, Wanted(text, 1), uri=BROADCAST) for text in ("x >= 0", "x < 100", "x >= 100"))
    both = subscribing(rig, Wanted("x < 100", 1), Wanted("x > 0", 1), uri=BROADCAST)
    post(producer, 50, 100)
    assert [numbers(each) for each in (low, all_, less, more, both)] == [[], [50, 100], [50], [100], [50, 100]]


SELECTIVE = replace(DOMAINS["fanout"], subscriptions=(("foo", "x == 1"), ("bar", "x == 2")))


def journal(rig: Rig) -> list[tuple[int, int]]:
    """Kind of every message and confirm record, and its count of references or its reason."""
    files = rig.node.partitions[0].files
    records = scan(files.journal.buffer, 44, (files.journal_end - 44) // 60)
    messages, at_messages = select(records, RecordType.MESSAGE)
    confirms, at_confirms = select(records, RecordType.CONFIRM)
    counts = MESSAGE_RECORD.column(messages, "ref_count_low").tolist()
    reasons = CONFIRM_RECORD.column(confirms, "reason").tolist()
    rows = [(at, RecordType.MESSAGE, count) for at, count in zip(at_messages.tolist(), counts, strict=True)]
    rows += [(at, RecordType.CONFIRM, reason) for at, reason in zip(at_confirms.tolist(), reasons, strict=True)]
    return [(kind, value) for _, kind, value in sorted(rows)]


def test_the_domain_says_what_apps_want(rig: Rig) -> None:
    rig = start(domains=[SELECTIVE])
    producer = producing(rig, FANOUT)
    consumers = {app: subscribing(rig, Wanted(), uri=FANOUT, app=app) for app in APPS}
    post(producer, 1, 2, 3)
    assert [numbers(consumers[app]) for app in APPS] == [[1], [2], [1, 2, 3]]
    auto, kept = (RecordType.CONFIRM, ConfirmReason.AUTO_CONFIRMED), RecordType.MESSAGE
    assert journal(rig) == [auto, (kept, 2), auto, (kept, 2), auto, auto, (kept, 1)]
    assert not rig.faults()
    again = rig.restart()
    consumers = {app: subscribing(again, Wanted(), uri=FANOUT, app=app) for app in APPS}
    assert [numbers(consumers[app]) for app in APPS] == [[1], [2], [1, 2, 3]]
    confirm(consumers["foo"], 1, sub_id=1)
    confirm(consumers["baz"], 1, 2, 3, sub_id=1)
    assert set(queue(again, FANOUT).messages) == {guid(1002)}
    confirm(consumers["bar"], 2, sub_id=1)
    assert not queue(again, FANOUT).messages
    assert again.node.partitions[0].records.due == 0
    assert not queue(again.restart(), FANOUT).messages


def test_message_that_no_app_wants_is_acknowledged_and_removed() -> None:
    rig = start(domains=[replace(DOMAINS["priority"], subscriptions=(("", "x == 1"),))])
    producer = producing(rig)
    post(producer, 2)
    assert not queue(rig).messages
    post(producer, 1)
    assert numbers(subscribing(rig, Wanted())) == [1]


def test_a_rollover_keeps_who_does_not_want_it() -> None:
    rig = start(domains=[SELECTIVE])
    producer = producing(rig, FANOUT)
    post(producer, 1, 3)
    rig.node.partitions[0].roll_over()
    assert not rig.faults()
    again = rig.restart()
    assert numbers(subscribing(again, Wanted(), uri=FANOUT, app="bar")) == []
    assert numbers(subscribing(again, Wanted(), uri=FANOUT, app="baz")) == [1, 3]


def test_a_consumer_without_an_expression_waits_for_no_parser_to_be_made(rig: Rig) -> None:
    # It takes longer than any other step of a small node.
    expressions._parser.cache_clear()
    expressions.compile_expression.cache_clear()
    subscribing(rig, Wanted())
    assert expressions._parser.cache_info().currsize == 0
    subscribing(rig, Wanted("x > 1"))
    assert expressions._parser.cache_info().currsize == 1
