# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The services that a queue needs of its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.bmq.core.config import MessageThrottle, ReopenPace
from broker.bmq.core.work import Work
from broker.bmq.queue.routing import NEVER_MS
from broker.bmq.queue.unknown_confirms import KeptConfirms
from broker.common.clock import Now
from broker.common.faults import Faults
from broker.common.timers import Timers

__all__ = ["Hold", "Surroundings", "UpkeepState"]


class Hold(Protocol):
    """A hold on the expiry of restored messages; see `broker.bmq.queue.expiry_hold`."""

    since_ms: int

    def holds(self, ttl_s: int) -> bool: ...

    @property
    def younger_ms(self) -> int: ...


class UpkeepState:
    """The notes of the tasks that keep a queue in order."""

    __slots__ = ("expiry_hold", "idle_since_ms", "is_expiring", "is_packing", "packs_at_ms", "was_opened")

    def __init__(self) -> None:
        self.expiry_hold: Hold | None = None
        self.is_expiring = False  # a task removes expired messages
        self.is_packing = False  # a task packs waiting messages
        self.packs_at_ms = NEVER_MS  # not before
        self.was_opened = False  # since the node started
        self.idle_since_ms: int | None = None  # when it was first seen to be idle


class Surroundings(Protocol):
    """The services that a queue needs of its node."""

    @property
    def now(self) -> Now: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def throttle(self) -> MessageThrottle: ...

    @property
    def work(self) -> Work: ...

    @property
    def faults(self) -> Faults: ...

    @property
    def kept_confirms(self) -> KeptConfirms: ...

    @property
    def open_timeout_ms(self) -> int:
        """The time that a client waits for the opening of a queue that another node serves."""
        ...

    @property
    def reopen_pace(self) -> ReopenPace: ...

    @property
    def keep_rejected(self) -> Callable[[str], str]:
        """Writes the description of a rejected message to a file and returns its path. Raises OSError."""
        ...
