# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A client of this node's queues: its posts and confirms, and the messages to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.bmq.core.messages import Buffer, Message
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.queue_requests import QueueHost, QueueRequests
from broker.bmq.session.outbox import EVENT_BYTES_SOFT, Outbox
from broker.bmq.session.posting import RUN_BYTES_MAX
from broker.bmq.session.queue_user import PUSH_BYTES_HIGH, QueueUser
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import QueueHandleParameters
from formats.bmq.wire.application_data import to_older_application_data
from formats.bmq.wire.event import EventType
from formats.bmq.wire.push import PushFlag, append_push, push_frame
from formats.errors import FormatError

__all__ = ["Client"]

log: Final = logging.getLogger("broker.session")

# A client with more handles than this is read at once: it would take long to look at them.
WAITING_HANDLES_MAX: Final = 16

# Plain integers for the hot paths: arithmetic on enumerations costs more than the message.
_PUSH_PROPERTIES: Final = int(PushFlag.MESSAGE_PROPERTIES)
_PUSH: Final = EventType.PUSH


class Client(QueueUser):
    """The client of a session; see `QueueUser`.

    `authorize` raises `Refusal` for queues that it may not open, and `may_log` limits the lines about its messages. It
    `knows_schemas` if it reads the newer encoding of message properties.
    """

    takes_all = False

    def __init__(
        self,
        host: QueueHost,
        description: str,
        out: Outbox,
        wake: Callable[[], None],
        fail: Callable[[Exception], None],
        authorize: Callable[[QueueHandleParameters], None],
        may_log: Callable[[], bool],
    ) -> None:
        super().__init__(description, out, wake, fail)
        self.requests = QueueRequests(host, self, authorize)
        self.handles = self.requests.handles
        self.knows_schemas = False
        self.has_confirmed = False  # all of its last input was confirms
        self._may_log = may_log

    @property
    def can_wait(self) -> bool:
        handles = self.handles
        return (
            self.has_confirmed
            and 0 < len(handles) <= WAITING_HANDLES_MAX
            and all(handle.has_slack for handle in handles.values())
        )

    # -- messages in

    def acknowledge(self, queue_id: int, correlation_id: int, guid: bytes, status: int) -> None:
        if queue_id in self.handles:
            super().acknowledge(queue_id, correlation_id, guid, status)

    def acknowledge_kept(self, queue_id: int, correlation_id: int, guids: Sequence[bytes]) -> None:
        if queue_id in self.handles:
            super().acknowledge_kept(queue_id, correlation_id, guids)

    def note_duplicate(self, queue: Queue, guid: bytes) -> None:
        if self._may_log():
            text = "Duplicate PUT message queue [%s] from client [%s], GUID [%s]"
            log.warning(text, queue.uri, self.description, guid.hex().upper())

    def refuse(self, status: AckStatus, correlation_id: int, guid: bytes, queue_id: int, reason: str) -> None:
        """Refuse a message; the reason is logged at most once a second for each session."""
        handle = self.handles.get(queue_id)
        if handle is not None:
            handle.queue.statistics.nacks += 1
        if self._may_log():
            name = handle.queue.uri if handle else "unknown queue"
            log.warning(
                "%s: failed Ack [status: %s, GUID: %s, queue: '%s' (id: %d)]: %s",
                self.description,
                status.name,
                guid.hex().upper(),
                name,
                queue_id,
                reason,
            )
        super().acknowledge(queue_id, correlation_id, guid, status)

    def log_improper(self, what: str) -> None:
        """Log an event that no client may send; `what` describes it."""
        if self._may_log():
            log.warning("#CLIENT_IMPROPER_BEHAVIOR %s: received %s", self.description, what)

    # -- messages out

    def push(self, queue_id: int, message: Message, data: Buffer, subscription_id: int, schema_id: int) -> None:
        compression = message.compression
        if schema_id and not self.knows_schemas:
            try:
                data = to_older_application_data(memoryview(data), compression)
            except FormatError as error:
                guid = message.guid.hex().upper()
                log.error("#CLIENT_INVALID_PUSH %s: %s cannot be converted: %s", self.description, guid, error)
                return
            compression = schema_id = 0
        out = self._out.event(_PUSH)
        append_push(
            out,
            queue_id,
            message.guid,
            data,
            subscription_id,
            _PUSH_PROPERTIES if message.has_properties else 0,
            compression,
            schema_id,
        )
        if len(out) > PUSH_BYTES_HIGH:
            self.block()
        self._wake()

    def takes_run(self, size: int) -> bool:
        """See `broker.bmq.core.messages.Sink`; the messages do not begin another event."""
        return self.ready and size <= RUN_BYTES_MAX and self._out.size + 2 * RUN_BYTES_MAX < EVENT_BYTES_SOFT

    def push_run(
        self, queue_id: int, messages: Sequence[Message], payloads: Sequence[Buffer], subscription_id: int
    ) -> None:
        out = self._out.event(_PUSH)
        pieces: list[Buffer] = []
        before = after = padding = b""
        size, compression, has_properties = -1, 0, False
        for message, payload in zip(messages, payloads, strict=True):
            # Consecutive messages differ in little more than their GUIDs.
            if len(payload) != size or message.compression != compression or message.has_properties != has_properties:
                size, compression, has_properties = len(payload), message.compression, message.has_properties
                flags = _PUSH_PROPERTIES if has_properties else 0
                before, after, padding = push_frame(queue_id, size, subscription_id, flags, compression)
            pieces += (before, message.guid, after, payload, padding)
        out += b"".join(pieces)
        if len(out) > PUSH_BYTES_HIGH:
            self.block()
        self._wake()
