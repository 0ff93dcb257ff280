"""Contents of messages in the forms that they have, whatever was posted."""

from __future__ import annotations

import base64
import tracemalloc
import zlib
from typing import Any

from bmqctl.carrying.messages.listing import INFLATED_BYTES_MAX, Contents, read_contents
from bmqctl.client.protocol.message import encode_data
from bmqctl.console.contents import HEX_BYTES_MAX, TEXT_CHARACTERS_MAX, contents_value
from formats.bmq.wire.properties import Property, PropertyType


def answer(data: bytes, *, has_properties: bool = False, schema_id: int = 0, compression: int = 0) -> dict[str, Any]:
    return {
        "data": base64.b64encode(data).decode(),
        "hasProperties": has_properties,
        "schemaId": schema_id,
        "compression": compression,
    }


def forms(payload: bytes) -> dict[str, str | None]:
    return {each["name"]: each["text"] for each in contents_value(Contents(payload, []))["forms"]}


def test_properties_and_payload_as_they_were_posted() -> None:
    properties = [Property("n", PropertyType.INT32, 7), Property("raw", PropertyType.BINARY, b"\x00\x01")]
    for compress in (False, True):
        data, _, compression, schema_id = encode_data(b"x" * 5000, properties, compress=compress)
        found = read_contents(
            answer(bytes(data), has_properties=True, schema_id=schema_id, compression=int(compression))
        )
        assert found == Contents(b"x" * 5000, properties)
        assert contents_value(found)["properties"] == [
            {"name": "n", "type": "INT32", "value": "7"},
            {"name": "raw", "type": "BINARY", "value": "0x0001"},
        ]


def test_undecodable_payload_is_shown_as_it_is() -> None:
    bomb = zlib.compress(b"\0" * (INFLATED_BYTES_MAX + 1))
    found = read_contents(answer(bomb, compression=1))
    assert found.payload == bomb
    assert found.fault is not None
    garbage = read_contents(answer(b"\xff" * 40, has_properties=True, schema_id=1))
    assert garbage.fault is not None


def test_forms_of_payloads() -> None:
    assert list(forms(b'{"a": [1, "\xc3\xa9"]}')) == ["JSON", "Text", "Hex"]
    assert forms(b'{"a": [1, "\xc3\xa9"]}')["JSON"] == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'
    assert list(forms(b"17")) == ["Text", "Hex"]
    assert list(forms(b"[" * 100_000)) == ["Text", "Hex"]
    assert list(forms(b"Obj\x01\xff")) == ["Avro", "Hex"]
    assert forms(b"") == {"Text": "", "Hex": ""}
    assert forms(b"<b>\x00\xff")["Hex"] == f"00000000  {'3c 62 3e 00 ff':<47}  <b>.."


def test_long_payloads_are_cut() -> None:
    found = contents_value(Contents(b"y" * 1_000_000, []))
    assert [(each["name"], each["is_cut"]) for each in found["forms"]] == [("Text", True), ("Hex", True)]
    assert len(found["forms"][1]["text"].splitlines()) == HEX_BYTES_MAX // 16


def test_deep_and_long_json_takes_memory_for_its_front_only() -> None:
    """Written whole with indentation it would have 200 million characters."""
    payload = b"[" * 500 + b"0," * 200_000 + b"0" + b"]" * 500
    tracemalloc.start()
    try:
        (found, *_) = contents_value(Contents(payload, []))["forms"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found["name"], found["is_cut"], len(found["text"])) == ("JSON", True, TEXT_CHARACTERS_MAX)
    assert peak < 40 << 20
