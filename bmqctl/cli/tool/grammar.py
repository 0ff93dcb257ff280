"""Grammar of the user's commands: a verb and `key=value` pairs, where a value is JSON, a word or a number.

    open uri="bmq://bmq.test.mem.priority/q" flags="read,write" async=true
    post uri="..." payload=["one","two"] messageProperties=[{"name": "x", "value": "1", "type": "E_INT"}]

Source: `m_bmqtool::InputUtil::preprocessInput`, which makes one JSON object of the pairs; unknown keys of a command
are ignored, as configured in the reference's decoder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import Field, fields
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from bmqctl.cli.tool.printing import Plain, attributes

__all__ = ["CommandError", "camel", "decode", "encode", "parse_line", "show"]

C = TypeVar("C")

_SPACE = re.compile(r"[= ]*")
_WORD = re.compile(r"[^= ]+")
_KEY = re.compile(r'"[^"]*"|[^= ]+')
_JSON = json.JSONDecoder(strict=False)
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None}
_INT_MAX = (1 << 63) - 1


class CommandError(Exception):
    """An invalid line; the text is the reason."""


def parse_line(line: str) -> tuple[str, dict[str, Any]]:
    at = _skip(line, 0)
    verb = _WORD.match(line, at)
    if verb is None:
        return "", {}
    values: dict[str, Any] = {}
    at = _skip(line, verb.end())
    while at < len(line):
        key = _KEY.match(line, at)
        assert key is not None
        start = _skip(line, key.end())
        if start == len(line):
            raise CommandError(f"no value for '{key.group()}'")
        values[key.group().strip('"')], end = _value(line, start)
        at = _skip(line, end)
    return verb.group(), values


def _skip(line: str, at: int) -> int:
    match = _SPACE.match(line, at)
    return match.end() if match else at


def _value(line: str, start: int) -> tuple[Any, int]:
    if line[start] in '"[{':
        try:
            return _JSON.raw_decode(line, start)
        except json.JSONDecodeError as fault:
            raise CommandError(f"{fault.msg} at character {fault.pos}: {line[start:]}") from None
    word = _WORD.match(line, start)
    assert word is not None
    text = word.group()
    if text in _LITERALS:
        return _LITERALS[text], word.end()
    try:
        return (float(text) if "." in text else int(text)), word.end()
    except ValueError:
        raise CommandError(f"'{text}' is no value: a string needs quotes") from None


def camel(name: str) -> str:
    """Return the reference's name of a field."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def decode(kind: type[C], values: Mapping[str, Any]) -> C:
    """Decode a command, or a part of one, from its values by the reference's names."""
    taken = {}
    for field, expected in _typed_fields(kind):
        name = camel(field.name)
        if name in values and values[name] is not None:
            taken[field.name] = _convert(expected, values[name], name)
    return kind(**taken)


def encode(command: Any) -> dict[str, Any]:
    """Encode the values by the reference's names, without unset ones: the inverse of `decode`."""
    pairs = ((camel(field.name), getattr(command, field.name)) for field, _ in _typed_fields(type(command)))
    return {name: _encoded(value) for name, value in pairs if value is not None}


def _encoded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_encoded(each) for each in value]
    return encode(value) if hasattr(value, "__dataclass_fields__") else value


def show(command: Any) -> Plain:
    """Format the command as the reference logs it."""
    return attributes(
        (camel(field.name), _shown(getattr(command, field.name))) for field, _ in _typed_fields(type(command))
    )


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_shown(each) for each in value]
    return show(value) if hasattr(value, "__dataclass_fields__") else value


def _typed_fields(kind: Any) -> list[tuple[Field[Any], Any]]:
    """Return the fields of a command, each of which has a default, with their types."""
    known = _FIELDS.get(kind)
    if known is None:
        hints = get_type_hints(kind)
        known = _FIELDS[kind] = [(field, hints[field.name]) for field in fields(kind)]
    return known


_FIELDS: dict[Any, list[tuple[Field[Any], Any]]] = {}


def _convert(expected: Any, value: Any, name: str) -> Any:
    if get_origin(expected) in (Union, UnionType):
        (expected,) = (each for each in get_args(expected) if each is not NoneType)
    if get_origin(expected) is tuple:
        if not isinstance(value, list):
            raise CommandError(f"'{name}' must be a list")
        return tuple(_convert(get_args(expected)[0], each, name) for each in value)
    if hasattr(expected, "__dataclass_fields__"):
        if not isinstance(value, dict):
            raise CommandError(f"'{name}' must be an object")
        return decode(expected, value)
    if expected is int and type(value) in (int, float) and abs(value) <= _INT_MAX:
        return int(value)
    if expected is not int and type(value) is expected:
        return value
    raise CommandError(f"'{name}' must be of type {_TYPE_NAMES[expected]}")


_TYPE_NAMES = {int: "integer", str: "string", bool: "boolean"}
