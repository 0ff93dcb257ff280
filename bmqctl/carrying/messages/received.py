"""Received messages of either system, and their output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from bmqctl.carrying.messages.content import payload_row, property_rows
from bmqctl.common.decoding.decoder import BadPayload, Decode
from bmqctl.common.harmless import one_line
from formats.bmq.guid import format_guid
from formats.bmq.wire.properties import Property, PropertyType

if TYPE_CHECKING:
    from bmqctl.client import Message
    from bmqctl.client.rocketmq import Content

__all__ = [
    "QUEUE_PLACE",
    "TOPIC_PLACE",
    "Form",
    "Received",
    "Undecodable",
    "UnreadableMessage",
    "decoded",
    "json_form",
    "of_queue",
    "of_topic",
    "place_text",
    "row_of",
    "text_form",
    "to_json",
    "to_placed_text",
    "to_raw",
    "to_text",
]

# The names in `place`, for a queue's and for a topic's messages.
QUEUE_PLACE: Final = ("guid",)
TOPIC_PLACE: Final = ("message_id", "topic", "broker", "queue", "offset", "attempt", "born_at")

_SHOWN: Final = 1000


class UnreadableMessage(ValueError):
    """A message that cannot be decoded; one line."""


class Undecodable(UnreadableMessage):
    """A payload that is not in the named encoding, or too large to decode; one line."""


class Received(NamedTuple):
    """A received message and its `place`. The fields after the properties are only for RocketMQ."""

    name: str
    place: dict[str, object]
    payload: bytes
    properties: Sequence[Property]
    tag: str | None = None
    keys: Sequence[str] = ()
    sharding_key: str | None = None
    priority: int | None = None


def of_queue(message: Message) -> Received:
    """Decode a message of BlazingMQ. Raises `UnreadableMessage`."""
    name = format_guid(message.guid)
    try:
        return Received(name, {"guid": name}, message.payload, message.typed_properties)
    except ValueError as fault:
        raise UnreadableMessage(f"message {name}: {fault}") from None


def of_topic(message: Content) -> Received:
    """Decode a message of RocketMQ. Raises `UnreadableMessage`."""
    where = f"message {message.offset} of queue {message.queue_id} of {message.broker}"
    try:
        name = message.message_id
        place = {
            "message_id": name,
            "topic": message.topic,
            "broker": message.broker,
            "queue": message.queue_id,
            "offset": message.offset,
            "attempt": message.attempt,
            "born_at": message.born_at.isoformat(),
        }
        properties = [Property(given, PropertyType.STRING, value) for given, value in message.properties.items()]
        return Received(
            name,
            place,
            message.payload,
            properties,
            message.tag,
            message.keys,
            message.sharding_key,
            message.priority,
        )
    except (ValueError, OverflowError, OSError) as fault:
        raise UnreadableMessage(f"{where}: {fault}") from None


Form = Callable[[Received], bytes]
"""Formats a message as bytes. Raises `Undecodable` if it decodes payloads."""


def json_form(decode: Decode | None) -> Form:
    """Make the formatter of JSON lines, with the decoded payload beside the payload."""
    return to_json if decode is None else lambda message: _to_json(message, {"decoded": decoded(message, decode)})


def text_form(decode: Decode | None, is_placed: bool = False) -> Form:
    """Make the formatter of lines for people, with the decoded payload instead of the payload."""
    if decode is None:
        return to_placed_text if is_placed else to_text

    def form(message: Received) -> bytes:
        value = decoded(message, decode)
        text = _text(message, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        return _place_text(message) + text if is_placed else text

    return form


def decoded(message: Received, decode: Decode) -> object:
    """Decode a payload. Raises `Undecodable`."""
    try:
        return decode(message.payload)
    except BadPayload as fault:
        raise Undecodable(f"message {message.name}: {fault}") from None
    except MemoryError:
        raise Undecodable(f"message {message.name}: there is not enough memory to decode its payload") from None


def to_json(message: Received) -> bytes:
    """A line of JSON, which `content.read_message` reads."""
    return _to_json(message, {})


def _to_json(message: Received, more: Mapping[str, object]) -> bytes:
    return json.dumps(row_of(message, more)).encode() + b"\n"


def row_of(message: Received, more: Mapping[str, object]) -> dict[str, object]:
    row: dict[str, object] = {**message.place, **payload_row(message.payload), **more}
    if message.properties:
        row["properties"] = property_rows(message.properties)
    if message.tag is not None:
        row["tag"] = message.tag
    if message.keys:
        row["keys"] = list(message.keys)
    if message.sharding_key is not None:
        row["sharding_key"] = message.sharding_key
    if message.priority is not None:
        row["priority"] = message.priority
    return row


def to_text(message: Received) -> bytes:
    """A line for people: the id, the tag, the properties, and the head of the payload."""
    return _text(message, _payload_text(message.payload))


def _text(message: Received, payload: str) -> bytes:
    parts = [message.name]
    if message.tag is not None:
        parts.append(f"[{message.tag}]")
    if message.properties:
        parts.append(" ".join(f"{each.name}={_value(each)}" for each in message.properties))
    parts.append(payload)
    return one_line("  ".join(parts)).encode() + b"\n"


def to_placed_text(message: Received) -> bytes:
    """A line for people like `to_text`, with broker, queue and offset for a topic's message."""
    return _place_text(message) + to_text(message)


def _place_text(message: Received) -> bytes:
    place = place_text(message)
    return one_line(f"{place}  ").encode() if place else b""


def place_text(message: Received) -> str:
    """Broker, queue and offset of a topic's message; "" for a queue's."""
    place = message.place
    return f"{place['broker']}/{place['queue']} {place['offset']}" if "broker" in place else ""


def to_raw(message: Received) -> bytes:
    return message.payload + b"\n"


def _value(each: Property) -> str:
    if isinstance(each.value, bytes):
        return f"0x{each.value.hex()}"
    return ("true" if each.value else "false") if isinstance(each.value, bool) else str(each.value)


def _payload_text(payload: bytes) -> str:
    """The head of a payload: as text if it is UTF-8, else in hex."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        text = f"0x{payload[: _SHOWN // 2].hex()}"
        is_cut = len(payload) > _SHOWN // 2
    else:
        is_cut = len(text) > _SHOWN
        text = text[:_SHOWN]
    return f"{text}... ({len(payload):,} bytes)" if is_cut else text
