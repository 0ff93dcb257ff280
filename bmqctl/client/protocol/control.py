"""The control path of a session: its requests, their answers and their deadlines.

Source of the behaviour: `bmqimp::BrokerSession`. A receiving queue is opened with openQueue and configureStream, and
closed with configureStream without subscriptions (so that no message is in flight any more) and closeQueue; a queue
that only posts has no stream.

A session may outlive its connection (`cut`, `reconnected`): open queues are reopened, outstanding requests repeated,
and closing queues closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from bmqctl.client.protocol.events import (
    Closed,
    Configured,
    Event,
    Opened,
    QueueHandle,
    Refused,
    Reopened,
    StreamOptions,
    StreamSubscription,
)
from bmqctl.client.protocol.lifecycle import QUEUE_TABLE, Queue, QueueInput, step
from formats.bmq.codes import DEFAULT_APP_ID, QueueFlag
from formats.bmq.control.messages import (
    CloseQueue,
    CloseQueueResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ConsumerInfo,
    ControlMessage,
    Disconnect,
    DisconnectResponse,
    Expression,
    ExpressionVersion,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    Status,
    StatusCategory,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)
from formats.bmq.uri import QueueUri, parse_uri

__all__ = ["ProtocolFault", "Requests", "Unusable"]


class ProtocolFault(Exception):
    """A violation of the protocol by the broker; the text is one clause."""


class Unusable(Exception):
    """A call that the queue's state does not allow."""


class _Purpose(Enum):
    """The purpose of a request, with the class of its answer."""

    OPEN = auto()
    START_STREAM = auto()
    CONFIGURE = auto()
    STOP_STREAM = auto()
    CLOSE = auto()
    REOPEN = auto()
    RESTART_STREAM = auto()
    ABANDON = auto()  # close a queue that nobody waits for any more
    DISCONNECT = auto()


_ANSWERS: Final[dict[_Purpose, type[Any]]] = {
    _Purpose.OPEN: OpenQueueResponse,
    _Purpose.START_STREAM: ConfigureStreamResponse,
    _Purpose.CONFIGURE: ConfigureStreamResponse,
    _Purpose.STOP_STREAM: ConfigureStreamResponse,
    _Purpose.CLOSE: CloseQueueResponse,
    _Purpose.REOPEN: OpenQueueResponse,
    _Purpose.RESTART_STREAM: ConfigureStreamResponse,
    _Purpose.ABANDON: CloseQueueResponse,
    _Purpose.DISCONNECT: DisconnectResponse,
}


@dataclass(slots=True)
class _Pending:
    purpose: _Purpose
    queue: QueueHandle | None
    options: StreamOptions | None
    deadline_ns: int
    # For a stream's configuration: the first of its subscriptions' ids.
    first_subscription_id: int = 0


class Requests:
    """Queues and outstanding requests of one session; `send` puts a control message on the wire."""

    def __init__(self, send: Callable[[ControlMessage], None], timeout_ns: int) -> None:
        self._send = send
        self._timeout_ns = timeout_ns
        self._request_id = 0
        self._queue_id = 0
        self._subscription_id = 0
        # By request id. Deadlines increase with the ids: all timeouts are equal, and the next connection begins with a
        # lost one's requests.
        self._pending: dict[int, _Pending] = {}
        self._connected = True
        # Waiting for a connection, and configurations that reopening repeats.
        self._unsent: list[_Pending] = []
        self._configuring: list[_Pending] = []
        self.reopening = 0
        # The reason why the connection is unusable: after some timeouts the broker's state is unknown.
        self.broken = ""
        # Timed-out openings: if the broker still grants one, it is asked to close it.
        self._late: dict[int, QueueHandle] = {}
        self._queues: list[QueueHandle] = []
        self._next_sub_ids: dict[str, int] = {}
        self.subscriptions: dict[int, QueueHandle] = {}
        self.disconnected = False

    # Calls of the application

    def open(
        self, text: str, *, read: bool, write: bool, options: StreamOptions, now_ns: int, ack: bool = False
    ) -> QueueHandle:
        """Request a queue. Raises `FormatError` if `text` is not a URI."""
        uri = parse_uri(text)
        if not read and not write:
            raise Unusable(f"{uri}: neither for reading nor for writing")
        if any(queue.uri == uri for queue in self._queues):
            raise Unusable(f"{uri}: already open")
        queue = QueueHandle(uri, self._queue_id_of(uri), self._sub_id_of(uri, read), read, write, options, ack)
        queue.state = step(QUEUE_TABLE, queue.state, QueueInput.OPEN)
        self._queues.append(queue)
        self._ask(OpenQueue(handle_parameters=self._parameters(queue)), _Purpose.OPEN, queue, now_ns)
        return queue

    def configure(self, queue: QueueHandle, options: StreamOptions, now_ns: int) -> None:
        if queue.state not in (Queue.OPENED, Queue.PENDING) or not queue.read:
            raise Unusable(f"{queue}: not open for reading")
        queue.state = step(QUEUE_TABLE, queue.state, QueueInput.CONFIGURE)
        if self._connected:
            self._ask_stream(queue, options, _Purpose.CONFIGURE, now_ns)
        else:
            self._unsent.append(_Pending(_Purpose.CONFIGURE, queue, options, now_ns + self._timeout_ns))

    def close(self, queue: QueueHandle, now_ns: int) -> list[Event]:
        if queue.state is Queue.PENDING:
            self._forget(queue, QueueInput.CLOSE)
            return [Closed(queue)]
        if not queue.is_open:
            raise Unusable(f"{queue}: not open")
        if queue.read:
            queue.state = step(QUEUE_TABLE, queue.state, QueueInput.CLOSE)
            self._ask_stream(queue, None, _Purpose.STOP_STREAM, now_ns)
        else:
            queue.state = step(QUEUE_TABLE, queue.state, QueueInput.CLOSE_WRITER)
            self._ask_close(queue, _Purpose.CLOSE, now_ns)
        return []

    def disconnect(self, now_ns: int) -> None:
        self._ask(Disconnect(), _Purpose.DISCONNECT, None, now_ns)

    def writer(self, queue_id: int) -> QueueHandle | None:
        """Return the queue that this session posts to with `queue_id`, or None."""
        return next((queue for queue in self._queues if queue.queue_id == queue_id and queue.write), None)

    # Input from the broker and the clock

    @property
    def deadline_ns(self) -> int | None:
        oldest = [next(iter(self._pending.values()), None), *self._unsent[:1]]
        return min((pending.deadline_ns for pending in oldest if pending), default=None)

    def answered(self, message: ControlMessage, now_ns: int) -> Iterator[Event]:
        """Process a control message from the broker. Raises `ProtocolFault` if it answers no request."""
        if message.r_id is None:
            return  # advisories are between brokers
        pending = self._pending.pop(message.r_id, None)
        if pending is None:
            yield from self._answered_late(message, now_ns)
            return
        answer = message.choice
        if isinstance(answer, _ANSWERS[pending.purpose]):
            if isinstance(answer, OpenQueueResponse) and pending.queue is not None:
                pending.queue.deduplication_time_ms = answer.deduplication_time_ms
            yield from self._granted(pending, now_ns)
        elif isinstance(answer, Status):
            yield from self._failed(pending, answer, QueueInput.FAILED, now_ns)
        else:
            raise ProtocolFault(f"{type(answer).__name__} answers a request to {pending.purpose.name.lower()}")

    def expire(self, now_ns: int) -> Iterator[Event]:
        for request_id, pending in list(self._pending.items()):
            if pending.deadline_ns > now_ns:
                break
            del self._pending[request_id]
            if pending.purpose is _Purpose.OPEN and pending.queue is not None:
                self._late[request_id] = pending.queue
            if pending.purpose is not _Purpose.CONFIGURE:
                self.broken = f"no answer to a request to {pending.purpose.name.lower()} {pending.queue}"
            if pending.purpose not in (_Purpose.REOPEN, _Purpose.RESTART_STREAM):
                yield from self._failed(pending, _SILENCE, QueueInput.TIMED_OUT, now_ns)
        while self._unsent and self._unsent[0].deadline_ns <= now_ns:
            yield from self._failed(self._unsent.pop(0), _SILENCE, QueueInput.TIMED_OUT, now_ns)

    def cut(self) -> Iterator[Event]:
        self._connected = False
        again = self._configuring
        for pending in self._pending.values():
            queue = pending.queue
            match pending.purpose:
                case _Purpose.OPEN | _Purpose.START_STREAM if queue is not None:
                    queue.state = step(QUEUE_TABLE, queue.state, QueueInput.CUT)
                    again.append(_Pending(_Purpose.OPEN, queue, None, pending.deadline_ns))
                case _Purpose.CONFIGURE if queue is not None and queue.is_open:
                    again.append(pending)
                case _Purpose.STOP_STREAM | _Purpose.CLOSE if queue is not None:
                    self._forget(queue, QueueInput.CUT)
                    yield Refused(queue, _CANCELED)
                case _Purpose.ABANDON if queue is not None and queue.state is Queue.CLOSING:
                    self._forget(queue, QueueInput.CUT)
        for queue in self._queues:
            if queue.state in (Queue.OPENED, Queue.REOPENING, Queue.REOPENING_STREAM):
                queue.state = step(QUEUE_TABLE, queue.state, QueueInput.CUT)
            queue.subscriptions.clear()
        self._unsent = sorted(again, key=lambda pending: pending.deadline_ns)
        self._configuring = []
        self._pending.clear()
        self._late.clear()
        self.subscriptions.clear()
        self.reopening = 0
        self.broken = ""

    def reconnected(self, now_ns: int) -> None:
        self._connected = True
        unsent, self._unsent = self._unsent, []
        for pending in unsent:
            queue = pending.queue
            assert queue is not None
            if pending.purpose is _Purpose.OPEN:
                self._ask(
                    OpenQueue(handle_parameters=self._parameters(queue)),
                    _Purpose.OPEN,
                    queue,
                    pending.deadline_ns - self._timeout_ns,
                )
            elif pending.options is not None:
                queue.options = pending.options
                self._configuring.append(pending)
        for queue in self._queues:
            if queue.state is Queue.PENDING:
                queue.state = step(QUEUE_TABLE, queue.state, QueueInput.REOPEN)
                self.reopening += 1
                self._ask(OpenQueue(handle_parameters=self._parameters(queue)), _Purpose.REOPEN, queue, now_ns)

    def end(self) -> Iterator[Event]:
        self._pending.clear()
        self._unsent.clear()
        self._configuring.clear()
        self._late.clear()
        self.reopening = 0
        for queue in list(self._queues):
            self._forget(queue, QueueInput.SESSION_ENDED)
            yield Closed(queue)

    def _granted(self, pending: _Pending, now_ns: int) -> Iterator[Event]:
        queue = pending.queue
        if queue is None:
            self.disconnected = True
            return
        match pending.purpose:
            case _Purpose.OPEN if queue.read:
                queue.state = step(QUEUE_TABLE, queue.state, QueueInput.DONE)
                self._ask_stream(queue, queue.options, _Purpose.START_STREAM, now_ns)
            case _Purpose.OPEN | _Purpose.START_STREAM:
                queue.state = step(QUEUE_TABLE, queue.state, QueueInput.OPENED)
                yield Opened(queue)
            case _Purpose.REOPEN if queue.read:
                queue.state = step(QUEUE_TABLE, queue.state, QueueInput.DONE)
                self._ask_stream(queue, queue.options, _Purpose.RESTART_STREAM, now_ns)
            case _Purpose.REOPEN | _Purpose.RESTART_STREAM:
                queue.state = step(QUEUE_TABLE, queue.state, QueueInput.OPENED)
                self.reopening -= 1
                yield Reopened(queue)
                yield from (Configured(queue) for _ in self._take_configuring(queue))
            case _Purpose.CONFIGURE:
                assert pending.options is not None
                queue.options = pending.options
                self._drop_subscriptions(queue, pending.first_subscription_id)
                yield Configured(queue)
            case _Purpose.STOP_STREAM:
                queue.state = step(QUEUE_TABLE, queue.state, QueueInput.DONE)
                self._ask_close(queue, _Purpose.CLOSE, now_ns)
            case _Purpose.CLOSE:
                self._forget(queue, QueueInput.DONE)
                yield Closed(queue)
            case _Purpose.ABANDON if queue.state is Queue.CLOSING:
                self._forget(queue, QueueInput.DONE)

    def _failed(self, pending: _Pending, status: Status, how: QueueInput, now_ns: int) -> Iterator[Event]:
        queue = pending.queue
        if queue is None:
            self.disconnected = True
            return
        match pending.purpose:
            case _Purpose.OPEN:
                self._forget(queue, how)
                yield Refused(queue, status)
            case _Purpose.START_STREAM:
                queue.state = step(QUEUE_TABLE, queue.state, how)
                self._ask_close(queue, _Purpose.ABANDON, now_ns)
                yield Refused(queue, status)
            case _Purpose.REOPEN:
                self.reopening -= 1
                self._forget(queue, how)
                yield Refused(queue, status)
            case _Purpose.RESTART_STREAM:
                self.reopening -= 1
                self._take_configuring(queue)
                queue.state = step(QUEUE_TABLE, queue.state, how)
                self._ask_close(queue, _Purpose.ABANDON, now_ns)
                yield Refused(queue, status)
            case _Purpose.CONFIGURE:
                queue.state = step(QUEUE_TABLE, queue.state, how) if queue.is_open else queue.state
                yield Refused(queue, status)
            case _Purpose.STOP_STREAM if how is QueueInput.FAILED:
                queue.state = step(QUEUE_TABLE, queue.state, how)
                self._ask_close(queue, _Purpose.CLOSE, now_ns)
            case _Purpose.STOP_STREAM | _Purpose.CLOSE:
                self._forget(queue, how)
                yield Refused(queue, status)
            case _Purpose.ABANDON if queue.state is Queue.CLOSING:
                self._forget(queue, how)

    def _answered_late(self, message: ControlMessage, now_ns: int) -> Iterator[Event]:
        assert message.r_id is not None
        queue = self._late.pop(message.r_id, None)
        if queue is not None and isinstance(message.choice, OpenQueueResponse):
            self._ask_close(queue, _Purpose.ABANDON, now_ns)
        elif not 0 < message.r_id <= self._request_id:
            raise ProtocolFault(f"an answer to request {message.r_id}, which was never sent")
        yield from ()

    # Output

    def _ask(
        self,
        choice: OpenQueue | CloseQueue | ConfigureStream | Disconnect,
        purpose: _Purpose,
        queue: QueueHandle | None,
        now_ns: int,
        options: StreamOptions | None = None,
        first_subscription_id: int = 0,
    ) -> None:
        pending = _Pending(purpose, queue, options, now_ns + self._timeout_ns, first_subscription_id)
        if not self._connected:
            self._unsent.append(pending)
            return
        self._request_id += 1
        self._pending[self._request_id] = pending
        self._send(ControlMessage(r_id=self._request_id, choice=choice))

    def _ask_stream(self, queue: QueueHandle, options: StreamOptions | None, purpose: _Purpose, now_ns: int) -> None:
        """Configure the queue's stream; without options, stop it."""
        first = self._subscription_id + 1
        subscriptions = tuple(self._subscription(queue, options, each) for each in _subscriptions(options))
        app_id = queue.uri.app_id if queue.sub_id else DEFAULT_APP_ID
        parameters = StreamParameters(app_id=app_id, subscriptions=subscriptions)
        request = ConfigureStream(q_id=queue.queue_id, stream_parameters=parameters)
        self._ask(request, purpose, queue, now_ns, options, first)

    def _subscription(
        self, queue: QueueHandle, options: StreamOptions | None, wanted: StreamSubscription
    ) -> Subscription:
        assert options is not None
        self._subscription_id += 1
        queue.subscriptions[self._subscription_id] = wanted
        self.subscriptions[self._subscription_id] = queue
        consumer = ConsumerInfo(
            max_unconfirmed_messages=_first(wanted.max_unconfirmed_messages, options.max_unconfirmed_messages),
            max_unconfirmed_bytes=_first(wanted.max_unconfirmed_bytes, options.max_unconfirmed_bytes),
            consumer_priority=_first(wanted.priority, options.priority),
            consumer_priority_count=1,
        )
        version = ExpressionVersion.UNDEFINED if wanted.expression is None else ExpressionVersion.VERSION_1
        expression = Expression(version=version, text=wanted.expression or "")
        return Subscription(s_id=self._subscription_id, expression=expression, consumers=(consumer,))

    def _ask_close(self, queue: QueueHandle, purpose: _Purpose, now_ns: int) -> None:
        others = any(other is not queue and other.queue_id == queue.queue_id for other in self._queues)
        request = CloseQueue(handle_parameters=self._parameters(queue), is_final=not others)
        self._ask(request, purpose, queue, now_ns)

    def _parameters(self, queue: QueueHandle) -> QueueHandleParameters:
        info = SubQueueIdInfo(sub_id=queue.sub_id, app_id=queue.uri.app_id) if queue.sub_id else None
        return QueueHandleParameters(
            uri=str(queue.uri),
            q_id=queue.queue_id,
            sub_id_info=info,
            flags=QueueFlag.READ * queue.read | QueueFlag.WRITE * queue.write | QueueFlag.ACK * queue.ack,
            read_count=int(queue.read),
            write_count=int(queue.write),
        )

    # Names and numbers

    def _queue_id_of(self, uri: QueueUri) -> int:
        """The queue's id, which all of its apps share."""
        # Compare the parts: formatting the names of a session's thousands of queues would take time.
        parts = uri[:3]
        for queue in self._queues:
            if queue.uri[:3] == parts:
                return queue.queue_id
        self._queue_id += 1
        return self._queue_id - 1

    def _sub_id_of(self, uri: QueueUri, read: bool) -> int:
        if not (read and uri.app_id):
            return 0
        sub_id = self._next_sub_ids.get(uri.canonical, 1)
        self._next_sub_ids[uri.canonical] = sub_id + 1
        return sub_id

    def _forget(self, queue: QueueHandle, how: QueueInput) -> None:
        queue.state = step(QUEUE_TABLE, queue.state, how)
        self._queues.remove(queue)
        self._unsent = [pending for pending in self._unsent if pending.queue is not queue]
        self._take_configuring(queue)
        self._drop_subscriptions(queue, self._subscription_id + 1)

    def _take_configuring(self, queue: QueueHandle) -> list[_Pending]:
        taken = [pending for pending in self._configuring if pending.queue is queue]
        self._configuring = [pending for pending in self._configuring if pending.queue is not queue]
        return taken

    def _drop_subscriptions(self, queue: QueueHandle, end: int) -> None:
        """Drop subscriptions with numbers below `end`, for which no message can come any more."""
        for subscription_id in [number for number in queue.subscriptions if number < end]:
            del queue.subscriptions[subscription_id]
            self.subscriptions.pop(subscription_id, None)


def _subscriptions(options: StreamOptions | None) -> tuple[StreamSubscription, ...]:
    return () if options is None or options.suspended else options.subscriptions or (StreamSubscription(),)


def _first(wanted: int | None, default: int) -> int:
    return default if wanted is None else wanted


_SILENCE: Final = Status(category=StatusCategory.TIMEOUT, code=-2, message="the broker did not answer")
_CANCELED: Final = Status(category=StatusCategory.CANCELED, code=-4, message="the connection was lost")
