"""Any bytes as a message's data are refused, or are properties and a payload that survive being written again.

The first byte selects the form: bit 0 with properties, bit 1 the newer encoding, bits 2 and 3 the compression. A
payload that inflates beyond the limit is refused before it has taken more memory than that.
"""

from __future__ import annotations

from formats.bmq.codes import CompressionAlgorithm, EventType, PutFlag
from formats.bmq.wire.application_data import (
    ApplicationData,
    build_application_data,
    compress,
    split_application_data,
    to_older_application_data,
)
from formats.bmq.wire.put import iter_puts
from tests.fuzz.seeds import bodies

__all__ = ["decode", "seeds", "verify"]

INFLATED_MAX = 8 << 10


def _mode(data: bytes) -> tuple[bool, int, int]:
    mode = data[0] if data else 0
    return bool(mode & 1), mode >> 1 & 1, mode >> 2 & 3


def decode(data: bytes) -> ApplicationData:
    split = split_application_data(memoryview(data)[1:], *_mode(data), INFLATED_MAX)
    if data[:1] and data[0] & 3 == 3:
        to_older_application_data(memoryview(data)[1:], _mode(data)[2], INFLATED_MAX)
    return split


def verify(data: bytes, split: ApplicationData) -> None:
    has_properties, schema_id, compression = _mode(data)
    assert len(split.properties) + len(split.payload) <= len(data) + INFLATED_MAX
    kind = CompressionAlgorithm(compression)
    built, made = build_application_data(bytes(split.properties), bytes(split.payload), schema_id, kind)
    if has_properties or not schema_id:
        again = split_application_data(memoryview(built), has_properties, schema_id, made, 2 * INFLATED_MAX)
        assert again == split


def seeds() -> list[bytes]:
    out = [b"\x04" + compress(bytes(1 << 20)), b"\x04" + compress(b"payload"), b"\x08payload"]
    for body in bodies(EventType.PUT):
        for put in iter_puts(memoryview(body), 0, len(body)):
            has_properties = bool(put.flags & PutFlag.MESSAGE_PROPERTIES)
            mode = has_properties | bool(put.schema_id) << 1 | put.compression << 2
            out.append(bytes([mode]) + put.data)
    return out
