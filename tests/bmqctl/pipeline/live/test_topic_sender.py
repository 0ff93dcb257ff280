"""Rows sent to topics, as a task of Spark does: with a real node, and without Spark."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from bmqctl.pipeline.datasource import BmqDataSource
from bmqctl.pipeline.live.topic_options import SendOptions
from bmqctl.pipeline.live.topic_sink import Rows, send_rows, topic_post
from bmqctl.pipeline.live.writing import PostFailed
from bmqctl.pipeline.source.options import BadOption
from bmqctl.testing import RocketProcess, free_port
from formats.rocketmq.properties import decode_properties
from tests.bmqctl.pipeline.live.topics import make_topic, messages_of

STRUCT = pa.struct([("n", pa.int32()), ("text", pa.string()), ("yes", pa.bool_())])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("node") / "store", grpc_port=0) as running:
        yield running


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def rows(node: RocketProcess, like: pa.RecordBatch, **options: str) -> Rows:
    given = {"nameserver": node.nameserver, "patienceSeconds": "0.5", **options}
    return Rows(from_arrow_schema(like.schema), SendOptions.parse(given))


def sent(node: RocketProcess, topic: str) -> dict[int, list[tuple[bytes, dict[str, str]]]]:
    return {
        queue: [(bytes(record.body), decode_properties(record.properties)) for record in records]
        for queue, records in messages_of(node, topic).items()
    }


def test_columns_become_parts_of_messages(node: RocketProcess) -> None:
    make_topic(node, "typed", 2)
    made = batch(
        payload=["zero", "one"],
        properties=pa.array([{"n": 5, "text": "näme", "yes": True}, None], STRUCT),
        keys=pa.array([["k0", "all"], None], pa.list_(pa.string())),
        tags=["t", None],
        queue_id=pa.array([None, 1], pa.int32()),
    )
    posted = send_rows(rows(node, made, topic="typed"), "scope", iter([made]))
    assert (posted.messages, posted.payload_bytes) == (2, 7)
    found = sent(node, "typed")
    ((body, properties),) = found[0]
    assert body == b"zero"
    assert {name: properties[name] for name in ("n", "text", "yes", "TAGS", "KEYS")} == {
        "n": "5",
        "text": "näme",
        "yes": "true",
        "TAGS": "t",
        "KEYS": "k0 all",
    }
    assert len(properties["UNIQ_KEY"]) == 32
    assert [body for body, _ in found[1]] == [b"one"]


def test_a_key_keeps_rows_together_and_a_row_may_say_its_topic(node: RocketProcess) -> None:
    topics = ("even", "odd")
    for topic in topics:
        make_topic(node, topic, 4)
    kind = pa.map_(pa.string(), pa.string())
    made = [
        batch(
            topic=[topics[number % 2] for number in part],
            payload=[b"%d" % number for number in part],
            properties=pa.array([[("customer", str(number % 10))] for number in part], kind),
        )
        for part in (range(150), range(150, 400))
    ]
    assert send_rows(rows(node, made[0], key="customer", window="16"), "scope", iter(made)).messages == 400
    for begin, topic in enumerate(topics):
        found = sent(node, topic)
        assert sorted(int(body) for each in found.values() for body, _ in each) == [*range(begin, 400, 2)]
        places = {(properties["customer"], queue) for queue, each in found.items() for _, properties in each}
        assert len(places) == 5
        for each in found.values():
            numbers = [int(body) for body, _ in each]
            assert numbers == sorted(numbers)


def test_a_task_that_is_retried_sends_the_same_ids(node: RocketProcess) -> None:
    make_topic(node, "twice", 2)
    made = batch(payload=[b"%d" % number for number in range(40)])
    for scope in ("query/7/0", "query/7/0", "query/8/0"):
        send_rows(rows(node, made, topic="twice"), scope, iter([made]))
    found = sent(node, "twice")
    ids = Counter(properties["UNIQ_KEY"] for each in found.values() for _, properties in each)
    assert sorted(ids.values()) == [1] * 40 + [2] * 40
    # By turns, and each time the same.
    assert {len({int(body) % 2 for body, _ in each}) for each in found.values()} == {1}


def test_a_node_that_is_killed_meanwhile_is_awaited(tmp_path: Path) -> None:
    count = 3000
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        make_topic(node, "kept", 2)
        restart = threading.Thread(target=node.restart)

        def batches() -> Iterator[pa.RecordBatch]:
            for begin in range(0, count, 500):
                if begin == 1000:
                    restart.start()
                yield batch(payload=[b"%d" % number for number in range(begin, begin + 500)])

        made = rows(node, batch(payload=[b""]), topic="kept", patienceSeconds="60")
        posted = send_rows(made, "scope", batches())
        restart.join()
        assert posted.messages == count
        found = {int(body) for each in sent(node, "kept").values() for body, _ in each}
        assert found == set(range(count))


def test_rows_that_cannot_be_sent_are_told(node: RocketProcess) -> None:
    make_topic(node, "told", 1)
    for columns, reason in (
        ({"payload": [None]}, "row 0 of the task: it has no payload"),
        (
            {"payload": ["a"], "tags": ["a\x02b"]},
            "row 0 of the task: property 'TAGS': a value that messages cannot have",
        ),
        ({"payload": ["a"], "queue_id": [3]}, "row 0 of the task: topic told has no queue 3"),
        ({"payload": ["a"], "tags": ["x" * 40_000]}, "row 0 of the task: properties of 4"),
        ({"payload": ["x" * (5 << 20)]}, "a message cannot be carried: "),
    ):
        made = batch(**columns)
        if columns["payload"] == [None]:
            made = made.cast(pa.schema([("payload", pa.string())]))
        with pytest.raises(PostFailed, match=reason):
            send_rows(rows(node, made, topic="told"), "scope", iter([made]))
    kind = pa.map_(pa.string(), pa.string())
    delayed = batch(payload=["a"], properties=pa.array([[("DELAY", "3")]], kind))
    with pytest.raises(PostFailed, match="property 'DELAY': a name that messages cannot have"):
        send_rows(rows(node, delayed, topic="told"), "scope", iter([delayed]))
    plain = batch(payload=["a"])
    with pytest.raises(PostFailed, match="the nameserver knows no such topic"):
        send_rows(rows(node, plain, topic="nowhere"), "scope", iter([plain]))
    with pytest.raises(PostFailed, match="all attempts to connect"):
        send_rows(rows(node, plain, topic="told", nameserver=f"127.0.0.1:{free_port()}"), "scope", iter([plain]))


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({"body": ["a"]}, {"topic": "t"}, "payload: the rows have no such column; their columns are body"),
        ({"payload": ["a"]}, {}, "topic: name the topic to send to, by this option or a column topic"),
        ({"payload": [1]}, {"topic": "t"}, "payload: a column of int64 holds no payload of messages"),
        ({"payload": ["a"], "keys": [1]}, {"topic": "t"}, "keys: a column of int64 holds no keys"),
        ({"payload": ["a"]}, {"topic": "t", "broker": "x"}, "broker: unknown option; the options of a topic are"),
    ],
)
def test_columns_and_options_are_checked(columns: dict[str, Any], options: dict[str, str], reason: str) -> None:
    schema = from_arrow_schema(batch(**columns).schema)
    with pytest.raises(BadOption, match=reason):
        topic_post(schema, {"nameserver": "127.0.0.1:9876", **options})
    with pytest.raises(BadOption, match="messages cannot be withdrawn"):
        BmqDataSource({"nameserver": "127.0.0.1:9876", **options}).writer(schema, overwrite=True)
