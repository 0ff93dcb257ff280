"""What a session asks of others: its node, the broker at its other end, and who takes whole events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from broker.core.authentication import Authentications
from broker.core.clock import Now
from broker.core.config import NodeIdentity
from broker.core.handles import Handle
from broker.core.messages import Poster
from broker.core.queue_requests import QueueHost
from formats.control.messages import ClientIdentity
from formats.wire.event import Frame

if TYPE_CHECKING:
    from broker.core.session import Session

__all__ = ["BrokerPeer", "Bulk", "Host"]


class BrokerPeer(Protocol):
    """What a session with another broker is for; heartbeats are the session's own affair."""

    @property
    def heartbeats_missed_max(self) -> int:
        """After how many silent intervals the session is given up; 0 never."""
        ...

    def begun(self) -> None:
        """Both sides know who the other is."""
        ...

    def receive(self, data: memoryview, frame: Frame) -> None:
        """Take in an event; FormatError for what no broker sends."""
        ...

    def output_sent(self) -> None:
        """The broker has taken all that there was."""
        ...

    def hold(self) -> None:
        """Push no more messages to it."""
        ...

    def ended(self) -> None:
        """The session is over."""
        ...


class Bulk(Protocol):
    """Takes whole events at nodes that are hops; False, having done nothing, for what is to be taken singly."""

    def puts(
        self, poster: Poster, number: int, handles: Mapping[int, Handle], data: memoryview, frame: Frame
    ) -> bool: ...
    def confirms(self, handles: Mapping[int, Handle], data: memoryview, frame: Frame) -> bool: ...


class Host(QueueHost, Protocol):
    """What a session asks of its node."""

    @property
    def bulk(self) -> Bulk | None: ...

    @property
    def identity(self) -> NodeIdentity: ...

    @property
    def now(self) -> Now: ...

    @property
    def dirty(self) -> set[Session]:
        """The sessions that have output to send."""
        ...

    @property
    def next_guid(self) -> Callable[[], bytes]:
        """Makes GUIDs for clients that make none."""
        ...

    @property
    def authentications(self) -> Authentications: ...

    def may_log(self, session: Session) -> bool: ...

    def admit(self, session: Session, identity: ClientIdentity) -> BrokerPeer | str:
        """Whether another broker may come in: what its session is for, or why not."""
        ...

    @property
    def run_command(self) -> Callable[[str, str], tuple[int, str]]:
        """Carries out an admin command: the line, and whence it comes; a status, and the answer."""
        ...
