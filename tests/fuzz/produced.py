"""The events and requests that fuzzers have produced, and the declared ones that they never did (`--coverage`).

A name is an event's type, an alternative of a choice, an optional element, present or absent, an array with or without
elements, or a value of an enumeration; for RocketMQ a code with a field, at a port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from formats.bmq.codes import EventType
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import ClusterMessage
from formats.bmq.control.schema import Choice, Description, Enumeration, describe
from formats.bmq.disk.ledger import parse_ledger_record
from formats.bmq.wire.event import iter_frames, schema_message
from formats.errors import FormatError
from tests.fuzz.session_events import LENGTH_MAX, SCHEMAS

__all__ = ["EVENT_NAMES", "names_of", "print_missing"]


def _names_of_class(cls: type[Any], known: set[type[Any]]) -> Iterator[str]:
    """Yield the names of a message class and of its parts."""
    if cls in known:
        return
    known.add(cls)
    for element in describe(cls).elements:
        name = f"{cls.__name__}.{element.attribute}"
        if element.optional or element.array:
            yield from (f"{name} is absent", f"{name} is there")
        if isinstance(element.kind, Enumeration):
            yield from (f"{name} = {value.name}" for value in element.kind.cls)
        elif isinstance(element.kind, Description):
            yield from _names_of_class(element.kind.cls, known)
        elif isinstance(element.kind, Choice):
            for alternative in element.kind.by_class:
                yield f"{name} = {alternative.__name__}"
                yield from _names_of_class(alternative, known)


def _names_in(message: Any) -> Iterator[str]:
    cls = type(message)
    for element in describe(cls).elements:
        name, value = f"{cls.__name__}.{element.attribute}", getattr(message, element.attribute)
        if element.optional or element.array:
            yield f"{name} is {'absent' if value is None or value == () else 'there'}"
        for each in value if element.array else (value,):
            if isinstance(element.kind, Enumeration) and each is not None:
                yield f"{name} = {each.name}"
            elif isinstance(element.kind, (Choice, Description)) and each is not None:
                if isinstance(element.kind, Choice):
                    yield f"{name} = {type(each).__name__}"
                yield from _names_in(each)


def _all_names() -> frozenset[str]:
    known: set[type[Any]] = set()
    messages = (*SCHEMAS.values(), ClusterMessage)
    names = {name for cls in messages for name in _names_of_class(cls, known)}
    return frozenset(names | {kind.name for kind in EventType if kind is not EventType.UNDEFINED})


EVENT_NAMES = _all_names()


def names_of(data: bytes) -> Iterator[str]:
    """Yield the names in the events of some bytes, as far as these can be read."""
    view = memoryview(data)
    try:
        for frame in iter_frames(view, 0, len(view), LENGTH_MAX):
            yield EventType(frame.type).name
            body = view[frame.body : frame.end]
            if frame.type in SCHEMAS:
                message = schema_message(body, 0, len(body))
                decode = jsonc.decode if bytes(message[:1]) == b"{" else ber.decode
                yield from _names_in(decode(SCHEMAS[frame.type], message))
            elif frame.type == EventType.CLUSTER_STATE:
                yield from _names_in(ber.decode(ClusterMessage, parse_ledger_record(body, 0).body))
    except (FormatError, ValueError):
        pass


def print_missing(names: Iterable[str], produced: Iterable[str]) -> int:
    """Print the names that were never produced; return their number."""
    missing = sorted(set(names) - set(produced))
    for name in missing:
        print(f"never produced: {name}")
    print(f"coverage: {len(set(names)) - len(missing)} of {len(set(names))} produced")
    return len(missing)
