"""Lines of messages by a template, such as `{key} {properties.customer}: {payload}`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from bmqctl.carrying.messages.received import QUEUE_PLACE, TOPIC_PLACE, Form, Received, decoded, row_of
from bmqctl.common.decoding.decoder import Decode
from bmqctl.common.harmless import one_line

__all__ = ["NAMES", "BadTemplate", "Template"]

_PROPERTY: Final = "properties."
NAMES: Final = (
    *(*QUEUE_PLACE, *TOPIC_PLACE, "payload", "decoded", "properties", "key", "keys", "tag", "sharding_key"),
    "priority",
)
# A name in braces, a doubled brace, or an escape with a backslash.
_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\\([nt\\])|[{}\\]")
_MEANT: Final = {"{{": "{", "}}": "}", r"\n": "\n", r"\t": "\t", r"\\": "\\", "\\": "\\"}

_Part = bytes | Callable[[Received, Decode | None], bytes]


class BadTemplate(ValueError):
    """A text that is not a template; one line."""


class Template:
    """A line for each message: names in braces stand for its values, empty where it has none.

    Control characters in values, line ends among them, and bytes that are not UTF-8 are escaped: each message is one
    line unless the template itself has line ends. Raises `BadTemplate`.
    """

    def __init__(self, text: str) -> None:
        if not text:
            raise BadTemplate("is empty: give a value, such as '{payload}'")
        self._parts: list[_Part] = []
        at = 0
        for found in _PART.finditer(text):
            self._parts.append(_encoded(text[at : found.start()]))
            self._parts.append(_part(found))
            at = found.end()
        self._parts.append(_encoded(text[at:]))

    def form(self, decode: Decode | None) -> Form:
        def line(message: Received) -> bytes:
            return b"".join(each if isinstance(each, bytes) else each(message, decode) for each in self._parts) + b"\n"

        return line


def _part(found: re.Match[str]) -> _Part:
    name = found[1]
    if name is None:
        meant = _MEANT.get(found[0])
        if meant is None:
            raise BadTemplate(f"a brace that stands for itself is doubled: {found[0] * 2}")
        return _encoded(meant)
    if name.startswith(_PROPERTY):
        return lambda message, _: _property(message, name.removeprefix(_PROPERTY))
    if name not in NAMES:
        raise BadTemplate(f"{{{name}}}: expected one of {', '.join(NAMES)}, or properties.NAME")
    return lambda message, decode: _value(message, name, decode)


def _property(message: Received, name: str) -> bytes:
    value = next((each.value for each in message.properties if each.name == name), "")
    return _text(value)


def _value(message: Received, name: str, decode: Decode | None) -> bytes:
    match name:
        case "payload":
            return _text(message.payload)
        case "decoded":
            return b"" if decode is None else _text(decoded(message, decode))
        case "key":
            return _text(message.keys[0] if message.keys else "")
        case "keys":
            return _text(" ".join(message.keys))
    return _text(row_of(message, {}).get(name, ""))


def _text(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return _encoded(one_line(str(value, errors="surrogateescape")))
    return _encoded(one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))


def _encoded(text: str) -> bytes:
    # The text of a template may have lone surrogates.
    return text.encode(errors="backslashreplace")
