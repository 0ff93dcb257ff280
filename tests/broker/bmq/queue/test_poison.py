"""Poison messages: attempts are counted, the last one removes the message, and an alarm notifies the operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.bmq.core.config import MessageThrottle
from broker.bmq.node.services import ProcessServices, QueueSettings
from broker.bmq.queue.queue import Queue
from formats.bmq.codes import PropertyType, PutFlag
from formats.bmq.disk.journal import CONFIRM_RECORD, ConfirmReason, RecordType, scan, select
from formats.bmq.wire.properties import Property, encode_properties
from tests.broker.bmq.queue.posting import FANOUT, QUEUE, numbers, post, producing, reading
from tests.broker.bmq.rig import APPS, DOMAINS, READ, Client, Rig, Wanted, guid, start

NO_DISTANCE = QueueSettings(MessageThrottle(0, 0, 0, 0))


def limited(attempts: int, keep: Callable[[str], str] = lambda text: "/tmp/rejected") -> Rig:
    """A node whose domains limit delivery attempts; messages need no distance from each other."""
    domains = [replace(DOMAINS[name], delivery_attempts_max=attempts) for name in ("priority", "fanout", "memory")]
    return start(domains=domains, settings=NO_DISTANCE, services=ProcessServices(keep_rejected=keep))


class Files:
    """Keeps the texts of rejected messages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def keep(self, text: str) -> str:
        self.texts.append(text)
        return f"/tmp/rejected-{len(self.texts)}"


def queue(rig: Rig, uri: str = QUEUE) -> Queue:
    return rig.node.queues[uri]


@pytest.mark.parametrize("uri", [QUEUE, "bmq://memory/q"])
def test_a_message_is_delivered_as_often_as_the_domain_allows(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    files = Files()
    rig = limited(3, files.keep)
    post(producing(rig, uri), 1, 2)
    for _ in range(3):
        consumer = reading(rig, uri, messages_max=1)
        assert numbers(consumer) == [1]
        consumer.drop()
    last = reading(rig, uri)
    assert numbers(last) == [2]
    assert set(queue(rig, uri).messages) == {guid(2)}
    assert not queue(rig, uri).apps["__default"].attempts
    assert "ALARM [POISON_PILL] A poison pill message was detected and purged from the queue " + uri in caplog.text
    assert f"[GUID: {guid(1).hex().upper()}, appId: __default, subQueueId: 0]" in caplog.text
    assert "Message was transmitted a total of 3 times to consumer(s). " in caplog.text
    assert "Message was dumped in file at location [/tmp/rejected-1] on this machine." in caplog.text
    (text,) = files.texts
    assert text.startswith("Application Data:\n\n     0:   31 ")
    assert not rig.faults()
    assert rig.node.partitions[0].records.due == (uri == QUEUE)


@pytest.mark.parametrize("leave", ["close", "disconnect", "stop"])
def test_consumer_that_leaves_properly_did_not_die_of_the_message(leave: str) -> None:
    rig = limited(1)
    post(producing(rig), 1)
    consumer = reading(rig)
    assert numbers(consumer) == [1]
    if leave == "close":
        consumer.close(1, QUEUE, READ)
    elif leave == "disconnect":
        consumer.disconnect()
        consumer.drop()
    else:
        rig.stop()
        rig = rig.restart(rig.directory)
    assert numbers(reading(rig)) == [1]


def test_without_a_limit_there_is_no_last_attempt() -> None:
    rig = limited(0)
    post(producing(rig), 1)
    for _ in range(10):
        consumer = reading(rig)
        assert numbers(consumer) == [1]
        consumer.drop()
    assert not queue(rig).apps["__default"].attempts


def test_a_restart_counts_anew() -> None:
    rig = limited(2)
    post(producing(rig), 1)
    reading(rig).drop()
    again = rig.restart(settings=NO_DISTANCE)
    for _ in range(2):
        consumer = reading(again)
        assert numbers(consumer) == [1]
        consumer.drop()
    assert not queue(again).messages


def test_each_app_has_its_own_attempts() -> None:
    rig = limited(1)
    post(producing(rig, FANOUT), 1)
    foo, bar = reading(rig, FANOUT, "foo"), reading(rig, FANOUT, "bar")
    assert numbers(foo) == numbers(bar) == [1]
    foo.drop()
    assert numbers(reading(rig, FANOUT, "foo")) == []
    files = rig.node.partitions[0].files
    records = scan(files.journal.buffer, 44, (files.journal_end - 44) // 60)
    confirms, _ = select(records, RecordType.CONFIRM)
    assert CONFIRM_RECORD.column(confirms, "reason").tolist() == [ConfirmReason.REJECTED]
    assert not rig.faults()
    again = rig.restart()
    assert [numbers(reading(again, FANOUT, app)) for app in APPS] == [[], [1], [1]]


def test_the_files_show_properties_and_payload() -> None:
    files = Files()
    rig = limited(1, files.keep)
    area = encode_properties(
        [
            Property("x", PropertyType.INT32, 0),
            Property("s", PropertyType.STRING, "a\nb"),
            Property("t", PropertyType.BOOL, True),
            Property("c", PropertyType.CHAR, b"\x1f"),
            Property("b", PropertyType.BINARY, b"\1\2"),
        ],
        1,
    )
    flags = PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES
    producing(rig).put(1, guid(1), area + b"payload\0" * 3, flags=flags, schema_id=1)
    reading(rig).drop()
    (text,) = files.texts
    assert text.startswith(
        "Message Properties:\n\n"
        '[ b (BINARY) = "0102" c (CHAR) = 1f s (STRING) = "a\\nb" t (BOOL) = true x (INT32) = 0 ]'
    )
    assert text.endswith(
        "Message Payload:\n\n"
        "     0:   7061796C 6F616400 7061796C 6F616400     |payload.payload.|\n"
        "    16:   7061796C 6F616400                       |payload.        |\n"
    )


def test_poisoned_message_that_cannot_be_read_or_written_still_goes(caplog: pytest.LogCaptureFixture) -> None:
    def full_disk(text: str) -> str:
        raise OSError(28, "No space left on device")

    rig = limited(1, full_disk)
    producer = producing(rig)
    producer.put(1, guid(1), b"no properties", flags=PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES)
    reading(rig).drop()
    assert not queue(rig).messages
    assert "BlazingMQ failed to load message properties" in caplog.text
    assert "Attempt to dump message in a file failed because file could not be created." in caplog.text


def test_a_flood_of_them_does_not_fill_the_disk() -> None:
    files = Files()
    rig = limited(1, files.keep)
    producer = producing(rig)
    post(producer, *range(20))
    reading(rig).drop()
    assert not queue(rig).messages
    assert len(files.texts) == 1
    rig.wait(20_000)
    post(producer, 30)
    reading(rig).drop()
    assert len(files.texts) == 2


# -- distance


def poisoned(attempts: int, throttle: MessageThrottle) -> tuple[Rig, Client]:
    """Three messages, the first two of which were with a consumer that is gone."""
    domains = [replace(DOMAINS["priority"], delivery_attempts_max=attempts)]
    rig = start(domains=domains, settings=QueueSettings(throttle))
    rig.now.ms += 100_000
    producer = producing(rig)
    post(producer, 1, 2, 3)
    reading(rig, messages_max=2).drop()
    return rig, producer


def test_poisonous_messages_keep_a_distance() -> None:
    rig, producer = poisoned(4, MessageThrottle(1, 3, 1000, 3000))
    consumer = reading(rig)
    assert numbers(consumer) == [1]
    post(producer, 4)
    assert numbers(consumer) == []
    rig.wait(1000)
    assert numbers(consumer) == [2, 3, 4]


def test_the_last_attempts_keep_more() -> None:
    rig, _ = poisoned(2, MessageThrottle(1, 3, 1000, 3000))
    consumer = reading(rig)
    assert numbers(consumer) == [1]
    rig.wait(2000)
    assert numbers(consumer) == []
    rig.wait(1000)
    assert numbers(consumer) == [2, 3]


def test_no_distance_with_many_attempts_left() -> None:
    rig, _ = poisoned(10, MessageThrottle(1, 3, 1000, 3000))
    assert numbers(reading(rig)) == [1, 2, 3]


def test_a_confirm_ends_the_wait() -> None:
    rig, _ = poisoned(2, MessageThrottle(1, 3, 1000, 3000))
    consumer = reading(rig)
    assert numbers(consumer) == [1]
    consumer.confirm(1, guid(1))
    assert numbers(consumer) == [2, 3]


def test_another_consumer_need_not_wait() -> None:
    rig, _ = poisoned(2, MessageThrottle(1, 3, 1000, 3000))
    one = reading(rig)
    assert numbers(one) == [1]
    other = reading(rig)
    assert sorted(numbers(one) + numbers(other)) == [2, 3]


def with_x(producer: Client, number: int, x: int) -> None:
    area = encode_properties([Property("x", PropertyType.INT32, x)], 0)
    flags = PutFlag.ACK_REQUESTED | PutFlag.MESSAGE_PROPERTIES
    producer.put(1, guid(number), area + b"%d" % number, flags=flags)


def subscribed(rig: Rig, *wanted: Wanted) -> Client:
    client = rig.connect()
    client.open(1, QUEUE, READ)
    client.subscribe(1, *wanted)
    return client


def guids(client: Client) -> list[bytes]:
    return [push.guid for push in client.pushes()]


def test_a_consumer_of_lower_priority_gets_nothing_while_one_of_higher_priority_must_wait() -> None:
    domains = [replace(DOMAINS["priority"], delivery_attempts_max=2)]
    rig = start(domains=domains, settings=QueueSettings(MessageThrottle(1, 3, 1000, 3000)))
    rig.now.ms += 100_000
    producer = producing(rig)
    with_x(producer, 1, 0)
    with_x(producer, 2, 0)
    subscribed(rig, Wanted()).drop()
    low = subscribed(rig, Wanted("x == 5", priority=0))
    high = subscribed(rig, Wanted(priority=2))
    low.subscribe(1, Wanted("x == 0", priority=0))
    assert guids(high) == [guid(1)]
    assert guids(low) == []
    rig.wait(3000)
    assert guids(high) == [guid(2)]
    assert guids(low) == []


def test_others_do_not_wait_for_a_poisonous_message_that_no_consumer_wants() -> None:
    domains = [replace(DOMAINS["priority"], delivery_attempts_max=2)]
    rig = start(domains=domains, settings=QueueSettings(MessageThrottle(1, 3, 1000, 3000)))
    rig.now.ms += 100_000
    producer = producing(rig)
    with_x(producer, 1, 0)
    with_x(producer, 2, 1)
    subscribed(rig, Wanted("x == 0")).drop()
    assert guids(subscribed(rig, Wanted("x == 1"))) == [guid(2)]
    assert guids(subscribed(rig, Wanted("x == 0"))) == [guid(1)]


def test_waiting_costs_one_timer_however_much_happens_meanwhile() -> None:
    rig, producer = poisoned(2, MessageThrottle(1, 3, 1000, 3000))
    consumer = reading(rig)
    assert numbers(consumer) == [1]
    before = len(rig.node.timers)
    for number in range(50):
        producer.post(1, guid(100 + number), b"0")
        consumer.confirm(1, guid(100 + number))
    assert len(rig.node.timers) == before
    rig.wait(3000)
    assert len(numbers(consumer)) == 2
