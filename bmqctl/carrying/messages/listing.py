"""The messages of a queue of BlazingMQ, as the administration lists them, and the contents of one."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.client.admin import AdminClient, AdminLost
from formats.bmq.uri import parse_uri
from formats.bmq.wire.application_data import split_application_data
from formats.bmq.wire.properties import Property, decode_properties
from formats.errors import FormatError

__all__ = [
    "INFLATED_BYTES_MAX",
    "Contents",
    "Listed",
    "Listing",
    "contents_command",
    "list_command",
    "list_messages",
    "read_contents",
    "read_listing",
]

INFLATED_BYTES_MAX: Final = 4 << 20

_GUID: Final = re.compile(r"[0-9A-F]{32}", re.ASCII)
_TIME: Final = re.compile(r"[0-9T:.+-]{1,40}", re.ASCII)
_SIZE_MAX: Final = 1 << 40
_SHOWN: Final = 300


class Listed(NamedTuple):
    """A message: its GUID, the bytes of its properties and payload, and its storing time."""

    guid: str
    size: int
    arrived_at: str


class Listing(NamedTuple):
    """Messages from number `offset` on, and the total."""

    messages: list[Listed]
    offset: int
    total: int


def list_messages(connect: Callable[[], AdminClient], uri: str, offset: int, count: int) -> Listing:
    """List messages of a queue, oldest first; a negative offset counts from the end. Raises `CannotBegin`."""
    try:
        with connect() as client:
            answer = client.send(list_command(uri, offset, count))
    except AdminLost as fault:
        raise CannotBegin(str(fault)) from None
    return read_listing(uri, answer)


def list_command(uri: str, offset: int, count: int) -> str:
    queue = parse_uri(uri)
    app = f" {queue.app_id}" if queue.app_id else ""
    where = f"DOMAINS DOMAIN {queue.qualified_domain} QUEUE {queue.queue}"
    return f"ENCODING JSON_COMPACT {where} LIST{app} {offset} {count}"


def read_listing(uri: str, answer: str) -> Listing:
    """Read the broker's answer. Raises `CannotBegin` if it is a refusal, or not understood."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        _not_understood(uri, answer)
    if isinstance(found, dict) and isinstance(found.get("error"), dict):
        raise CannotBegin(f"{uri}: {ascii(found['error'].get('message'))[:_SHOWN]}")
    try:
        contents = found["queueContents"]
        messages = [
            Listed(_text(each["guid"], _GUID), _number(each["sizeBytes"]), _text(each["arrivalTimestamp"], _TIME))
            for each in contents.get("messages", [])
        ]
        return Listing(messages, _number(contents["offset"]), _number(contents["totalQueueMessages"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        _not_understood(uri, answer)


class Contents(NamedTuple):
    """A message as posted. `fault` names an unreadable, missing part."""

    payload: bytes
    properties: Sequence[Property]
    fault: str | None = None


def read_contents(answer: dict[str, Any]) -> Contents:
    """Read the contents in a broker's answer to the command MESSAGE. Raises `ValueError` if there are none."""
    data = memoryview(base64.b64decode(answer["data"], validate=True))
    schema_id = int(answer["schemaId"])
    try:
        parts = split_application_data(
            data, bool(answer["hasProperties"]), schema_id, int(answer["compression"]), INFLATED_BYTES_MAX
        )
    except FormatError as fault:
        return Contents(bytes(data), [], f"the message cannot be decompressed, or taken apart: {fault}")
    payload = bytes(parts.payload)
    try:
        return Contents(payload, decode_properties(parts.properties, schema_id) if parts.properties else [])
    except FormatError as fault:
        return Contents(payload, [], f"the properties cannot be read: {fault}")


def contents_command(uri: str, guid: str) -> str:
    """The command that shows a queue's message with its contents. The C++ broker lacks it."""
    queue = parse_uri(uri)
    return f"DOMAINS DOMAIN {queue.qualified_domain} QUEUE {queue.queue} MESSAGE {guid}"


def _text(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _SIZE_MAX:
        raise ValueError
    return value


def _not_understood(uri: str, answer: str) -> NoReturn:
    raise CannotBegin(f"{uri}: the broker's answer is not understood: {answer[:80]!a}")
