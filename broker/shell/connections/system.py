"""The loop's interface to a system, which makes a session for each peer.

BlazingMQ's `broker.bmq.node.node.Node` is one; `broker.rocketmq.node.Node` is another.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Protocol

from broker.common.clock import Now
from broker.common.faults import Failing, Faults
from broker.common.timers import Timers
from broker.shell.connections.link import Machine

__all__ = ["MadeSession", "System"]


class MadeSession(Machine, Failing, Protocol):
    """A session that a system has made."""

    @property
    def session_id(self) -> int: ...


class Dirty(Protocol):
    """The sessions that may have output."""

    def pop(self) -> MadeSession: ...
    def __len__(self) -> int: ...


class System(Protocol):
    """A system that the loop serves. A session is passed only to the system that made it."""

    stopping: bool

    @property
    def now(self) -> Now:
        """The time, which the loop sets before each step."""
        ...

    @property
    def faults(self) -> Faults: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def dirty(self) -> Dirty: ...

    @property
    def sessions(self) -> Container[int]: ...

    @property
    def before_sending(self) -> Callable[[], None]:
        """Called before the output of a step is sent."""
        ...

    @property
    def connect(self) -> Callable[[str, Callable[[], frozenset[str]]], MadeSession]:
        """Makes a peer's session from its address and the names in its certificate."""
        ...

    def disconnect(self, session: Any, reason: str) -> None: ...

    def end_failed(self) -> None: ...

    def end_step(self) -> tuple[bool, bool]:
        """End a step; return (more can be done at once, a session has unfinished output)."""
        ...

    def rest(self) -> bool:
        """Send output that steps left to go with later output; return True if there was any.

        Called before the loop waits for longer than a moment.
        """
        ...

    def tick(self) -> None: ...

    def retire(self) -> bool:
        """Prepare the stop; return True once others have taken over."""
        ...

    @property
    def awaits_confirms(self) -> Callable[[], bool]:
        """Returns True while `retire` waits for something that has a limit of its own."""
        ...

    def leave(self) -> None: ...
