"""What a client machine tells its driver."""

from __future__ import annotations

from dataclasses import dataclass
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
    "Event",
    "Opened",
    "Pushes",
    "QueueHandle",
    "Refused",
    "Started",
    "Stopped",
    "StreamOptions",
]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a consumer takes part; defaults are the reference's (`bmqt::QueueOptions`)."""

    max_unconfirmed_messages: int = 1000
    max_unconfirmed_bytes: int = 33554432
    priority: int = 0


@dataclass(slots=True, eq=False)
class QueueHandle:
    """A queue as this session has it open; `sub_id` is 0 unless it reads for an app of a fan-out."""

    uri: QueueUri
    queue_id: int
    sub_id: int
    read: bool
    write: bool
    options: StreamOptions
    state: Queue = Queue.CLOSED
    subscription_id: int = 0

    @property
    def is_open(self) -> bool:
        return self.state is Queue.OPENED

    def __str__(self) -> str:
        return str(self.uri)


class Ack(NamedTuple):
    """The answer to one message; `correlation` is what `post` was given with it."""

    status: AckStatus
    guid: bytes
    correlation: Any


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


Event = Started | Stopped | Opened | Configured | Closed | Refused | Acks | Pushes
