# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Decoding of peers' schema messages, with each number and name checked for the range that the broker supports.

The schema's types are wider: `CHECKS` lists the elements with a narrower range, and every session decodes with
`received`. A value out of range is a FormatError whose path names the element, and ends the session. Checks that depend
on state are elsewhere: requests that the reference answers with a status (`broker.bmq.queue.handles`,
`broker.bmq.queue.queue_requests`), and terms, leases and numbers of the ledger that may not be far ahead
(`consensus.election`, `consensus.primaries`, `consensus.replicated`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from formats.bmq.codes import EncodingType
from formats.bmq.control import codec
from formats.bmq.control.messages import (
    AppIdInfo,
    OpenQueueResponse,
    PartitionSequenceNumber,
    QueueInfo,
    QueueInfoUpdate,
)
from formats.bmq.control.schema import Choice, Description, Kind, describe
from formats.bmq.disk.keys import KEY_SIZE
from formats.bmq.uri import parse_uri
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["CHECKS", "NUMBER_MAX", "check", "received"]

T = TypeVar("T")

INT_MAX: Final = (1 << 31) - 1
# A partition's id is 16 bits wide in STORAGE events, its records' sequence numbers 48 bits in the journal.
PARTITION_ID_MAX: Final = 0xFFFF
NUMBER_MAX: Final = (1 << 48) - 1
# No file of a domain has a longer name; a QLIST record counts an app id's words in 16 bits.
URI_CHARACTERS_MAX: Final = 1024
APP_ID_BYTES_MAX: Final = 0xFFFF * 4 - 4

# Returns the fault of a value, or None.
Check = Callable[[Any], str | None]


def _within(low: int, high: int) -> Check:
    def fault(number: int) -> str | None:
        return None if low <= number <= high else f"{number} is not in {low}..{high}"

    return fault


def _key(key: bytes) -> str | None:
    return None if len(key) == KEY_SIZE else f"a key of {len(key)} bytes, expected {KEY_SIZE}"


def _uri(text: str) -> str | None:
    """Check a queue's URI in the ledger's form: without an app, and not longer than the maximum."""
    if len(text) > URI_CHARACTERS_MAX:
        return f"{len(text)} characters, the limit is {URI_CHARACTERS_MAX}"
    try:
        uri = parse_uri(text)
    except FormatError as error:
        return error.reason
    return "names an app" if uri.app_id else None


def _key_or_none(key: bytes) -> str | None:
    return _key(key) if key else None


def _uri_or_none(text: str) -> str | None:
    return _uri(text) if text else None


def _app_id(text: str) -> str | None:
    size = len(text.encode())
    return None if 0 < size <= APP_ID_BYTES_MAX else f"{size} bytes, expected 1 to {APP_ID_BYTES_MAX}"


_COUNT: Final = _within(0, INT_MAX)
_PARTITION: Final = _within(0, PARTITION_ID_MAX)

CHECKS: dict[type[Any], dict[str, Check]] = {
    AppIdInfo: {"app_id": _app_id, "app_key": _key},
    OpenQueueResponse: {"deduplication_time_ms": _COUNT},
    PartitionSequenceNumber: {"sequence_number": _within(0, NUMBER_MAX)},
    QueueInfo: {"uri": _uri, "key": _key, "partition_id": _PARTITION},
    QueueInfoUpdate: {"uri": _uri_or_none, "key": _key_or_none, "partition_id": _PARTITION},
}


class Looked(NamedTuple):
    """A checked element: its own check, or checks of the messages in it, by their types."""

    attribute: str
    name: str
    check: Check | None
    nested: dict[type[Any], tuple[Looked, ...]]
    is_array: bool
    is_choice: bool


def received(cls: type[T], body: Buffer, encoding: EncodingType) -> T:
    """Decode a peer's message of type `cls`. Raises FormatError if it is malformed or out of range."""
    message = codec.decode(cls, body, encoding)
    check(message)
    return message


def check(message: object) -> None:
    """Raise FormatError for the first element that is out of its range."""
    cls = type(message)
    try:
        _check(message, _looked_at(cls))
    except FormatError as fault:
        raise FormatError(cls.__name__ + fault.path, fault.offset, fault.reason) from None


def _check(message: object, looked_at: tuple[Looked, ...]) -> None:
    for attribute, name, of_value, nested, is_array, is_choice in looked_at:
        value = getattr(message, attribute)
        if value is None:
            continue
        try:
            if of_value is not None:
                fault = of_value(value)
                if fault is not None:
                    raise FormatError("", 0, fault)
            elif is_array:
                _check_all(value, nested)
            else:
                _check(value, nested.get(type(value), ()))
        except FormatError as error:
            cls = type(value).__name__
            selected = f".{cls[0].lower()}{cls[1:]}" if is_choice else ""
            raise FormatError(f".{name}{selected}{error.path}", error.offset, error.reason) from None


def _check_all(messages: tuple[object, ...], nested: dict[type[Any], tuple[Looked, ...]]) -> None:
    for index, each in enumerate(messages):
        try:
            _check(each, nested[type(each)])
        except FormatError as fault:
            raise FormatError(f"[{index}]{fault.path}", fault.offset, fault.reason) from None


_LOOKED_AT: dict[type[Any], tuple[Looked, ...]] = {}


def _looked_at(cls: type[Any]) -> tuple[Looked, ...]:
    known = _LOOKED_AT.get(cls)
    if known is None:
        known = _LOOKED_AT[cls] = _find(cls)
    return known


def _find(cls: type[Any]) -> tuple[Looked, ...]:
    own = CHECKS.get(cls, {})
    found = []
    for element in describe(cls).elements:
        nested = _nested(element.kind)
        of_value = own.get(element.attribute)
        if of_value is not None or nested:
            is_choice = isinstance(element.kind, Choice)
            found.append(Looked(element.attribute, element.name, of_value, nested, element.array, is_choice))
    return tuple(found)


def _nested(kind: Kind) -> dict[type[Any], tuple[Looked, ...]]:
    match kind:
        case Description(cls=cls):
            classes = [cls]
        case Choice():
            classes = list(kind.by_class)
        case _:
            return {}
    return {cls: looked for cls in classes if (looked := _looked_at(cls))}
