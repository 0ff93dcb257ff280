"""A session with a broker under trio.

    async with Session.connect("127.0.0.1", 30114) as session:
        queue = await session.open_queue("bmq://bmq.test.mem.priority/orders", read=True, write=True)
        ack = await queue.post(b"hello", properties={"kind": "greeting"})
        async for message in queue:
            print(message.payload)
            queue.confirm(message)

Posts and confirms made between two turns of the writer go out together, so a busy program sends large events.
Back-pressure: `post` waits while more than `high_watermark` bytes have not reached the socket; a queue's limit of
unconfirmed messages limits received ones.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import trio

from bmqctl.client.carrier import SECOND_NS, Carrier, Endpoint, new_guids, now_ns
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.client.protocol.events import (
    Ack,
    Acks,
    Closed,
    Configured,
    Event,
    Opened,
    Pushes,
    QueueHandle,
    Refused,
    Started,
    Stopped,
    StreamOptions,
)
from bmqctl.client.protocol.machine import Machine, MachineOptions
from bmqctl.client.protocol.message import Message, Properties
from bmqctl.client.tasks import Waiter
from bmqctl.common.dialing import dial_stream, tls_context
from bmqctl.common.nurseries import open_nursery
from formats.bmq.control.messages import BrokerResponse, Status
from formats.schema import Buffer

__all__ = ["Queue", "RequestFailed", "Session", "SessionLost", "SessionOptions"]


class SessionLost(Exception):
    """End of a session not requested by the client; the text is the reason."""


class RequestFailed(Exception):
    """Refusal or timeout of a request: `status` has its category, code and message."""

    def __init__(self, what: str, status: Status) -> None:
        super().__init__(f"{what}: {status.message or 'no reason given'} ({status.category.name}, code {status.code})")
        self.status = status


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session. `put_batch` limits the messages of a PUT event; `high_watermark` is in bytes.

    With `resume` a lost connection is replaced: queues are reopened, and unacked messages are sent again. `credentials`
    are sent before negotiation. With `tls_authority`, a file with certificates, the connection is TLS.
    """

    timeout_s: float = 10.0
    put_batch: int = 1024
    high_watermark: int = 4 << 20
    process_name: str = ""
    resume: bool = False
    credentials: Credentials | None = None
    tls_authority: Path | None = None


class Queue:
    """An open queue. Iteration yields its messages until it is closed."""

    def __init__(self, session: Session, handle: QueueHandle) -> None:
        self._session = session
        self._handle = handle
        self._messages: deque[Message] = deque()
        self._arrival = trio.Event()

    def __str__(self) -> str:
        return str(self._handle)

    @property
    def is_open(self) -> bool:
        return self._handle.is_open

    @property
    def deduplication_time_ms(self) -> int:
        """The time for which the broker recognises a repeated post by its GUID, in milliseconds."""
        return self._handle.deduplication_time_ms

    def post_nowait(
        self,
        payload: Buffer,
        properties: Properties | None = None,
        *,
        compress: bool = False,
        correlation: Any = None,
        guid: bytes | None = None,
    ) -> bytes:
        """Queue a message for sending and return its GUID: `guid`, or a new one.

        The ack goes to the session's `on_acks`, with `correlation`; the messages queued are not limited. A message
        whose GUID the broker already has is acked and not stored again.
        """
        session = self._session
        session.check()
        guid = session.machine.post(
            self._handle,
            payload,
            properties,
            compress=compress,
            correlation=correlation,
            now_ns=now_ns(),
            guid=guid,
        )
        session.wake()
        return guid

    async def post(self, payload: bytes, properties: Properties | None = None, *, compress: bool = False) -> Ack:
        """Post a message and wait for its ack, which may be a nack."""
        await self._session.drain()
        waiter = Waiter()
        self.post_nowait(payload, properties, compress=compress, correlation=waiter)
        self._session.waiting.add(waiter)
        try:
            ack: Ack = await waiter.wait()
        finally:
            self._session.waiting.discard(waiter)
        return ack._replace(correlation=None, queue=None)

    def confirm(self, message: Message) -> None:
        self._session.check()
        self._session.machine.confirm(self._handle, message.guid)
        self._session.wake()

    def confirm_all(self, messages: Sequence[Message]) -> None:
        self._session.check()
        self._session.machine.confirm_all(self._handle, [message.guid for message in messages])
        self._session.wake()

    async def receive(self) -> list[Message]:
        """Wait for messages and return all that have come; an empty list once the queue is closed."""
        while not self._messages and not self._handle.is_closed:
            await self._arrival.wait()
        await trio.lowlevel.checkpoint_if_cancelled()
        self._session.check()
        taken = list(self._messages)
        self._messages.clear()
        return taken

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._messages:
            if self._handle.is_closed:
                self._session.check()
                raise StopAsyncIteration
            await self._arrival.wait()
        return self._messages.popleft()

    async def configure(self, options: StreamOptions) -> None:
        """Change the queue's configuration. Raises `RequestFailed` if the broker refuses."""
        session = self._session
        session.check()
        session.machine.configure_queue(self._handle, options, now_ns())
        await session.await_answer(self._handle, "configure")

    async def close(self) -> None:
        """Close the queue; its unconfirmed messages go to other consumers."""
        session = self._session
        session.check()
        waiting = session.expect_answer(self._handle)
        session.carrier.feed(session.machine.close_queue(self._handle, now_ns()))
        await session.await_answer(self._handle, "close", waiting)

    def deliver(self, messages: list[Message]) -> None:
        """Pass on messages, or (none) the queue's end; the session calls it."""
        self._messages.extend(messages)
        self._arrival.set()
        self._arrival = trio.Event()


class Session:
    """A session with a broker, made by `connect`; see the module."""

    def __init__(
        self, host: str, port: int, options: SessionOptions, on_acks: Callable[[list[Ack]], None] | None
    ) -> None:
        self.machine = Machine(_machine_options(options), new_guids(), now_ns())
        tls = tls_context(options.tls_authority) if options.tls_authority is not None else None
        self.endpoint = Endpoint(host, port, tls)
        self.carrier = Carrier(self.machine, self.endpoint, self._handle, self._written, options.timeout_s)
        self.waiting: set[Waiter] = set()
        self._options = options
        self._on_acks = on_acks
        self._queues: dict[QueueHandle, Queue] = {}
        self._requests: dict[QueueHandle, Waiter] = {}
        self._started = Waiter()
        self._stopped = trio.Event()
        self._drained = trio.Event()
        self._fault: str | None = None

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        host: str,
        port: int,
        options: SessionOptions | None = None,
        on_acks: Callable[[list[Ack]], None] | None = None,
    ) -> AsyncIterator[Session]:
        """Connect and negotiate; disconnect at the end of the block.

        Raises `OSError` if nobody listens or is trusted, `SessionLost` if the broker rejects the client.
        """
        options = options or SessionOptions()
        session = cls(host, port, options, on_acks)
        stream = await dial_stream(host, port, options.timeout_s, session.endpoint.tls)
        async with open_nursery() as nursery:
            nursery.start_soon(session.carrier.run, stream)
            await session._started.wait()
            yield session
            await session._disconnect()

    @property
    def broker(self) -> BrokerResponse:
        """The broker's answer in negotiation."""
        broker: BrokerResponse = self._started.value
        return broker

    async def open_queue(
        self, uri: str, *, read: bool = False, write: bool = False, options: StreamOptions | None = None
    ) -> Queue:
        """Open a queue. Raises `RequestFailed` if the broker refuses, `FormatError` if `uri` is not a URI."""
        self.check()
        handle = self.machine.open_queue(
            uri, read=read, write=write, options=options or StreamOptions(), now_ns=now_ns()
        )
        queue = self._queues[handle] = Queue(self, handle)
        await self.await_answer(handle, "open")
        return queue

    async def drain(self) -> None:
        """Wait until fewer bytes than the high watermark await the socket; always a checkpoint."""
        self.check()
        await trio.lowlevel.checkpoint()
        while self.carrier.pending_size > self._options.high_watermark:
            await self._drained.wait()
            self.check()

    async def sent(self) -> None:
        """Wait until no bytes await the socket, or the session has ended."""
        while self.carrier.pending_size and not self._stopped.is_set():
            await self._drained.wait()

    async def lost(self) -> str:
        """Wait for the end of the session; return the reason."""
        await self._stopped.wait()
        return self._fault or "disconnected"

    # For the queues

    def check(self) -> None:
        """Raise `SessionLost` if the session has ended."""
        if self._stopped.is_set():
            raise SessionLost(self._fault or "disconnected")

    def wake(self) -> None:
        self.carrier.wake()

    def expect_answer(self, handle: QueueHandle) -> Waiter:
        waiter = self._requests[handle] = Waiter()
        return waiter

    async def await_answer(self, handle: QueueHandle, what: str, waiter: Waiter | None = None) -> None:
        self.wake()
        waiter = waiter or self.expect_answer(handle)
        try:
            answer = await waiter.wait()
        finally:
            self._requests.pop(handle, None)
        if isinstance(answer, Refused):
            raise RequestFailed(f"cannot {what} {handle}", answer.status)

    # Input from the carrier

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Pushes(handle, messages):
                    self._queues[handle].deliver(messages)
                case Acks(acks):
                    self._answer_posts(acks)
                case Opened(handle) | Configured(handle) | Closed(handle) | Refused(handle, _):
                    if handle.is_closed and (queue := self._queues.pop(handle, None)):
                        queue.deliver([])
                    if waiter := self._requests.get(handle):
                        waiter.answer(event)
                case Started(broker):
                    self._started.answer(broker)
                case Stopped(fault):
                    self._end(fault)

    def _written(self) -> None:
        self._drained.set()
        self._drained = trio.Event()

    def _answer_posts(self, acks: list[Ack]) -> None:
        others = []
        for ack in acks:
            if isinstance(ack.correlation, Waiter):
                ack.correlation.answer(ack)
            else:
                others.append(ack)
        if others and self._on_acks is not None:
            self._on_acks(others)

    def _end(self, fault: str | None) -> None:
        self._fault = fault
        self._stopped.set()
        lost = SessionLost(fault or "disconnected")
        if self._started.value is None:
            self._started.answer(lost)
        for waiter in (*self._requests.values(), *self.waiting):
            waiter.answer(lost)
        for queue in self._queues.values():
            queue.deliver([])
        self._written()

    async def _disconnect(self) -> None:
        if not self._stopped.is_set():
            self.carrier.feed(self.machine.disconnect(now_ns()))
            await self._stopped.wait()


def _machine_options(options: SessionOptions) -> MachineOptions:
    return MachineOptions(
        process_name=options.process_name or Path(sys.argv[0]).name,
        pid=os.getpid(),
        timeout_ns=int(options.timeout_s * SECOND_NS),
        put_batch=options.put_batch,
        resume=options.resume,
        credentials=options.credentials,
    )
