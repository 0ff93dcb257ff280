"""Posting, pushing, confirming: who gets which message, in which order, and what becomes of the refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from formats.bmq.codes import AckStatus, PutFlag
from formats.bmq.wire.confirm import build_confirm_event
from tests.broker.bmq.queue.posting import QUEUE, numbers, payload, post, producing, reading
from tests.broker.bmq.rig import DOMAINS, READ, WRITE, Client, Rig, guid, start


@pytest.fixture
def rig() -> Rig:
    return start()


@pytest.fixture
def producer(rig: Rig) -> Client:
    return producing(rig, QUEUE)


# -- acks and nacks


def test_acks_come_in_the_order_of_the_posts(producer: Client) -> None:
    for number in range(5):
        producer.put(1, guid(number), payload(number))
    assert [(ack.guid, ack.status, ack.queue_id, ack.correlation_id) for ack in producer.acks()] == [
        (guid(number), 0, 1, 0) for number in range(5)
    ]


def test_post_without_the_flag_gets_no_ack(producer: Client) -> None:
    producer.put(1, guid(1), payload(1), flags=0)
    assert producer.acks() == []
    producer.put(2, guid(2), payload(2), flags=0)
    assert [ack.status for ack in producer.acks()] == [AckStatus.UNKNOWN]


def test_a_message_without_a_queue_is_refused(producer: Client) -> None:
    producer.put(7, guid(1), payload(1))
    (ack,) = producer.acks()
    assert (ack.status, ack.guid, ack.queue_id) == (AckStatus.UNKNOWN, guid(1), 7)


def test_a_message_to_a_queue_that_is_only_read_is_refused(rig: Rig) -> None:
    consumer = reading(rig)
    assert consumer.post(1, guid(1), payload(1)) is AckStatus.UNKNOWN
    assert consumer.pushes() == []


def test_a_message_whose_checksum_is_wrong_is_refused(rig: Rig, producer: Client) -> None:
    producer.put(1, guid(1), payload(1), checksum=1)
    (ack,) = producer.acks()
    assert (ack.status, ack.guid) == (AckStatus.UNKNOWN, guid(1))
    post(producer, 2)
    assert numbers(reading(rig)) == [2]


def test_clients_that_make_no_guids_get_their_correlation_ids_back(rig: Rig) -> None:
    client = rig.connect(client_id="")
    client.open(1, QUEUE, WRITE | READ)
    client.configure(1)
    for correlation_id in (1, 0xABCDEF):
        client.put(1, correlation_id.to_bytes(4, "big") + bytes(12), payload(correlation_id))
    acks, pushes = client.acks(), client.pushes()
    assert [(ack.correlation_id, ack.status) for ack in acks] == [(1, 0), (0xABCDEF, 0)]
    assert [push.guid for push in pushes] == [ack.guid for ack in acks]
    assert len({ack.guid for ack in acks} - {bytes(16)}) == 2
    client.put(2, bytes.fromhex("00000005") + bytes(12), payload(3))
    (nack,) = client.acks()
    assert (nack.correlation_id, nack.status) == (5, AckStatus.UNKNOWN)


def test_a_retransmitted_message_is_kept_once(rig: Rig, producer: Client) -> None:
    post(producer, 1, 2, 1, 2, 1)
    consumer = reading(rig)
    assert numbers(consumer) == [1, 2]
    post(producer, 1)
    assert numbers(consumer) == []


def test_one_guid_may_go_to_two_queues(rig: Rig, producer: Client) -> None:
    producer.open(2, "bmq://priority/other", WRITE)
    post(producer, 1)
    assert producer.post(2, guid(1), b"other") is AckStatus.SUCCESS
    assert numbers(reading(rig)) == [1]
    assert reading(rig, "bmq://priority/other").payloads() == [b"other"]
    assert not rig.faults()
    again = rig.restart()
    assert numbers(reading(again)) == [1]
    assert reading(again, "bmq://priority/other").payloads() == [b"other"]


def test_flags_and_properties_are_kept_too(rig: Rig, producer: Client) -> None:
    flags = PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES
    producer.put(1, guid(1), b"properties and payload", flags=flags, compression=1, schema_id=0)
    (push,) = reading(rig).pushes()
    assert (push.payload, push.flags, push.compression) == (b"properties and payload", 2, 1)
    (push,) = reading(rig.restart()).pushes()
    assert (push.payload, push.flags, push.compression) == (b"properties and payload", 2, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 4095, 4096])
def test_payloads_of_all_sizes_come_back(rig: Rig, producer: Client, size: int) -> None:
    data = bytes(at % 251 for at in range(size))
    assert producer.post(1, guid(1), data) is AckStatus.SUCCESS
    assert reading(rig).payloads() == [data]
    assert reading(rig.restart()).payloads() == [data]


# -- limits


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ({"queue_messages_max": 2}, AckStatus.LIMIT_MESSAGES),
        ({"queue_bytes_max": 2}, AckStatus.LIMIT_BYTES),
        ({"domain_messages_max": 2}, AckStatus.LIMIT_MESSAGES),
        ({"domain_bytes_max": 2}, AckStatus.LIMIT_BYTES),
    ],
)
def test_a_full_queue_refuses_and_takes_again(limit: dict[str, int], status: AckStatus) -> None:
    """The message that exceeds the limit is the last to be accepted, as in the reference."""
    rig = start(domains=[replace(DOMAINS["priority"], **limit)])  # type: ignore[arg-type]
    producer = producing(rig, QUEUE)
    post(producer, 1, 2, 3)
    assert producer.post(1, guid(4), payload(4)) is status
    consumer = reading(rig)
    assert numbers(consumer) == [1, 2, 3]
    assert producer.post(1, guid(4), payload(4)) is status
    consumer.confirm(1, guid(2))
    post(producer, 4)
    assert numbers(consumer) == [4]
    assert producer.post(1, guid(5), payload(5)) is status


@pytest.mark.parametrize("limit", [{"domain_messages_max": 2}, {"domain_bytes_max": 2}])
def test_queues_of_a_domain_share_its_limit(limit: dict[str, int]) -> None:
    rig = start(domains=[replace(DOMAINS["priority"], **limit)])  # type: ignore[arg-type]
    producer = producing(rig, QUEUE)
    producer.open(2, "bmq://priority/other", WRITE)
    post(producer, 1, 2)
    assert producer.post(2, guid(3), payload(3)) is AckStatus.SUCCESS
    assert producer.post(2, guid(4), payload(4)) is not AckStatus.SUCCESS
    assert producer.post(1, guid(4), payload(4)) is not AckStatus.SUCCESS


def test_limits_count_what_a_restart_found() -> None:
    rig = start(domains=[replace(DOMAINS["priority"], queue_messages_max=2)])
    post(producing(rig, QUEUE), 1, 2)
    again = rig.restart()
    producer = producing(again, QUEUE)
    post(producer, 3)
    assert producer.post(1, guid(4), payload(4)) is AckStatus.LIMIT_MESSAGES


# -- order and sharing


def test_messages_come_in_order_and_only_once(rig: Rig, producer: Client) -> None:
    post(producer, 1, 2, 3)
    consumer = reading(rig)
    assert numbers(consumer) == [1, 2, 3]
    post(producer, 4, 5)
    assert numbers(consumer) == [4, 5]


def test_consumers_of_equal_priority_take_turns(rig: Rig, producer: Client) -> None:
    consumers = [reading(rig) for _ in range(3)]
    post(producer, *range(9))
    assert [numbers(consumer) for consumer in consumers] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_the_highest_priority_gets_all(rig: Rig, producer: Client) -> None:
    low, high = reading(rig, priority=1), reading(rig, priority=2)
    post(producer, 1, 2, 3)
    assert (numbers(low), numbers(high)) == ([], [1, 2, 3])
    high.configure(1, priority=0)
    post(producer, 4)
    assert (numbers(low), numbers(high)) == ([4], [])
    low.close(1, QUEUE, READ)
    assert numbers(high) == [4]


def test_a_full_high_priority_is_waited_for(rig: Rig, producer: Client) -> None:
    low, high = reading(rig, priority=1), reading(rig, priority=2, messages_max=1)
    post(producer, 1, 2)
    assert (numbers(low), numbers(high)) == ([], [1])
    high.drop()
    assert numbers(low) == [1, 2]


# -- flow control


def test_no_more_messages_are_out_than_a_consumer_takes(rig: Rig, producer: Client) -> None:
    consumer = reading(rig, messages_max=2)
    post(producer, 1, 2, 3, 4)
    assert numbers(consumer) == [1, 2]
    consumer.confirm(1, guid(2))
    assert numbers(consumer) == [3]
    consumer.confirm(1, guid(1), guid(3))
    assert numbers(consumer) == [4]


def test_no_more_bytes_are_out_than_a_consumer_takes(rig: Rig, producer: Client) -> None:
    """The last message may overdraw: one that is larger than the limit would never go out otherwise."""
    consumer = reading(rig, bytes_max=3)
    post(producer, 10, 20, 30, 40)
    assert numbers(consumer) == [10, 20]
    consumer.confirm(1, guid(10))
    assert numbers(consumer) == [30]
    assert producer.post(1, guid(50), b"0" * 100) is AckStatus.SUCCESS
    consumer.confirm(1, guid(20), guid(30), guid(40))
    assert len(consumer.pushes()) == 2


def test_messages_beyond_one_consumers_limit_go_to_another(rig: Rig, producer: Client) -> None:
    small, large = reading(rig, messages_max=1), reading(rig, messages_max=10)
    post(producer, 1, 2, 3, 4)
    assert (numbers(small), numbers(large)) == ([1], [2, 3, 4])


def test_a_new_limit_counts_what_is_out(rig: Rig, producer: Client) -> None:
    consumer = reading(rig, messages_max=3)
    post(producer, *range(6))
    assert numbers(consumer) == [0, 1, 2]
    consumer.configure(1, messages_max=4)
    assert numbers(consumer) == [3]
    consumer.configure(1, messages_max=2)
    consumer.confirm(1, guid(0), guid(1))
    assert numbers(consumer) == []
    consumer.confirm(1, guid(2))
    assert numbers(consumer) == [4]


def test_two_subscriptions_of_one_stream_are_counted_apart(rig: Rig, producer: Client) -> None:
    one, other = reading(rig, messages_max=1), reading(rig, messages_max=2)
    post(producer, *range(5))
    assert (numbers(one), numbers(other)) == ([0], [1, 2])
    other.confirm(1, guid(2))
    assert (numbers(one), numbers(other)) == ([], [3])
    one.confirm(1, guid(0))
    assert (numbers(one), numbers(other)) == ([4], [])


# -- redelivery


@pytest.mark.parametrize("leave", ["close", "drop", "disconnect", "garbage"])
def test_unconfirmed_messages_go_to_others_in_order(rig: Rig, producer: Client, leave: str) -> None:
    first, second = reading(rig), reading(rig)
    post(producer, *range(6))
    assert (numbers(first), numbers(second)) == ([0, 2, 4], [1, 3, 5])
    first.confirm(1, guid(2))
    if leave == "close":
        first.close(1, QUEUE, READ)
    elif leave == "drop":
        first.drop()
    elif leave == "disconnect":
        first.disconnect()
    else:
        first.send(b"\xff" * 8)
    assert numbers(second) == [0, 4]


def test_consumer_that_takes_no_more_may_still_confirm(rig: Rig, producer: Client) -> None:
    first, second = reading(rig), reading(rig)
    post(producer, *range(4))
    assert (numbers(first), numbers(second)) == ([0, 2], [1, 3])
    first.configure(1, consume=False)
    post(producer, 4)
    assert (numbers(first), numbers(second)) == ([], [4])
    first.confirm(1, guid(0))
    first.close(1, QUEUE, READ)
    assert numbers(second) == [2]


def test_redelivered_messages_come_before_new_ones(rig: Rig, producer: Client) -> None:
    first = reading(rig, messages_max=3)
    post(producer, *range(6))
    assert numbers(first) == [0, 1, 2]
    first.drop()
    assert numbers(reading(rig)) == [0, 1, 2, 3, 4, 5]


def test_redelivery_merges_what_several_gave_back(rig: Rig, producer: Client) -> None:
    consumers = [reading(rig) for _ in range(3)]
    post(producer, *range(9))
    for consumer in consumers:
        consumer.take()
        consumer.drop()
    assert numbers(reading(rig)) == list(range(9))


def test_a_consumer_that_comes_back_confirms_what_it_had_before(rig: Rig, producer: Client) -> None:
    first = reading(rig)
    post(producer, 1, 2, 3)
    assert numbers(first) == [1, 2, 3]
    first.drop()
    second = rig.connect()
    second.open(1, QUEUE, READ)
    second.confirm(1, guid(1), guid(3))
    second.configure(1)
    assert numbers(second) == [2]
    second.confirm(1, guid(2))
    assert not rig.node.queues[QUEUE].messages


def test_a_message_confirmed_by_another_is_taken_back(rig: Rig, producer: Client) -> None:
    """The message no longer counts towards the consumer's limit."""
    first = reading(rig, messages_max=1)
    post(producer, 1, 2)
    assert numbers(first) == [1]
    second = rig.connect()
    second.open(1, QUEUE, READ)
    second.confirm(1, guid(1))
    assert numbers(first) == [2]


def test_improper_confirms_change_nothing(rig: Rig, producer: Client) -> None:
    consumer = reading(rig)
    post(producer, 1)
    consumer.send(build_confirm_event([(9, guid(1), 0), (1, guid(1), 9), (1, guid(7), 0)]))
    producer.send(build_confirm_event([(1, guid(1), 0)]))
    assert not consumer.session.finished
    assert guid(1) in rig.node.queues[QUEUE].messages
    consumer.confirm(1, guid(1))
    consumer.confirm(1, guid(1))
    assert not rig.node.queues[QUEUE].messages
    assert not rig.faults()


def test_confirmed_messages_do_not_come_back_after_a_restart(rig: Rig, producer: Client) -> None:
    consumer = reading(rig)
    post(producer, *range(5))
    consumer.confirm(1, guid(0), guid(3))
    assert numbers(reading(rig.restart())) == [1, 2, 4]
