"""What the targets of schema messages share: which encoding, and what holds for a message that was read."""

from __future__ import annotations

from typing import Any

from formats.control import ber, jsonc
from formats.padding import unpadded_end

__all__ = ["decode_schema", "schema_seeds", "verify_schema"]


def decode_schema(cls: type[Any], data: bytes) -> Any:
    """The message after the first byte, whose bit 0 says JSON."""
    return (jsonc if data[:1] and data[0] & 1 else ber).decode(cls, memoryview(data)[1:])


def verify_schema(message: Any) -> None:
    """Written and read again, in both encodings, it is the same message; its BER ends where it says."""
    encoded = ber.encode(message)
    assert ber.decode_from(type(message), encoded, 0) == (message, len(encoded))
    assert jsonc.decode(type(message), jsonc.encode(message)) == message


def schema_seeds(cls: type[Any], padded: list[bytes], mode: int) -> list[bytes]:
    """Messages in BER, padded as events have them, and the same in JSON; `mode` goes into the first byte."""
    out: list[bytes] = []
    for body in padded:
        encoded = body[: unpadded_end(body, 0, len(body), "seed")]
        out.append(bytes([mode]) + encoded)
        out.append(bytes([mode | 1]) + jsonc.encode(ber.decode(cls, encoded)))
    return out
