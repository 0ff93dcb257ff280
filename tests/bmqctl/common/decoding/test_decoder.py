"""Decoders by name: what they make of payloads, and how they refuse them."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import msgpack
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.common.decoding.decoder import BadPayload, CannotDecode, Format, Wanted, make_decoder
from bmqctl.common.decoding.values import to_json_value

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "ratio", "type": "double"},
    ],
}
AT = datetime(2026, 11, 25, 12, tzinfo=UTC)
ROW = {"id": 1, "raw": b"\0\1", "at": AT, "price": Decimal("1.50"), "ratio": float("inf")}
DECODED = {"id": 1, "raw": {"base64": "AAE="}, "at": "2026-11-25T12:00:00+00:00", "price": "1.50", "ratio": "inf"}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return path


@pytest.fixture
def descriptor(tmp_path: Path) -> Path:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("order_id", "INT64"), ("customer", "STRING"), ("raw", "BYTES")), 1):
        message.field.add(name=name, number=number, type=f"TYPE_{kind}", label="LABEL_OPTIONAL")
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return path


def refusal(decode: Any, payload: bytes) -> str:
    with pytest.raises(BadPayload) as caught:
        decode(payload)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 300
    return text


def test_json() -> None:
    decode = make_decoder(Wanted(Format.JSON))
    assert decode(b' {"a": [1, 2.5, null, "\xc3\xa4"]}\n') == {"a": [1, 2.5, None, "ä"]}
    for payload in (b"", b"{", b"\xff", b"NaN", b"1" * 5000, b'"a" "b"'):
        assert refusal(decode, payload).startswith("the payload is not json: ")
    assert refusal(decode, b"[" * 100_000) == "the payload is not json: it is nested too deeply"


def test_avro(schema: Path) -> None:
    parsed = fastavro.parse_schema(ORDER)
    one, many = io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(one, parsed, ROW)
    fastavro.writer(many, parsed, [ROW, ROW])
    decode = make_decoder(Wanted(Format.AVRO, schema))
    assert decode(one.getvalue()) == DECODED
    assert decode(many.getvalue()) == [DECODED, DECODED]
    assert "is truncated, or of another schema" in refusal(decode, b"\x02")
    alone = make_decoder(Wanted(Format.AVRO))
    assert alone(many.getvalue()) == [DECODED, DECODED]
    assert "give the schema of its records, --schema FILE" in refusal(alone, one.getvalue())


def test_protobuf(descriptor: Path) -> None:
    decode = make_decoder(Wanted(Format.PROTOBUF, None, descriptor, "shop.Order"))
    assert decode(b"\x08\x07\x12\x03Ada\x1a\x01\xff") == {"order_id": "7", "customer": "Ada", "raw": "/w=="}
    assert decode(b"") == {}
    assert refusal(decode, b"\x08").startswith("the payload is not protobuf: ")
    with pytest.raises(CannotDecode, match=r"does not describe a message shop\.Orders"):
        make_decoder(Wanted(Format.PROTOBUF, None, descriptor, "shop.Orders"))


def test_message_pack() -> None:
    decode = make_decoder(Wanted(Format.MSGPACK))
    value = {"a": [1, -2.5, None, True], "raw": b"\0\1", "at": AT, "ext": msgpack.ExtType(5, b"x"), "in": {1: "one"}}
    assert decode(msgpack.packb(value, datetime=True)) == {
        "a": [1, -2.5, None, True],
        "raw": {"base64": "AAE="},
        "at": "2026-11-25T12:00:00+00:00",
        "ext": {"type": 5, "base64": "eA=="},
        "in": [[1, "one"]],
    }
    # A key that comes twice loses nothing.
    assert decode(b"\x82\xa1a\x01\xa1a\x02") == [["a", 1], ["a", 2]]
    assert refusal(decode, b"\x01\x02") == "the payload is not msgpack: 1 bytes follow the value"
    for payload in (b"", b"\x92\x01", b"\xc1", b"\xa1\xff", b"\x91" * 100_000, b"\xd7\xff" + b"\xff" * 8):
        assert refusal(decode, payload).startswith("the payload is not msgpack: ")


def test_hex() -> None:
    assert make_decoder(Wanted(Format.HEX))(b"\0\xff") == "00ff"


@given(st.binary(max_size=100))
def test_any_payload_is_shown_or_refused(payload: bytes) -> None:
    for form in (Format.JSON, Format.AVRO, Format.MSGPACK, Format.HEX):
        decode = make_decoder(Wanted(form))
        try:
            value = decode(payload)
        except BadPayload:
            continue
        json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Wanted(Format.JSON, Path("a.avsc")), "--schema is for --decode avro"),
        (Wanted(Format.MSGPACK, message="shop.Order"), "--descriptor and --message are for --decode protobuf"),
        (Wanted(Format.PROTOBUF, message="shop.Order"), "needs --descriptor FILE and --message NAME"),
        (Wanted(Format.AVRO, Path("none.avsc")), "none.avsc: No such file"),
        (Wanted(Format.PROTOBUF, None, Path("none.desc"), "a"), "none.desc: No such file"),
        (Wanted(Format.PROTOBUF, None, Path(__file__), "a"), "is not a FileDescriptorSet"),
        (Wanted(Format.AVRO, Path(__file__)), "test_decoder.py: "),
    ],
)
def test_options_that_do_not_go_together(wanted: Wanted, reason: str) -> None:
    with pytest.raises(CannotDecode, match=reason):
        make_decoder(wanted)


@pytest.mark.parametrize(("form", "package"), [(Format.AVRO, "fastavro"), (Format.MSGPACK, "msgpack")])
def test_a_package_that_is_not_there_is_named(form: Format, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for module in ("bmqctl.common.decoding.avro", "bmqctl.common.decoding.message_pack"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(CannotDecode, match=rf"needs {package}, which is not installed: pip install '\.\[decode\]'"):
        make_decoder(Wanted(form))


def test_values_of_json() -> None:
    assert to_json_value([date(2026, 1, 2), UUID(int=1), float("nan")]) == [
        "2026-01-02",
        "00000000-0000-0000-0000-000000000001",
        "nan",
    ]
    with pytest.raises(ValueError, match="has a object"):
        to_json_value(object())
