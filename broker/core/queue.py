"""The queue engine: messages, apps, consumers. It knows no protocol's frames.

A `Queue` holds messages in the order of their arrival and, per app, which of them wait, which are with a
consumer and which the app has confirmed. It decides who gets what; a `Sink` carries it there and a `Log`
keeps it.

Invariants, for every message in `Queue.messages` and every app `a` with `message.outstanding & a.bit`:
it is in exactly one of `a.redelivery`, `a.pending`, and the `unconfirmed` of one stream of `a`; an app's bit
is cleared once, and a message whose last bit is cleared is removed from the log and from the queue.
`a.pending` may still hold messages that the app no longer wants; they are passed over when they come up.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from broker.core.config import DomainConfig, Mode
from broker.core.schemas import SchemaMultiplexer

__all__ = ["App", "Content", "Full", "Log", "Message", "Queue", "Sink", "Stream", "Subscription"]

Buffer = bytes | memoryview


class Content(NamedTuple):
    """What a producer posted: `data` is properties and payload as they came, maybe compressed.

    `schema_id` is the wire form (see `SchemaMultiplexer`); `data` may be a view that is only valid now.
    """

    data: Buffer
    crc32c: int
    compression: int
    has_properties: bool
    schema_id: int
    options: Buffer = b""


class Message:
    """One stored message. `order` grows by one with every message of the queue, so it sorts them."""

    __slots__ = (
        "compression",
        "guid",
        "has_properties",
        "offset",
        "order",
        "outstanding",
        "payload",
        "schema_id",
        "size",
    )

    def __init__(self, guid: bytes, order: int, size: int, content: Content, outstanding: int) -> None:
        self.guid = guid
        self.order = order
        self.size = size
        self.compression = content.compression
        self.has_properties = content.has_properties
        self.schema_id = content.schema_id
        self.outstanding = outstanding  # bits of the apps that have yet to confirm
        self.offset = 0  # of the payload in its log
        self.payload: bytes | None = None  # only where the log keeps no bytes itself

    def __lt__(self, other: Message) -> bool:
        return self.order < other.order


class Full(Exception):
    """A limit stands against a message: `status` is the name of the NACK, the text is for the log."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Log(Protocol):
    """Where a queue's messages are kept; raises `Full` when it cannot keep one more."""

    def append(self, message: Message, content: Content, ref_count: int) -> None: ...
    def confirm(self, message: Message, app_key: bytes) -> None: ...
    def remove(self, message: Message) -> None: ...
    def read(self, message: Message) -> Buffer: ...


class Sink(Protocol):
    """A consumer's side of a link. `ready` is False while more than enough waits to be sent."""

    ready: bool

    def push(self, queue_id: int, message: Message, data: Buffer, subscription_id: int, schema_id: int) -> None: ...


class Subscription:
    """One subscription of a stream: `capacity` counts down as messages go out and up as they are confirmed."""

    __slots__ = ("bytes_left", "messages_left", "priority", "stream", "subscription_id")

    def __init__(self, stream: Stream, subscription_id: int, priority: int, messages_max: int, bytes_max: int) -> None:
        self.stream = stream
        self.subscription_id = subscription_id
        self.priority = priority
        self.messages_left = messages_max
        self.bytes_left = bytes_max


class Stream:
    """One app as one client reads it (a sub-stream of a queue handle)."""

    __slots__ = ("app", "queue_id", "schemas_sent", "sink", "sub_queue_id", "subscriptions", "unconfirmed")

    def __init__(self, app: App, sink: Sink, queue_id: int, sub_queue_id: int) -> None:
        self.app = app
        self.sink = sink
        self.queue_id = queue_id
        self.sub_queue_id = sub_queue_id
        self.subscriptions: list[Subscription] = []
        self.unconfirmed: dict[bytes, tuple[Message, Subscription]] = {}
        self.schemas_sent: set[int] = set()


class App:
    """One consumer group of a queue; `bit` marks it in `Message.outstanding`."""

    __slots__ = ("active", "app_id", "bit", "key", "pending", "redelivery", "streams", "turn")

    def __init__(self, app_id: str, key: bytes, bit: int) -> None:
        self.app_id = app_id
        self.key = key
        self.bit = bit
        self.pending: deque[Message] = deque()
        self.redelivery: list[Message] = []  # sorted; all older than what `pending` holds
        self.streams: list[Stream] = []
        self.active: list[Subscription] = []  # those of the highest priority
        self.turn = 0

    def rebuild(self) -> None:
        """Find the subscriptions that may receive: the highest priority takes all (mqbblp's consumer priority)."""
        everyone = [s for stream in self.streams for s in stream.subscriptions]
        highest = max((s.priority for s in everyone), default=0)
        self.active = [s for s in everyone if s.priority == highest]
        self.turn = 0

    def choose(self, size: int) -> Subscription | None:
        """The next active subscription in turn that has room; None when nobody has."""
        active = self.active
        count = len(active)
        turn = self.turn
        for _ in range(count):
            if turn >= count:
                turn = 0
            candidate = active[turn]
            turn += 1
            # Bytes may be overdrawn by the last message, or one larger than the limit would never go out.
            if candidate.messages_left > 0 and candidate.bytes_left > 0 and candidate.stream.sink.ready:
                self.turn = turn
                return candidate
        return None


class Queue:
    """One queue and the decisions about it.

    `usage` is the domain's count of messages and bytes, shared by its queues.
    """

    def __init__(
        self,
        uri: str,
        key: bytes,
        config: DomainConfig,
        app_keys: Iterable[tuple[str, bytes]],
        log: Log,
        usage: Usage,
    ) -> None:
        self.uri = uri
        self.key = key
        self.config = config
        self.apps = {app_id: App(app_id, app_key, 1 << n) for n, (app_id, app_key) in enumerate(app_keys)}
        self.log = log
        self.usage = usage
        self.messages: dict[bytes, Message] = {}
        self.bytes = 0
        self.order = 0
        self.schemas = SchemaMultiplexer()
        self.broadcast = config.mode is Mode.BROADCAST
        self._all_apps = (1 << len(self.apps)) - 1

    # -- messages in

    def post(self, guid: bytes, content: Content) -> None:
        """Take a message: keep it, then hand it to every app. Raises `Full`, having changed nothing."""
        size = len(content.data)
        if self.broadcast:
            self._broadcast(guid, size, content)
            return
        if guid in self.messages or not self.apps:
            # Nobody will ever read it; or it is a retransmission of what is kept: acknowledged again, kept once.
            return
        self._check_limits(size)
        message = Message(guid, self.order, size, content, self._all_apps)
        self.log.append(message, content, len(self.apps))
        self.order += 1
        self.messages[guid] = message
        self.bytes += size
        self.usage.messages += 1
        self.usage.bytes += size
        for app in self.apps.values():
            if app.active and not app.pending and not app.redelivery:
                subscription = app.choose(size)
                if subscription is not None:
                    self._send(subscription, message, content.data)
                    continue
            app.pending.append(message)

    def restore(self, message: Message) -> None:
        """Put back a message that the log holds from before; call in order, before any consumer comes."""
        message.order = self.order
        self.order += 1
        self.schemas.keep(message.schema_id)
        self.messages[message.guid] = message
        self.bytes += message.size
        self.usage.messages += 1
        self.usage.bytes += message.size
        for app in self.apps.values():
            if message.outstanding & app.bit:
                app.pending.append(message)

    def _check_limits(self, size: int) -> None:
        config = self.config
        if config.queue_messages_max and len(self.messages) >= config.queue_messages_max:
            raise Full("LIMIT_MESSAGES", f"queue holds {len(self.messages)} messages, its limit")
        if config.queue_bytes_max and self.bytes + size > config.queue_bytes_max:
            raise Full("LIMIT_BYTES", f"queue holds {self.bytes} of {config.queue_bytes_max} bytes")
        if config.domain_messages_max and self.usage.messages >= config.domain_messages_max:
            raise Full("LIMIT_MESSAGES", f"domain holds {self.usage.messages} messages, its limit")
        if config.domain_bytes_max and self.usage.bytes + size > config.domain_bytes_max:
            raise Full("LIMIT_BYTES", f"domain holds {self.usage.bytes} of {config.domain_bytes_max} bytes")

    def _broadcast(self, guid: bytes, size: int, content: Content) -> None:
        """At most once, to whoever listens now and has room; nothing is kept."""
        message = Message(guid, self.order, size, content, 0)
        self.order += 1
        for app in self.apps.values():
            for subscription in app.active:
                stream = subscription.stream
                if stream.sink.ready:
                    schema_id = _announced(stream, message.schema_id)
                    stream.sink.push(stream.queue_id, message, content.data, subscription.subscription_id, schema_id)

    # -- messages out

    def deliver(self, app: App) -> None:
        """Send what waits, oldest first, for as long as somebody has room."""
        redelivery, pending, bit = app.redelivery, app.pending, app.bit
        while redelivery or pending:
            message = redelivery[0] if redelivery else pending[0]
            if message.outstanding & bit:
                subscription = app.choose(message.size)
                if subscription is None:
                    return
                self._send(subscription, message, self.log.read(message))
            if redelivery:
                del redelivery[0]
            else:
                pending.popleft()

    def _send(self, subscription: Subscription, message: Message, data: Buffer) -> None:
        stream = subscription.stream
        stream.unconfirmed[message.guid] = (message, subscription)
        subscription.messages_left -= 1
        subscription.bytes_left -= message.size
        schema_id = message.schema_id
        if schema_id:
            schema_id = _announced(stream, schema_id)
        stream.sink.push(stream.queue_id, message, data, subscription.subscription_id, schema_id)

    def confirm(self, stream: Stream, guid: bytes) -> bool:
        """An app is done with a message. False when the app had no such message to confirm."""
        app = stream.app
        held = stream.unconfirmed.pop(guid, None)
        if held is not None:
            message, subscription = held
            subscription.messages_left += 1
            subscription.bytes_left += message.size
        else:
            # A client that reconnected may confirm what was delivered to it before.
            found = self.messages.get(guid)
            if found is None or not found.outstanding & app.bit:
                return False
            message = found
            self._recall(app, message)
        message.outstanding &= ~app.bit
        if message.outstanding:
            self.log.confirm(message, app.key)
        else:
            self._remove(message)
        if app.redelivery or app.pending:
            self.deliver(app)
        return True

    def _recall(self, app: App, message: Message) -> None:
        """Take back a message from whichever other stream of `app` holds it."""
        for stream in app.streams:
            held = stream.unconfirmed.pop(message.guid, None)
            if held is not None:
                held[1].messages_left += 1
                held[1].bytes_left += message.size

    def _remove(self, message: Message) -> None:
        self.log.remove(message)
        del self.messages[message.guid]
        self.bytes -= message.size
        self.usage.messages -= 1
        self.usage.bytes -= message.size

    # -- consumers

    def attach(self, app: App, stream: Stream) -> None:
        """A client opened the app for reading; it receives once it is configured."""
        app.streams.append(stream)

    def configure(self, stream: Stream, subscriptions: list[Subscription]) -> None:
        """Replace a stream's subscriptions; what it holds unconfirmed counts against the new ones.

        A stream left without subscriptions gives back what it holds, in order, to the others. Nothing is sent yet:
        call `deliver` when the client has its answer.
        """
        app = stream.app
        stream.subscriptions = subscriptions
        if not subscriptions:
            self._give_back(stream)
        else:
            by_id = {s.subscription_id: s for s in subscriptions}
            for guid, (message, old) in stream.unconfirmed.items():
                new = by_id.get(old.subscription_id, subscriptions[0])
                new.messages_left -= 1
                new.bytes_left -= message.size
                stream.unconfirmed[guid] = (message, new)
        app.rebuild()

    def detach(self, stream: Stream) -> None:
        """The client closed the app or went away: others get what it did not confirm, in order."""
        app = stream.app
        if stream in app.streams:
            app.streams.remove(stream)
        self._give_back(stream)
        app.rebuild()
        self.deliver(app)

    def _give_back(self, stream: Stream) -> None:
        app = stream.app
        for message, subscription in stream.unconfirmed.values():
            subscription.messages_left += 1
            subscription.bytes_left += message.size
            if message.outstanding & app.bit:
                insort(app.redelivery, message)
        stream.unconfirmed.clear()

    def resume(self, stream: Stream) -> None:
        """The stream's sink is ready again."""
        if not self.broadcast:
            self.deliver(stream.app)


class Usage:
    """Messages and bytes that a domain's queues hold together."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0


def _announced(stream: Stream, schema_id: int) -> int:
    """The wire schema id, its low bit set when this reader meets the id for the first time."""
    if schema_id in stream.schemas_sent and not schema_id & 1:
        return schema_id
    stream.schemas_sent.add(schema_id & ~1)
    return schema_id | 1
