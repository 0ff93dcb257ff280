"""A queue of the client library, open for posting, consuming or both."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio
from anyio.lowlevel import checkpoint

from bmqctl.client.arguments import INT_MAX, check_whole
from bmqctl.client.carrier import now_ns
from bmqctl.client.errors import Ack, QueueClosed, QueueSuspended
from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import QueueHandle, StreamOptions, StreamSubscription
from bmqctl.client.protocol.lifecycle import Queue as QueueState
from bmqctl.client.protocol.message import Message as Content
from bmqctl.client.protocol.message import Properties
from bmqctl.client.receiving import Message
from bmqctl.client.room import Room
from bmqctl.client.sending import Batch, Posted
from bmqctl.client.spans import Receiver, Span, TracedPost
from bmqctl.client.traced_queue import begin_processing, trace_post
from formats.errors import FormatError
from formats.schema import Buffer

if TYPE_CHECKING:
    from bmqctl.client.connection import Session

__all__ = ["Queue", "check_subscriptions"]

# Messages yielded from the buffer before other tasks get their turns.
_TURN: Final = 64
_RETURNING: Final = (QueueState.PENDING, QueueState.REOPENING, QueueState.REOPENING_STREAM)


class Queue:
    """An open queue, made by `Session.open`. Iteration yields its messages until it is closed.

    `async with queue` closes it at the end of the block.
    """

    def __init__(self, session: Session, handle: QueueHandle, is_suspendable: bool = False) -> None:
        self._session = session
        self._handle = handle
        self._is_suspendable = is_suspendable
        self._is_suspended = handle.options.suspended
        self._requesting = anyio.Lock()
        self._buffer: deque[Content] = deque()
        self._arrival: anyio.Event | None = None
        self._turn = 0
        # Connections so far. A confirm for an earlier one waits until the message is delivered again.
        self._generation = 0
        self._owed: set[bytes] = set()
        self._ending: str | None = None

    def __str__(self) -> str:
        return str(self._handle)

    def __repr__(self) -> str:
        return f"<Queue {self}>"

    @property
    def uri(self) -> str:
        """The URI with which it was opened, in canonical form."""
        return str(self._handle)

    @property
    def is_closed(self) -> bool:
        """True if the queue is closed for good; it is not closed while the connection is being replaced."""
        return self._handle.is_closed

    @property
    def is_suspended(self) -> bool:
        """True if the queue is suspended, as the host is not healthy: no messages come, and posts are refused."""
        return self._is_suspended

    @property
    def room(self) -> Room:
        """The room for posts, which all queues of the session share."""
        return self._session.room

    # Posting

    async def post(self, payload: Buffer, properties: Properties | None = None, *, compress: bool = False) -> Ack:
        """Post a message and wait for its ack.

        Raises `PostRefused` if the broker refuses it, `PostUncertain` if no answer came, and `ValueError` if it is
        empty or too large. Cancellation leaves open whether the message was sent.
        """
        await self.await_room()
        posted = Posted(self)
        posted.guid = self.hand_over(payload, properties, compress, posted)
        if self._session.machine.unanswered == 1:
            self._session.carrier.flush()
        else:
            # Others are posting, too: writing together costs less.
            self._session.carrier.wake()
        return await posted

    async def send(self, payload: Buffer, properties: Properties | None = None, *, compress: bool = False) -> Posted:
        """Post a message as soon as there is room; its ack may be awaited later, or not at all."""
        await self.await_room()
        posted = Posted(self)
        posted.guid = self.hand_over(payload, properties, compress, posted)
        self._session.carrier.wake()
        return posted

    def batch(self) -> Batch:
        """Make a batch, for `async with`: its posts are answered at the end of the block."""
        return Batch(self)

    async def post_all(self, payloads: Iterable[bytes], *, compress: bool = False) -> int:
        """Post messages without properties and wait for their acks; return their number. Raises `BatchFailed`."""
        async with self.batch() as batch:
            await batch.post_all(payloads, compress=compress)
        return batch.posted

    async def await_room(self) -> None:
        room = self._session.room
        if room.is_contended:
            await room.wait()
        while room.left() <= 0 and not self._session.is_ended:
            await room.wait()

    def hand_over(
        self, payload: Buffer, properties: Properties | None, compress: bool, receiver: Receiver[Ack]
    ) -> bytes:
        """Pass a message to the machine and return its GUID; `receiver` gets the answer. Call `wake` afterwards."""
        session = self._session
        try:
            session.check()
            if self._is_suspended:
                raise QueueSuspended(f"{self} is suspended: the host is not healthy")
            data = payload if type(payload) is bytes else bytes(memoryview(payload))
            if not data and not properties:
                raise ValueError("the payload is empty, and there are no properties: a message has one or the other")
            if session.spans is not None:
                properties, receiver = trace_post(session.spans, str(self), len(data), properties, receiver)
            guid = session.machine.post(
                self._handle, data, properties, compress=compress, correlation=receiver, now_ns=now_ns()
            )
        except BaseException as fault:
            session.room.changed()
            if isinstance(receiver, TracedPost):
                receiver.failed(fault)
            if isinstance(fault, Unusable):
                raise self._unusable("writing") from None
            raise
        return guid

    def wake(self) -> None:
        self._session.carrier.wake()

    # Consuming

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self._turn += 1
        if self._turn >= _TURN:
            self._turn = 0
            await checkpoint()
        while not self._buffer:
            if self._must_end():
                raise StopAsyncIteration
            await self._await_arrival()
        return Message(self, self._buffer.popleft(), self._generation)

    async def receive(self, count_max: int | None = None) -> list[Message]:
        """Wait for messages and return them, at most `count_max`; none once the queue is closed."""
        if count_max is not None:
            check_whole("count_max", count_max, 1, INT_MAX)
        await checkpoint()
        while not self._buffer:
            if self._must_end():
                return []
            await self._await_arrival()
        buffer, generation = self._buffer, self._generation
        if count_max is None or len(buffer) <= count_max:
            messages = [Message(self, content, generation) for content in buffer]
            buffer.clear()
            return messages
        return [Message(self, buffer.popleft(), generation) for _ in range(count_max)]

    async def _await_arrival(self) -> None:
        if self._arrival is None:
            self._arrival = anyio.Event()
        await self._arrival.wait()

    def _must_end(self) -> bool:
        """Return True if the client knows why no more messages come; raise if it does not."""
        if not self._handle.is_closed:
            return False
        self._session.check(orderly=True)
        if self._ending is not None:
            raise QueueClosed(self._ending)
        return True

    def confirm_all(self, messages: Iterable[Message]) -> None:
        """Confirm messages of this queue, except settled ones.

        Raises `ValueError` for a message of another queue, and confirms none then.
        """
        pending = [message for message in messages if not message.is_settled]
        if any(message.queue is not self for message in pending):
            raise ValueError(f"messages holds a message of another queue: expected messages of {self}")
        generation = self._generation
        fresh = [message.guid for message in pending if message.generation == generation]
        try:
            if len(fresh) == len(pending):
                self._session.machine.confirm_all(self._handle, fresh)
                self._session.carrier.wake()
                for message in pending:
                    message.is_settled = True
                return
        except Unusable:
            pass
        for message in pending:
            message.confirm()

    def confirm(self, message: Message) -> None:
        """Confirm a message of this queue; see `Message.confirm`."""
        if message.generation == self._generation:
            try:
                self._session.machine.confirm(self._handle, message.guid)
            except Unusable:
                pass
            else:
                self._session.carrier.wake()
                return
        if self._handle.is_open or self._handle.state in _RETURNING:
            self._confirm_later(message.guid)
        else:
            self._session.check()
            raise self._unusable("reading")

    def _confirm_later(self, guid: bytes) -> None:
        """Confirm a message of an earlier connection, which the broker delivers or has delivered again."""
        for content in self._buffer:
            if content.guid == guid:
                self._buffer.remove(content)
                self._session.machine.confirm(self._handle, guid)
                self._session.carrier.wake()
                return
        self._owed.add(guid)

    def begin_processing(self, message: Message) -> Span | None:
        """Begin the span of a message's processing; None without tracing."""
        if self._session.spans is None:
            return None
        properties: Mapping[str, object] = {}
        size = 0
        # The reader of the message finds that it is malformed.
        with suppress(FormatError):
            properties, size = message.properties, len(message.payload)
        app_id = self._handle.uri.app_id or ""
        return begin_processing(self._session.spans, str(self), app_id, message.guid, size, properties)

    def subscription_of(self, subscription_id: int) -> StreamSubscription | None:
        """The subscription with a number of the protocol."""
        return self._handle.subscriptions.get(subscription_id)

    # Requests

    async def configure(
        self,
        *,
        max_unconfirmed_messages: int | None = None,
        max_unconfirmed_bytes: int | None = None,
        priority: int | None = None,
        subscriptions: Sequence[StreamSubscription] | None = None,
    ) -> None:
        """Change how the queue is consumed; what is None stays.

        Raises `RequestRefused` if the broker refuses, and `ValueError` for an invalid expression or a number out of its
        range.
        """
        check_subscriptions(subscriptions or ())
        async with self._requesting:
            old = self._handle.options
            options = StreamOptions(
                old.max_unconfirmed_messages if max_unconfirmed_messages is None else max_unconfirmed_messages,
                old.max_unconfirmed_bytes if max_unconfirmed_bytes is None else max_unconfirmed_bytes,
                old.priority if priority is None else priority,
                old.subscriptions if subscriptions is None else tuple(subscriptions),
                old.suspended,
            )
            await self._configure(options)

    async def suspend(self, is_suspended: bool) -> None:
        """Suspend or resume a queue that depends on the host's health; the session calls it."""
        if not self._is_suspendable:
            return
        async with self._requesting:
            if self._handle.is_closed or self._is_suspended is is_suspended:
                return
            if is_suspended:
                self._is_suspended = True
            if self._handle.read:
                await self._configure(replace(self._handle.options, suspended=is_suspended))
            self._is_suspended = is_suspended

    async def _configure(self, options: StreamOptions) -> None:
        self._session.check()
        try:
            self._session.machine.configure_queue(self._handle, options, now_ns())
        except Unusable:
            raise self._unusable("reading") from None
        await self._session.await_answer(self._handle, "configure")

    async def close(self) -> None:
        """Wait for the acks of the posts to the queue, and close it.

        Its unconfirmed messages go to other consumers. A second call has no effect.
        """
        async with self._requesting:
            await self._session.await_answers(self._handle)
            if self._handle.is_closed:
                return
            self._session.check()
            await self._session.close_queue(self._handle)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        if not self._session.is_ended:
            await self.close()

    def _unusable(self, purpose: str) -> QueueClosed:
        return QueueClosed(self._ending or f"{self} is not open for {purpose}")

    # Input from the session

    def deliver(self, messages: list[Content]) -> None:
        if self._owed:
            messages = [content for content in messages if not self._was_confirmed(content.guid)]
        self._buffer.extend(messages)
        self._wake()

    def cut(self) -> None:
        """Handle the loss of the connection: the broker will deliver all unconfirmed messages again."""
        self._generation += 1
        self._buffer.clear()

    def end(self, reason: str | None) -> None:
        """Handle the end of the queue; `reason` is None if the client asked for it."""
        self._ending = reason
        self._buffer.clear()
        self._wake()

    def _was_confirmed(self, guid: bytes) -> bool:
        if guid not in self._owed or not self._handle.is_open:
            return False
        self._owed.discard(guid)
        self._session.machine.confirm(self._handle, guid)
        return True

    def _wake(self) -> None:
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None


def check_subscriptions(subscriptions: Sequence[StreamSubscription]) -> None:
    """Raise `ValueError` for an invalid expression: a broker accepts it, and delivers nothing for it."""
    for each in subscriptions:
        if not isinstance(each, StreamSubscription):
            raise ValueError(f"subscriptions holds {each!r:.80}: expected objects of Subscription")
    expressions = [each.expression for each in subscriptions if each.expression is not None]
    if expressions:
        # Imported here, as few programs need the grammar.
        from formats.bmq.expressions import compile_expression

        for expression in expressions:
            compile_expression(expression)
