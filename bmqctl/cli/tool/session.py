"""The tool's session with a broker: the interface of the reference's SDK, with its result codes and order of events.

Every request ends with one `Outcome`, passed to a callback in order with the events around it: output about an
opened queue precedes output about its first message.

Source of the behaviour: `bmqa::Session`, `bmqimp::BrokerSession`.
"""

from __future__ import annotations

import itertools
import os
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import trio

from bmqctl.cli.tool.printing import Plain, attributes, correlation, queue_id
from bmqctl.cli.tool.results import CloseResult, ConfigureResult, GenericResult, OpenResult, PackResult, result_of
from bmqctl.client.address import BadAddress, parse_address
from bmqctl.client.carrier import SECOND_NS, Carrier, new_guids, now_ns
from bmqctl.client.carrier import Endpoint as Place
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import (
    Ack,
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
    Reopened,
    Restored,
    Started,
    Stopped,
    StreamOptions,
)
from bmqctl.client.protocol.lifecycle import Queue as QueueState
from bmqctl.client.protocol.machine import Machine, MachineOptions
from bmqctl.client.protocol.message import Message, Properties
from formats.bmq.codes import PUT_SIZE_MAX
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = [
    "Endpoint",
    "Listener",
    "Outcome",
    "PackError",
    "SessionNote",
    "ToolQueue",
    "ToolSession",
    "next_number",
    "parse_endpoint",
]

_AUTO_VALUES = itertools.count(1)


class Endpoint(NamedTuple):
    """A broker's address, with credentials and TLS settings."""

    host: str
    port: int
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None


def parse_endpoint(text: str) -> Endpoint:
    """Parse `tcp://HOST:PORT`. Raises `BadAddress` if it is invalid."""
    if "://" not in text:
        raise BadAddress(f"'{text}' is not the address of a broker: expected tcp://HOST:PORT")
    return Endpoint(*parse_address(text))


@dataclass(slots=True, eq=False)
class ToolQueue:
    """A queue as the user sees it: its URI, and the number that the tool assigned to it."""

    uri: str
    number: int
    read: bool
    write: bool
    ack: bool
    handle: QueueHandle | None = None

    def __str__(self) -> str:
        return queue_id(self.uri, self.number)


@dataclass(frozen=True, slots=True)
class Outcome:
    queue: ToolQueue
    result: IntEnum
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.result == GenericResult.SUCCESS

    def __str__(self) -> str:
        pairs: list[tuple[str, Any]] = [
            ("queueId", Plain(str(self.queue))),
            ("result", f"{self.result.name} ({self.result.value})"),
        ]
        if self.error:
            pairs.append(("errorDescription", self.error))
        return attributes(pairs)


@dataclass(frozen=True, slots=True)
class SessionNote:
    type: str
    status: GenericResult = GenericResult.SUCCESS
    error: str = ""
    queue: ToolQueue | None = None

    def __str__(self) -> str:
        pairs: list[tuple[str, Any]] = [
            ("type", "SESSION"),
            ("sessionEventType", Plain(self.type)),
            ("statusCode", -1 if self.status else 0),
            ("result", Plain(self.status.name)),
            ("correlationId", correlation(self.queue.number if self.queue else None)),
        ]
        if self.error:
            pairs.append(("errorDescription", self.error))
        if self.queue:
            pairs.append(("queue", Plain(self.queue.uri)))
        return attributes(pairs)


class PackError(Exception):
    """A message that cannot be posted; the text is the result's name, with a reason if needed."""

    def __init__(self, result: PackResult, reason: str = "") -> None:
        super().__init__(f"{result.name}: {reason}" if reason else result.name)
        self.result = result


class Listener(Protocol):
    """The receiver of unsolicited events."""

    def on_note(self, note: SessionNote) -> None: ...

    def on_messages(self, queue: ToolQueue, messages: list[Message]) -> None: ...

    def on_acks(self, acks: list[tuple[ToolQueue, Ack]]) -> None: ...

    def on_trouble(self, text: str) -> None:
        """Handle an event that the reference's SDK would log as a warning or an error."""


@dataclass
class ToolSession:
    """A session whose connection runs in `nursery`; `timeout_s` is for every request. It may be started repeatedly."""

    nursery: trio.Nursery
    endpoint: Endpoint
    listener: Listener
    timeout_s: float
    queues: dict[str, ToolQueue] = field(default_factory=dict)
    _link: Carrier | None = None
    _ready: bool = False
    _given_up: bool = False
    _ended: trio.Event = field(default_factory=trio.Event)
    _progress: trio.Event = field(default_factory=trio.Event)
    _drained: trio.Event = field(default_factory=trio.Event)
    _pending: dict[QueueHandle, Callable[[IntEnum, str], None]] = field(default_factory=dict)
    _results: dict[QueueHandle, type[IntEnum]] = field(default_factory=dict)
    _by_handle: dict[QueueHandle, ToolQueue] = field(default_factory=dict)

    # The session

    async def start(self, timeout_s: float) -> GenericResult:
        if self._ready:
            return GenericResult.SUCCESS
        link = self._launch()
        with trio.move_on_after(timeout_s):
            await self._started(link)
            return GenericResult.SUCCESS
        await self.stop()
        return GenericResult.TIMEOUT

    def start_async(self, timeout_s: float) -> GenericResult:
        """Start to connect; a note follows with the result, within `timeout_s`."""
        if self._link is None:
            self.nursery.start_soon(self._expect_start, timeout_s, self._launch())
        return GenericResult.SUCCESS

    async def stop(self) -> None:
        self.stop_async()
        if self._link is not None:
            await self._ended.wait()

    def stop_async(self) -> None:
        """Start to disconnect; a note follows at the end."""
        link = self._link
        if link is not None and not self._ended.is_set() and not self._given_up:
            self._given_up = True
            self._cancel_requests()
            link.feed(link.machine.disconnect(now_ns()))

    async def _started(self, link: Carrier) -> None:
        while self._link is link and not self._ready:
            await self._progress.wait()

    def _launch(self) -> Carrier:
        options = MachineOptions(
            process_name=Path(sys.argv[0]).name,
            pid=os.getpid(),
            timeout_ns=int(self.timeout_s * SECOND_NS),
            user_agent="bmqtool",
            resume=True,
            credentials=self.endpoint.credentials,
        )
        host, port, _, tls = self.endpoint
        machine = Machine(options, new_guids(), now_ns())
        link = Carrier(machine, Place(host, port, tls), self._handle, self._written, self.timeout_s)
        self._link = link
        self._ready = self._given_up = False
        self._ended = trio.Event()
        self.nursery.start_soon(link.run)
        return link

    async def _expect_start(self, timeout_s: float, link: Carrier) -> None:
        with trio.move_on_after(timeout_s):
            await self._started(link)
        if not self._ready and self._link is link:
            note = SessionNote("CONNECTION_TIMEOUT", GenericResult.UNKNOWN, "The connection to bmqbrkr timedout")
            self.listener.on_note(note)
            await self.stop()

    # Queues

    def open(
        self, uri: str, flags: frozenset[str], options: StreamOptions, done: Callable[[Outcome], None]
    ) -> ToolQueue:
        """Request a queue; `flags` are among read, write, ack and admin."""
        queue = ToolQueue(uri, next(_AUTO_VALUES), "read" in flags, "write" in flags, "ack" in flags)
        link = self._link
        refusal = self._open_refusal(queue, flags, options)
        if refusal is not None or link is None:
            done(refusal or Outcome(queue, GenericResult.NOT_CONNECTED, "Not connected"))
            return queue
        queue.handle = link.machine.open_queue(
            uri,
            read=queue.read,
            write=queue.write,
            ack=queue.ack,
            options=options if queue.read else StreamOptions(),
            now_ns=now_ns(),
        )
        self.queues[uri] = self._by_handle[queue.handle] = queue
        self._expect(queue, done, OpenResult)
        return queue

    def _open_refusal(self, queue: ToolQueue, flags: frozenset[str], options: StreamOptions) -> Outcome | None:
        if self._link is None or not self._ready:
            return Outcome(queue, GenericResult.NOT_CONNECTED, "Not connected")
        try:
            uri = parse_uri(queue.uri)
        except FormatError:
            return Outcome(queue, OpenResult.INVALID_URI, "Invalid URI")
        if "admin" in flags or not (queue.read or queue.write):
            what = "only a broker opens queues as 'admin'" if "admin" in flags else "neither 'read' nor 'write'"
            return Outcome(queue, OpenResult.INVALID_FLAGS, f"Invalid openQueue flags: {what}")
        if uri.app_id and flags != {"read"}:
            why = f"an app id goes with reading alone [uri: '{queue.uri}']"
            return Outcome(queue, GenericResult.INVALID_ARGUMENT, f"Invalid argument - {why}")
        if queue.read and (why := _options_fault(options)):
            return Outcome(queue, GenericResult.INVALID_ARGUMENT, f"Invalid argument - {why}")
        existing = self.queues.get(queue.uri)
        if existing is None or existing.handle is None:
            return None
        state = existing.handle.state
        result: IntEnum = _OPEN_AGAIN.get(state, GenericResult.NOT_SUPPORTED)
        return Outcome(existing, result, result.name)

    def configure(self, queue: ToolQueue, options: StreamOptions, done: Callable[[Outcome], None]) -> None:
        """Change an open queue's configuration; subscriptions stay unless new ones are given."""
        if why := _options_fault(options):
            done(Outcome(queue, GenericResult.INVALID_ARGUMENT, f"Invalid argument - {why}"))
            return
        handle, link = queue.handle, self._link
        if handle is None or link is None or handle in self._pending:
            done(Outcome(queue, GenericResult.NOT_SUPPORTED, "NOT_SUPPORTED"))
            return
        if not queue.read:
            done(Outcome(queue, GenericResult.SUCCESS))
            return
        if not options.subscriptions:
            options = replace(options, subscriptions=handle.options.subscriptions)
        try:
            link.machine.configure_queue(handle, options, now_ns())
        except Unusable:
            done(Outcome(queue, GenericResult.NOT_SUPPORTED, "NOT_SUPPORTED"))
            return
        self._expect(queue, done, ConfigureResult)

    def close(self, queue: ToolQueue, done: Callable[[Outcome], None]) -> None:
        """Close a queue; it is closed whatever the outcome."""
        handle, link = queue.handle, self._link
        if handle is None or link is None:
            done(Outcome(queue, GenericResult.NOT_CONNECTED, "Not connected"))
            return
        if handle.state not in (QueueState.OPENED, QueueState.PENDING):
            result: IntEnum = CloseResult.ALREADY_IN_PROGRESS if handle.is_closed else GenericResult.NOT_SUPPORTED
            done(Outcome(queue, result, result.name))
            return
        if (configuring := self._pending.pop(handle, None)) is not None:
            configuring(GenericResult.NOT_SUPPORTED, "The request was canceled [reason: queue being closed]")
        self._expect(queue, done, CloseResult)
        link.feed(link.machine.close_queue(handle, now_ns()))

    def _expect(self, queue: ToolQueue, done: Callable[[Outcome], None], results: type[IntEnum]) -> None:
        assert queue.handle is not None
        assert self._link is not None
        self._pending[queue.handle] = lambda result, error: done(Outcome(queue, result, error))
        self._results[queue.handle] = results
        self._link.wake()

    # Messages

    def post(
        self,
        queue: ToolQueue,
        payload: bytes,
        properties: Properties | None = None,
        *,
        compress: bool = False,
        number: int | None = None,
    ) -> bytes:
        """Post a message and return its GUID; `number` is its correlation id. Raises `PackError` if that fails."""
        handle, link = queue.handle, self._link
        if handle is None or link is None or handle.is_closed:
            raise PackError(PackResult.QUEUE_INVALID)
        if not queue.write:
            raise PackError(PackResult.QUEUE_READONLY)
        if not payload and not properties:
            raise PackError(PackResult.PAYLOAD_EMPTY)
        try:
            guid = link.machine.post(
                handle,
                payload,
                properties,
                compress=compress,
                correlation=number,
                now_ns=now_ns(),
                ack=number is not None,
            )
        except Unusable:
            raise PackError(PackResult.QUEUE_INVALID) from None
        except ValueError as fault:
            result = PackResult.PAYLOAD_TOO_BIG if len(payload) > PUT_SIZE_MAX else PackResult.UNKNOWN
            raise PackError(result, str(fault)) from None
        link.wake()
        return guid

    def confirm(self, queue: ToolQueue, guid: bytes) -> GenericResult:
        handle, link = queue.handle, self._link
        if handle is None or link is None or not queue.read:
            return GenericResult.INVALID_ARGUMENT
        if not handle.is_open:
            return GenericResult.NOT_CONNECTED
        link.machine.confirm(handle, guid)
        link.wake()
        return GenericResult.SUCCESS

    @property
    def pending_size(self) -> int:
        """Number of bytes that have not reached the socket."""
        return self._link.pending_size if self._link is not None else 0

    async def drained(self, limit: int) -> None:
        """Wait until at most `limit` bytes have not reached the socket; always a checkpoint."""
        await trio.lowlevel.checkpoint()
        while self._link is not None and not self._ended.is_set() and self._link.pending_size > limit:
            await self._drained.wait()

    # Input from the carrier

    def _written(self) -> None:
        self._drained.set()
        self._drained = trio.Event()

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Pushes(handle, messages):
                    if queue := self._by_handle.get(handle):
                        self.listener.on_messages(queue, messages)
                case Acks(acks):
                    known = [(self._by_handle[ack.queue], ack) for ack in acks if ack.queue in self._by_handle]
                    self.listener.on_acks(known)
                case Opened(handle) | Configured(handle) | Closed(handle):
                    self._settle(handle, GenericResult.SUCCESS, "")
                case Refused(handle, status):
                    results = self._results.get(handle, GenericResult)
                    self._settle(handle, result_of(status, results), status.message)
                case _:
                    self._note(event)

    def _settle(self, handle: QueueHandle, result: IntEnum, error: str) -> None:
        done = self._pending.pop(handle, None)
        self._results.pop(handle, None)
        queue = self._by_handle.get(handle)
        if queue is not None and handle.is_closed:
            del self._by_handle[handle]
            if self.queues.get(queue.uri) is queue:
                del self.queues[queue.uri]
        if done is not None:
            done(result, error)

    def _note(self, event: Event) -> None:
        match event:
            case Started():
                self._ready = True
                self._wake_waiters()
                self.listener.on_note(SessionNote("CONNECTED"))
            case Reconnected():
                self.listener.on_note(SessionNote("RECONNECTED"))
            case ConnectionLost(fault, silent):
                self.listener.on_trouble(f"#TCP_DEAD_CHANNEL {fault}" if silent else fault)
                self.listener.on_note(SessionNote("CONNECTION_LOST"))
            case Reopened(handle):
                self.listener.on_note(SessionNote("QUEUE_REOPEN_RESULT", queue=self._by_handle.get(handle)))
            case Restored():
                self.listener.on_note(SessionNote("STATE_RESTORED"))
            case Stopped(_):
                self._end()

    def _end(self) -> None:
        was_ready, self._ready = self._ready, False
        self._cancel_requests()
        self.queues.clear()
        self._by_handle.clear()
        self._results.clear()
        self._link = None
        if was_ready:
            self.listener.on_note(SessionNote("DISCONNECTED"))
        self._ended.set()
        self._written()
        self._wake_waiters()

    def _cancel_requests(self) -> None:
        pending, self._pending = self._pending, {}
        for done in pending.values():
            done(GenericResult.NOT_CONNECTED, "The request was canceled [reason: disconnected]")

    def _wake_waiters(self) -> None:
        self._progress.set()
        self._progress = trio.Event()


def next_number() -> int:
    """Return a correlation id, unique among queues and messages of this process."""
    return next(_AUTO_VALUES)


def _options_fault(options: StreamOptions) -> str:
    try:
        options.check()
    except ValueError as fault:
        return str(fault)
    return ""


_OPEN_AGAIN: Final[dict[QueueState, IntEnum]] = {
    QueueState.OPENED: OpenResult.ALREADY_OPENED,
    QueueState.OPENING: OpenResult.ALREADY_IN_PROGRESS,
    QueueState.OPENING_STREAM: OpenResult.ALREADY_IN_PROGRESS,
    QueueState.REOPENING: OpenResult.ALREADY_IN_PROGRESS,
    QueueState.REOPENING_STREAM: OpenResult.ALREADY_IN_PROGRESS,
}
