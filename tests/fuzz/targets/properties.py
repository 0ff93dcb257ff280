"""Any bytes as the head of a message's data are refused, or are properties that can be written and read again.

The first byte says the encoding: the older one if it is even, the newer one if it is odd. Properties of the newer
encoding are the same ones in the older.
"""

from __future__ import annotations

from formats.bmq.codes import EventType, PutFlag
from formats.bmq.wire.application_data import split_application_data
from formats.bmq.wire.properties import (
    Property,
    decode_properties,
    encode_properties,
    properties_size,
    to_older_encoding,
)
from formats.bmq.wire.put import iter_puts
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify"]


def decode(data: bytes) -> list[Property]:
    schema_id = data[0] & 1 if data else 0
    return decode_properties(memoryview(data)[1:], schema_id)


def verify(data: bytes, properties: list[Property]) -> None:
    schema_id = data[0] & 1
    assert properties_size(data[1:]) < len(data)
    written = encode_properties(properties, schema_id)
    assert sorted(decode_properties(written, schema_id)) == sorted(properties)
    if schema_id:
        assert decode_properties(to_older_encoding(data[1:]), 0) == properties


def seeds() -> list[bytes]:
    """Golden ones are of the newer encoding: each of them also in the older."""
    out: list[bytes] = []
    for body in bodies(EventType.PUT):
        for put in iter_puts(memoryview(body), 0, len(body)):
            if put.flags & PutFlag.MESSAGE_PROPERTIES:
                newer = bytes(split_application_data(put.data, True, put.schema_id, put.compression).properties)
                out += [b"\1" + newer, b"\0" + to_older_encoding(newer)]
    return out
