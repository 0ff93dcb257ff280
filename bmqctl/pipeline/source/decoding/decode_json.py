"""JSON payloads decoded by a schema in Spark's DDL: `id BIGINT, tags ARRAY<STRING>, at STRUCT<x: DOUBLE>`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import pyarrow as pa

__all__ = ["json_codec", "parse_ddl"]

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|(\w+)|([<>(),:]))")
_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def json_codec(ddl: str) -> tuple[pa.StructType, Callable[[bytes], Any]]:
    """Make the Arrow type and the decoder of a DDL schema. Raises ValueError if it is invalid."""
    kind = parse_ddl(ddl)

    def decode(payload: bytes) -> Any:
        value = json.loads(payload, parse_float=Decimal)
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        return _fit(value, kind)

    return kind, decode


def parse_ddl(text: str) -> pa.StructType:
    """Parse the columns of `text`. Raises ValueError with the position of the error."""
    parser = _Parser(text)
    kind = parser.columns()
    parser.end()
    return kind


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"{text[at:].strip()[:20]!r} is not part of a schema")
            self._tokens.append(match[1] or match[2] or match[3])
            at = match.end()
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self, wanted: str = "") -> str:
        token = self._peek()
        if not token or (wanted and token != wanted):
            raise ValueError(f"{token or 'the end'!r} where {wanted or 'a name or type'!r} should be")
        self._at += 1
        return token

    def end(self) -> None:
        if self._peek():
            raise ValueError(f"{self._peek()!r} instead of the end")

    def columns(self) -> pa.StructType:
        fields = []
        while True:
            name = self._next()
            if not (name[0] == "`" or name[0].isalpha() or name[0] == "_"):
                raise ValueError(f"{name!r} is not a column name")
            if self._peek() == ":":
                self._next()
            kind = self._type()
            if self._peek().lower() == "not":
                # Accepted, but a payload may lack the field all the same.
                self._next()
                if self._next().lower() != "null":
                    raise ValueError("'not' without 'null'")
            fields.append(pa.field(name[1:-1].replace("``", "`") if name[0] == "`" else name, kind))
            if self._peek() != ",":
                break
            self._next()
        names = [field.name for field in fields]
        if len(set(names)) != len(names):
            raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} appears twice")
        return pa.struct(fields)

    def _type(self) -> pa.DataType:
        name = self._next().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in ("decimal", "numeric", "dec"):
            return self._decimal()
        if name not in ("array", "map", "struct"):
            raise ValueError(f"{name!r} is not a type")
        self._next("<")
        kind: pa.DataType
        if name == "array":
            kind = pa.list_(self._type())
        elif name == "struct":
            kind = self.columns()
        else:
            key = self._type()
            if key != pa.string():
                raise ValueError("a JSON object has strings for keys")
            self._next(",")
            kind = pa.map_(key, self._type())
        self._next(">")
        return kind

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._next()
            precision = int(self._next())
            if self._peek() == ",":
                self._next()
                scale = int(self._next())
            self._next(")")
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise ValueError(
                f"decimal({precision}, {scale}): 1 to 38 digits, of which at most that many after the point"
            )
        return pa.decimal128(precision, scale)


def _fit(value: Any, kind: pa.DataType) -> Any:
    """Convert `value` (of `json.loads`, fractions as Decimal) for an Arrow `kind`. Raises ValueError on a misfit."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        members = _want(value, dict, kind)
        return {field.name: _fit(members.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, _fit(item, kind.item_type)) for key, item in _want(value, dict, kind).items()]
    if pa.types.is_list(kind):
        return [_fit(item, kind.value_type) for item in _want(value, list, kind)]
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value, default=str)
    if pa.types.is_boolean(kind):
        return _want(value, bool, kind)
    if pa.types.is_integer(kind):
        if isinstance(value, bool) or value != int(value):
            raise ValueError(f"{value!r} is not a {kind}")
        return int(value)
    if pa.types.is_floating(kind):
        return float(value)
    return _fit_text(value, kind)


def _fit_text(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        try:
            return Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
        except (InvalidOperation, TypeError):
            raise ValueError(f"{value!r} is not a {kind}") from None
    text = _want(value, str, kind)
    if pa.types.is_binary(kind):
        return base64.b64decode(text, validate=True)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


Wanted = TypeVar("Wanted")


def _want(value: Any, wanted: type[Wanted], kind: pa.DataType) -> Wanted:
    if not isinstance(value, wanted):
        raise ValueError(f"{json.dumps(value, default=str)[:40]} is not a {kind}")
    return value
