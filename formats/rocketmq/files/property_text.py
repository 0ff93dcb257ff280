"""Java's properties as text (source: java.util.Properties): configuration files, and requests that change them.

Java reads files as ISO-8859-1; other characters are written as `\\uXXXX`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from formats.errors import FormatError

__all__ = ["PROPERTIES_ENCODING", "changed_properties", "read_properties", "write_properties"]

PROPERTIES_ENCODING: Final = "iso-8859-1"

_BLANKS: Final = " \t\f"
# A line with its terminator.
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
# A name and its separator; an escaped character does not separate.
_NAME: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = {"\\": "\\\\", **{character: f"\\{letter}" for letter, character in _LETTERS.items()}}


def read_properties(text: str) -> dict[str, str]:
    """Read properties as Java's `Properties.load` does; the last one of a name counts.

    Raises `FormatError` for an incomplete `\\uXXXX`.
    """
    return dict(found for _, found in _lines(text) if found is not None)


def _lines(text: str) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Yield each line with its continuations, and its name and value, or None."""
    begin, logical, is_continued = 0, "", False
    for line in _LINE.finditer(text):
        content = line.group().rstrip("\r\n").lstrip(_BLANKS)
        if is_continued or content[:1] not in ("", "#", "!"):
            backslashes = len(content) - len(content.rstrip("\\"))
            is_continued = backslashes % 2 == 1
            logical += content[:-1] if is_continued else content
            if is_continued and line.end() < len(text):
                continue
        yield text[begin : line.end()], _split(logical, begin) if logical else None
        begin, logical, is_continued = line.end(), "", False


def _split(line: str, offset: int) -> tuple[str, str]:
    name = _NAME.match(line)
    assert name is not None
    return _unescaped(name[1], offset), _unescaped(line[name.end() :], offset)


def _unescaped(text: str, offset: int) -> str:
    if "\\" not in text:
        return text

    def character(escape: re.Match[str]) -> str:
        found: str = escape[1]
        if len(found) > 1:
            return bytes.fromhex(found[1:]).decode("utf-16-be", "surrogatepass")
        if found == "u":
            raise FormatError("Properties", offset, f"{escape.string[escape.start() :][:6]!r} is not like '\\u00e9'")
        return _LETTERS.get(found, found)

    # Two escapes may be the halves of one character.
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def write_properties(properties: Mapping[str, str]) -> bytes:
    """Write properties sorted by name, without escapes, as the original answers administrators."""
    return "".join(f"{name}={value}\n" for name, value in sorted(properties.items())).encode()


def changed_properties(text: str, changes: Mapping[str, str]) -> str:
    """Return the text with some properties changed in place; properties that it lacks are appended.

    Comments and other properties stay. New values are in ASCII. Raises `FormatError` like `read_properties`.
    """
    left = dict(changes)
    parts = []
    for part, found in _lines(text):
        if found is None or found[0] not in changes:
            parts.append(part)
        elif found[0] in left:
            parts.append(_line(found[0], left.pop(found[0])))
    last = parts[-1] if parts and left else "\n"
    if not last.endswith(("\n", "\r")):
        parts.append("\n")
    if last.rstrip("\r\n").endswith("\\"):
        # A blank line, since the last one may continue on the next.
        parts.append("\n")
    return "".join(parts) + "".join(_line(name, value) for name, value in left.items())


def _line(name: str, value: str) -> str:
    escaped = re.sub(r"([=: #!])", r"\\\1", _escaped(name))
    first = "\\" if value.startswith(" ") else ""
    return f"{escaped}={first}{_escaped(value)}\n"


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(each) or (each if " " <= each <= "~" else _units(each)) for each in text)


def _units(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at]:02x}{data[at + 1]:02x}" for at in range(0, len(data), 2))
