"""Messages whose elements have names: BlazingMQ's schema messages, and the headers of RocketMQ's requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING
from enum import Enum
from typing import Any

from formats.bmq.control import messages
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
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers.codec import HeaderCodec, HeaderField
from formats.rocketmq.remoting.headers.table import HEADERS
from scripts.manual.markdown import code, heading, page, table, text
from scripts.manual.structures import anchor, described

__all__ = ["control_page", "header_codecs", "messages_reached", "requests_page"]

ROOTS = (
    messages.NegotiationMessage,
    messages.AuthenticationMessage,
    messages.ControlMessage,
    messages.ElectorMessage,
)


def messages_reached() -> list[Description]:
    """List every message that an event can carry, each after its parts."""
    found: dict[type[Any], Description] = {}
    for root in ROOTS:
        _reach(describe(root), found)
    return list(found.values())


def _reach(message: Description, found: dict[type[Any], Description]) -> None:
    if message.cls in found:
        return
    found[message.cls] = message
    for element in message.elements:
        for inner in _inner(element.kind):
            _reach(inner, found)


def _inner(kind: Kind) -> Iterator[Description]:
    if isinstance(kind, Description):
        yield kind
    elif isinstance(kind, Choice):
        yield from (each.description for each in kind.alternatives)


def control_page() -> str:
    found = messages_reached()
    return page(
        "# Control messages",
        described(messages),
        "A message is written in BER or in JSON; the event's header says which. In BER an element has the "
        "context-specific tag that the tables give, and a choice wraps the alternative that is selected in a tag of "
        "its own. In JSON an element has the name that the tables give, and the selected alternative stands in the "
        "place of the choice. An element that is absent has its default, or the empty value of its type.",
        *(_message_section(each) for each in found),
    )


def _message_section(message: Description) -> str:
    choices = [
        [str(each.tag), code(each.name), _link(each.description.name)]
        for element in message.elements
        if isinstance(element.kind, Choice)
        for each in element.kind.alternatives
    ]
    rows = [[str(e.tag), code(e.name), _type(e), _occurs(e), _default(e.default)] for e in message.elements]
    return "\n\n".join(
        block
        for block in (
            heading(2, message.name, anchor(message.name)),
            _told(message.cls),
            table(["tag", "element", "type", "occurs", "default"], rows) or "It has no elements.",
            table(["tag in the choice", "alternative", "type"], choices),
        )
        if block
    )


def _told(declaration: type[Any]) -> str:
    """A class's own docstring, or nothing for the signature that a dataclass or a named tuple has instead."""
    told = declaration.__doc__ or ""
    return "" if told.startswith(f"{declaration.__name__}(") else described(declaration)


def _link(name: str) -> str:
    return f"[{name}](#{anchor(name)})"


def _type(element: Element) -> str:
    match element.kind:
        case Integer(size, signed):
            return f"{'' if signed else 'unsigned '}{size * 8}-bit integer"
        case Boolean():
            return "boolean"
        case Text():
            return "text, secret" if element.secret else "text"
        case Octets():
            return "bytes, secret" if element.secret else "bytes"
        case Enumeration(cls):
            return f"[{cls.__name__}](numbers.md#{anchor(cls.__name__)})"
        case Description(name=name):
            return _link(name)
        case _:
            return "choice"


def _occurs(element: Element) -> str:
    if element.array:
        return "any number"
    return "at most once" if element.optional else "once"


def _default(value: object) -> str:
    if value is MISSING or value is None or value == ():
        return ""
    if isinstance(value, Enum):
        return code(f"E_{value.name}")
    if isinstance(value, bool):
        return code(str(value).lower())
    return '`""`' if value == "" else code(value)


def header_codecs() -> list[HeaderCodec[Any]]:
    """List every header of RocketMQ's requests and answers, once."""
    found: dict[type[Any], HeaderCodec[Any]] = {}
    for headers in HEADERS.values():
        for codec in headers:
            if codec is not None:
                found.setdefault(codec.cls, codec)
    return list(found.values())


def requests_page() -> str:
    rows = [
        [str(number), code(RequestCode(number).name), *(_link(each.name) if each else "" for each in headers)]
        for number, headers in sorted(HEADERS.items())
    ]
    return page(
        "# Requests",
        "The header of a request or an answer is a set of named texts in its [frame](wire.md). A request that is not "
        "in this table has no fields of its own, neither in the request nor in the answer. Fields that a receiver does "
        "not know are ignored; those without a default may be missing.",
        table(["code", "request", "header", "header of the answer"], rows),
        *(_header_section(codec) for codec in header_codecs()),
    )


def _header_section(codec: HeaderCodec[Any]) -> str:
    rows = [[code(field.wire_name), _header_type(field), _header_default(field)] for field in codec.fields]
    return "\n\n".join(
        block
        for block in (
            heading(2, codec.name, anchor(codec.name)),
            _told(codec.cls),
            table(["field", "type", "default"], rows) or text("It has no fields."),
        )
        if block
    )


def _header_type(field: HeaderField) -> str:
    if field.bounds is not None:
        return f"{(field.bounds.greatest + 1).bit_length()}-bit integer"
    return "boolean" if field.kind is bool else "text"


def _header_default(field: HeaderField) -> str:
    if field.is_required:
        return "required"
    return "" if field.default is None else code(str(field.default).lower())
