"""Calls as the parts of the service take them, and clients as they see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from broker.rocketmq.grpc.brokers.backend import Done, Topic
from formats.rocketmq.grpc.messages import Message
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.frame import Frame

__all__ = ["Answer", "Asked", "Asker", "Handler", "Handlers"]


class Asker(Protocol):
    """The client that calls, on whose behalf the broker is asked."""

    @property
    def client_id(self) -> str: ...

    @property
    def host(self) -> Host: ...

    @property
    def version(self) -> str:
        """The version of its library, as the call says; empty if it does not."""
        ...

    @property
    def is_vouched_for(self) -> bool:
        """Return whether its calls are checked here, so that brokers let it do what they let the proxy do."""
        ...

    @property
    def request_timeout_ms(self) -> int:
        """The time that it gives its requests, as its settings say; 0 if they do not."""
        ...

    @property
    def key(self) -> object:
        """The client itself, whichever call it makes."""
        ...

    @property
    def is_present(self) -> bool:
        """Return whether its stream of Telemetry is open."""
        ...

    def go_on(self, work: Callable[[], None]) -> None:
        """Do more for the call, later; what goes wrong, or a `Rejected`, ends it."""
        ...

    def knows(self, broker: str) -> bool:
        """Return False if there is no broker of that name for certain."""
        ...

    def find_topic(self, name: str, then: Callable[[Topic], None]) -> None:
        """Go on with a topic, now or later; the call ends if there is none."""
        ...

    def find_group(self, name: str, topic: str | None, then: Callable[[GroupConfig], None]) -> None:
        """Go on with a group that consumes a topic, now or later."""
        ...

    def ask(self, broker: str, frame: Frame, done: Done, wait_ms: int = 0) -> None:
        """Ask the broker of a name; `done` gets the answer later. See `backend.Link`.

        Both may raise `Rejected`, as a handler may.
        """
        ...

    def join(self, frame: Frame, producer_groups: Collection[str], done: Done) -> None:
        """Make the client known by its heartbeat; see `backend.Link`."""
        ...


class Asked(NamedTuple):
    """A call: its request, who made it and when, and the time that it has (None: any)."""

    request: Message
    client: Asker
    now_ms: int
    left_ms: int | None
    is_over: Callable[[], bool]


# Takes the answer.
Answer = Callable[[Message], None]
# Carries out a call, now or later. Raises `Rejected` for one that is not carried out.
Handler = Callable[[Asked, Answer], None]
Handlers = Mapping[str, Handler]
