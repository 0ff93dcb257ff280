# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The link from a relay to its upstream: the primary with the queue's root, or a node on the path to it."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from broker.bmq.links.requests import Answered
from formats.bmq.wire.event import EventType

__all__ = ["TRANSITIONS", "Upstream", "UpstreamState", "UpstreamTrigger"]


class Upstream(Protocol):
    """A link to an upstream. Requests and events are sent in the order of the calls."""

    @property
    def description(self) -> str: ...

    @property
    def is_up(self) -> bool: ...

    @property
    def takes_early(self) -> bool:
        """True if the node takes posts and confirms before the subscriptions; see `negotiation.EARLY_FEATURE`."""
        ...

    def request(self, choice: object, answered: Answered) -> int:
        """Send a request and return its number, 0 if it could not be sent.

        `answered` is called once, later: with a `Status` if it failed, here or there.
        """
        ...

    def event(self, kind: EventType, head: bytes = b"") -> bytearray:
        """Return an open event of `kind`, to append to; `head` begins the body of a new one."""
        ...

    def knows_opens(self) -> None:
        """Note that the upstream knows all opens, and has been sent the pending posts and confirms."""
        ...

    def fail(self, error: Exception) -> None:
        """Close the link after this step, because something could not be put into an event."""
        ...


class UpstreamState(Enum):
    """The state of a relay with respect to its upstream."""

    NONE = "none"
    OPENING = "opening"
    OPEN = "open"


class UpstreamTrigger(Enum):
    FOUND = "found"
    OPENED = "opened"
    LOST = "lost"


# Outgoing data is kept unless the state is OPEN; OPENING repeats the clients' opens, then sends the kept data.
TRANSITIONS: dict[tuple[UpstreamState, UpstreamTrigger], UpstreamState] = {
    (UpstreamState.NONE, UpstreamTrigger.FOUND): UpstreamState.OPENING,
    (UpstreamState.OPENING, UpstreamTrigger.OPENED): UpstreamState.OPEN,
    (UpstreamState.NONE, UpstreamTrigger.LOST): UpstreamState.NONE,
    (UpstreamState.OPENING, UpstreamTrigger.LOST): UpstreamState.NONE,
    (UpstreamState.OPEN, UpstreamTrigger.LOST): UpstreamState.NONE,
}
