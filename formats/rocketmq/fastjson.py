"""JSON as fastjson reads and writes it, which RocketMQ uses for headers, bodies and its configuration files.

It differs from the standard in what may be the key of an object: a bare number (`{0:650}`), or an object itself
(`{{"topic":"t","queueId":0}:5}`). `loads` reads both, and what is standard. A number as key comes back as an int, an
object as an `ObjectKey`, so `dumps` can write them as they were.

Half of a surrogate pair, which only an escape can write, is refused: no text with one can be written again.

`dumps_pretty` writes what the configuration files look like: a tab per level, no space behind a colon, and a line of
its own for each item of a list. Java arrays of numbers stand on one line there: they are tuples here, and lists
elsewhere.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from formats.errors import FormatError

__all__ = ["DEPTH_MAX", "ObjectKey", "dumps", "dumps_pretty", "has_half_pair", "loads"]

# No structure of the original is nested as deep; without a bound hostile text exhausts the stack.
DEPTH_MAX: Final = 64

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,4})?")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"', re.DOTALL)
_WORDS: Final = {"true": True, "false": False, "null": None}
_WORD = re.compile(r"true|false|null")

_HALF_PAIR = re.compile("[\ud800-\udfff]")

_dump_text = json.JSONEncoder(ensure_ascii=False).encode


class ObjectKey(tuple[tuple[str, Any], ...]):
    """An object that is the key of another: its items, in order."""

    __slots__ = ()


def loads(text: str) -> Any:
    """The value that `text` holds. Raises `FormatError` where it is not JSON, or is nested deeper than `DEPTH_MAX`."""
    reader = _Reader(text)
    value = reader.value(0)
    reader.skip_space()
    if reader.at < len(text):
        raise reader.fault("something follows the value")
    return value


def has_half_pair(text: str) -> bool:
    """Return whether a text has half of a surrogate pair in it, so that it cannot be encoded."""
    return _HALF_PAIR.search(text) is not None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fault(self, reason: str) -> FormatError:
        return FormatError("json", self.at, reason)

    def skip_space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def peek(self) -> str:
        self.skip_space()
        return self.text[self.at : self.at + 1]

    def take(self, wanted: str) -> bool:
        """Step over `wanted`, if that is what comes next."""
        if self.peek() != wanted:
            return False
        self.at += 1
        return True

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            raise self.fault(f"{wanted!r} is missing")

    def value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise self.fault(f"is nested deeper than {DEPTH_MAX} levels")
        following = self.peek()
        if following == "{":
            return self.object(depth)
        if following == "[":
            return self.list(depth)
        if following == '"':
            return self.string()
        found = _WORD.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            return _WORDS[found[0]]
        return self.number()

    def string(self) -> str:
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.fault("is no string")
        try:
            value: str = json.loads(found[0])
        except ValueError:
            raise self.fault("is a string with an unknown escape") from None
        if "\\" in found[0] and has_half_pair(value):
            raise self.fault("is a string with half of a surrogate pair")
        self.at = found.end()
        return value

    def number(self) -> int | float:
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            raise self.fault("is no value")
        self.at = found.end()
        return int(found[0]) if found[1] is None and found[2] is None else float(found[0])

    def list(self, depth: int) -> list[Any] | tuple[Any, ...]:
        begin = self.at
        self.expect("[")
        values: list[Any] = []
        while not self.take("]"):
            if values:
                self.expect(",")
            values.append(self.value(depth + 1))
        if values and "\n" not in self.text[begin : self.at] and all(type(value) is int for value in values):
            return tuple(values)
        return values

    def key(self, depth: int) -> str | int | ObjectKey:
        following = self.peek()
        if following == '"':
            return self.string()
        if following == "{":
            return ObjectKey(self.object(depth + 1).items())
        number = self.number()
        if not isinstance(number, int):
            raise self.fault(f"{number} is no key")
        return number

    def object(self, depth: int) -> dict[Any, Any]:
        if depth > DEPTH_MAX:
            raise self.fault(f"is nested deeper than {DEPTH_MAX} levels")
        self.expect("{")
        values: dict[Any, Any] = {}
        while not self.take("}"):
            if values:
                self.expect(",")
            key = self.key(depth)
            self.expect(":")
            value = self.value(depth + 1)
            try:
                values[key] = value
            except TypeError:
                raise self.fault("an object with a list or object in it cannot be a key") from None
        return values


def dumps(value: Any) -> str:
    """`value` on one line, without spaces."""
    return _dump(value, "", "", "")


def dumps_pretty(value: Any) -> str:
    """`value` as the configuration files have it."""
    return _dump(value, "\n", "\t", "\n")


def _dump(value: Any, line: str, indent: str, lead: str) -> str:
    """Write a value: `line` begins a line within it, `lead` is that with its level of indentation."""
    if isinstance(value, dict):
        inner = lead + indent
        items = [f"{_dump_key(key)}:{_dump(item, line, indent, inner)}" for key, item in value.items()]
        # An empty object has an empty line in it, and that is indented.
        return "{" + inner + f",{inner}".join(items) + lead + "}"
    if isinstance(value, list):
        if not value:
            return "[]"
        inner = lead + indent
        return "[" + inner + f",{inner}".join(_dump(item, line, indent, inner) for item in value) + lead + "]"
    if isinstance(value, tuple):
        return "[" + ",".join(map(str, value)) + "]"
    if value is True or value is False or value is None:
        return "null" if value is None else str(value).lower()
    return _dump_text(value)


def _dump_key(key: str | int | ObjectKey) -> str:
    if isinstance(key, ObjectKey):
        return dumps(dict(key))
    return str(key) if isinstance(key, int) else _dump_text(key)
