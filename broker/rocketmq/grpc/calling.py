"""Interfaces between the parts of the service: calls, and the clients that make them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from broker.rocketmq.grpc.brokers.backend import Done, Topic
from formats.rocketmq.grpc.messages import Message
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.frame import Frame

__all__ = ["Answer", "Asked", "CallingClient", "Handler", "Handlers"]


class CallingClient(Protocol):
    """The client of a call, for which brokers are asked."""

    @property
    def client_id(self) -> str: ...

    @property
    def host(self) -> Host: ...

    @property
    def version(self) -> str:
        """The version of its library, "" if the call states none."""
        ...

    @property
    def is_vouched_for(self) -> bool:
        """True if its calls are checked here, so that brokers treat it like the proxy."""
        ...

    @property
    def request_timeout_ms(self) -> int:
        """The time that it gives its requests, by its settings; 0 if unknown."""
        ...

    @property
    def key(self) -> object:
        """The client itself, the same in all of its calls."""
        ...

    @property
    def is_present(self) -> bool:
        """True if its stream of Telemetry is open."""
        ...

    def go_on(self, work: Callable[[], None]) -> None:
        """Continue the call later; a fault or a `Rejected` ends it."""
        ...

    def knows(self, broker: str) -> bool:
        """Return False if there is certainly no broker of that name."""
        ...

    def find_topic(self, name: str, then: Callable[[Topic], None]) -> None:
        """Call `then` with a topic, now or later; the call ends if there is none."""
        ...

    def find_group(self, name: str, topic: str | None, then: Callable[[GroupConfig], None]) -> None:
        """Call `then` with a group that consumes a topic, now or later."""
        ...

    def ask(self, broker: str, frame: Frame, done: Done, wait_ms: int = 0) -> None:
        """Ask a broker; `done` gets the answer later. See `backend.Link`.

        Both may raise `Rejected`, as a handler may.
        """
        ...

    def join(self, frame: Frame, producer_groups: Collection[str], done: Done) -> None:
        """Register the client by its heartbeat; see `backend.Link`."""
        ...


class Asked(NamedTuple):
    """A call: its request, client and time, and the time left (None: any)."""

    request: Message
    client: CallingClient
    now_ms: int
    left_ms: int | None
    is_over: Callable[[], bool]


Answer = Callable[[Message], None]
# Carries out a call, now or later. Raises `Rejected` to refuse it.
Handler = Callable[[Asked, Answer], None]
Handlers = Mapping[str, Handler]
