"""Avro payloads: single records, without the header of an object container file, by their writer's schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from bmqctl.common.decoding.avro import parse_avro_schema, read_record, record_reader

__all__ = ["avro_codec"]

_SIMPLE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
}


def avro_codec(schema: str) -> tuple[pa.StructType, Callable[[bytes], Any]]:
    """Make the Arrow type and the decoder of a schema, JSON or the path of an .avsc file.

    Raises ValueError if it is invalid, or not of a record.
    """
    parsed = parse_avro_schema(schema)
    names: dict[str, Any] = {}
    kind = _type_of(parsed, names, ())
    if not pa.types.is_struct(kind):
        raise ValueError("the Avro schema is not of a record")

    read = record_reader(parsed)

    def decode(payload: bytes) -> Any:
        return _shaped(read_record(parsed, payload, read), kind)

    return kind, decode


def _type_of(schema: Any, names: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    """The Arrow type of a parsed schema. Raises ValueError for a type that no column can hold."""
    if isinstance(schema, list):
        options = [one for one in schema if one != "null"]
        if len(options) != 1:
            raise ValueError(f"a union of {len(options)} types: only one beside null has a column's type")
        return _type_of(options[0], names, within)
    if isinstance(schema, str):
        return _SIMPLE[schema] if schema in _SIMPLE else _type_of(names[schema], names, within)
    kind = schema["type"]
    if "name" in schema:
        names[schema["name"]] = schema
        if schema["name"] in within:
            raise ValueError(f"{schema['name']} contains itself, which a column cannot")
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if schema.get("logicalType") == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if "logicalType" in schema and kind != "string":
        raise ValueError(f"the logical type {schema['logicalType']} is not supported")
    if kind in ("record", "error"):
        below = (*within, schema["name"])
        return pa.struct([(field["name"], _type_of(field["type"], names, below)) for field in schema["fields"]])
    if kind == "array":
        return pa.list_(_type_of(schema["items"], names, within))
    if kind == "map":
        return pa.map_(pa.string(), _type_of(schema["values"], names, within))
    return _type_of(kind, names, within) if isinstance(kind, (dict, list)) else _SIMPLE[kind]


def _shaped(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _shaped(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, _shaped(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [_shaped(item, kind.value_type) for item in value]
    return str(value) if pa.types.is_string(kind) else value
