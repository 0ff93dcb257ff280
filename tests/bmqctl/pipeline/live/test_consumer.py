"""The consumer of a stream: the messages that it keeps, and recognises again after a lost connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import blazingmq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bmqctl.pipeline.live.consumer import Consumer, ConsumerFailed
from bmqctl.pipeline.live.queue_options import ConsumeOptions
from bmqctl.pipeline.live.stream_source import MESSAGE_SCHEMA, Offset, QueueStreamReader, stream_schema
from bmqctl.testing import NodeProcess, free_port
from tests.rigs.official import Client, queue_name
from tests.waiting import WAIT_S

LIMIT = ReadAllAvailable()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "store") as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    with Client(node.uri) as client:
        yield client


def post(client: Client, uri: str, count: int) -> None:
    client.open(uri, write=True)
    acks = client.post_all(uri, [b"%d" % number for number in range(count)])
    assert {ack.status for ack in acks} == {blazingmq.AckStatus.SUCCESS}
    client.close(uri)


def options(node: NodeProcess, uri: str, **more: str) -> dict[str, str]:
    return {"broker": node.uri, "queue": uri} | more


def come(consumer: Consumer, count: int) -> None:
    """Wait for `count` messages, and check that no more come."""
    seen = -1
    while seen < count:
        seen = consumer.wait(max(seen, 0), WAIT_S)
    assert consumer.wait(count, 0.05) == count


def test_messages_are_kept_until_they_are_confirmed(node: NodeProcess, client: Client) -> None:
    uri = queue_name()
    post(client, uri, 10)
    consumer = Consumer(ConsumeOptions.parse(options(node, uri)))
    consumer.start()
    come(consumer, 10)
    for _ in range(2):
        assert [each.message.payload for each in consumer.take(2, 5)] == [b"2", b"3", b"4"]
    assert consumer.end_of_batch(2, 100, 1 << 20) == 10
    assert consumer.end_of_batch(2, 3, 1 << 20) == 5
    # A message larger than a batch may be is one by itself.
    assert consumer.end_of_batch(2, 3, 1) == 3
    consumer.confirm(4)
    consumer.confirm(4)
    assert (consumer.first, consumer.count) == (4, 10)
    consumer.stop()
    client.open(uri, read=True)
    client.wait_for_messages(6, uri)
    assert client.payloads(uri) == [b"%d" % number for number in range(4, 10)]


def test_messages_redelivered_after_a_lost_connection_are_recognized(tmp_path: Path) -> None:
    uri = queue_name()
    with NodeProcess(tmp_path / "store") as node:
        with Client(node.uri) as client:
            post(client, uri, 10)
        consumer = Consumer(ConsumeOptions.parse(options(node, uri)))
        consumer.start()
        come(consumer, 10)
        consumer.confirm(3)
        node.restart()
        # Waits for the connection; what was not confirmed has come again by then, and is kept once.
        consumer.confirm(6)
        with Client(node.uri) as client:
            post(client, uri, 1)
            come(consumer, 11)
            assert [each.message.payload for each in consumer.take(6, 11)] == [b"6", b"7", b"8", b"9", b"0"]
            consumer.stop()
            client.open(uri, read=True)
            client.wait_for_messages(5, uri)
            assert client.payloads(uri) == [b"6", b"7", b"8", b"9", b"0"]


def test_faults_are_one_line(node: NodeProcess) -> None:
    for given, reason in (
        (options(node, "bmq://no.such.domain/q"), "cannot open bmq://no.such.domain/q: "),
        (options(node, queue_name()) | {"broker": f"127.0.0.1:{free_port()}"}, "no broker at 127.0.0.1:"),
    ):
        consumer = Consumer(ConsumeOptions.parse(given))
        with pytest.raises(ConsumerFailed, match=reason):
            consumer.start()
        consumer.stop()
    consumer = Consumer(ConsumeOptions.parse(options(node, queue_name())))
    consumer.start()
    waiting = threading.Thread(target=consumer.stop)
    waiting.start()
    with pytest.raises(ConsumerFailed, match="the consumer was stopped"):
        consumer.wait(0, WAIT_S)
    waiting.join()
    with pytest.raises(ConsumerFailed):
        consumer.confirm(0)


def reader(node: NodeProcess, uri: str, **more: str) -> QueueStreamReader:
    given = options(node, uri, drainSeconds="0.2", **more)
    made = QueueStreamReader(stream_schema(given), given)
    made.prepareForTriggerAvailableNow()
    return made


def payloads(source: QueueStreamReader, start: Offset, end: Offset) -> list[bytes]:
    batches = [batch for part in source.partitions(start, end) for batch in source.read(part)]
    assert all(batch.schema.equals(MESSAGE_SCHEMA) for batch in batches)
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def test_offsets_lead_through_batches_and_to_their_commit(node: NodeProcess, client: Client) -> None:
    uri = queue_name()
    post(client, uri, 5)
    source = reader(node, uri, maxMessagesPerBatch="3")
    start = source.initialOffset()
    first = source.latestOffset(start, LIMIT)
    assert source.consumer is not None
    come(source.consumer, 5)
    assert (first["index"], payloads(source, start, first)) == (3, [b"0", b"1", b"2"])
    assert payloads(source, start, first) == [b"0", b"1", b"2"]
    second = source.latestOffset(first, LIMIT)
    assert payloads(source, first, second) == [b"3", b"4"]
    source.commit(first)
    assert source.consumer.first == 3
    # Nothing new, and a batch of which Spark has not said that it is committed: it is made to say so.
    third = source.latestOffset(second, LIMIT)
    assert third != second
    assert payloads(source, second, third) == []
    source.commit(second)
    assert source.consumer.first == 5
    assert source.latestOffset(third, LIMIT) == third
    source.stop()

    # Another run knows nothing of these offsets: it plans nothing for them, confirms nothing, and goes on.
    post(client, uri, 2)
    again = reader(node, uri)
    fourth = again.latestOffset(third, LIMIT)
    assert fourth["run"] != third["run"]
    assert payloads(again, second, third) == []
    again.commit(third)
    assert again.consumer is not None
    assert again.consumer.first == 0
    assert payloads(again, third, fourth) == [b"0", b"1"]
    again.stop()


def test_an_empty_queue_has_no_batches(node: NodeProcess) -> None:
    source = reader(node, queue_name())
    start = source.initialOffset()
    assert source.latestOffset(start, LIMIT) == start
    assert source.partitions(start, start) == []
    source.stop()
