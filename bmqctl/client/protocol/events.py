"""Events that a client machine reports to its driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from bmqctl.client.arguments import LONG_MAX, check_whole
from bmqctl.client.protocol.lifecycle import Queue
from bmqctl.client.protocol.message import Message
from formats.bmq.control.messages import BrokerResponse, Status
from formats.bmq.uri import QueueUri
from formats.bmq.wire.ack import AckStatus

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


# bmqt::QueueOptions has these bounds; the wire has room for further priorities.
PRIORITY_MIN: Final = -(1 << 30)
PRIORITY_MAX: Final = (1 << 30) - 1
SUBSCRIPTIONS_MAX: Final = 4096
_RANGES: Final = {
    "max_unconfirmed_messages": (0, LONG_MAX),
    "max_unconfirmed_bytes": (0, LONG_MAX),
    "priority": (PRIORITY_MIN, PRIORITY_MAX),
}


@dataclass(frozen=True, slots=True)
class StreamSubscription:
    """A consumer's subscription (`expression` None: all messages); other fields that are None are as in the options.

    `correlation` is for the application; a message leads to it through `QueueHandle.subscriptions`.
    """

    expression: str | None = None
    max_unconfirmed_messages: int | None = None
    max_unconfirmed_bytes: int | None = None
    priority: int | None = None
    correlation: Any = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """A consumer's options; defaults are the reference's (`bmqt::QueueOptions`).

    No subscriptions mean one for all messages. While `suspended` no messages come.
    """

    max_unconfirmed_messages: int = 1000
    max_unconfirmed_bytes: int = 33554432
    priority: int = 0
    subscriptions: tuple[StreamSubscription, ...] = ()
    suspended: bool = False

    def check(self) -> None:
        """Raise `ValueError` for a number out of its range, here or in a subscription."""
        check_whole("the number of subscriptions", len(self.subscriptions), 0, SUBSCRIPTIONS_MAX)
        for name, (low, high) in _RANGES.items():
            check_whole(name, getattr(self, name), low, high)
            for each in self.subscriptions:
                value = getattr(each, name)
                if value is not None:
                    check_whole(f"{name} of a subscription", value, low, high)


@dataclass(slots=True, eq=False)
class QueueHandle:
    """A queue as this session has it open; `sub_id` is 0 unless it reads for an app of a fan-out.

    `deduplication_time_ms` is the time for which the broker recognises a repeated message.
    """

    uri: QueueUri
    queue_id: int
    sub_id: int
    read: bool
    write: bool
    options: StreamOptions
    ack: bool = False
    state: Queue = Queue.CLOSED
    # Subscriptions for which messages may come, by the id that the messages carry.
    subscriptions: dict[int, StreamSubscription] = field(default_factory=dict)
    deduplication_time_ms: int = 0

    @property
    def is_open(self) -> bool:
        return self.state is Queue.OPENED

    @property
    def is_closed(self) -> bool:
        return self.state in (Queue.CLOSED, Queue.CLOSING)

    def __str__(self) -> str:
        return str(self.uri)


class Ack(NamedTuple):
    """The answer to one post, with the `correlation` and `queue` of the post.

    Both are None for a message that this session has not posted.
    """

    status: AckStatus
    guid: bytes
    correlation: Any
    queue: QueueHandle | None = None


class Acks(NamedTuple):
    """The answers in one event."""

    acks: list[Ack]


class Pushes(NamedTuple):
    """Messages for one queue, in order of arrival."""

    queue: QueueHandle
    messages: list[Message]


class Started(NamedTuple):
    """The broker accepted the client's identity."""

    broker: BrokerResponse


class Stopped(NamedTuple):
    """The session ended: `fault` is the reason, or None if the client ended it."""

    fault: str | None


class ConnectionLost(NamedTuple):
    """The connection is lost and the session waits for a new one; `fault` is the reason.

    With `silent` the session itself ended the connection, after missed heartbeats.
    """

    fault: str
    silent: bool = False


class Reconnected(NamedTuple):
    """A broker accepted the client's identity again; queues are yet to be reopened."""

    broker: BrokerResponse


class Reopened(NamedTuple):
    queue: QueueHandle


class Restored(NamedTuple):
    """All queues are reopened, except refused ones."""


class Opened(NamedTuple):
    queue: QueueHandle


class Configured(NamedTuple):
    queue: QueueHandle


class Closed(NamedTuple):
    queue: QueueHandle


class Refused(NamedTuple):
    """A request about `queue` was refused or timed out."""

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
