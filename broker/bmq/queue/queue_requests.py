# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Requests of a peer, a client or another broker, about queues: open, configure, close.

Assigning a queue, or opening it on another node, takes time. The requests of one peer for one queue id are carried out
in order, each after the answer to the previous one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from broker.bmq.queue.handles import Handle, Refusal, app_id_of, give_back, wire_id
from broker.bmq.queue.queue import Queue, Sink
from broker.bmq.queue.routing import Stream, Subscription
from formats.bmq.control.messages import (
    CloseQueue,
    CloseQueueResponse,
    ConfigureQueueStream,
    ConfigureQueueStreamResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ConsumerInfo,
    ControlMessage,
    Expression,
    ExpressionVersion,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    QueueStreamParameters,
    RoutingConfiguration,
    StatusCategory,
    StreamParameters,
)
from formats.bmq.control.messages import Subscription as SubscriptionInfo

__all__ = ["Opened", "QueueHost", "QueueRequests"]

log: Final = logging.getLogger("broker.session")

Opened = Callable[[Queue | Refusal], None]


class QueueHost(Protocol):
    """The node, for requests about queues."""

    def open_queue(self, parameters: QueueHandleParameters, opened: Opened) -> None:
        """Find or create the queue; `opened` is called once, at once or later. May raise `Refusal` instead."""
        ...

    def routing_flags(self, queue: Queue) -> int: ...


class RequestingPeer(Sink, Protocol):
    """The peer that makes requests."""

    def reply(self, request: ControlMessage, choice: object) -> None: ...


class QueueRequests:
    """The requests of one peer; `handles` are its open queues, by queue id as in messages."""

    __slots__ = ("_authorize", "_closed", "_host", "_peer", "_waiting", "handles")

    def __init__(
        self, host: QueueHost, peer: RequestingPeer, authorize: Callable[[QueueHandleParameters], None]
    ) -> None:
        """`authorize` raises `Refusal` for queues that the peer may not open."""
        self.handles: dict[int, Handle] = {}
        self._authorize = authorize
        self._host = host
        self._peer = peer
        # By queue id: the requests after the one being carried out.
        self._waiting: dict[int, deque[ControlMessage]] = {}
        self._closed = False

    def serve(self, message: ControlMessage) -> bool:
        """Carry out a request, or queue it; return False if it is not about a queue."""
        choice = message.choice
        match choice:
            case OpenQueue() | CloseQueue():
                queue_id = wire_id(choice.handle_parameters.q_id)
            case ConfigureStream() | ConfigureQueueStream():
                queue_id = wire_id(choice.q_id)
            case _:
                return False
        waiting = self._waiting.get(queue_id)
        if waiting is not None:
            waiting.append(message)
        else:
            self._waiting[queue_id] = deque((message,))
            self._go_on(queue_id)
        return True

    def drop(self, *, lost: bool = False) -> None:
        self._closed = True
        self._waiting.clear()
        for handle in self.handles.values():
            handle.drop(lost=lost)
        self.handles.clear()

    def _go_on(self, queue_id: int) -> None:
        """Carry out waiting requests, up to one that does not finish at once."""
        waiting = self._waiting.get(queue_id)
        while waiting:
            if not self._carry_out(queue_id, waiting.popleft()):
                return
        self._waiting.pop(queue_id, None)

    def _go_on_later(self, queue_id: int) -> None:
        try:
            self._go_on(queue_id)
        except Exception as error:
            self._peer.fail(error)

    def _carry_out(self, queue_id: int, message: ControlMessage) -> bool:
        choice = message.choice
        try:
            match choice:
                case OpenQueue():
                    return self._open(message, queue_id, choice)
                case ConfigureStream():
                    return self._configure(
                        message, queue_id, choice.stream_parameters, ConfigureStreamResponse(request=choice)
                    )
                case ConfigureQueueStream():
                    return self._configure(
                        message,
                        queue_id,
                        modern_parameters(choice.stream_parameters),
                        ConfigureQueueStreamResponse(request=choice),
                    )
                case CloseQueue():
                    return self._close(message, queue_id, choice)
        except Refusal as refusal:
            self._refuse(message, refusal)
        return True

    def _refuse(self, message: ControlMessage, refusal: Refusal) -> None:
        log.warning("%s: refused %s: %s", self._peer.description, type(message.choice).__name__, refusal.status)
        self._peer.reply(message, refusal.status)

    def _reply(self, message: ControlMessage, response: object) -> None:
        """Send a response, maybe in another session's step, which a fault of the peer must not end."""
        try:
            self._peer.reply(message, response)
        except Exception as error:
            self._peer.fail(error)

    def _open(self, message: ControlMessage, queue_id: int, request: OpenQueue) -> bool:
        self._authorize(request.handle_parameters)
        done = later = False

        def opened(outcome: Queue | Refusal) -> None:
            nonlocal done
            done = True
            if not later:
                self._opened(message, queue_id, request, outcome)
                return
            try:
                self._opened(message, queue_id, request, outcome)
            except Exception as error:
                self._peer.fail(error)
            self._go_on_later(queue_id)

        self._host.open_queue(request.handle_parameters, opened)
        later = not done
        return done

    def _opened(self, message: ControlMessage, queue_id: int, request: OpenQueue, outcome: Queue | Refusal) -> None:
        parameters = request.handle_parameters
        try:
            if isinstance(outcome, Refusal):
                raise outcome
            if self._closed:
                give_back(outcome, parameters)
                return
            handle = self.handles.get(queue_id)
            if handle is None:
                handle = Handle(self._peer, queue_id, outcome)
            try:
                handle.open(parameters, outcome)
            except Exception:
                give_back(outcome, parameters)
                raise
        except Refusal as refusal:
            if not self._closed:
                self._refuse(message, refusal)
            return
        self.handles[queue_id] = handle
        response = OpenQueueResponse(
            original_request=request,
            routing_configuration=RoutingConfiguration(flags=self._host.routing_flags(outcome)),
            deduplication_time_ms=outcome.config.deduplication_time_ms,
        )
        self._peer.reply(message, response)

    def _configure(
        self, message: ControlMessage, queue_id: int, parameters: StreamParameters, response: object
    ) -> bool:
        handle = self.handles.get(queue_id)
        if handle is None:
            raise Refusal(StatusCategory.UNKNOWN, "No queue with specified Id", 0)
        stream = handle.by_app.get(parameters.app_id)
        if stream is None:
            if handle.writes and not parameters.subscriptions:
                # A producer states that it consumes nothing.
                self._peer.reply(message, response)
                return True
            raise Refusal(StatusCategory.UNKNOWN, "No queue with specified appId", 0)
        done = later = False

        def configured() -> None:
            nonlocal done
            done = True
            if self._closed:
                return
            self._reply(message, response)
            # After the response, which announces the subscription ids to the client.
            handle.queue.deliver(stream.app)
            if later:
                self._go_on_later(queue_id)

        handle.queue.reconfigure(stream, make_subscriptions(stream, parameters), configured)
        later = not done
        return done

    def _close(self, message: ControlMessage, queue_id: int, request: CloseQueue) -> bool:
        handle = self.handles.get(queue_id)
        if handle is None:
            raise Refusal(StatusCategory.UNKNOWN, "No queue with specified Id", 0)
        handle.close(request.handle_parameters, request.is_final)
        if handle.is_closed:
            del self.handles[queue_id]
        done = later = False

        def closed() -> None:
            nonlocal done
            done = True
            if self._closed:
                return
            self._reply(message, CloseQueueResponse())
            if later:
                self._go_on_later(queue_id)

        handle.queue.after_closing(app_id_of(request.handle_parameters), closed)
        later = not done
        return done


# bmqp::Protocol::k_CONSUMER_PRIORITY_INVALID
PRIORITY_INVALID: Final = -(1 << 31)
INVALID_PRIORITY: Final = "Attempting to configure stream with invalid priority."


def modern_parameters(old: QueueStreamParameters) -> StreamParameters:
    """Convert the older form of a stream's parameters to one subscription, or none (bmqp::ConversionUtil)."""
    info = old.sub_id_info
    subscriptions: tuple[SubscriptionInfo, ...] = ()
    if old.consumer_priority_count > 0:
        consumer = ConsumerInfo(
            max_unconfirmed_messages=old.max_unconfirmed_messages,
            max_unconfirmed_bytes=old.max_unconfirmed_bytes,
            consumer_priority=old.consumer_priority,
            consumer_priority_count=old.consumer_priority_count,
        )
        sub_id = info.sub_id if info else 0
        subscriptions = (SubscriptionInfo(s_id=sub_id, expression=Expression(text=""), consumers=(consumer,)),)
    if info is None:
        return StreamParameters(subscriptions=subscriptions)
    return StreamParameters(app_id=info.app_id, subscriptions=subscriptions)


def make_subscriptions(stream: Stream, parameters: StreamParameters) -> list[Subscription]:
    """Make the subscriptions of a configure request, or raise `Refusal` (source: bmqp::ConversionUtil)."""
    found = []
    for subscription in parameters.subscriptions:
        expression = subscription.expression
        text = expression.text if expression.version is not ExpressionVersion.UNDEFINED else ""
        for consumer in subscription.consumers:
            if consumer.consumer_priority == PRIORITY_INVALID:
                if consumer.consumer_priority_count:
                    raise Refusal(StatusCategory.UNKNOWN, INVALID_PRIORITY, -1)
                continue  # an older client's form of taking nothing
            if consumer.consumer_priority_count <= 0:
                raise Refusal(StatusCategory.UNKNOWN, INVALID_PRIORITY, -1)
            found.append(
                Subscription(
                    stream,
                    subscription.s_id,
                    consumer.consumer_priority,
                    _limit(consumer.max_unconfirmed_messages),
                    _limit(consumer.max_unconfirmed_bytes),
                    text,
                    consumer.consumer_priority_count,
                )
            )
    return found


def _limit(given: int) -> int:
    """Return the limit that a request means: a negative one allows one message in flight (source: QueueHandle).

    The reference compares a limit only after it has delivered a message: with -1 it delivers the next one after each
    confirm. Below that it delivers no second one until the stream is configured again; here all are like -1.
    """
    return given if given >= 0 else 1
