from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bmqctl.pipeline.source.decoding.decode import decoder_of, payload_fields
from bmqctl.pipeline.source.decoding.decode_json import parse_ddl
from bmqctl.pipeline.source.options import BadOption, ReadOptions
from bmqctl.pipeline.source.stores import StoreError
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.pipeline.written import WrittenStore

Field = descriptor_pb2.FieldDescriptorProto


def options(kind: str, schema: str, **more: str) -> ReadOptions:
    return ReadOptions.parse({"path": "store", "payloadFormat": kind, "payloadSchema": schema, **more})


def decode(read: ReadOptions, *payloads: bytes | None) -> list[tuple[Any, str | None]]:
    decoder = decoder_of(read)
    assert decoder is not None
    values, faults = decoder.columns(payloads)
    assert values.type == payload_fields(read)[0].type
    return list(zip(values.to_pylist(), faults.to_pylist(), strict=True))


def one(read: ReadOptions, payload: bytes) -> Any:
    ((value, fault),) = decode(read, payload)
    assert fault is None
    return value


@pytest.mark.parametrize(
    ("ddl", "kind"),
    [
        ("id BIGINT", pa.struct([("id", pa.int64())])),
        ("a: int, `b c``d` STRING NOT NULL", pa.struct([("a", pa.int32()), ("b c`d", pa.string())])),
        ("p decimal(12, 2), q DECIMAL", pa.struct([("p", pa.decimal128(12, 2)), ("q", pa.decimal128(10, 0))])),
        (
            "s struct<x: double, t: array<map<string, date>>>",
            pa.struct(
                [
                    (
                        "s",
                        pa.struct([("x", pa.float64()), ("t", pa.list_(pa.map_(pa.string(), pa.date32())))]),
                    )
                ]
            ),
        ),
    ],
)
def test_schemas_are_written_as_in_spark(ddl: str, kind: pa.DataType) -> None:
    assert parse_ddl(ddl) == kind


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("", "'the end' where 'a name"),
        ("a", "'the end' where 'a name or type'"),
        ("a int b", "'b' instead of the end"),
        ("a thing", "'thing' is not a type"),
        ("a int, a int", "'a' appears twice"),
        ("a array<int", "'the end' where '>' should be"),
        ("a map<int, int>", "strings for keys"),
        ("a decimal(40)", "1 to 38 digits"),
        ("a decimal(x)", "invalid literal"),
        ("a int not there", "'not' without 'null'"),
        ("a; int", "'; int' is not part of a schema"),
        ("5 int", "'5' is not a column name"),
    ],
)
def test_a_schema_that_is_none_is_refused(ddl: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_ddl(ddl)


def test_json_payloads_become_columns() -> None:
    read = options(
        "json",
        "id bigint, price decimal(8,2), at timestamp, on date, tags array<string>, more map<string, double>,"
        " raw binary, ok boolean, text string, inner struct<x: int>",
    )
    value = one(
        read,
        b'{"id": 7, "price": 1.25, "at": "2026-11-21T05:11:04+01:00", "on": "2026-11-21", "tags": ["a", null],'
        b' "more": {"x": 1.5}, "raw": "AAE=", "ok": true, "text": {"any": [1.5]}, "inner": {"x": 1, "y": 2}}',
    )
    assert value == {
        "id": 7,
        "price": Decimal("1.25"),
        "at": datetime(2026, 11, 21, 4, 11, 4, tzinfo=UTC),
        "on": date(2026, 11, 21),
        "tags": ["a", None],
        "more": [("x", 1.5)],
        "raw": b"\0\1",
        "ok": True,
        "text": '{"any": ["1.5"]}',
        "inner": {"x": 1},
    }


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[1]",
        b"{",
        b"\xff\xfe{}",
        b'{"n": "one"}',
        b'{"n": 1.5}',
        b'{"n": true}',
        b'{"n": 3000000000}',
        b'{"n": {}}',
        b'{"n": Infinity}',
        b'{"t": "noon"}',
        b'{"d": "x"}',
        b'{"d": 12345}',
        b'{"b": "?"}',
        b'{"s": "\\ud800"}',
        b"[" * (sys.getrecursionlimit() * 50),
    ],
)
def test_a_payload_that_does_not_fit_is_a_fault(payload: bytes) -> None:
    schema = "n int, t timestamp, d decimal(4,0), b binary, s string"
    fine = b'{"n": 1}'
    before, bad, after, none = decode(options("json", schema), fine, payload, fine, None)
    assert before == after == ({"n": 1, "t": None, "d": None, "b": None, "s": None}, None)
    assert bad[0] is None
    assert bad[1]
    assert "\n" not in bad[1]
    assert none == (None, None)
    with pytest.raises(StoreError, match="a payload does not fit"):
        decode(options("json", schema, mode="failfast"), payload)


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "legs", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
    ],
}


def test_avro_payloads_become_columns(tmp_path: Path) -> None:
    at = datetime(2026, 11, 21, 5, 11, 4, tzinfo=UTC)
    record = {"id": 5, "side": "SELL", "note": None, "at": at, "legs": [{"x": 1.5}]}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    for schema in (json.dumps(AVRO), str(tmp_path / "order.avsc")):
        assert one(options("avro", schema), stream.getvalue()) == record | {"legs": [[("x", 1.5)]]}
    cut, longer, empty = decode(
        options("avro", json.dumps(AVRO)), stream.getvalue()[:-1], stream.getvalue() + b"!", b""
    )
    assert cut[0] is longer[0] is empty[0] is None
    assert longer[1] == "ValueError: 1 bytes follow the record"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('{"type": "long"}', "not of a record"),
        ('{"type": "nothing"}', "not an Avro schema"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}', "A contains itself"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["int", "string"]}]}', "union of 2 types"),
        ("{", "Expecting property name"),
        ("nowhere.avsc", "No such file"),
    ],
)
def test_an_avro_schema_that_no_column_holds_is_refused(schema: str, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        payload_fields(options("avro", schema))


def descriptors(path: Path) -> Callable[..., Any]:
    """Write the descriptors of a message type; returns the type."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    side = file.enum_type.add(name="Side")
    side.value.add(name="BUY", number=0)
    side.value.add(name="SELL", number=1)
    order = file.message_type.add(name="Order")
    leg = order.nested_type.add(name="Leg")
    leg.field.add(name="price", number=1, type=Field.TYPE_DOUBLE, label=Field.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    for number, (name, kind, label, of) in enumerate(
        [
            ("id", Field.TYPE_UINT64, Field.LABEL_OPTIONAL, ""),
            ("side", Field.TYPE_ENUM, Field.LABEL_OPTIONAL, ".shop.Side"),
            ("legs", Field.TYPE_MESSAGE, Field.LABEL_REPEATED, ".shop.Order.Leg"),
            ("tags", Field.TYPE_MESSAGE, Field.LABEL_REPEATED, ".shop.Order.TagsEntry"),
            ("raw", Field.TYPE_BYTES, Field.LABEL_OPTIONAL, ""),
            ("main", Field.TYPE_MESSAGE, Field.LABEL_OPTIONAL, ".shop.Order.Leg"),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made: Callable[..., Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return made


def test_protobuf_payloads_become_columns(tmp_path: Path) -> None:
    order = descriptors(tmp_path / "order.desc")
    payload = order(id=1 << 63, side=1, legs=[{"price": 1.5}], tags={"x": 7}, raw=b"\0").SerializeToString()
    read = options("protobuf", str(tmp_path / "order.desc"), payloadMessage="shop.Order")
    assert one(read, payload) == {
        "id": Decimal(1 << 63),
        "side": "SELL",
        "legs": [{"price": 1.5}],
        "tags": [("x", 7)],
        "raw": b"\0",
        "main": None,
    }
    ((value, fault),) = decode(read, b"\xff\xff")
    assert value is None
    assert fault is not None
    with pytest.raises(BadOption, match=r"does not describe a message shop\.Nothing"):
        payload_fields(options("protobuf", str(tmp_path / "order.desc"), payloadMessage="shop.Nothing"))
    (tmp_path / "bad").write_bytes(b"\xff")
    with pytest.raises(BadOption, match="is not a FileDescriptorSet"):
        payload_fields(options("protobuf", str(tmp_path / "bad"), payloadMessage="shop.Order"))


def test_payloads_of_a_store_are_decoded(tmp_path: Path) -> None:
    store = WrittenStore()
    for number, payload in enumerate((b'{"n": 1}', b"no JSON")):
        store.message(b"queue", bytes([number]) * 16, payload)
    store.save(tmp_path)
    good, bad = read_rows(tmp_path, table="payloads", payloadFormat="json", payloadSchema="n int")
    assert (good["value"], good["value_fault"], good["fault"]) == ({"n": 1}, None, None)
    assert (bad["value"], bad["fault"]) == (None, None)
    assert bad["value_fault"].startswith("JSONDecodeError")
    # A payload with a wrong checksum is not decoded.
    data = next(tmp_path.glob("*.bmq_data"))
    data.write_bytes(data.read_bytes().replace(b'{"n": 1}', b'{"n": 2}'))
    first = next(iter(read_rows(tmp_path, table="payloads", payloadFormat="json", payloadSchema="n int")))
    assert (first["value"], first["value_fault"]) == (None, None)
    assert first["fault"] is not None
    with pytest.raises(BadOption, match="in the table payloads, not in records"):
        read_rows(tmp_path, payloadFormat="json", payloadSchema="n int")
