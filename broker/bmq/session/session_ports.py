# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A session's interface to another broker's link."""

from __future__ import annotations

from typing import Protocol

from broker.common.standing import Standing
from formats.bmq.wire.event import Frame

__all__ = ["BrokerPeer"]


class BrokerPeer(Protocol):
    """The purpose of a session with another broker; heartbeats are handled by the session."""

    @property
    def heartbeats_missed_max(self) -> int:
        """Number of heartbeats in a row that may stay unanswered before the session is ended; with 0 none are sent."""
        ...

    @property
    def control_bytes_max(self) -> int:
        """Maximum size of an event with a control message."""
        ...

    @property
    def backlog_bytes_max(self) -> int:
        """Unsent output above which the session is ended, in bytes."""
        ...

    @property
    def standing(self) -> Standing:
        """PEER if its memory has a bound of its own, CLIENT if the bound of all clients includes it."""
        ...

    def begun(self) -> None:
        """Begin, after negotiation."""
        ...

    def receive(self, data: memoryview, frame: Frame) -> None:
        """Process an event. Raises FormatError for an event that no broker sends."""
        ...

    def output_sent(self) -> None:
        """Note that the broker has taken all output."""
        ...

    def hold(self) -> None:
        """Stop pushing messages to it."""
        ...

    def ended(self) -> None:
        """Handle the end of the session."""
        ...
