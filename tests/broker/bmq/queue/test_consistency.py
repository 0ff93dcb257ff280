"""Strong consistency: nobody hears of a message before enough nodes have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from broker.bmq.node.changes import reconfigure
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.store import chunked
from formats.bmq.codes import AckStatus
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import DeletionRecordFlag, decode_record
from tests.broker.bmq.rig import ACK, DOMAINS, READ, WRITE, Client, Rig, guid, start
from tests.simulator.judges.invariants import check_queue

QUEUE = "bmq://priority/q"
PATIENCE_MS = 5000
MANY, AMOUNT = 60, 5
STRONG = {
    name: replace(config, strong=True, deduplication_time_ms=PATIENCE_MS, message_ttl_s=1000)
    for name, config in DOMAINS.items()
}


@pytest.fixture
def rig() -> Rig:
    rig = start(domains=dict(STRONG))
    partition(rig).kept.copies_wanted = 2
    partition(rig).kept.is_copied = True
    return rig


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.connect()
    client.open(1, QUEUE, READ | WRITE | ACK)
    client.configure(1)
    return client


def partition(rig: Rig) -> StoredPartition:
    return rig.node.partitions[0]


def put(client: Client, *numbers: int) -> None:
    for number in numbers:
        client.put(1, guid(number), b"message %d" % number)


def acks(client: Client) -> list[tuple[bytes, int]]:
    return [(ack.guid, ack.status) for ack in client.acks()]


def test_a_message_waits_for_copies_and_is_then_acknowledged_and_delivered(rig: Rig, client: Client) -> None:
    put(client, 1)
    written = partition(rig).sequence_number
    put(client, 2)
    assert (acks(client), client.payloads()) == ([], [])
    partition(rig).kept.copied(written - 1)
    assert (acks(client), client.payloads()) == ([], [])
    partition(rig).kept.copied(written)
    assert (acks(client), client.payloads()) == ([(guid(1), 0)], [b"message 1"])
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert (acks(client), client.payloads()) == ([(guid(2), 0)], [b"message 2"])


def test_a_payload_that_has_rotted_while_its_message_waited_for_copies_is_not_delivered(
    rig: Rig, client: Client
) -> None:
    put(client, 1, 2, 3)
    partition(rig).files.data.buffer[rig.node.queues[QUEUE].messages[guid(2)].offset + 12] ^= 4
    rig.now.ms += 200
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert acks(client) == [(guid(1), 0), (guid(2), 0), (guid(3), 0)]
    # Later messages wait, too, until other nodes have been asked for it.
    assert client.payloads() == [b"message 1"]
    assert guid(2) in rig.node.queues[QUEUE].messages
    put(client, 4)
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert client.payloads() == []


def test_a_cluster_of_one_waits_for_nobody() -> None:
    rig = start(domains=dict(STRONG))
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    put(client, 1)
    assert acks(client) == [(guid(1), 0)]


@pytest.mark.parametrize("domain", ["memory", "broadcast"])
def test_post_to_a_memory_domain_waits_for_no_copies(rig: Rig, domain: str) -> None:
    client = rig.connect()
    client.open(1, f"bmq://{domain}/q", WRITE | ACK)
    put(client, 1)
    assert acks(client) == [(guid(1), 0)]


def test_an_eventual_message_waits_for_nobody() -> None:
    rig = start()
    partition(rig).kept.copies_wanted = 2
    partition(rig).kept.is_copied = True
    client = rig.connect()
    client.open(1, QUEUE, READ | WRITE | ACK)
    client.configure(1)
    put(client, 1)
    assert (acks(client), client.payloads()) == ([(guid(1), 0)], [b"message 1"])


def test_copies_of_very_many_messages_are_told_of_in_slices_and_in_order(rig: Rig, client: Client) -> None:
    put(client, *range(MANY))
    short = rig.node.work
    short.amount = short.left = AMOUNT
    partition(rig).kept.copied(partition(rig).sequence_number)
    told, pushed = acks(client), client.payloads()
    assert len(told) == len(pushed) == AMOUNT
    late = MANY
    while any(rig.node.end_step()):
        # Messages that arrive between two slices do not overtake, wherever their own copies are.
        put(client, late)
        late += 1
        partition(rig).kept.copied(partition(rig).sequence_number)
        more = acks(client)
        assert len(more) <= AMOUNT
        told += more
        pushed += client.payloads()
        assert short.slices < 2 * MANY
    told += acks(client)
    pushed += client.payloads()
    assert told == [(guid(number), AckStatus.SUCCESS) for number in range(late)]
    assert pushed == [b"message %d" % number for number in range(late)]
    assert not rig.node.queues[QUEUE].awaiting


def test_copies_under_an_ended_lease_acknowledge_nothing(rig: Rig, client: Client) -> None:
    put(client, *range(MANY))
    rig.node.work.amount = rig.node.work.left = AMOUNT
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert len(acks(client)) == AMOUNT
    lease_id = partition(rig).primary_lease_id
    stores, waiting = dict(partition(rig).records.stores), partition(rig).kept.awaiting
    partition(rig).deactivate()
    # They are let go of bit by bit.
    assert not partition(rig).kept.awaiting
    assert waiting
    rig.node.work.finish()
    assert not waiting
    assert acks(client) == []
    # The next lease's are reported as usual.
    partition(rig).activate(lease_id + 1)
    partition(rig).records.stores.update(stores)
    put(client, MANY)
    partition(rig).kept.copied(partition(rig).sequence_number)
    rig.node.work.finish()
    assert acks(client) == [(guid(MANY), AckStatus.SUCCESS)]


def test_a_retransmission_waits_with_the_first(rig: Rig, client: Client) -> None:
    put(client, 1)
    again = rig.connect()
    again.open(1, QUEUE, WRITE | ACK)
    put(again, 1)
    assert acks(again) == []
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert (acks(client), acks(again)) == ([(guid(1), 0)], [(guid(1), 0)])
    assert client.payloads() == [b"message 1"]
    put(again, 1)
    assert acks(again) == [(guid(1), 0)]


def test_a_producer_that_went_away_is_not_told(rig: Rig, client: Client) -> None:
    closed, dropped = rig.connect(), rig.connect()
    for each, number in ((closed, 1), (dropped, 2)):
        each.open(1, QUEUE, WRITE | ACK)
        put(each, number)
    closed.close(1, QUEUE, WRITE | ACK)
    dropped.drop()
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert acks(closed) == []
    assert not dropped.session.output_size()
    assert client.payloads() == [b"message 1", b"message 2"]


def test_post_without_the_flag_gets_no_ack(rig: Rig, client: Client) -> None:
    client.put(1, guid(1), b"message 1", flags=0)
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert (acks(client), client.payloads()) == ([], [b"message 1"])


def test_a_message_that_finds_no_quorum_is_refused_in_the_end(rig: Rig, client: Client) -> None:
    put(client, 1)
    rig.wait(PATIENCE_MS)
    assert acks(client) == []
    rig.wait(2000)
    assert acks(client) == [(guid(1), AckStatus.UNKNOWN)]
    files = partition(rig).files
    records = [decode_record(files.journal.buffer, files.journal_end - 60 * n) for n in (1, 2)]
    flags = [getattr(record, "deletion_flag", None) for record in records]
    assert DeletionRecordFlag.NO_SC_QUORUM in flags
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert (acks(client), client.payloads()) == ([], [])
    assert rig.node.queues[QUEUE].usage.bytes == 0
    put(client, 2)
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert client.payloads() == [b"message 2"]


def test_a_message_that_is_purged_while_it_waits_is_refused(rig: Rig, client: Client) -> None:
    put(client, 1)
    assert purge(rig.node.queues[QUEUE])[0] == 1
    assert acks(client) == [(guid(1), AckStatus.UNKNOWN)]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_message_that_all_apps_confirm_while_it_waits_is_kept(rig: Rig, client: Client, *, restarts: bool) -> None:
    """The apps had it from the last primary."""
    put(client, 1, 2)
    client.confirm(1, guid(2))
    assert acks(client) == [(guid(2), AckStatus.SUCCESS)]
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert (acks(client), client.payloads()) == ([(guid(1), AckStatus.SUCCESS)], [b"message 1"])
    if restarts:
        rig = rig.restart()
        client = rig.connect()
        client.open(1, QUEUE, READ | WRITE | ACK)
        client.configure(1)
        assert client.payloads() == [b"message 1"]
    put(client, 2)
    assert (acks(client), client.payloads()) == ([(guid(2), AckStatus.SUCCESS)], [])


def test_a_message_that_one_of_two_apps_confirms_while_it_waits_goes_on_waiting(rig: Rig) -> None:
    uri = "bmq://fanout/q"
    producer, first = rig.connect(), rig.connect()
    producer.open(1, uri, WRITE | ACK)
    first.open(1, uri, READ, "foo", 1)
    first.configure(1, "foo")
    put(producer, 1)
    first.confirm(1, guid(1), sub_id=1)
    assert acks(producer) == []
    assert purge(rig.node.queues[uri])[0] == 1
    assert acks(producer) == [(guid(1), AckStatus.UNKNOWN)]


def test_very_many_that_are_purged_while_they_wait_are_refused_in_slices(rig: Rig, client: Client) -> None:
    put(client, *range(10))
    partition(rig).kept.copied(partition(rig).sequence_number)
    put(client, *range(10, MANY))
    assert len(acks(client)) == len(client.payloads()) == 10
    work, end = rig.node.work, partition(rig).files.journal_end
    work.amount = work.left = AMOUNT
    assert purge(rig.node.queues[QUEUE])[0] == MANY
    # One record for all of them.
    assert partition(rig).files.journal_end == end + JOURNAL_RECORD_SIZE
    assert (partition(rig).records.due, rig.node.queues[QUEUE].bytes) == (0, 0)
    told = acks(client)
    assert len(told) == AMOUNT
    # Posting one of them again succeeds, at once and in the next process; none of the kept messages is left.
    for again in (rig.restart(), rig):
        other = again.connect()
        other.open(1, QUEUE, WRITE | ACK)
        partition(again).kept.copies_wanted = 2
        partition(again).kept.is_copied = True
        again.node.queues[QUEUE].judge_copies()
        put(other, 2, MANY - 1)
        assert acks(other) == [(guid(2), AckStatus.SUCCESS)]
        assert set(again.node.queues[QUEUE].messages) == set(again.node.queues[QUEUE].awaiting) == {guid(MANY - 1)}
    while any(rig.node.end_step()):
        more = acks(client)
        assert len(more) <= AMOUNT
        told += more
    told += acks(client)
    assert told == [(guid(number), AckStatus.UNKNOWN) for number in range(10, MANY)]
    assert rig.node.queues[QUEUE].history.size == 10
    partition(rig).kept.copied(partition(rig).sequence_number)
    rig.node.work.finish()
    assert acks(other) == [(guid(MANY - 1), AckStatus.SUCCESS)]
    assert client.payloads() == [b"message %d" % (MANY - 1)]
    assert not rig.faults()


@pytest.mark.parametrize("others_want_them", [False, True])
def test_an_app_with_very_many_that_wait_is_purged_in_slices(
    rig: Rig, others_want_them: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "FULL", 2 * AMOUNT)
    uri = "bmq://fanout/q" if others_want_them else QUEUE
    producer = rig.connect()
    producer.open(1, uri, WRITE | ACK)
    put(producer, *range(MANY))
    queue = rig.node.queues[uri]
    copied = partition(rig).kept.awaiting[MANY // 2].sequence_number
    app = next(iter(queue.apps.values()))
    work = rig.node.work
    work.amount = work.left = AMOUNT
    purge_app(queue, app)
    left = [sum(queue.ghosts.values())]
    assert left[0] >= MANY - AMOUNT
    any(rig.node.end_step())
    # Some of those whose turn has yet to come have their copies before.
    work.left = MANY
    partition(rig).kept.copied(copied)
    work.left = AMOUNT
    assert 0 < sum(queue.ghosts.values()) <= MANY // 2
    left.clear()
    put(producer, MANY)
    while any(rig.node.end_step()):
        left.append(sum(queue.ghosts.values()))
    assert all(before - after <= 3 * AMOUNT for before, after in pairwise(left))
    assert not queue.ghosts
    assert app.messages == 1
    kept = range(MANY + 1) if others_want_them else [MANY]
    assert list(queue.messages) == [guid(number) for number in kept]
    told = dict(acks(producer))
    if others_want_them:
        assert told == {guid(number): AckStatus.SUCCESS for number in range(MANY // 2 + 1)}
    else:
        assert set(told) == {guid(number) for number in range(MANY)}
    partition(rig).kept.copied(partition(rig).sequence_number)
    rig.node.work.finish()
    assert partition(rig).records.due == sum(message.outstanding.bit_count() for message in queue.messages.values())
    check_queue(queue)
    assert not rig.faults()


def _give_up(rig: Rig) -> None:
    rig.wait(PATIENCE_MS + 2000)


def _expire(rig: Rig) -> None:
    short = {name: replace(config, message_ttl_s=2) for name, config in STRONG.items()}
    for queue in rig.node.queues.values():
        queue.configure_domain(short[queue.config.name])
    rig.wait(4000)


def _purge(rig: Rig) -> None:
    for queue in rig.node.queues.values():
        purge(queue)


def _purge_app(rig: Rig) -> None:
    for queue in rig.node.queues.values():
        for app in queue.apps.values():
            purge_app(queue, app)


def _remove_apps(rig: Rig) -> None:
    domain = rig.node.domains["fanout"]
    reconfigure(rig.node, domain, replace(domain.config, app_ids=()))


REFUSALS = [
    (_give_up, QUEUE),
    (_expire, QUEUE),
    (_purge, QUEUE),
    (_purge_app, QUEUE),
    (_purge_app, "bmq://fanout/q"),
    (_remove_apps, "bmq://fanout/q"),
]


@pytest.mark.parametrize(("refuse", "uri"), REFUSALS)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_post_that_was_refused_is_taken_when_it_comes_again(
    rig: Rig, refuse: Callable[[Rig], None], uri: str, restarts: bool
) -> None:
    producer = rig.connect()
    producer.open(1, uri, WRITE | ACK)
    put(producer, 1, 2)
    partition(rig).kept.copied(partition(rig).kept.awaiting[0].sequence_number)
    assert acks(producer) == [(guid(1), 0)]
    refuse(rig)
    assert acks(producer) == [(guid(2), AckStatus.UNKNOWN)]
    assert guid(2) not in rig.node.queues[uri].messages
    if restarts:
        rig = rig.restart()
        partition(rig).kept.copies_wanted = 2
        partition(rig).kept.is_copied = True
        producer = rig.connect()
        producer.open(1, uri, WRITE | ACK)
    for queue in rig.node.queues.values():
        queue.judge_copies()
        if not queue.apps:
            reconfigure(rig.node, rig.node.domains["fanout"], STRONG["fanout"])
    # The answer was lost with the link.
    put(producer, 2, 1)
    assert guid(2) in rig.node.queues[uri].messages
    if (refuse, uri) != (_give_up, QUEUE):
        assert guid(1) not in rig.node.queues[uri].messages
    assert (guid(1), AckStatus.SUCCESS) in acks(producer)
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert acks(producer) == [(guid(2), AckStatus.SUCCESS)]


def test_a_full_journal_takes_the_purge_of_messages_that_wait(rig: Rig, client: Client) -> None:
    number = 1
    while not (refused := acks(client)):
        number += 1
        put(client, number)
    assert refused == [(guid(number), AckStatus.STORAGE_FAILURE)]
    assert purge(rig.node.queues[QUEUE])[0] == number - 2
    assert [status for _, status in acks(client)] == [AckStatus.UNKNOWN] * (number - 2)
    assert rig.restart().node.queues[QUEUE].messages == {}
    rig.wait(1000)
    put(client, number)
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert acks(client) == [(guid(number), AckStatus.SUCCESS)]
    assert not rig.faults()


def test_later_posts_do_not_overtake_when_the_domain_becomes_eventual(rig: Rig, client: Client) -> None:
    put(client, 1)
    rig.node.queues[QUEUE].configure_domain(DOMAINS["priority"])
    put(client, 2)
    assert client.payloads() == []
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert client.payloads() == [b"message 1", b"message 2"]
    put(client, 3)
    assert client.payloads() == [b"message 3"]


def test_every_app_waits(rig: Rig) -> None:
    producer, foo, bar = rig.connect(), rig.connect(), rig.connect()
    producer.open(1, "bmq://fanout/q", WRITE | ACK)
    foo.read(1, "bmq://fanout/q", "foo", 1)
    bar.read(1, "bmq://fanout/q", "bar", 1, messages_max=1)
    put(producer, 1, 2)
    assert (foo.payloads(), bar.payloads()) == ([], [])
    partition(rig).kept.copied(partition(rig).sequence_number)
    assert (foo.payloads(), bar.payloads()) == ([b"message 1", b"message 2"], [b"message 1"])
    bar.confirm(1, guid(1), sub_id=1)
    assert bar.payloads() == [b"message 2"]
