"""Message properties as a column: a map from names to types and values."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from formats.bmq.wire.properties import Property

__all__ = ["PROPERTIES_TYPE", "property_items"]

PROPERTIES_TYPE = pa.map_(pa.string(), pa.struct([("type", pa.string()), ("value", pa.string())]))
"""`type` is a `PropertyType`'s name; `value` is text: true or false, decimal digits, bytes as upper-case hex."""


def property_items(properties: Iterable[Property]) -> list[tuple[str, dict[str, str]]]:
    return [(_text(name), {"type": kind.name, "value": _value(value)}) for name, kind, value in properties]


def _value(value: bool | int | str | bytes) -> str:
    if isinstance(value, bytes):
        return value.hex().upper()
    return _text(value) if isinstance(value, str) else str(value).lower()


def _text(text: str) -> str:
    """The text as valid UTF-8, which columns require, with other bytes as \\xNN."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
