"""Sessions of the client library.

async with connect("tcp://127.0.0.1:30114") as session:
    queue = await session.open("bmq://bmq.test.persistent.priority/orders", read=True, write=True)
    await queue.post(b"hello", {"kind": "greeting"})
    async for message in queue:
        async with message:
            print(message.payload)
"""

from __future__ import annotations

import logging
import os
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, cast

import anyio

from bmqctl.client.address import parse_address
from bmqctl.client.arguments import INT_MAX, LONG_MAX, check_seconds, check_text, check_whole
from bmqctl.client.carrier import SECOND_NS, Carrier, Endpoint, new_guids, now_ns
from bmqctl.client.errors import Ack, ConnectFailed, QueueClosed, RequestRefused, SessionEnded
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.client.protocol.events import (
    Acks,
    Closed,
    Configured,
    ConnectionLost,
    Event,
    Opened,
    Pushes,
    QueueHandle,
    Reconnected,
    Refused,
    Restored,
    Started,
    Stopped,
    StreamOptions,
    StreamSubscription,
)
from bmqctl.client.protocol.lifecycle import Session as SessionState
from bmqctl.client.protocol.machine import Machine, MachineOptions, Unusable
from bmqctl.client.queue import Queue, check_subscriptions
from bmqctl.client.room import Room
from bmqctl.client.spans import Spans, check_spans
from bmqctl.client.tasks import Waiter, open_task_group
from bmqctl.common.dialing import open_stream, tls_context
from formats.bmq.control.messages import BrokerResponse

__all__ = ["Change", "Session", "SessionOptions", "connect"]

log = logging.getLogger("bmqctl.client")

_LEAVE_S_MAX: Final = 5.0
_URI_CHARACTERS_MAX: Final = 4096
_NAME_CHARACTERS_MAX: Final = 255
_CREDENTIALS_BYTES_MAX: Final = 1 << 20


class Change(Enum):
    """A change of a session's connection."""

    LOST = "the connection is lost; the session makes a new one"
    RECONNECTED = "a broker has accepted the session again"
    RESTORED = "the queues are open again, and what had no ack is sent again"


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session; `connect` explains them."""

    timeout_s: float = 10.0
    window: int = 4096
    buffer_size: int = 4 << 20
    put_batch: int = 1024
    process_name: str = ""
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None
    reconnect: bool = True
    on_change: Callable[[Change], None] | None = None
    tracing: Spans | None = None


@asynccontextmanager
async def connect(
    uri: str,
    *,
    credentials: Credentials | tuple[str, bytes] | tuple[str, str] | None = None,
    tls: ssl.SSLContext | str | Path | None = None,
    timeout_s: float = 10.0,
    window: int = 4096,
    buffer_size: int = 4 << 20,
    reconnect: bool = True,
    on_change: Callable[[Change], None] | None = None,
    process_name: str = "",
    tracing: Spans | None = None,
) -> AsyncIterator[Session]:
    """Begin a session with the broker at `uri`, `tcp://HOST:PORT`, which ends with the block.

    Leaving the block without an exception waits for the acks of all posts.

    `credentials` are a mechanism and its data, such as `("BASIC", b"user:password")`. `tls` is a file of trusted
    certificates, in PEM, or a context; without it the connection is plain. `timeout_s` is for connecting and for each
    request. A post waits while `window` posts have no ack, or more than `buffer_size` bytes have not reached the
    socket. With `reconnect` False the session ends with its connection. `on_change` is called when the connection is
    lost or restored. The broker's logs show `process_name`. `tracing`, a `bmqctl.client.tracing.Tracing`, makes spans
    of posts and of the processing of messages.

    With a `uri` of RocketMQ, `rocketmq://HOST:PORT[,HOST:PORT...]`, the session is that of
    `bmqctl.client.rocketmq.connect`, which has its types.

    Raises `ConnectFailed` if there is no broker or it refuses the session, and `ValueError` for an invalid argument.
    """
    check_text("uri", uri, _URI_CHARACTERS_MAX)
    if uri.startswith("rocketmq://"):
        if not reconnect or on_change is not None or process_name:
            raise ValueError("a session with RocketMQ takes neither reconnect nor on_change nor process_name")
        from bmqctl.client.rocketmq import connect as connect_rocketmq  # few programs need both

        async with connect_rocketmq(
            uri,
            credentials=cast("tuple[str, str] | None", credentials),
            tls=tls,
            timeout_s=timeout_s,
            window=window,
            buffer_size=buffer_size,
            tracing=tracing,
        ) as other:
            yield cast(Session, other)
        return
    host, port = parse_address(uri)
    check_seconds("timeout_s", timeout_s)
    check_whole("window", window, 1, INT_MAX)
    check_whole("buffer_size", buffer_size, 1, LONG_MAX)
    check_text("process_name", process_name, _NAME_CHARACTERS_MAX, is_empty_allowed=True)
    if on_change is not None and not callable(on_change):
        raise ValueError(f"on_change is {on_change!r:.80}: expected a function")
    check_spans(tracing)
    options = SessionOptions(
        timeout_s=timeout_s,
        window=window,
        buffer_size=buffer_size,
        process_name=process_name or Path(sys.argv[0]).name.encode("utf-8", "replace").decode() or "python",
        credentials=_credentials(credentials),
        tls=_context(tls),
        reconnect=reconnect,
        on_change=on_change,
        tracing=tracing,
    )
    session = Session(Endpoint(host, port, options.tls), options)
    try:
        stream = await open_stream(host, port, timeout_s, options.tls)
    except OSError as fault:
        raise ConnectFailed(f"no connection to {session.endpoint}: {fault}") from fault
    async with open_task_group() as group:
        group.start_soon(partial(session.carrier.run, stream, is_shielded=True))
        try:
            await session.started()
            yield session
            await session.flush()
        finally:
            await session.leave()


class Session:
    """A session with a broker, made by `connect`."""

    def __init__(self, endpoint: Endpoint, options: SessionOptions) -> None:
        self.endpoint = endpoint
        self.machine = Machine(_machine_options(options), new_guids(), now_ns())
        self.carrier = Carrier(self.machine, endpoint, self._handle, self._written, options.timeout_s)
        self.room = Room(
            options.window, options.buffer_size, lambda: self.machine.unanswered, lambda: self.carrier.pending_size
        )
        self.spans = options.tracing
        self._options = options
        self._queues: dict[QueueHandle, Queue] = {}
        self._requests: dict[QueueHandle, Waiter] = {}
        # Their opening was cancelled: close them when they are open.
        self._unwanted: set[QueueHandle] = set()
        self._started = Waiter()
        self._stopped = anyio.Event()
        self._answered: anyio.Event | None = None
        self._restored = anyio.Event()
        self._is_host_healthy = True
        self._fault: str | None = None

    def __repr__(self) -> str:
        return f"<Session with {self.endpoint}>"

    @property
    def broker(self) -> BrokerResponse:
        """The broker's answer to the client's identity, when the session began."""
        broker: BrokerResponse = self._started.value
        return broker

    @property
    def is_connected(self) -> bool:
        """True if there is a connection whose queues are open."""
        return not self.is_ended and bool(self._restored.is_set())

    @property
    def is_ended(self) -> bool:
        ended: bool = self._stopped.is_set()
        return ended

    async def open(
        self,
        uri: str,
        *,
        read: bool = False,
        write: bool = False,
        max_unconfirmed_messages: int = 1000,
        max_unconfirmed_bytes: int = 32 << 20,
        priority: int = 0,
        subscriptions: Sequence[StreamSubscription] = (),
        suspends_on_bad_host_health: bool = False,
    ) -> Queue:
        """Open a queue, for reading, writing or both.

        The broker sends at most `max_unconfirmed_messages` and `max_unconfirmed_bytes` without a confirm. Consumers of
        the highest `priority` share the messages. Without `subscriptions` all messages come.
        `suspends_on_bad_host_health` is for `set_host_health`.

        Raises `RequestRefused` if the broker refuses, and `ValueError` if `uri` or an expression is malformed, a number
        is out of its range, the queue is already open in this session, or neither `read` nor `write` is set.
        """
        self.check()
        check_text("uri", uri, _URI_CHARACTERS_MAX)
        check_subscriptions(subscriptions)
        suspended = suspends_on_bad_host_health and not self._is_host_healthy
        options = StreamOptions(
            max_unconfirmed_messages, max_unconfirmed_bytes, priority, tuple(subscriptions), suspended
        )
        try:
            handle = self.machine.open_queue(uri, read=read, write=write, ack=write, options=options, now_ns=now_ns())
        except Unusable as fault:
            raise ValueError(str(fault)) from None
        queue = self._queues[handle] = Queue(self, handle, suspends_on_bad_host_health)
        try:
            await self.await_answer(handle, "open")
        except BaseException:
            if not handle.is_closed:
                self._unwanted.add(handle)
            raise
        await queue.suspend(not self._is_host_healthy)
        return queue

    async def set_host_health(self, is_healthy: bool) -> None:
        """Report the health of this host, which is good when the session begins.

        While it is bad, queues opened with `suspends_on_bad_host_health` are suspended: the broker sends them no
        messages, and posts raise `QueueSuspended`. Messages received before can be confirmed. Returns when the broker
        has answered. Raises `RequestRefused`.
        """
        self._is_host_healthy = is_healthy
        for queue in list(self._queues.values()):
            await queue.suspend(not is_healthy)

    async def flush(self) -> None:
        """Wait until every post has an answer."""
        await self._until_answered(lambda: self.machine.unanswered == 0)

    async def wait_connected(self) -> None:
        """Wait until there is a connection whose queues are open. Raises `SessionEnded` if the session ends."""
        while not self._restored.is_set():
            await self._restored.wait()
        self.check()

    async def wait_ended(self) -> str:
        """Wait for the end of the session; return the reason."""
        await self._stopped.wait()
        return self._reason

    # For the queues

    def check(self, orderly: bool = False) -> None:
        """Raise `SessionEnded` if the session has ended; with `orderly` only if the client did not end it."""
        if self._stopped.is_set() and not (orderly and self._fault is None):
            raise SessionEnded(self._reason)

    @property
    def _reason(self) -> str:
        return self._fault or "the client ended the session"

    async def await_answers(self, handle: QueueHandle) -> None:
        await self._until_answered(lambda: not self.machine.has_unanswered(handle))

    async def _until_answered(self, done: Callable[[], bool]) -> None:
        while not done() and not self._stopped.is_set():
            if self._answered is None:
                self._answered = anyio.Event()
            await self._answered.wait()

    async def close_queue(self, handle: QueueHandle) -> None:
        """Close a queue, and wait until it is closed. A refusal is ignored: the queue is closed in any case."""
        waiter = self._requests[handle] = Waiter()
        try:
            self.carrier.feed(self.machine.close_queue(handle, now_ns()))
        except Unusable:
            del self._requests[handle]
            raise QueueClosed(f"{handle} is not open") from None
        try:
            await waiter.wait()
        finally:
            self._requests.pop(handle, None)

    async def await_answer(self, handle: QueueHandle, what: str) -> None:
        """Wait for the answer to the last request about a queue. Raises `RequestRefused`."""
        self.carrier.wake()
        waiter = self._requests[handle] = Waiter()
        try:
            answer = await waiter.wait()
        finally:
            self._requests.pop(handle, None)
        if isinstance(answer, Refused):
            raise RequestRefused(f"cannot {what} {handle}", answer.status)

    # For `connect`

    async def started(self) -> None:
        """Wait until the broker has accepted the session. Raises `ConnectFailed` if it does not."""
        await self._started.wait()

    async def leave(self) -> None:
        """End the session properly if that takes no longer than its timeout, otherwise immediately."""
        with anyio.move_on_after(min(self._options.timeout_s, _LEAVE_S_MAX), shield=True):
            if not self._stopped.is_set():
                self.carrier.feed(self.machine.disconnect(now_ns()))
                await self._stopped.wait()
        self.carrier.feed(self.machine.give_up("the broker did not answer"))

    # Input from the carrier

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Pushes(handle, messages):
                    self._queues[handle].deliver(messages)
                case Acks(acks):
                    for status, guid, receiver, _ in acks:
                        if receiver is not None:
                            receiver.answered(Ack(guid, status))
                    self._wake_posters()
                case Opened(handle) | Configured(handle) | Closed(handle) | Refused(handle, _):
                    self._settle(handle, event)
                case Stopped(fault):
                    self._end(fault)
                case _:
                    self._note(event)
        if self.machine.state is SessionState.RECONNECTING and not self._may_reconnect:
            self._handle(self.machine.give_up(self.machine.last_fault))

    @property
    def _may_reconnect(self) -> bool:
        return self._options.reconnect and self._started.value is not None

    def _settle(self, handle: QueueHandle, event: Opened | Configured | Closed | Refused) -> None:
        waiter = self._requests.get(handle)
        if handle.is_closed and (queue := self._queues.pop(handle, None)):
            self._unwanted.discard(handle)
            reason = None
            if isinstance(event, Refused) and waiter is None:
                reason = f"the broker did not open {handle} again: {event.status.message or 'no reason given'}"
                log.error("%s", reason)
            queue.end(reason)
        if waiter is not None:
            waiter.answer(event)
        elif handle in self._unwanted and isinstance(event, Opened):
            self._handle(self.machine.close_queue(handle, now_ns()))
            self.carrier.wake()

    def _note(self, event: Event) -> None:
        match event:
            case Started(broker):
                self._started.answer(broker)
                self._restored.set()
            case ConnectionLost(fault, _):
                log.warning("the connection to %s is lost: %s", self.endpoint, fault)
                self._restored = anyio.Event()
                for queue in self._queues.values():
                    queue.cut()
                self._tell(Change.LOST)
            case Reconnected():
                self._tell(Change.RECONNECTED)
            case Restored():
                log.info("the session with %s is restored", self.endpoint)
                self._restored.set()
                self._tell(Change.RESTORED)

    def _tell(self, change: Change) -> None:
        if self._options.on_change is not None:
            self._options.on_change(change)

    def _written(self) -> None:
        self.room.changed()

    def _wake_posters(self) -> None:
        self.room.changed()
        if self._answered is not None:
            self._answered.set()
            self._answered = None

    def _end(self, fault: str | None) -> None:
        self._fault = fault
        self._stopped.set()
        self._restored.set()
        if self._started.value is None:
            self._started.answer(ConnectFailed(f"no session with {self.endpoint}: {self._reason}"))
        for waiter in self._requests.values():
            waiter.answer(SessionEnded(self._reason))
        for queue in self._queues.values():
            queue.end(fault)
        self.room.release()
        self._wake_posters()


def _credentials(given: object) -> Credentials | None:
    """Convert credentials for a broker. Raises `ValueError` for invalid ones."""
    match given:
        case None:
            return None
        case (str(mechanism), bytes(data)) if len(data) <= _CREDENTIALS_BYTES_MAX:
            check_text("the mechanism of credentials", mechanism, _NAME_CHARACTERS_MAX)
            return Credentials(mechanism, data)
        case _:
            # Without the value: it is secret.
            raise ValueError(
                f"credentials: expected the name of a mechanism and its data, at most {_CREDENTIALS_BYTES_MAX} bytes"
            )


def _context(tls: ssl.SSLContext | str | Path | None) -> ssl.SSLContext | None:
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    return tls_context(tls)


def _machine_options(options: SessionOptions) -> MachineOptions:
    return MachineOptions(
        process_name=options.process_name,
        pid=os.getpid(),
        timeout_ns=int(options.timeout_s * SECOND_NS),
        put_batch=options.put_batch,
        resume=True,
        credentials=options.credentials,
    )
