"""Options of a stream and of a writer, and the columns that can be posted: without Spark's JVM."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bmqctl.pipeline.datasource import BmqDataSource
from bmqctl.pipeline.live.queue_options import ConsumeOptions, PostOptions
from bmqctl.pipeline.live.stream_sink import Row, property_reader, queue_post, row_guid
from bmqctl.pipeline.live.stream_source import QueueStreamReader, stream_schema
from bmqctl.pipeline.source.options import BadOption
from bmqctl.pipeline.source.rows.properties import PROPERTIES_TYPE, property_items
from formats.bmq.wire.properties import Property, PropertyType

QUEUE = "bmq://my.domain/q"
ALL = [
    Property("bin", PropertyType.BINARY, b"\0\xff"),
    Property("char", PropertyType.CHAR, b"c"),
    Property("int", PropertyType.INT32, -5),
    Property("long", PropertyType.INT64, 1 << 40),
    Property("no", PropertyType.BOOL, False),
    Property("short", PropertyType.SHORT, 3),
    Property("text", PropertyType.STRING, "näme"),
    Property("yes", PropertyType.BOOL, True),
]


def struct(columns: dict[str, pa.DataType]) -> StructType:
    made: StructType = from_arrow_schema(pa.schema(list(columns.items())))
    return made


def with_properties(kind: pa.DataType) -> dict[str, pa.DataType]:
    return {"payload": pa.string(), "properties": kind}


def test_names_have_no_case_and_numbers_have_defaults() -> None:
    found = ConsumeOptions.parse({"QUEUE": QUEUE, "maxunconfirmed": "10", "Broker": "10.0.0.5:30114"})
    assert (found.broker.host, found.broker.port) == ("10.0.0.5", 30114)
    assert (found.queue, found.max_unconfirmed, found.batch) == (QUEUE, 10, 5)
    assert found.broker.session.resume
    assert PostOptions.parse({"queue": QUEUE, "compression": "ZLIB", "checkpointLocation": "/x"}).compress


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "queue: name the queue to consume"),
        ({"queue": "my.domain/q"}, "queue: my.domain/q: Invalid scheme"),
        ({"queue": QUEUE, "path": "/store"}, "path: unknown option"),
        ({"queue": QUEUE, "broker": "ftp://x:1"}, "broker: ftp://x:1: expected tcp://HOST:PORT"),
        ({"queue": QUEUE, "broker": "tcp://x"}, "expected tcp://HOST:PORT"),
        ({"queue": QUEUE, "broker": "tcp://[x:1"}, "expected tcp://HOST:PORT"),
        ({"queue": QUEUE, "maxUnconfirmed": "0"}, "maxUnconfirmed: 0 is not a number of at least 1"),
        ({"queue": QUEUE, "priority": "-1"}, "priority: -1 is not a number of at least 0"),
        ({"queue": QUEUE, "drainSeconds": "soon"}, "drainSeconds: soon is not a number of seconds"),
    ],
)
def test_options_of_a_queue_that_cannot_be_consumed(options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        stream_schema(options)


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({"payload": pa.binary()}, {}, "queue: name the queue to post to"),
        ({"payload": pa.binary()}, {"queue": f"{QUEUE}?id=foo"}, "not to one of its apps"),
        ({"payload": pa.binary()}, {"queue": QUEUE, "compression": "lz4"}, "compression: lz4 is none of none, zlib"),
        ({"payload": pa.binary()}, {"queue": QUEUE, "colour": "red"}, "colour: unknown option"),
        (
            {"body": pa.binary(), "n": pa.int32()},
            {"queue": QUEUE},
            "no such column; their columns are body, n",
        ),
        ({"payload": pa.int32()}, {"queue": QUEUE}, "payload: int32 is neither binary nor string"),
        (with_properties(pa.string()), {"queue": QUEUE}, "properties: a string holds none"),
        (
            with_properties(pa.map_(pa.string(), pa.float64())),
            {"queue": QUEUE},
            "no property holds a double",
        ),
        (
            with_properties(pa.struct([("a", pa.date32())])),
            {"queue": QUEUE},
            "no property holds a date32",
        ),
        (
            with_properties(pa.map_(pa.int32(), pa.string())),
            {"queue": QUEUE},
            "expected a map from strings",
        ),
    ],
)
def test_columns_that_cannot_be_posted(columns: dict[str, pa.DataType], options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason.replace("?", r"\?")):
        queue_post(struct(columns), options)


def test_messages_cannot_be_overwritten() -> None:
    with pytest.raises(BadOption, match="cannot be withdrawn"):
        BmqDataSource({"queue": QUEUE}).writer(struct({"payload": pa.string()}), overwrite=True)


def test_a_stream_has_the_columns_that_are_asked_for() -> None:
    options = {"queue": QUEUE}
    assert QueueStreamReader(struct({"payload": pa.binary(), "guid": pa.string()}), options).columns == [
        "payload",
        "guid",
    ]
    for columns, reason in (
        ({"colour": pa.string()}, "a stream has no colour"),
        ({"guid": pa.int32()}, "guid of a stream is string"),
    ):
        with pytest.raises(BadOption, match=reason):
            QueueStreamReader(struct(columns), options)


def test_properties_come_back_from_the_columns_that_they_became() -> None:
    values = pa.array([property_items(ALL), [], None], PROPERTIES_TYPE).to_pylist()
    assert list(map(property_reader(PROPERTIES_TYPE), values)) == [ALL, [], []]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.map_(pa.string(), pa.string()), [("a", "x"), ("b", None)], [Property("a", PropertyType.STRING, "x")]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)], [Property("a", PropertyType.INT64, 1)]),
        (pa.map_(pa.string(), pa.bool_()), [("a", True)], [Property("a", PropertyType.BOOL, True)]),
        (
            pa.struct([("a", pa.int8()), ("b", pa.binary()), ("c", pa.int32())]),
            {"a": 1, "b": b"x", "c": None},
            [Property("a", PropertyType.SHORT, 1), Property("b", PropertyType.BINARY, b"x")],
        ),
    ],
)
def test_properties_of_plainer_columns(kind: pa.DataType, value: object, wanted: list[Property]) -> None:
    (plain,) = pa.array([value], kind).to_pylist()
    assert property_reader(kind)(plain) == wanted


@pytest.mark.parametrize(
    "value",
    [
        {"type": "NUMBER", "value": "1"},
        {"type": None, "value": "1"},
        {"type": "INT64", "value": "one"},
        {"type": "INT64", "value": None},
        {"type": "BOOL", "value": "True"},
        {"type": "BINARY", "value": "xy"},
    ],
)
def test_typed_properties_that_are_none(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="property 'a': "):
        property_reader(PROPERTIES_TYPE)([("a", value)])


def test_a_row_s_guid_is_of_all_that_makes_it_this_one() -> None:
    row = Row(1, QUEUE, b"payload", ALL)
    others = [
        row._replace(number=2),
        row._replace(queue="bmq://my.domain/p"),
        row._replace(payload=b"payloae"),
        row._replace(properties=ALL[1:]),
    ]
    made = {row_guid("query/1/0", row), row_guid("query/2/0", row), *(row_guid("query/1/0", each) for each in others)}
    assert len(made) == 6
    assert row_guid("query/1/0", row) in made
    assert all(len(each) == 16 and each[0] >> 6 == 1 for each in made)
