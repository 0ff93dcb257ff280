"""Payloads in Avro, decoded in a process of its own, whatever strangers have made of them."""

from __future__ import annotations

import io
import json
import sys

import fastavro
import pytest

from bmqctl.console.avro import decode_avro
from bmqctl.console.cluster import ClusterFault

pytestmark = pytest.mark.process

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "token", "type": "bytes"}],
}
SCHEMA = json.dumps(ORDER)


def datum(value: object, schema: object = ORDER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)  # type: ignore[arg-type]
    return stream.getvalue()


def test_a_datum_by_its_schema_and_a_file_by_its_own() -> None:
    order = {"id": 7, "token": b"\x00\xff"}
    assert json.loads(decode_avro(datum(order), SCHEMA)) == {"id": 7, "token": "0x00ff"}
    assert json.loads(decode_avro(datum(7, "long"), '"long"')) == 7
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(ORDER), [order, order])
    assert json.loads(decode_avro(stream.getvalue(), "")) == [{"id": 7, "token": "0x00ff"}] * 2


@pytest.mark.parametrize(
    ("payload", "schema", "reason"),
    [
        (b"\x0e", SCHEMA, "the record is truncated"),
        (datum({"id": 7, "token": b""}) + b"more", SCHEMA, "4 bytes follow the record"),
        (b"", '{"type": "recrod"}', "not an Avro schema"),
        (b"", '"/etc/passwd"', "not an Avro schema"),
        (b"", "/etc/passwd", "JSONDecodeError"),
        (b"", "7", "a schema is an object"),
        (b"", "{", "JSONDecodeError"),
        (b"no file", "", "no header"),
    ],
)
def test_invalid_avro_is_refused(payload: bytes, schema: str, reason: str) -> None:
    with pytest.raises(ClusterFault, match=reason):
        decode_avro(payload, schema)


@pytest.mark.parametrize("bounds", ["300 << 20, 600", "1 << 40, 1"])
def test_few_bytes_for_very_many_items(bounds: str) -> None:
    """Exceed the bound on memory, then that on processor time."""
    given = f"from bmqctl.console import avro; avro._MEMORY_BYTES, avro._CPU_S = {bounds}"
    code = f"{given}; from bmqctl.app import main; main()"
    bomb = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    with pytest.raises(ClusterFault, match="takes more memory or time to decode than there is for it"):
        decode_avro(bomb, '{"type": "array", "items": "null"}', (sys.executable, "-c", code))


def test_items_within_items_without_end() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
    with pytest.raises(ClusterFault):
        decode_avro(b"\x02" * 1_000_000 + b"\x00", json.dumps(schema))


def test_a_process_that_fails() -> None:
    with pytest.raises(ClusterFault, match="more memory or time"):
        decode_avro(b"", SCHEMA, (sys.executable, "-c", "raise SystemExit(9)"))
