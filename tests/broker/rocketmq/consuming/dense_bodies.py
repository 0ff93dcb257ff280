"""The bodies of a declaration that take longest to decode for their size: one container, filled with least items."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

__all__ = ["dense_bodies"]

# The place of the items in a list, or of the keys and values in an object.
_LIST: Final = ["@items"]
_DICT: Final = {"@items": 0}


class _Hole(NamedTuple):
    """A value with a container to fill, and the type of its keys, or None, and of its items."""

    value: Any
    key: type | None
    item: Any


def dense_bodies(cls: type[Any], size: int) -> Iterator[tuple[str, bytes]]:
    """Yield a name and a body of about `size` bytes for each list and object that the declaration has."""
    for hole in _holes(cls):
        text = _dump(hole.value)
        mark = _dump(_LIST if hole.key is None else _DICT)
        front, back = text.split(mark)
        item = _dump(_least(hole.item))
        count = (size - len(text)) // (len(item) + (1 if hole.key is None else 10))
        brackets, prefixes = ("[]", [""] * count) if hole.key is None else ("{}", _prefixes(hole.key, count))
        items = ",".join(prefix + item for prefix in prefixes)
        yield text, (front + brackets[0] + items + brackets[1] + back).encode()


def _prefixes(key: type, count: int) -> list[str]:
    return [f'"{number:06x}":' if key is str else f"{number + 1}:" for number in range(count)]


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _plain(hint: Any) -> Any:
    while get_origin(hint) in (Annotated, types.UnionType, Union):
        (hint, *_) = (arg for arg in get_args(hint) if arg is not types.NoneType)
    return hint


def _fields(cls: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, the name in JSON and the type of each field."""
    for name, hint in get_type_hints(cls, include_extras=True).items():
        first, *others = name.split("_")
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else (first + "".join(map(str.title, others)),)
        yield name, notes[0], _plain(hint)


def _least(hint: Any) -> Any:
    """Return the shortest value of a type."""
    hint = _plain(hint)
    plain = {str: "a", int: 0, bool: True, list: [], dict: {}}
    found = plain.get(get_origin(hint) or hint)
    if found is not None:
        return found
    return {wire: _least(field) for name, wire, field in _fields(hint) if name not in hint._field_defaults}


def _holes(hint: Any) -> Iterator[_Hole]:
    hint = _plain(hint)
    args = get_args(hint)
    match get_origin(hint):
        case origin if origin is list:
            yield _Hole(_LIST, None, args[0])
            yield from (hole._replace(value=[hole.value]) for hole in _holes(args[0]))
        case origin if origin is dict:
            yield _Hole(_DICT, args[0], args[1])
            key = "1" if args[0] is int else "a"
            yield from (hole._replace(value={key: hole.value}) for hole in _holes(args[1]))
        case _ if hint not in (str, int, bool):
            for _, wire, field in _fields(hint):
                yield from (hole._replace(value={**_least(hint), wire: hole.value}) for hole in _holes(field))
