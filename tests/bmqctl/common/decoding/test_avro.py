"""Records of Avro, and object containers, of which strangers may have made any byte."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.common.decoding.avro import INFLATED_SIZE_MAX, inflate, parse_avro_schema, read_container, read_record

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": ["null", "string"]}],
}
LIST: dict[str, Any] = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
TREE: dict[str, Any] = {
    "type": "record",
    "name": "T",
    "fields": [{"name": "children", "type": {"type": "array", "items": "T"}}],
}
ROWS = [{"id": number, "customer": None if number % 2 else "Ada"} for number in range(100)]
MAGIC = b"Obj\x01"


def container(schema: Any, rows: list[Any], codec: str = "null") -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(schema), rows, codec=codec, sync_interval=100)
    return stream.getvalue()


def forged(schema: Any, count: int, block: bytes, codec: str = "null") -> bytes:
    """A container with one block that claims `count` records."""
    head = container(schema, [], codec)
    numbers = io.BytesIO()
    for number in (count, len(block)):
        fastavro.schemaless_writer(numbers, "long", number)
    return head + numbers.getvalue() + block + head[-16:]


def record(row: Any, schema: Any = ORDER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def test_records() -> None:
    parsed = parse_avro_schema(json.dumps(ORDER))
    assert [read_record(parsed, record(row)) for row in ROWS] == ROWS
    with pytest.raises(ValueError, match="1 bytes follow the record"):
        read_record(parsed, record(ROWS[0]) + b"\0")
    with pytest.raises(ValueError, match="truncated, or of another schema"):
        read_record(parsed, record(ROWS[0])[:-1])


@pytest.mark.parametrize("text", ["{", '{"type": "records"}', '["null", "X"]'])
def test_invalid_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expecting|Avro"):
        parse_avro_schema(text)


def test_a_record_within_itself_without_end_does_not_end_the_process() -> None:
    parsed = parse_avro_schema(json.dumps(LIST))
    assert read_record(parsed, b"\2\2\0") == {"next": {"next": {"next": None}}}
    with pytest.raises(RecursionError):
        read_record(parsed, b"\2" * 1_000_000 + b"\0")
    with pytest.raises(RecursionError):
        read_container(forged(LIST, 1, b"\2" * 1_000_000 + b"\0"))


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_containers_by_their_own_schema(codec: str) -> None:
    assert read_container(container(ORDER, ROWS, codec)) == ROWS
    assert read_container(container(ORDER, [], codec)) == []
    assert read_container(container(TREE, [{"children": [{"children": []}]}], codec)) == [
        {"children": [{"children": []}]}
    ]


def test_other_compressions_are_refused() -> None:
    with pytest.raises(ValueError, match="null and deflate are decoded"):
        read_container(container(ORDER, ROWS, "bzip2"))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (
            forged({"type": "array", "items": "null"}, 1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0"),
            "array of values",
        ),
        (forged({"type": "record", "name": "E", "fields": []}, 1 << 60, b""), "of values without bytes"),
        (
            forged({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, 1, b"\2\0"),
            "array of values without bytes",
        ),
        (
            forged(
                {
                    "type": "record",
                    "name": "R",
                    "fields": [
                        {"name": "n", "type": {"type": "record", "name": "E", "fields": []}},
                        {"name": "a", "type": {"type": "map", "values": {"type": "array", "items": "E"}}},
                    ],
                },
                1,
                b"\2\0",
            ),
            "array of values without bytes",
        ),
        (forged(ORDER, 1 << 60, record(ROWS[0])), "a block of 6 bytes is to have"),
        (forged(ORDER, -1, record(ROWS[0])), "is to have -1 records"),
        (forged(ORDER, 1, record(ROWS[0]) + b"x"), "1 bytes follow the records"),
        (forged(ORDER, 2, record(ROWS[0])), "is truncated"),
        (forged(ORDER, 1, b"no deflate", "deflate"), "cannot be inflated"),
        (container(ORDER, ROWS)[:-1], "is truncated"),
        (container(ORDER, ROWS)[:-1] + b"x", "is truncated"),
        (container(ORDER, ROWS)[:30], "no header"),
        (MAGIC, "no header"),
        (MAGIC + b"\xff" * 40, "no header"),
    ],
)
def test_damaged_and_hostile_containers_are_refused(made: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_container(made)


def test_inflated_size_is_bounded() -> None:
    with pytest.raises(ValueError, match=f"more than {INFLATED_SIZE_MAX} bytes"):
        read_container(container("bytes", [bytes(INFLATED_SIZE_MAX)], "deflate"))
    with pytest.raises(ValueError, match=f"more than {INFLATED_SIZE_MAX} bytes"):
        read_container(container("bytes", [bytes(INFLATED_SIZE_MAX // 2), bytes(INFLATED_SIZE_MAX // 2)], "deflate"))
    with pytest.raises(ValueError, match="truncated"):
        inflate(b"\x4b", 10)


@given(st.binary(max_size=60), st.integers(0, 300))
def test_any_bytes_are_decoded_or_refused(more: bytes, cut: int) -> None:
    good = container(ORDER, ROWS[:10], "deflate")
    for payload in (MAGIC + more, good[:cut] + more, good[:cut] + more + good[cut + len(more) :]):
        with suppress(ValueError):
            read_container(payload)
