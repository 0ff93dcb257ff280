# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Message properties: names and values in one string (source: MessageDecoder.messageProperties2String).

A property is its name, 0x01, its value and 0x02; older clients leave out the last 0x02. The Java parser drops a
property with an empty name or value, and all later ones; this one keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["decode_properties", "encode_properties"]

_NAME_END = "\x01"
_VALUE_END = "\x02"


def decode_properties(data: bytes) -> dict[str, str]:
    """Decode the properties, in order. Skips pieces without a 0x01, as the original does.

    Bytes that are not UTF-8 become U+FFFD, as in Java: no record may stop a reader of the log.
    """
    text = data.decode(errors="replace")
    properties: dict[str, str] = {}
    for piece in text.split(_VALUE_END):
        name, separator, value = piece.partition(_NAME_END)
        if separator:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties in order. Raises `ValueError` for a name or value that contains a separator."""
    text = "".join([f"{name}{_NAME_END}{value}{_VALUE_END}" for name, value in properties.items()])
    if text.count(_NAME_END) == text.count(_VALUE_END) == len(properties):
        return text.encode()
    for name, value in properties.items():
        if _NAME_END in name or _VALUE_END in name or _VALUE_END in value:
            raise ValueError(f"property {name!r} contains a separator (0x01 or 0x02)")
    return text.encode()
