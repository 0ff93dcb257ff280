from __future__ import annotations

import pickle

from bmqctl.bench.stamp import MAGIC, STAMP, STAMP_SIZE, Source, Stamp, filler
from bmqctl.bench.tally import FLUSH_AT, Account, ConsumerTally, ProducerTally, settle

RUN = 77


def payload(sequence: int, producer: int = 0, run: int = RUN, due_ns: int = 1000) -> bytes:
    return STAMP.pack(Stamp(MAGIC, run, producer, sequence, due_ns)) + filler(64)


def producer_of(count: int, acked: list[int], nacked: int = 0, producer: int = 0) -> ProducerTally:
    tally = ProducerTally(producer)
    tally.post(count, now_ns=500)
    for sequence in acked:
        tally.ack(sequence, due_ns=1000, now_ns=4000)
    for _ in range(nacked):
        tally.nack("LIMIT_MESSAGES", now_ns=4000)
    return tally


def consumer_of(*sequences: int, producer: int = 0) -> ConsumerTally:
    tally = ConsumerTally(RUN)
    for sequence in sequences:
        assert tally.deliver(payload(sequence, producer), now_ns=9000)
    return tally


def account(producers: list[ProducerTally], consumers: list[ConsumerTally]) -> Account:
    return settle(producers, consumers)


def test_a_payload_has_the_size_asked_for() -> None:
    for size in (STAMP_SIZE, STAMP_SIZE + 1, 1024, 70_000):
        assert len(STAMP.pack(Stamp(MAGIC, 1, 2, 3, 4)) + filler(size)) == size


def test_all_came_once_and_in_order() -> None:
    settled = account([producer_of(3, [0, 1, 2])], [consumer_of(0, 1, 2)])
    assert settled.clean
    assert (settled.posted, settled.acked, settled.delivered) == (3, 3, 3)
    assert (settled.lost, settled.duplicated, settled.reordered, settled.unanswered) == (0, 0, 0, 0)
    assert settled.latency.max_ns == 8000
    assert settled.ack_latency.max_ns == 3000


def test_an_acked_message_that_never_comes_is_lost() -> None:
    settled = account([producer_of(3, [0, 1, 2])], [consumer_of(0, 2)])
    assert settled.lost == 1
    assert not settled.clean


def test_a_duplicate_does_not_hide_a_loss() -> None:
    settled = account([producer_of(3, [0, 1, 2])], [consumer_of(0, 2, 2)])
    assert (settled.delivered, settled.lost, settled.duplicated) == (3, 1, 1)


def test_consumers_share_the_messages_of_a_queue() -> None:
    settled = account([producer_of(4, [0, 1, 2, 3])], [consumer_of(0, 2), consumer_of(1, 3)])
    assert settled.clean
    assert settled.reordered == 0


def test_a_message_that_comes_to_two_consumers_is_a_duplicate() -> None:
    settled = account([producer_of(2, [0, 1])], [consumer_of(0, 1), consumer_of(1)])
    assert (settled.duplicated, settled.reordered, settled.lost) == (1, 0, 0)


def test_a_late_first_delivery_is_a_reordering_and_a_repeat_is_not() -> None:
    settled = account([producer_of(3, [0, 1, 2])], [consumer_of(1, 0, 2, 1)])
    assert (settled.reordered, settled.duplicated) == (1, 1)


def test_producers_are_told_apart() -> None:
    producers = [producer_of(2, [0, 1], producer=0), producer_of(2, [0, 1], producer=1)]
    consumer = ConsumerTally(RUN)
    for producer, sequence in ((0, 0), (1, 0), (1, 1), (0, 1)):
        consumer.deliver(payload(sequence, producer), now_ns=9000)
    settled = account(producers, [consumer])
    assert settled.clean
    assert settled.reordered == 0


def test_nacked_and_unanswered_messages_are_not_lost() -> None:
    settled = account([producer_of(5, [0, 1], nacked=2)], [consumer_of(0, 1)])
    assert (settled.nacked, settled.unanswered, settled.lost) == (2, 1, 0)
    assert settled.nacks == {"LIMIT_MESSAGES": 2}
    assert not settled.clean


def test_a_message_that_came_although_its_ack_did_not_is_not_lost() -> None:
    settled = account([producer_of(2, [0])], [consumer_of(0, 1)])
    assert (settled.lost, settled.unanswered) == (0, 1)


def test_without_consumers_nothing_is_lost() -> None:
    settled = account([producer_of(2, [0, 1])], [])
    assert settled.clean


def test_messages_of_others_are_left_alone() -> None:
    tally = ConsumerTally(RUN)
    assert not tally.deliver(b"hello", now_ns=1)
    assert not tally.deliver(bytes(100), now_ns=1)
    assert not tally.deliver(payload(0, run=RUN + 1), now_ns=1)
    assert (tally.foreign, tally.delivered, len(tally.deliveries)) == (3, 0, 0)


def test_counts_go_on_past_a_flush_and_through_a_pipe() -> None:
    count = FLUSH_AT + 10
    consumer = consumer_of(*range(count))
    producer = producer_of(count, list(range(count)))
    sent = [pickle.loads(pickle.dumps(tally)) for tally in (producer, consumer)]
    settled = account([sent[0]], [sent[1]])
    assert settled.clean
    assert len(settled.latency) == len(settled.ack_latency) == count


def test_one_message_delivered_often_is_counted_as_often_as_it_came() -> None:
    settled = account([producer_of(1, [0])], [consumer_of(*[0] * 300)])
    assert settled.delivered == 300


def test_each_app_has_to_be_given_each_message() -> None:
    def app(group: int, *sequences: int) -> ConsumerTally:
        tally = consumer_of(*sequences)
        tally.source = Source(0, group)
        return tally

    producers = [producer_of(3, [0, 1, 2])]
    settled = account(producers, [app(0, 0, 1, 2), app(1, 0, 1, 2)])
    assert settled.clean
    assert (settled.delivered, settled.duplicated) == (6, 0)
    settled = account([producer_of(3, [0, 1, 2])], [app(0, 0, 1, 2), app(1, 0, 0)])
    assert (settled.delivered, settled.lost, settled.duplicated) == (5, 2, 1)
    # Two consumers of one app share its messages.
    assert account([producer_of(3, [0, 1, 2])], [app(0, 0, 2), app(0, 1)]).clean


def test_a_message_is_due_in_its_own_queue_only() -> None:
    other = producer_of(1, [0], producer=1)
    other.queue = 1
    ours, theirs = consumer_of(0), consumer_of(producer=1)
    theirs.source = Source(1, 0)
    settled = account([producer_of(1, [0]), other], [ours, theirs])
    assert (settled.delivered, settled.lost) == (1, 1)


def test_latencies_are_kept_by_second_too() -> None:
    tally = ConsumerTally(RUN)
    for sequence, now_ns in enumerate((1_999_999_999, 2_000_000_000, 2_500_000_000, 4_000_000_001)):
        assert tally.deliver(payload(sequence, due_ns=now_ns - 10), now_ns)
    settled = account([producer_of(4, [0, 1, 2, 3])], [tally])
    assert [(second, len(histogram)) for second, histogram in settled.intervals] == [(1, 1), (2, 2), (4, 1)]
    assert [(second, len(histogram)) for second, histogram in settled.ack_intervals] == [(0, 4)]
    assert len(settled.latency) == 4
