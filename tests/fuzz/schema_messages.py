"""Common parts of the targets of schema messages: the encoding, and the properties of decoded messages."""

from __future__ import annotations

from typing import Any

from formats.bmq.control import ber, jsonc
from formats.bmq.control.schema import Choice, Description, Enumeration, describe
from formats.bmq.padding import unpadded_end

__all__ = ["decode_schema", "schema_seeds", "schema_words", "verify_schema"]


def decode_schema(cls: type[Any], data: bytes) -> Any:
    """The message after the first byte, whose bit 0 says JSON."""
    return (jsonc if data[:1] and data[0] & 1 else ber).decode(cls, memoryview(data)[1:])


def verify_schema(message: Any) -> None:
    """Check that a message survives both encodings, and that its BER ends where it says."""
    encoded = ber.encode(message)
    assert ber.decode_from(type(message), encoded, 0) == (message, len(encoded))
    assert jsonc.decode(type(message), jsonc.encode(message)) == message


def schema_seeds(cls: type[Any], padded: list[bytes], mode: int) -> list[bytes]:
    """Messages in BER, padded as in events, and in JSON; `mode` goes into the first byte."""
    out: list[bytes] = []
    for body in padded:
        encoded = body[: unpadded_end(body, 0, len(body), "seed")]
        out.append(bytes([mode]) + encoded)
        out.append(bytes([mode | 1]) + jsonc.encode(ber.decode(cls, encoded)))
    return out


def schema_words(*classes: type[Any]) -> list[bytes]:
    """Collect the parts of the messages' JSON and BER: names, enumerators, marks, the heads of constructed elements."""
    names: set[str] = set()
    waiting: list[Description] = [describe(cls) for cls in classes]
    seen: set[str] = set()
    while waiting:
        description = waiting.pop()
        if description.name in seen:
            continue
        seen.add(description.name)
        names.update(description.by_name)
        for element in description.elements:
            if isinstance(element.kind, Enumeration):
                names.update(element.kind.names)
            elif isinstance(element.kind, Description):
                waiting.append(element.kind)
            elif isinstance(element.kind, Choice):
                names.update(element.kind.by_name)
                waiting += [alternative.description for alternative in element.kind.alternatives]
    json = [f'"{name}"'.encode() for name in sorted(names)]
    json += [b"null", b"true", b"false", b"[]", b"{}", b'""', b"-1", b"1e9", b'"2147483648"', b'"\\ud800"', b'"AAEC"']
    heads = [bytes((tag, 0x80)) for tag in (0x30, *range(0xA0, 0xBF))]
    return [*json, *heads, b"\0\0", b"\x81\x80", b"\x82\1\0", b"\x9f\x81\x7f"]
