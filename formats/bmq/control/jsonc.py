"""JSON of schema messages, as BDE's `baljsn::Encoder` writes it with its default options.

Compact, with names and order of the reference's schema; enumerations by name, octets in base64, `/` escaped. Empty
arrays and optional elements that are None are left out. A choice is written in place: the message

    {"rId":2,"openQueue":{"handleParameters":{...}}}

has no element "choice". The decoder skips unknown names, and accepts what the reference accepts: quoted integers,
enumerators by number, null for an optional element.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, NoReturn, TypeVar

from formats.bmq.control.schema import (
    Boolean,
    Choice,
    Description,
    Element,
    Enumeration,
    Integer,
    Kind,
    Octets,
    Text,
    describe,
)
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["decode", "encode", "to_json"]

T = TypeVar("T")

_QUOTED_INTEGER = re.compile("-?[0-9]{1,20}")


def encode(value: object) -> bytes:
    """Encode a message in UTF-8. `OverflowError` if an integer does not fit its element."""
    text = json.dumps(to_json(value), ensure_ascii=False, separators=(",", ":"))
    # Only strings contain slashes.
    return text.replace("/", "\\/").encode()


def to_json(value: object) -> dict[str, Any]:
    """Convert a message to a dict for `json.dumps`."""
    return _object(describe(type(value)), value)


def _object(description: Description, value: object) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for element in description.elements:
        item = getattr(value, element.attribute)
        if item is None and element.optional:
            continue
        if element.array:
            if item:
                assert isinstance(element.kind, Description)
                out[element.name] = [_object(element.kind, entry) for entry in item]
        elif isinstance(element.kind, Choice):
            chosen = element.kind.by_class[type(item)]
            out[chosen.name] = _object(chosen.description, item)
        else:
            out[element.name] = _written(element.kind, item, element.name)
    return out


def _written(kind: Kind, item: Any, name: str) -> Any:
    if isinstance(kind, Description):
        return _object(kind, item)
    if isinstance(kind, Enumeration):
        return f"E_{kind.cls(item).name}"
    if isinstance(kind, Octets):
        return base64.b64encode(item).decode()
    if isinstance(kind, Integer) and not kind.low <= item <= kind.high:
        raise OverflowError(f"{name} = {item} does not fit {kind.low}..{kind.high}")
    return item


def decode(cls: type[T], data: Buffer) -> T:
    """Decode the message at the start of `data`; later bytes (an event's padding) are ignored.

    The offset of a `FormatError` is exact for bytes that are not JSON, and 0 for JSON that is not the message.
    """
    description = describe(cls)
    try:
        value = _message(description, _parse(bytes(data)))
    except FormatError as fault:
        raise FormatError(description.name + fault.path, fault.offset, fault.reason) from None
    assert isinstance(value, cls)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_constant)


def _parse(data: bytes) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        raise FormatError("", fault.start, "is not UTF-8") from None
    try:
        return _DECODER.raw_decode(text, len(text) - len(text.lstrip(" \t\r\n")))[0]
    except json.JSONDecodeError as fault:
        raise FormatError("", len(text[: fault.pos].encode()), f"is not JSON: {fault.msg}") from None
    except RecursionError:
        raise FormatError("", 0, "nested too deeply") from None
    except ValueError as fault:
        raise FormatError("", 0, f"is not JSON: {fault}") from None


def _message(description: Description, found: Any) -> Any:
    if not isinstance(found, dict):
        raise FormatError("", 0, f"expected an object, found {type(found).__name__}")
    values: dict[str, Any] = {}
    choice = description.choice
    for name, item in found.items():
        element = description.by_name.get(name)
        try:
            if element is not None:
                values[element.attribute] = _read(element, item)
            elif choice is not None and isinstance(choice.kind, Choice) and name in choice.kind.by_name:
                values[choice.attribute] = _message(choice.kind.by_name[name].description, item)
        except FormatError as fault:
            raise FormatError(f".{name}{fault.path}", fault.offset, fault.reason) from None
    for element in description.elements:
        if element.attribute not in values:
            try:
                values[element.attribute] = element.absent()
            except LookupError as missing:
                raise FormatError(f".{missing.args[0]}", 0, "no alternative is selected") from None
    return description.cls(**values)


def _read(element: Element, item: Any) -> Any:
    if item is None and element.optional:
        return None
    if not element.array:
        return _value(element.kind, item)
    if not isinstance(item, list):
        raise FormatError("", 0, f"expected an array, found {type(item).__name__}")
    assert isinstance(element.kind, Description)
    return tuple(_message(element.kind, entry) for entry in item)


def _value(kind: Kind, item: Any) -> Any:
    match kind:
        case Description():
            return _message(kind, item)
        case Integer():
            return _integer(kind, item)
        case Enumeration():
            return _enumerator(kind, item)
        case Boolean() if isinstance(item, bool):
            return item
        case Text() if isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError:
                raise FormatError("", 0, "half of a surrogate pair") from None
            return item
        case Octets() if isinstance(item, str):
            try:
                return base64.b64decode(item, validate=True)
            except (binascii.Error, ValueError):
                raise FormatError("", 0, "is not base64") from None
    raise FormatError("", 0, f"expected {type(kind).__name__.lower()}, found {type(item).__name__}")


def _integer(kind: Integer, item: Any) -> int:
    if isinstance(item, str):
        if not _QUOTED_INTEGER.fullmatch(item):
            raise FormatError("", 0, "is not an integer")
        item = int(item)
    if not isinstance(item, int) or isinstance(item, bool):
        raise FormatError("", 0, f"expected integer, found {type(item).__name__}")
    if not kind.low <= item <= kind.high:
        raise FormatError("", 0, f"{str(item)[:40]} is not in {kind.low}..{kind.high}")
    return item


def _enumerator(kind: Enumeration, item: Any) -> Any:
    if isinstance(item, str) and item in kind.names:
        return kind.names[item]
    if isinstance(item, int) and not isinstance(item, bool):
        try:
            return kind.cls(item)
        except ValueError:
            pass
    # Lists and objects are not printed: they may be nested as deeply as Python's stack.
    shown = str(item)[:40] if isinstance(item, (str, int, float)) else type(item).__name__
    raise FormatError("", 0, f"{kind.cls.__name__} has no value {shown!r}")
