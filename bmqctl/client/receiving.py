"""Messages of the client library, as a consumer receives them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from bmqctl.client.protocol.events import StreamSubscription
from bmqctl.client.protocol.message import Message as Content
from bmqctl.client.spans import Span
from formats.bmq.wire.application_data import ApplicationData
from formats.bmq.wire.properties import Property, PropertyValue

if TYPE_CHECKING:
    from bmqctl.client.queue import Queue

__all__ = ["Message"]


class Message:
    """A received message.

    `async with message` confirms it at the end of the block, and rejects it if the block raises. The payload and the
    properties are decoded on access, which raises `FormatError`, a `ValueError`, if the message is malformed.
    """

    __slots__ = ("_content", "_parts_found", "_queue", "_span", "generation", "guid", "is_settled")

    guid: bytes
    """The 16 bytes that identify the message, the same for each of its deliveries."""

    is_settled: bool
    """True if the message was confirmed or rejected."""

    def __init__(self, queue: Queue, content: Content, generation: int) -> None:
        self._queue = queue
        self._content = content
        self.generation = generation
        self.guid = content.guid
        self.is_settled = False
        self._parts_found: ApplicationData | None = None
        self._span: Span | None = None

    def __repr__(self) -> str:
        return f"<Message {self.guid.hex().upper()} of {self._queue}>"

    @property
    def queue(self) -> Queue:
        return self._queue

    @property
    def payload(self) -> bytes:
        """The decompressed payload."""
        content = self._content
        return content.data if content.is_plain else bytes(self._parts.payload)

    @property
    def properties(self) -> dict[str, PropertyValue]:
        """The properties by name."""
        return {each.name: each.value for each in self.typed_properties}

    @property
    def typed_properties(self) -> list[Property]:
        """The properties with the types with which they were posted."""
        return self._content.properties_of(self._parts)

    @property
    def _parts(self) -> ApplicationData:
        if self._parts_found is None:
            self._parts_found = self._content.split()
        return self._parts_found

    @property
    def subscription(self) -> StreamSubscription | None:
        """The subscription that the message matched; None if the queue has been configured since."""
        return self._queue.subscription_of(self._content.subscription_id)

    def confirm(self) -> None:
        """Confirm the message: the broker does not deliver it again. A second call has no effect."""
        if not self.is_settled:
            self._queue.confirm(self)
            self.is_settled = True

    def reject(self) -> None:
        """Leave the message unconfirmed.

        The protocol has no rejection: the broker delivers the message again, to this or another consumer, when this
        one closes the queue or loses its connection. Until then it counts as one of the unconfirmed messages allowed.
        """
        self.is_settled = True

    async def __aenter__(self) -> Self:
        self._span = self._queue.begin_processing(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._span is not None:
            self._span.end(fault=fault)
        if self.is_settled:
            return
        if fault is None:
            self.confirm()
        else:
            self.reject()
