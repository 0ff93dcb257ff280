"""Schema messages in the encoding that an event names."""

from __future__ import annotations

from typing import TypeVar

from formats.bmq.codes import EncodingType
from formats.bmq.control import ber, jsonc
from formats.schema import Buffer

__all__ = ["decode", "encode"]

T = TypeVar("T")


def decode(cls: type[T], body: Buffer, encoding: EncodingType) -> T:
    """Decode a JSON or BER message. FormatError if it is malformed."""
    return jsonc.decode(cls, body) if encoding is EncodingType.JSON else ber.decode(cls, body)


def encode(message: object, encoding: EncodingType) -> bytes:
    return jsonc.encode(message) if encoding is EncodingType.JSON else ber.encode(message)
