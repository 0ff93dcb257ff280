"""The reader of a topic's stream, without Spark: options, offsets, batches, and messages that are gone."""

from __future__ import annotations

import signal
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trio
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bmqctl.pipeline.live.topic_options import SendOptions, TopicOptions, is_topic
from bmqctl.pipeline.live.topic_reading import Range, TopicFailed, read_piece
from bmqctl.pipeline.live.topic_source import TOPIC_SCHEMA, Offset, Part, TopicStreamReader, share, topic_stream_schema
from bmqctl.pipeline.source.options import BadOption
from bmqctl.testing import RocketProcess, free_port
from formats.rocketmq.files.record import Record
from formats.rocketmq.flags import SystemFlag
from tests.bmqctl.pipeline.live.topics import committed, make_topic, send
from tests.bmqctl.stores.rocketmq.logs import message

LIMIT = ReadAllAvailable()
PLACE = {"nameserver": "127.0.0.1:9876", "topic": "orders"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("node") / "store", grpc_port=0) as running:
        yield running


def reader(node: RocketProcess, topic: str, **more: str) -> TopicStreamReader:
    given = {"nameserver": node.nameserver, "topic": topic, "patienceSeconds": "0.5", **more}
    return TopicStreamReader(topic_stream_schema(given), given)


def rows(source: TopicStreamReader, start: Offset, end: Offset) -> list[dict[str, Any]]:
    batches = [batch for part in source.partitions(start, end) for batch in source.read(part)]
    assert all(batch.schema.equals(TOPIC_SCHEMA) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return [int(dict(row["properties"])["n"]) for row in found]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "topic: name the topic to read"),
        ({"topic": "a.b"}, "topic: a.b: a topic has up to 127"),
        ({"topic": "t", "group": ""}, "group: : a group has up to 127"),
        ({"topic": "t", "nameserver": "mq"}, "nameserver: mq: expected HOST:PORT"),
        ({"topic": "t", "startingOffsets": "first"}, "startingOffsets: first is none of group, earliest, latest"),
        ({"topic": "t", "failOnDataLoss": "no"}, "failOnDataLoss: no is neither true nor false"),
        ({"topic": "t", "maxMessagesPerBatch": "0"}, "maxMessagesPerBatch: 0 is not a number of at least 1"),
        ({"topic": "t", "timeoutSeconds": "nan"}, "timeoutSeconds: nan is not a number of seconds"),
        ({"topic": "t", "queue": "q"}, "queue: unknown option; the options of a topic are nameserver, topic"),
    ],
)
def test_options_are_checked(options: Mapping[str, str], reason: str) -> None:
    with pytest.raises(BadOption) as refused:
        TopicOptions.parse({"nameserver": "127.0.0.1:9876", **options})
    assert reason in str(refused.value)
    assert is_topic({"NameServer": "x"})
    assert not is_topic({"queue": "x"})
    assert SendOptions.parse({**PLACE, "path": "/x", "key": "n"}).end.key == "n"


def test_columns_are_checked() -> None:
    with pytest.raises(BadOption, match="a stream of a topic has no body: it has broker, topic"):
        TopicStreamReader(from_arrow_schema(pa.schema([("body", pa.binary())])), PLACE)
    with pytest.raises(BadOption, match="payload of a stream is binary, not string"):
        TopicStreamReader(from_arrow_schema(pa.schema([("payload", pa.string())])), PLACE)


@pytest.mark.parametrize(
    ("most", "wanted"),
    [
        (100, {"a": 12, "b": 5, "c": 40}),
        (42, {"a": 12, "b": 5, "c": 40}),
        (21, {"a": 11, "b": 5, "c": 20}),
        (1, {"a": 10, "b": 5, "c": 1}),
    ],
)
def test_a_batch_shares_its_messages_between_the_queues(most: int, wanted: Offset) -> None:
    start = {"a": 10, "b": 5}
    found = share(start, {"a": 12, "b": 5, "c": 40}, most)
    assert found == wanted
    assert sum(found.values()) - 15 == min(most, 42)


def test_offsets_lead_through_batches(node: RocketProcess) -> None:
    make_topic(node, "batches", 2)
    send(node, "batches", range(10))
    source = reader(node, "batches", maxMessagesPerBatch="4", partitions="2", group="g")
    start = source.initialOffset()
    assert set(start.values()) == {0}
    first = source.latestOffset(start, LIMIT)
    assert sorted(numbers(rows(source, start, first))) == [0, 1, 2, 3]
    # Another reader, as after a restart, reads the same.
    again = reader(node, "batches", partitions="1")
    found = rows(again, start, first)
    assert sorted(numbers(found)) == [0, 1, 2, 3]
    third = next(row for row in found if row["payload"] == b"message 3")
    assert third["id"] == f"{3:032X}"
    assert (third["queue_id"], third["queue_offset"], third["flag"]) == (1, 1, 7)
    assert (third["keys"], third["tags"], third["fault"]) == (["k3", "all"], "t", None)
    second = source.latestOffset(first, LIMIT)
    last = source.latestOffset(second, LIMIT)
    assert sorted(numbers(rows(source, first, last))) == [4, 5, 6, 7, 8, 9]
    assert source.latestOffset(last, LIMIT) == last
    source.commit(first)
    assert committed(node, "batches", "g") == {0: 2, 1: 2}
    # Without a checkpoint the group's offsets count.
    assert set(reader(node, "batches", group="g").initialOffset().values()) == {2}
    assert set(reader(node, "batches", group="g", startingOffsets="earliest").initialOffset().values()) == {0}
    assert set(reader(node, "batches", startingOffsets="latest").initialOffset().values()) == {5}


def stored(offset: int, **changes: Any) -> Record:
    return message(0, queue_id=3, queue_offset=offset, **changes)


def test_large_bodies_make_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    zipped = zlib.compress(bytes(9 << 20))
    found = [stored(offset, body=zipped, flags=int(SystemFlag.COMPRESSED)) for offset in range(5)]
    monkeypatch.setattr("bmqctl.pipeline.live.topic_source.read_range", lambda options, wanted: iter([found, []]))
    source = TopicStreamReader(from_arrow_schema(TOPIC_SCHEMA), PLACE)
    batches = list(source.read(Part(Range("b", 3, 0, 5))))
    assert [batch.column("queue_offset").to_pylist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert {len(body) for batch in batches for body in batch.column("payload").to_pylist()} == {9 << 20}


def test_a_time_that_spark_cannot_hold_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [stored(0, born_ms=(1 << 62), stored_ms=-1), stored(1, born_ms=1)]
    monkeypatch.setattr("bmqctl.pipeline.live.topic_source.read_range", lambda options, wanted: iter([found]))
    source = TopicStreamReader(from_arrow_schema(TOPIC_SCHEMA), PLACE)
    (batch,) = source.read(Part(Range("b", 3, 0, 2)))
    assert [time and time.microsecond for time in batch.column("born_time").to_pylist()] == [None, 1000]
    assert batch.column("store_time").null_count == 1


class Answers:
    """A queue whose broker answers pulls as given: the offsets of the messages, and the one to go on with."""

    def __init__(self, *answers: tuple[list[int], int]) -> None:
        self.offset = 0
        self._answers = iter(answers)

    async def pull_records(self, messages_max: int) -> list[Record]:
        offsets, self.offset = next(self._answers)
        return [stored(offset) for offset in offsets]


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([([0, 1], 2), ([2, 3], 4)], [0, 1, 2, 3]),
        ([([0, 0, 1, 0, 1], 2), ([2, 3, 4, 5], 6)], [0, 1, 2, 3]),
        ([([0, 1, 2, 3], 2), ([2, 3], 4)], [0, 1, 2, 3]),
        ([([1, 0], 2), ([3, 2], 4)], [1, 3]),
    ],
)
def test_messages_come_once_and_in_order_whatever_an_answer_has(
    answers: list[tuple[list[int], int]], wanted: list[int]
) -> None:
    puller: Any = Answers(*answers)
    found, read_to = trio.run(read_piece, puller, 0, 4)
    assert [record.queue_offset for record in found] == wanted
    assert read_to == 4


def test_available_now_reads_the_messages_of_the_beginning(node: RocketProcess) -> None:
    make_topic(node, "available", 1)
    send(node, "available", range(3), 1)
    source = reader(node, "available")
    source.prepareForTriggerAvailableNow()
    send(node, "available", range(3, 5), 1)
    end = source.latestOffset(source.initialOffset(), LIMIT)
    assert [*end.values()] == [3]
    assert source.latestOffset(end, LIMIT) == end


def test_messages_that_are_gone_end_the_query(node: RocketProcess) -> None:
    make_topic(node, "gone", 1)
    send(node, "gone", range(3), 1)
    source = reader(node, "gone")
    (queue,) = source.initialOffset()
    with pytest.raises(TopicFailed, match=f"queue {queue} ends with message 3, and the query is at 5: messages are"):
        source.latestOffset({queue: 5}, LIMIT)
    tolerant = reader(node, "gone", failOnDataLoss="false")
    assert tolerant.latestOffset({queue: 5}, LIMIT) == {queue: 5}
    # A batch that was planned before the broker lost its end.
    with pytest.raises(TopicFailed, match=f"queue {queue} ends with message 3, and 9 were there"):
        rows(source, {queue: 0}, {queue: 9})
    assert numbers(rows(tolerant, {queue: 1}, {queue: 9})) == [1, 2]
    assert rows(tolerant, {queue: 5}, {queue: 9}) == []


def test_a_topic_or_a_nameserver_that_is_not_there(node: RocketProcess) -> None:
    with pytest.raises(TopicFailed, match="the nameserver knows no topic nowhere"):
        reader(node, "nowhere").initialOffset()
    nobody = reader(node, "x", nameserver=f"127.0.0.1:{free_port()}")
    with pytest.raises(TopicFailed, match="all attempts to connect"):
        nobody.initialOffset()


def test_a_broker_that_was_killed_is_awaited(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        make_topic(node, "kept", 1)
        send(node, "kept", range(5), 1)
        source = reader(node, "kept", patienceSeconds="60")
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        node.kill()
        node.start()
        assert numbers(rows(source, start, end)) == [0, 1, 2, 3, 4]
        assert source.latestOffset(end, LIMIT) == end
        assert node.stop(signal.SIGTERM) == 0
