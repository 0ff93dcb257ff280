"""The brokers behind the service: the requests to them, wherever they are.

They are the broker of this process (`local`), or a cluster's, which nameservers know (`broker.rocketmq.proxy`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from broker.rocketmq.grpc.statuses import CallRejected
from formats.rocketmq.grpc.codes import MessageType
from formats.rocketmq.hosts import Host
from formats.rocketmq.message_types import topic_type
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import Permission, QueueData, TopicConfig
from formats.rocketmq.remoting.frame import Frame

__all__ = ["Backend", "Done", "Link", "TakesQuestion", "Topic", "accepted_types"]

_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_READ: Final = int(Permission.READ)

Done = Callable[[Frame], None]
# Takes a request to a client from the broker of a name; returns whether the client can be asked.
TakesQuestion = Callable[[str, Frame], bool]


class Topic(NamedTuple):
    """A topic: the types of its messages, its queues by broker, and the writable ones."""

    name: str
    types: tuple[MessageType, ...]
    queues: tuple[QueueData, ...]
    writes: tuple[tuple[str, int], ...]

    def readers(self) -> list[str]:
        return [each.broker_name for each in self.queues if each.perm & _READ and each.read_queue_nums > 0]


def accepted_types(config: TopicConfig) -> tuple[MessageType, ...]:
    name = topic_type(config.attributes)
    if name == "MIXED":
        return _MIXED
    return (MessageType[name] if name in MessageType.__members__ else MessageType.MESSAGE_TYPE_UNSPECIFIED,)


class Link(Protocol):
    """A client's connection to the brokers."""

    @property
    def is_over(self) -> bool:
        """True if it takes no more requests."""
        ...

    def ask(self, broker: str, frame: Frame, done: Done, wait_ms: int = 0) -> None:
        """Ask the broker of a name; `done` gets the answer later. Its body is valid during that call only.

        The broker may take `wait_ms` to answer. Without its answer, `done` gets a frame with a code of `statuses`.
        """
        ...

    def join(self, frame: Frame, producer_groups: Collection[str], done: Done) -> None:
        """Register the client by its heartbeat: brokers ask producers about their transactions."""
        ...

    def end(self) -> None:
        """Forget the client, with its open requests."""
        ...


class Backend(Protocol):
    """The brokers. A lookup gives its result, or why there is none, at once or later."""

    def connect(self, host: Host, asked: TakesQuestion) -> Link: ...

    def knows(self, broker: str) -> bool:
        """Return False if certainly no broker has that name."""
        ...

    def find_topic(self, name: str, found: Callable[[Topic | CallRejected], None]) -> None: ...

    def find_group(self, name: str, topic: str | None, found: Callable[[GroupConfig | CallRejected], None]) -> None:
        """Look up a group that consumes a topic; a missing group has the defaults."""
        ...

    def end_step(self) -> bool:
        """Pass on the brokers' answers; return whether that led to new requests."""
        ...

    def tick(self) -> None: ...

    def leave(self) -> None: ...
