"""A system behind listeners, as the loop sees it: it makes a session for each peer, and is told the time.

BlazingMQ's `broker.core.node.Node` is one; `broker.rocketmq.node.Node` is another.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Protocol

from broker.core.clock import Now
from broker.core.faults import Failing, Faults
from broker.core.timers import Timers
from broker.shell.link import Machine

__all__ = ["Peer", "System"]


class Peer(Machine, Failing, Protocol):
    """A session that a system has made."""

    @property
    def session_id(self) -> int: ...


class Dirty(Protocol):
    """The sessions that may have something to send."""

    def pop(self) -> Peer: ...
    def __len__(self) -> int: ...


class System(Protocol):
    """A system that the loop serves. A session is handed only to the system that made it."""

    stopping: bool

    @property
    def now(self) -> Now:
        """The time, which the loop sets before each step."""
        ...

    @property
    def faults(self) -> Faults: ...

    @property
    def timers(self) -> Timers:
        """The actions that are due at a time."""
        ...

    @property
    def dirty(self) -> Dirty: ...

    @property
    def sessions(self) -> Container[int]:
        """The sessions of clients, by their ids."""
        ...

    @property
    def before_sending(self) -> Callable[[], None]:
        """To be called before anything that a step has to say is sent."""
        ...

    @property
    def connect(self) -> Callable[[str, Callable[[], frozenset[str]]], Peer]:
        """Make the session of a peer, of its address and of the names in its certificate."""
        ...

    def disconnect(self, session: Any, reason: str) -> None:
        """Forget a session: its connection is closed."""
        ...

    def end_failed(self) -> None:
        """End the sessions whose work has failed."""
        ...

    def end_step(self) -> tuple[bool, bool]:
        """End a step: (there is more to do at once, somebody's output is unfinished)."""
        ...

    def tick(self) -> None:
        """Do what is due."""
        ...

    def retire(self) -> bool:
        """Prepare the stop; True once others have taken over."""
        ...

    def leave(self) -> None:
        """Say farewell to all peers."""
        ...
