"""What a session hands on: to the broker that it is with, and whole events to a hop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from broker.core.handles import Handle
from broker.core.messages import Poster
from formats.wire.event import Frame

__all__ = ["BrokerPeer", "Bulk"]


class BrokerPeer(Protocol):
    """What a session with another broker is for; heartbeats are the session's own affair."""

    @property
    def heartbeats_missed_max(self) -> int:
        """How many heartbeats in a row may stay unanswered before the session is given up; with 0 none are sent."""
        ...

    @property
    def control_bytes_max(self) -> int:
        """How long an event with a control message may be."""
        ...

    @property
    def backlog_bytes_max(self) -> int:
        """With more than this waiting to be sent, the session is ended."""
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
