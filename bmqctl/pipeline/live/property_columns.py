"""Message properties from the columns of a DataFrame to be posted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from bmqctl.pipeline.source.options import BadOption
from formats.bmq.wire.properties import Property, PropertyType

__all__ = ["ReadProperties", "property_reader"]

ReadProperties = Callable[[Any], list[Property]]


def property_reader(kind: pa.DataType) -> ReadProperties:
    """Return a converter of a column's values, as given by `to_pylist`, to properties. Raises BadOption.

    Accepted are maps from strings to structs of `type` and `value`, as in tables that are read, or to text, numbers,
    booleans or bytes; and structs of these. Nulls in them are properties that a message does not have.
    """
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        if pa.types.is_struct(kind.item_type):
            if {"type", "value"} <= {field.name for field in kind.item_type}:
                return lambda value: [_typed(name, each) for name, each in _items(value) if each is not None]
        else:
            of_type = _plain_type(kind.item_type)
            return lambda value: [Property(name, of_type, each) for name, each in _items(value) if each is not None]
    elif pa.types.is_struct(kind):
        types = {field.name: _plain_type(field.type) for field in kind}
        return lambda value: [Property(name, types[name], each) for name, each in _items(value) if each is not None]
    raise BadOption(f"properties: a {kind} holds none: expected a map from strings, or a struct")


def _items(value: Mapping[str, Any] | list[tuple[str, Any]] | None) -> Iterable[tuple[str, Any]]:
    if value is None:
        return ()
    return value.items() if isinstance(value, Mapping) else value


def _plain_type(kind: pa.DataType) -> PropertyType:
    for is_kind, found in (
        (pa.types.is_boolean, PropertyType.BOOL),
        (pa.types.is_int8, PropertyType.SHORT),
        (pa.types.is_int16, PropertyType.SHORT),
        (pa.types.is_int32, PropertyType.INT32),
        (pa.types.is_int64, PropertyType.INT64),
        (pa.types.is_string, PropertyType.STRING),
        (pa.types.is_large_string, PropertyType.STRING),
        (pa.types.is_binary, PropertyType.BINARY),
        (pa.types.is_large_binary, PropertyType.BINARY),
    ):
        if is_kind(kind):
            return found
    raise BadOption(f"properties: no property holds a {kind}")


def _typed(name: str, value: Mapping[str, Any]) -> Property:
    """Convert a property. Raises ValueError if the value does not fit its type."""
    text = value["value"]
    try:
        kind = PropertyType[value["type"]]
        if kind in (PropertyType.CHAR, PropertyType.BINARY):
            return Property(name, kind, bytes.fromhex(text))
        if kind is PropertyType.BOOL:
            return Property(name, kind, {"true": True, "false": False}[text])
        return Property(name, kind, text if kind is PropertyType.STRING else int(text))
    except (KeyError, ValueError, TypeError):
        raise ValueError(f"property {name!r}: {text!r} is no {value['type']}") from None
