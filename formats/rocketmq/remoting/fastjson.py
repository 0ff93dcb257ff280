"""JSON as fastjson reads and writes it, which RocketMQ uses for headers, bodies and configuration files.

Unlike standard JSON, the key of an object may be a bare number (`{0:650}`) or an object
(`{{"topic":"t","queueId":0}:5}`). `loads` reads these and standard JSON. A numeric key becomes an int and an object an
`ObjectKey`, which `dumps` writes in the same form.

Input is untrusted, so the standard library's C decoder reads all of it. In other texts, regular expressions that read
each character at most a few times first replace the keys by strings; such texts have their own bounds. The keys are
looked for in the text without its strings, which costs less than a match for each string.

Half of a surrogate pair, which only an escape can express, is refused, since it could not be written again.

`dumps_pretty` writes the layout of configuration files: a tab per level, no space after a colon, and a line for each
item of a list. Java arrays of numbers are tuples, on one line; `loads_file` distinguishes them, and `loads` returns
lists for both.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple, NoReturn

from formats.errors import FormatError

__all__ = [
    "ANSWER",
    "FILE",
    "REQUEST",
    "Bounds",
    "Items",
    "ObjectKey",
    "dumps",
    "dumps_item",
    "dumps_pretty",
    "dumps_pretty_item",
    "has_half_pair",
    "loads",
    "loads_file",
    "without_lines",
]

# A text with more than `_OPENED_MAX` lists and objects, brackets in strings included, must have at least
# `_CHARACTERS_PER_OPENED` characters for each: many empty ones are slowest to decode, and no structure of the original
# has them. Names in files may consist of brackets.
_OPENED_MAX: Final = 10_000
_CHARACTERS_PER_OPENED: Final = 6
# A text with keys that are not strings may have this number of characters for each that its bounds allow.
_CHARACTERS_PER_KEY: Final = 13


class Bounds(NamedTuple):
    """The maximum numbers of keys that are not strings, and of lists and objects, brackets in strings included."""

    odd_keys: int
    opened: int


# A node takes at most 50 ms to decode a request.
REQUEST: Final = Bounds(20_000, 32_000)
# An answer of a node, and one of its files.
ANSWER: Final = Bounds(100_000, 400_000)
FILE: Final = Bounds(1 << 24, 1 << 24)


# A string, or an unfinished one to the end. Python before 3.11.5 mismatches a group that is repeated possessively if a
# repetition fails after its beginning; this group fails only at its first character.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|".*+', re.DOTALL)
# Stands for each string while odd keys are looked for; JSON allows it in no other place.
_STRING_MARK: Final = "\2"
_NUMBER_KEY = re.compile(r"[{,]\s*+-?[0-9]{1,31}+(?=\s*+:)")
_OBJECT_KEY = re.compile(r"\{[^{}]*+\}(?=\s*+:)")
_ROW = re.compile(r"\[(?=\s*+[-0-9])[-0-9, \t]++\]")
# The first character of a string that replaces a number or an object.
_MARK: Final = "\1"
_MARK_JSON: Final = "\\u0001"

_LINE: Final = "\n"
_TAB: Final = "\t"

_HALF_PAIR = re.compile("[\ud800-\udfff]")
# Backslashes and an escape, if their number is odd: a surrogate pair, or else half of one.
_SURROGATE = re.compile(
    r"(?<!\\)(\\++)u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>[89a-fA-F]))"
)

_dump_text = json.JSONEncoder(ensure_ascii=False).encode


class Items(list[str]):
    """An object, given as the texts of its items from `dumps_item` or `dumps_pretty_item`."""


class Texts(list[str]):
    """A list, given as items that `dumps` has written."""


class ObjectKey(tuple[tuple[str, Any], ...]):
    """An object that is a key of another: its items, in order."""

    __slots__ = ()


def loads(text: str, bounds: Bounds = REQUEST) -> Any:
    """Return the value of a text.

    Raises `FormatError` if it is not JSON, is nested too deeply for the decoder (hundreds of levels), or exceeds the
    bounds.
    """
    opened = text.count("[") + text.count("{")
    if opened > bounds.opened:
        raise FormatError("json", 0, f"has more than {bounds.opened} lists and objects")
    if bounds is not FILE and opened > _OPENED_MAX and opened * _CHARACTERS_PER_OPENED > len(text):
        raise FormatError("json", 0, f"{opened} lists and objects begin in {len(text)} characters")
    try:
        value = _decode(text)
    except json.JSONDecodeError as fault:
        if len(text) > bounds.odd_keys * _CHARACTERS_PER_KEY:
            raise _fault(fault) from None
        value = _Repair(text, bounds.odd_keys, has_rows=False).value(fault)
    _check_pairs(text)
    return value


def loads_file(text: str) -> Any:
    """Return the value of one of our files, like `loads`, with tuples for arrays of numbers on one line; unbounded."""
    value = _Repair(text, len(text), has_rows=True).value(None)
    _check_pairs(text)
    return value


def has_half_pair(text: str) -> bool:
    return _HALF_PAIR.search(text) is not None


def _check_pairs(text: str) -> None:
    if "\\ud" not in text and "\\uD" not in text:
        return
    found = _SURROGATE.search(text)
    while found is not None:
        is_escape = len(found[1]) % 2 == 1
        if is_escape and found["half"] is not None:
            raise FormatError("json", found.end(1) - 1, "is half of a surrogate pair")
        found = _SURROGATE.search(text, found.end() if is_escape else found.end(1))


def _refuse(word: str) -> NoReturn:
    raise FormatError("json", 0, f"{word} is no number")


def _fault(fault: json.JSONDecodeError) -> FormatError:
    return FormatError("json", fault.pos, fault.msg[:1].lower() + fault.msg[1:])


_decoder: Final = json.JSONDecoder(parse_constant=_refuse)


def _decode(text: str, decoder: json.JSONDecoder = _decoder) -> Any:
    """Decode standard JSON. Raises `JSONDecodeError` if it may be fastjson's, `FormatError` if it is neither."""
    try:
        return decoder.decode(text)
    except (json.JSONDecodeError, FormatError):
        raise
    except ValueError:
        raise FormatError("json", 0, "has a number with thousands of digits") from None
    except RecursionError:
        raise FormatError("json", 0, "is nested too deeply") from None


class _Repair:
    """A text that is decoded with strings in place of its odd keys, which are then restored."""

    def __init__(self, text: str, keys_max: int, *, has_rows: bool) -> None:
        self._text = text
        self._keys_max = keys_max
        self._has_rows = has_rows
        self._strings: list[str] = _STRING.findall(text)
        self._numbers = 0
        self._objects: list[str] = []
        self._keys: list[ObjectKey] = []

    def value(self, fault: json.JSONDecodeError | None) -> Any:
        """Decode the text. Raises `FormatError` with `fault` if there is nothing to repair."""
        text = _STRING.sub(_STRING_MARK, self._text)
        if text.count(_STRING_MARK) != len(self._strings):
            raise FormatError("json", 0, "has a control character outside of its strings")
        text = self._without_objects(text)
        text = _NUMBER_KEY.sub(self._mark_number, text)
        if fault is not None and not self._numbers + len(self._objects):
            raise _fault(fault)
        if self._has_rows:
            text = _ROW.sub(_mark_row, text)
        text = _with_strings(text, self._strings)
        try:
            if self._objects:
                keys = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=ObjectKey)
                self._keys = _decode(f"[{','.join(self._objects)}]", keys)
            return _decode(text, json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=self._object))
        except json.JSONDecodeError as error:
            # This error's position is in the repaired text.
            raise _fault(fault or error) from None

    def _check(self) -> None:
        if self._numbers + len(self._objects) > self._keys_max:
            raise FormatError("json", 0, f"more than {self._keys_max} keys are no strings")

    def _without_objects(self, text: str) -> str:
        pieces: list[str] = []
        kept: list[str] = []
        end = taken = 0
        for found in _OBJECT_KEY.finditer(text):
            piece, odd = text[end : found.start()], found[0]
            begin = taken + piece.count(_STRING_MARK)
            kept += self._strings[taken:begin]
            taken = begin + odd.count(_STRING_MARK)
            self._objects.append(_with_strings(odd, self._strings[begin:taken]))
            self._check()
            pieces += piece, f'"{_MARK_JSON}o{len(self._objects) - 1}"'
            end = found.end()
        self._strings = kept + self._strings[taken:]
        return "".join(pieces) + text[end:]

    def _mark_number(self, found: re.Match[str]) -> str:
        odd = found[0]
        self._numbers += 1
        self._check()
        return f'{odd[0]}"{_MARK_JSON}{odd[1:].strip()}"'

    def _object(self, items: list[tuple[str, Any]]) -> Any:
        if self._has_rows and len(items) == 1 and items[0][0] == _MARK:
            return tuple(items[0][1])
        try:
            return {self._key(name) if name[:1] == _MARK else name: value for name, value in items}
        except (TypeError, ValueError, IndexError):
            raise FormatError("json", 0, "an object with a list or object in it cannot be a key") from None

    def _key(self, name: str) -> int | ObjectKey:
        return self._keys[int(name[2:])] if name[1:2] == "o" else int(name[1:])


def _with_strings(text: str, strings: list[str]) -> str:
    pieces = text.split(_STRING_MARK)
    joined = [""] * (len(pieces) + len(strings))
    joined[::2] = pieces
    joined[1::2] = strings
    return "".join(joined)


def _mark_row(found: re.Match[str]) -> str:
    return f'{{"{_MARK_JSON}":{found[0]}}}'


def dumps(value: Any) -> str:
    """Encode `value` on one line, without spaces."""
    return _dump(value, "", "", "")


def dumps_pretty(value: Any) -> str:
    """Encode `value` in the layout of configuration files."""
    return _dump(value, _LINE, _TAB, _LINE)


def dumps_item(key: str | int | ObjectKey, value: Any) -> str:
    """Return an item of an object, for `Items` in a value for `dumps`."""
    return f"{_dump_key(key)}:{dumps(value)}"


def dumps_pretty_item(key: str | int | ObjectKey, value: Any, depth: int) -> str:
    """Return an item of an object, for `Items` at a depth, the outermost being 0, in a value for `dumps_pretty`."""
    lead = _LINE + _TAB * (depth + 1)
    return f"{_dump_key(key)}:{_dump(value, _LINE, _TAB, lead)}"


def without_lines(text: str) -> str:
    # In strings, line breaks and tabs are escaped.
    return text.replace(_LINE, "").replace(_TAB, "")


def _dump(value: Any, line: str, indent: str, lead: str) -> str:
    """Encode a value: `line` begins a line within it, `lead` is `line` with its indentation."""
    if isinstance(value, dict):
        inner = lead + indent
        items = [f"{_dump_key(key)}:{_dump(item, line, indent, inner)}" for key, item in value.items()]
        # fastjson writes an empty line into an empty object, indented.
        return "{" + inner + f",{inner}".join(items) + lead + "}"
    if isinstance(value, Items):
        inner = lead + indent
        return "{" + inner + f",{inner}".join(value) + lead + "}"
    if isinstance(value, Texts):
        return f"[{lead + indent}{f',{lead + indent}'.join(value)}{lead}]" if value else "[]"
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
