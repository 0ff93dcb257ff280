# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Reports on queues and messages in alarms and files, in the reference's words.

Source: mqbblp::RootQueueEngine, mqbcmd::HumanPrinter, bmqp::MessageProperties.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, Protocol

from broker.bmq.core.alarms import printable
from broker.bmq.core.messages import Log, Message
from broker.bmq.core.pretty import pretty_bytes, pretty_interval, pretty_number
from broker.bmq.queue.backlog import Backlog
from broker.bmq.queue.capacity import Usage
from broker.bmq.queue.routing import App
from broker.common.clock import Now
from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.wire.application_data import split_application_data
from formats.bmq.wire.properties import Property, PropertyType, decode_properties
from formats.errors import FormatError

__all__ = ["Reported", "app_report", "arrival_time", "hex_dump", "properties_text", "rejected_text", "stuck_report"]

EXPRESSIONS_SHOWN: Final = 10
MESSAGES_SHOWN: Final = 10
BINARY_SHOWN_MAX: Final = 256
DUMP_BYTES_MAX: Final = 1 << 20


class Reported(Protocol):
    """The reported queue."""

    uri: str
    usage: Usage
    log: Log
    messages: Backlog

    @property
    def now(self) -> Now: ...


def arrival_time(message: Message, now: Now) -> datetime:
    """Return a message's time of arrival, to the second if that was before the node's start."""
    passed_ms = now.ms - message.arrived_ms
    return datetime.fromtimestamp(now.wall_s, UTC) + timedelta(milliseconds=now.part_ms - passed_ms)


def app_report(queue: Reported, app: App) -> str:
    lines = [
        f"\nFor appId: {app.app_id}\n",
        f"Put aside list size: {pretty_number(len(app.aside))}",
        f"Redelivery list size: {pretty_number(len(app.redelivery))}",
        f"Number of messages: {pretty_number(app.messages)}",
        f"Number of bytes: {pretty_bytes(app.bytes)}\n",
    ]
    texts = list(app.groups)
    if texts:
        many = len(texts) > EXPRESSIONS_SHOWN
        head = f"First {EXPRESSIONS_SHOWN} of consumer subscription expressions: "
        lines.append(head if many else "Consumer subscription expressions: ")
        lines += [printable(text) or "<Empty>" for text in texts[:EXPRESSIONS_SHOWN]]
        lines.append("")
    oldest = next(iter(app.aside.values()), None)
    if oldest is not None:
        lines.append("Oldest message in the 'Put aside' list:")
        lines.append(_one_message(oldest, queue.now))
        lines.append(f"Message Properties: {properties_text(_properties(queue, oldest))}")
    return "\n".join(lines) + "\n"


def stuck_report(queue: Reported, app: App, oldest: Message, max_idle_ms: int) -> str:
    name = queue.uri if app.app_id == DEFAULT_APP_ID else f"{queue.uri}?id={app.app_id}"
    clients = [
        f"\n  {number}. {printable(stream.sink.description)}"
        f"\n    Number of unconfirmed messages .....: {len(stream.unconfirmed)}"
        for number, stream in enumerate(app.streams, 1)
    ]
    listing = "\n".join(
        [
            f"{number:5}: {_message_line(message, queue.now)}"
            for number, message in enumerate(islice(_wanted_by(app, queue), MESSAGES_SHOWN))
        ]
    )
    return (
        f"Queue '{name}' {queue.usage.summary()}, max idle time {pretty_interval(max_idle_ms * 1_000_000)} appears to "
        f"be stuck. It currently has {len(app.streams)} consumers.{''.join(clients)}\n{app_report(queue, app)}"
        f"\n{MESSAGES_SHOWN} oldest messages in the queue:\n{listing}\n"
        f"\nCurrent head of the queue:\n{_one_message(oldest, queue.now)}\n"
    )


def _wanted_by(app: App, queue: Reported) -> Iterator[Message]:
    return queue.messages.peek(app.bit)


def _one_message(message: Message, now: Now) -> str:
    return f"GUID                              Size        Timestamp (UTC)\n{_message_line(message, now)}"


def _message_line(message: Message, now: Now) -> str:
    when = arrival_time(message, now)
    stamp = f"{when:%d}{when:%b}".upper() + f"{when:%Y_%H:%M:%S}.{when.microsecond // 1000:03}+0000"
    return f"{message.guid.hex().upper()}  {pretty_bytes(message.size):>10}  {stamp}"


def _properties(queue: Reported, message: Message) -> list[Property]:
    data = memoryview(queue.log.read(message))
    try:
        parts = split_application_data(data, message.has_properties, message.schema_id, message.compression)
        return decode_properties(parts.properties, message.schema_id) if message.has_properties else []
    except FormatError:
        return []


def properties_text(properties: Iterable[Property]) -> str:
    """Format properties on one line: `[ x (INT32) = 0 s (STRING) = "text" ]`."""
    parts = [f"{printable(name)} ({kind.name}) = {_value_text(kind, value)}" for name, kind, value in properties]
    return " ".join(["[", *parts, "]"])


def _value_text(kind: PropertyType, value: bool | int | str | bytes) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return f'"{printable(value)}"'
        case bytes() if kind is PropertyType.CHAR:
            return f"{value[0]:x}"
        case bytes():
            return f'"{value[:BINARY_SHOWN_MAX].hex().upper()}"'


def hex_dump(data: memoryview) -> str:
    """Format offsets, bytes in groups of four, and printable characters."""
    lines = []
    for at in range(0, min(len(data), DUMP_BYTES_MAX), 16):
        row = bytes(data[at : at + 16])
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:6}:   {row.hex(' ', -4).upper():<35}     |{text:<16}|")
    if len(data) > DUMP_BYTES_MAX:
        lines.append(f"and {len(data) - DUMP_BYTES_MAX} bytes more")
    return "\n".join(lines) + "\n"


def rejected_text(data: memoryview, message: Message) -> str:
    """Format the file for a rejected message. Raises FormatError if its data cannot be read."""
    parts = split_application_data(data, message.has_properties, message.schema_id, message.compression)
    payload = hex_dump(memoryview(parts.payload))
    if not message.has_properties:
        return f"Application Data:\n\n{payload}"
    properties = decode_properties(parts.properties, message.schema_id)
    return (
        f"Message Properties:\n\n{properties_text(properties)}\n\n\n"
        f"Message Properties hexdump:\n\n{hex_dump(memoryview(parts.properties))}\n\n"
        f"Message Payload:\n\n{payload}"
    )
