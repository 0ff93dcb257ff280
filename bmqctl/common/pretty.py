"""Indented JSON of untrusted values.

Indentation at every level makes a text longer than its value by a factor of the value's depth: 4 MiB of JSON became 8
GB. Values below `LEVELS_MAX` levels are therefore on one line, which keeps the text proportional.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["LEVELS_MAX", "pretty", "pretty_front"]

LEVELS_MAX: Final = 16


def pretty(value: Any, indent: int, *, default: Callable[[Any], Any] | None = None) -> str:
    """Format a value as `json.dumps` does with `indent`, with values below `LEVELS_MAX` levels on one line.

    Raises `RecursionError` for a value of about a thousand levels.
    """
    return "".join(_pieces(value, indent, json.JSONEncoder(default=default).encode))


def pretty_front(
    value: Any,
    indent: int,
    characters_max: int,
    *,
    default: Callable[[Any], Any] | None = None,
) -> tuple[str, bool]:
    """The front of `pretty`, without escapes of non-ASCII characters, and whether the rest was cut off."""
    found: list[str] = []
    left = characters_max
    for piece in _pieces(value, indent, json.JSONEncoder(ensure_ascii=False, default=default).encode):
        found.append(piece[:left])
        if len(piece) > left:
            return "".join(found), True
        left -= len(piece)
    return "".join(found), False


def _pieces(value: Any, indent: int, encode: Callable[[Any], str], level: int = 1) -> Iterator[str]:
    is_object = isinstance(value, dict)
    if not value or level > LEVELS_MAX or not (is_object or isinstance(value, list | tuple)):
        yield encode(value)
        return
    opening, closing = "{}" if is_object else "[]"
    line = "\n" + " " * (indent * level)
    separator = opening + line
    for each in value:
        # The library writes the key, whose form depends on its type.
        front = f"{encode({each: 0})[1:-4]}: " if is_object else ""
        yield separator + front
        yield from _pieces(value[each] if is_object else each, indent, encode, level + 1)
        separator = "," + line
    yield "\n" + " " * (indent * (level - 1)) + closing
