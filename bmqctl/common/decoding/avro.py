"""Avro: records by their writer's schema, and object containers, which include it.

Containers and their schemas are untrusted: the inflated size of blocks is bounded, and a schema is refused if a few
bytes could stand for very many values.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import fastavro
from fastavro import _read_py
from fastavro.schema import SchemaParseException, UnknownType

from formats.errors import check_memory

__all__ = ["CONTAINER_MAGIC", "inflate", "parse_avro_schema", "read_container", "read_record", "record_reader"]

CONTAINER_MAGIC: Final = b"Obj\x01"
INFLATED_SIZE_MAX: Final = 16 << 20
_SYNC_SIZE: Final = 16
_BLOCK_NUMBER_SIZE_MAX: Final = 10
_FAULTS: Final = (EOFError, IndexError, KeyError, AssertionError, UnicodeDecodeError, TypeError)


def parse_avro_schema(schema: str) -> Any:
    """Parse a schema: JSON, or the path of an .avsc file. Raises `ValueError` and `OSError`."""
    text = schema if schema.lstrip().startswith(("{", "[")) else Path(schema).read_text(encoding="utf-8")
    try:
        return fastavro.parse_schema(json.loads(text))
    except (SchemaParseException, UnknownType, KeyError, TypeError, RecursionError) as fault:
        raise ValueError(f"not an Avro schema: {fault}") from None


def record_reader(parsed: Any) -> Callable[[io.BytesIO], Any]:
    """Return a reader of values of a schema.

    The library's reader in C does not limit recursion: a few bytes of a type that contains itself would crash the
    process.
    """
    if _Names(parsed).is_recursive:
        return lambda stream: _read_py.schemaless_reader(stream, parsed, None)
    return lambda stream: fastavro.schemaless_reader(stream, parsed, None)


def read_record(parsed: Any, payload: bytes, read: Callable[[io.BytesIO], Any] | None = None) -> Any:
    """Read a payload that is one value of the schema. Raises `ValueError` and `RecursionError`."""
    stream = io.BytesIO(payload)
    try:
        value = (read or record_reader(parsed))(stream)
    except _FAULTS as fault:
        raise ValueError(f"the record is truncated, or of another schema: {fault}") from None
    if stream.tell() != len(payload):
        raise ValueError(f"{len(payload) - stream.tell()} bytes follow the record")
    return value


def read_container(payload: bytes) -> list[Any]:
    """Read the values of an object container, by its own schema. Raises `ValueError` and `RecursionError`."""
    stream = io.BytesIO(payload)
    try:
        header = fastavro.reader(stream)
        schema, codec = header.writer_schema, header.codec
        begin = stream.tell()
    except (*_FAULTS, SchemaParseException, UnknownType, ValueError) as fault:
        raise ValueError(f"the object container has no header that can be read: {fault}") from None
    _Names(schema).check()
    if codec not in ("null", "deflate"):
        raise ValueError(f"the object container is compressed by {codec!a}: null and deflate are decoded")
    read = record_reader(schema)
    values: list[Any] = []
    for count, block in _blocks(payload, begin, codec == "deflate"):
        inner = io.BytesIO(block)
        try:
            values.extend(read(inner) for _ in range(count))
        except _FAULTS as fault:
            raise ValueError(f"a block of the object container is truncated: {fault}") from None
        if inner.tell() != len(block):
            raise ValueError(f"{len(block) - inner.tell()} bytes follow the records of a block")
    return values


def _blocks(payload: bytes, at: int, is_deflated: bool) -> list[tuple[int, bytes]]:
    """The inflated blocks of a container, each with the number of its values, which have at least a byte each."""
    sync = payload[at - _SYNC_SIZE : at]
    found: list[tuple[int, bytes]] = []
    left = INFLATED_SIZE_MAX
    while at < len(payload):
        count, at = _number(payload, at)
        size, at = _number(payload, at)
        block = payload[at : at + size]
        at += size + _SYNC_SIZE
        if size < 0 or len(block) != size or payload[at - _SYNC_SIZE : at] != sync:
            raise ValueError("a block of the object container is truncated")
        if is_deflated:
            block = inflate(block, left)
        left -= len(block)
        if left < 0:
            raise ValueError(f"the object container has more than {INFLATED_SIZE_MAX} bytes")
        if not 0 <= count <= len(block):
            raise ValueError(f"a block of {len(block)} bytes is to have {count} records")
        found.append((count, block))
    return found


def inflate(data: bytes, size_max: int) -> bytes:
    """Inflate a raw deflate stream. Raises `ValueError` if it is invalid, or more than `size_max` bytes."""
    inflating = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = inflating.decompress(data, size_max + 1)
    except zlib.error as fault:
        check_memory(fault)
        raise ValueError(f"a block cannot be inflated: {fault}") from None
    if len(found) > size_max:
        raise ValueError(f"the object container has more than {INFLATED_SIZE_MAX} bytes")
    if not inflating.eof:
        raise ValueError("a block cannot be inflated: it is truncated")
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift, byte in enumerate(data[at : at + _BLOCK_NUMBER_SIZE_MAX]):
        found |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + shift + 1
    raise ValueError("a block of the object container is truncated")


class _Names:
    """A parsed schema, with its named types."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._types: dict[str, Any] = {}
        self.is_recursive = False
        self._collect(schema, ())

    def check(self) -> None:
        """Raise `ValueError` if the schema lets a few bytes stand for very many values."""
        if not self._least(self._schema, ()):
            raise ValueError("the schema of the object container is of values without bytes")
        for items in self._repeated(self._schema):
            if not self._least(items, ()):
                raise ValueError("the schema of the object container has an array of values without bytes")

    def _collect(self, schema: Any, within: tuple[str, ...]) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._collect(each, within)
        elif isinstance(schema, str):
            self.is_recursive |= schema in within
        elif isinstance(schema, dict):
            name = schema.get("name")
            if isinstance(name, str):
                self._types[name] = schema
                within = (*within, name)
            for field in schema.get("fields", ()):
                self._collect(field["type"], within)
            for key in ("items", "values", "type"):
                if key in schema:
                    self._collect(schema[key], within)

    def _repeated(self, schema: Any) -> list[Any]:
        if isinstance(schema, list):
            return [found for each in schema for found in self._repeated(each)]
        if not isinstance(schema, dict):
            return []
        found = [schema["items"]] if schema.get("type") == "array" else []
        inner = [field["type"] for field in schema.get("fields", ())]
        inner += [schema[key] for key in ("items", "values") if key in schema]
        if isinstance(schema.get("type"), dict | list):
            inner.append(schema["type"])
        return found + [each for one in inner for each in self._repeated(one)]

    def _least(self, schema: Any, within: tuple[str, ...]) -> int:
        """The least number of bytes of a value; 0 for a type within itself."""
        if isinstance(schema, list):
            return 1  # its number among the types
        if isinstance(schema, str):
            if schema == "null" or schema in within:
                return 0
            return self._least(self._types[schema], within) if schema in self._types else 1
        kind = schema["type"]
        if kind in ("record", "error"):
            below = (*within, schema["name"])
            return sum(self._least(field["type"], below) for field in schema.get("fields", ()))
        if kind == "fixed":
            return max(0, int(schema["size"]))
        return 0 if kind == "null" else self._least(kind, within) if isinstance(kind, dict | list) else 1
