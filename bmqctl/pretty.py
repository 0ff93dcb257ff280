"""JSON with indentation, for people, of values that strangers may have posted.

With indentation at every level the text of a value may be longer than the value by a factor of its depth: 4 MiB of
JSON became 8 GB. Here values below `LEVELS_MAX` levels stand on one line, so the text grows with the value only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["LEVELS_MAX", "pretty", "pretty_front"]

LEVELS_MAX: Final = 16


def pretty(value: Any, indent: int, *, default: Callable[[Any], Any] | None = None) -> str:
    """Return a value as `json.dumps` writes it with `indent`, down to `LEVELS_MAX` levels, and the rest on one line.

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
    """Return the front of `pretty` without escapes, and whether anything is cut off. No more than that is made."""
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
        # What is written for a key depends on its type, so it is written by the library.
        front = f"{encode({each: 0})[1:-4]}: " if is_object else ""
        yield separator + front
        yield from _pieces(value[each] if is_object else each, indent, encode, level + 1)
        separator = "," + line
    yield "\n" + " " * (indent * (level - 1)) + closing
