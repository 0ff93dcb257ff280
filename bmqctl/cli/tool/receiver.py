"""Handling of the broker's events in the tool: print, confirm, keep, count.

Source of the lines and their order: `m_bmqtool::Application::onSessionEvent` and `onMessageEvent`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bmqctl.cli.tool.file_log import FileLog
from bmqctl.cli.tool.latency import Latencies
from bmqctl.cli.tool.log import Log, Severity
from bmqctl.cli.tool.poster import Latency
from bmqctl.cli.tool.printing import Plain, attributes, correlation, hex_dump_start, print_properties
from bmqctl.cli.tool.results import ACK_RESULTS, GenericResult
from bmqctl.cli.tool.session import SessionNote, ToolQueue, ToolSession
from bmqctl.cli.tool.stats import Stats
from bmqctl.client.protocol.events import Ack
from bmqctl.client.protocol.message import Message
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.guid import format_guid
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.event import EVENT_HEADER_SIZE
from formats.errors import FormatError

__all__ = ["Receiver", "print_ack", "print_push"]

CATEGORY: Final = "BMQTOOL.APPLICATION"
_STAMP = struct.Struct(">q")


@dataclass
class Receiver:
    """The listener of a session; `keep` receives messages that the user is to confirm."""

    log: Log
    file_log: FileLog
    quiet: bool = False
    show_events: bool = True
    dump: bool = False
    confirm: bool = False
    clock: Latency | None = None
    keep: Callable[[ToolQueue, Message], None] | None = None
    on_acked: Callable[[int], None] = lambda count: None
    session: ToolSession | None = None
    connected: bool = False
    messages_seen: int = 0
    stats: Stats = field(default_factory=Stats)
    end_to_end: Latencies = field(default_factory=lambda: Latencies("end2end"))
    acked: Latencies = field(default_factory=lambda: Latencies("ack"))

    def on_note(self, note: SessionNote) -> None:
        if not self.quiet:
            self._info(f"==> EVENT received: {note}")
        if note.type in _CONNECTEDNESS:
            self.connected = _CONNECTEDNESS[note.type]
        self.file_log.session_event(note.type, note.queue.uri if note.queue else "")

    def on_trouble(self, text: str) -> None:
        """Handle a warning of the session, such as a lost connection."""
        self.log.write(Severity.WARN, CATEGORY, text)

    def on_messages(self, queue: ToolQueue, messages: list[Message]) -> None:
        self._message_event("PUSH", [queue])
        self.messages_seen += len(messages)
        size = 0
        for index, message in enumerate(messages):
            try:
                payload = message.payload
            except FormatError as fault:
                self._cannot_read(message, fault)
                continue
            self.file_log.push(queue.uri, message.guid, payload)
            if self.confirm:
                self._confirm(queue, message)
            self._measure(payload)
            size += len(payload)
            if self.keep is not None and not self.confirm:
                self.keep(queue, message)
            if self.dump:
                self._dump(index, queue, message, payload)
        self.stats.add(len(messages), size, 1, EVENT_HEADER_SIZE + sum(message.wire_size for message in messages))

    def on_acks(self, acks: list[tuple[ToolQueue, Ack]]) -> None:
        failed = {(queue.uri, ack.status): ack.guid for queue, ack in acks if ack.status is not AckStatus.SUCCESS}
        for (uri, status), guid in failed.items():
            text = f"Failed ACK for queue '{uri}' [status: {status.name}, GUID: {format_guid(guid)}]"
            self.log.write(Severity.ERROR, CATEGORY, text)
        self._message_event("ACK", [queue for queue, _ in acks])
        for index, (queue, ack) in enumerate(acks):
            number = self._correlation(ack.correlation)
            if self.dump:
                self._info(f"ACK #{index}: {print_ack(queue, ack, number)}")
            self.file_log.ack(queue.uri, number, ack.guid, ACK_RESULTS.get(ack.status, GenericResult.UNKNOWN))
            if self.clock is not None and ack.correlation is not None:
                latency = self.clock() - ack.correlation
                if latency >= 0:
                    self.stats.add_latency(latency)
                    self.acked.add(latency)
        self.on_acked(len(acks))

    def _dump(self, index: int, queue: ToolQueue, message: Message, payload: bytes) -> None:
        try:
            self._info(f"PUSH #{index}: {print_push(queue, message, payload)}")
        except FormatError as fault:
            self._cannot_read(message, fault)

    def _cannot_read(self, message: Message, fault: FormatError) -> None:
        self.log.write(Severity.ERROR, CATEGORY, f"Message {format_guid(message.guid)} cannot be read: {fault}")

    def put(self, queue: ToolQueue, number: int | None, guid: bytes, payload: bytes) -> None:
        self.file_log.put(queue.uri, self._correlation(number), guid, payload)

    def _correlation(self, number: int | None) -> Plain:
        return correlation(number, "autoValue" if self.clock is None else "numeric")

    def _message_event(self, kind: str, queues: list[ToolQueue]) -> None:
        if self.show_events and not self.quiet:
            uris = [("queue", Plain(uri)) for uri in dict.fromkeys(queue.uri for queue in queues)]
            shown = attributes([("type", "MESSAGE"), ("rawEventType", Plain(kind)), *uris])
            self._info(f"==> EVENT received: {shown}")

    def _confirm(self, queue: ToolQueue, message: Message) -> None:
        assert self.session is not None
        result = self.session.confirm(queue, message.guid)
        if result == 0:
            self.file_log.confirm(queue.uri, message.guid)
        else:
            text = f"Failed to confirm [{format_guid(message.guid)}]: {result.name}."
            self.log.write(Severity.ERROR, CATEGORY, text)

    def _measure(self, payload: bytes) -> None:
        """Measure the latency of a message whose first eight bytes are the time of posting."""
        if self.clock is None or len(payload) < _STAMP.size:
            return
        (posted,) = _STAMP.unpack_from(payload)
        latency = self.clock() - posted
        if posted and latency >= 0:
            self.stats.add_latency(latency)
            self.end_to_end.add(latency)

    def _info(self, text: str) -> None:
        self.log.write(Severity.INFO, CATEGORY, text, depth=2)


def print_push(queue: ToolQueue, message: Message, payload: bytes) -> str:
    wanted = queue.handle.subscriptions.get(message.subscription_id) if queue.handle else None
    number = correlation(wanted.correlation if wanted else None, "numeric")
    handle = attributes([("id", message.subscription_id), ("CorrelationId", number)])
    known = [each.name for each in CompressionAlgorithm if each == message.compression]
    shown = attributes(
        [
            ("type", Plain("PUSH")),
            ("queue", Plain(str(queue))),
            ("correlationId", number),
            ("subscriptionHandle", handle),
            ("GUID", Plain(format_guid(message.guid))),
            ("compressionAlgorithmType", Plain(known[0] if known else "(* UNKNOWN *)")),
        ]
    )
    text = f"{shown[:-2]}\n{hex_dump_start(payload)} ]"
    if properties := message.typed_properties:
        text += f" with properties: {print_properties(properties)}"
    return text


def print_ack(queue: ToolQueue, ack: Ack, number: Plain) -> str:
    return attributes(
        [
            ("type", Plain("ACK")),
            ("status", Plain(ack.status.name)),
            ("correlationId", number),
            ("GUID", Plain(format_guid(ack.guid))),
            ("queue", Plain(str(queue))),
        ]
    )


_CONNECTEDNESS: Final = {"CONNECTED": True, "RECONNECTED": True, "DISCONNECTED": False, "CONNECTION_LOST": False}
