# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A session's interface to another broker's link."""

from __future__ import annotations

from typing import Protocol

from broker.common.standing import Standing
from formats.bmq.wire.event import Frame

__all__ = ["BrokerPeer"]


class BrokerPeer(Protocol):
    """The purpose of a session with another broker; the session handles heartbeats."""

    @property
    def heartbeats_missed_max(self) -> int:
        """Number of consecutive heartbeats that may stay unanswered; with 0 none are sent."""
        ...

    @property
    def control_bytes_max(self) -> int: ...

    @property
    def backlog_bytes_max(self) -> int:
        """Unsent output above which the session is ended, in bytes."""
        ...

    @property
    def standing(self) -> Standing:
        """PEER if its memory has a bound of its own, CLIENT if the bound of all clients includes it."""
        ...

    def begun(self) -> None: ...

    def receive(self, data: memoryview, frame: Frame) -> None:
        """Process an event. Raises FormatError for an event that no broker sends."""
        ...

    def output_sent(self) -> None: ...

    def hold(self) -> None: ...

    def ended(self) -> None: ...
