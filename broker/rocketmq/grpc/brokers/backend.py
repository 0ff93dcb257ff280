"""The brokers behind the service: what it asks of them, wherever they are.

There are two kinds: the broker of this process (`local`), and the brokers of a cluster, which nameservers know
(`broker.rocketmq.proxy`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from broker.rocketmq.grpc.statuses import Rejected
from formats.rocketmq.grpc.codes import MessageType
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import Permission, QueueData, TopicConfig
from formats.rocketmq.remoting.frame import Frame

__all__ = ["Backend", "Done", "Link", "TakesQuestion", "Topic", "accepted_types"]

# The attribute of a topic that says which messages it takes.
_TYPE: Final = "message.type"
_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_READ: Final = int(Permission.READ)

Done = Callable[[Frame], None]
# Takes what a broker, of the name, asks of a client; returns whether the client is there to be asked that.
TakesQuestion = Callable[[str, Frame], bool]


class Topic(NamedTuple):
    """A topic: the kinds of messages that it takes, its queues by broker, and those of them that may be written to."""

    name: str
    types: tuple[MessageType, ...]
    queues: tuple[QueueData, ...]
    writes: tuple[tuple[str, int], ...]

    def readers(self) -> list[str]:
        """The names of the brokers that may be read from."""
        return [each.broker_name for each in self.queues if each.perm & _READ and each.read_queue_nums > 0]


def accepted_types(config: TopicConfig) -> tuple[MessageType, ...]:
    """The kinds of messages that a topic takes."""
    name = config.attributes.get(_TYPE, MessageType.NORMAL.name).upper()
    if name == "MIXED":
        return _MIXED
    return (MessageType[name] if name in MessageType.__members__ else MessageType.MESSAGE_TYPE_UNSPECIFIED,)


class Link(Protocol):
    """The way of one client to the brokers."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing can be asked over it any more."""
        ...

    def ask(self, broker: str, frame: Frame, done: Done, wait_ms: int = 0) -> None:
        """Ask the broker of a name; `done` gets the answer, never at once. Its body is valid during that call only.

        `wait_ms` is for how long the broker may wait until it answers. Where a broker has not answered, `done` gets
        a frame with one of the codes of `statuses` for that.
        """
        ...

    def join(self, frame: Frame, producer_groups: Collection[str], done: Done) -> None:
        """Make the client known by its heartbeat: brokers ask producers about their transactions."""
        ...

    def end(self) -> None:
        """Forget the client. What was asked has failed."""
        ...


class Backend(Protocol):
    """The brokers. What is looked up is given at once or later, or the reason why it cannot be had."""

    def connect(self, host: Host, asked: TakesQuestion) -> Link:
        """Make the link of a client at a host."""
        ...

    def knows(self, broker: str) -> bool:
        """Return False if there is no broker of that name for certain."""
        ...

    def find_topic(self, name: str, found: Callable[[Topic | Rejected], None]) -> None:
        """Look up a topic."""
        ...

    def find_group(self, name: str, topic: str | None, found: Callable[[GroupConfig | Rejected], None]) -> None:
        """Look up a group that consumes a topic; one with the defaults for a group that there is not."""
        ...

    def end_step(self) -> bool:
        """Hand on what brokers have said. True if that led to new questions."""
        ...

    def tick(self) -> None:
        """Do what is due."""
        ...

    def leave(self) -> None:
        """Say farewell: the process stops."""
        ...
