"""The brokers behind the service: the requests to them, wherever they are.

There are two kinds: the broker of this process (`local`), and the brokers of a cluster, which nameservers know
(`broker.rocketmq.proxy`).
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
    """A topic: the types of messages that it accepts, its queues by broker, and the writable ones among them."""

    name: str
    types: tuple[MessageType, ...]
    queues: tuple[QueueData, ...]
    writes: tuple[tuple[str, int], ...]

    def readers(self) -> list[str]:
        """Return the names of the brokers that may be read from."""
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
        """True if nothing can be asked over it any more."""
        ...

    def ask(self, broker: str, frame: Frame, done: Done, wait_ms: int = 0) -> None:
        """Ask the broker of a name; `done` gets the answer, never at once. Its body is valid during that call only.

        `wait_ms` is the time for which the broker may wait until it answers. Without a broker's answer, `done` gets a
        frame with one of the codes of `statuses` for that.
        """
        ...

    def join(self, frame: Frame, producer_groups: Collection[str], done: Done) -> None:
        """Register the client by its heartbeat: brokers ask producers about their transactions."""
        ...

    def end(self) -> None:
        """Forget the client. Open requests have failed."""
        ...


class Backend(Protocol):
    """The brokers. A lookup gives its result, or the reason why there is none, at once or later."""

    def connect(self, host: Host, asked: TakesQuestion) -> Link: ...

    def knows(self, broker: str) -> bool:
        """Return False if there is certainly no broker of that name."""
        ...

    def find_topic(self, name: str, found: Callable[[Topic | CallRejected], None]) -> None:
        """Look up a topic."""
        ...

    def find_group(self, name: str, topic: str | None, found: Callable[[GroupConfig | CallRejected], None]) -> None:
        """Look up a group that consumes a topic; a group that does not exist has the defaults."""
        ...

    def end_step(self) -> bool:
        """Pass on the brokers' answers. Return True if that led to new requests."""
        ...

    def tick(self) -> None:
        """Do the work that is due."""
        ...

    def leave(self) -> None:
        """Prepare for the end of the process."""
        ...
