"""What a client machine tells its driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bmqctl.client.lifecycle import Queue
from bmqctl.client.message import Message
from formats.control.messages import BrokerResponse, Status
from formats.uri import QueueUri
from formats.wire.ack import AckStatus

__all__ = [
    "Ack",
    "Acks",
    "Closed",
    "Configured",
    "ConnectionLost",
    "Event",
    "Opened",
    "Pushes",
    "QueueHandle",
    "Reconnected",
    "Refused",
    "Reopened",
    "Restored",
    "Started",
    "Stopped",
    "StreamOptions",
    "StreamSubscription",
]


@dataclass(frozen=True, slots=True)
class StreamSubscription:
    """Which messages a consumer wants (`expression` None: all); what is None is as in the stream's options.

    `correlation` is the application's own; a message leads back to it through `QueueHandle.subscriptions`.
    """

    expression: str | None = None
    max_unconfirmed_messages: int | None = None
    max_unconfirmed_bytes: int | None = None
    priority: int | None = None
    correlation: Any = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a consumer takes part; defaults are the reference's (`bmqt::QueueOptions`).

    Without subscriptions there is one to all messages.
    """

    max_unconfirmed_messages: int = 1000
    max_unconfirmed_bytes: int = 33554432
    priority: int = 0
    subscriptions: tuple[StreamSubscription, ...] = ()


@dataclass(slots=True, eq=False)
class QueueHandle:
    """A queue as this session has it open; `sub_id` is 0 unless it reads for an app of a fan-out.

    `deduplication_time_ms` is how long the broker recognizes a message that is sent again.
    """

    uri: QueueUri
    queue_id: int
    sub_id: int
    read: bool
    write: bool
    options: StreamOptions
    ack: bool = False
    state: Queue = Queue.CLOSED
    # What messages may come for, by the id that they carry.
    subscriptions: dict[int, StreamSubscription] = field(default_factory=dict)
    deduplication_time_ms: int = 0

    @property
    def is_open(self) -> bool:
        return self.state is Queue.OPENED

    @property
    def is_closed(self) -> bool:
        """It is of no use any more, and will not be."""
        return self.state in (Queue.CLOSED, Queue.CLOSING)

    def __str__(self) -> str:
        return str(self.uri)


class Ack(NamedTuple):
    """The answer to one message; `correlation` is what `post` was given with it, and `queue` where it was posted.

    Both are None for a message that this session has not posted.
    """

    status: AckStatus
    guid: bytes
    correlation: Any
    queue: QueueHandle | None = None


class Acks(NamedTuple):
    """The answers that one event brought."""

    acks: list[Ack]


class Pushes(NamedTuple):
    """Messages for one queue, in the order in which they came."""

    queue: QueueHandle
    messages: list[Message]


class Started(NamedTuple):
    """The broker took our identity."""

    broker: BrokerResponse


class Stopped(NamedTuple):
    """The session is over: `fault` says why, and is None if we asked for it."""

    fault: str | None


class ConnectionLost(NamedTuple):
    """There is no connection, and the session waits for a new one; `fault` says why.

    If the broker was `silent`, it was the session that ended the connection.
    """

    fault: str
    silent: bool = False


class Reconnected(NamedTuple):
    """A broker took our identity again; queues are still to be reopened."""

    broker: BrokerResponse


class Reopened(NamedTuple):
    queue: QueueHandle


class Restored(NamedTuple):
    """All is as before the connection was lost, but for queues that were refused."""


class Opened(NamedTuple):
    queue: QueueHandle


class Configured(NamedTuple):
    queue: QueueHandle


class Closed(NamedTuple):
    queue: QueueHandle


class Refused(NamedTuple):
    """A request about `queue` failed, at the broker's word or for its silence."""

    queue: QueueHandle
    status: Status


Event = (
    Started
    | Stopped
    | ConnectionLost
    | Reconnected
    | Reopened
    | Restored
    | Opened
    | Configured
    | Closed
    | Refused
    | Acks
    | Pushes
)
