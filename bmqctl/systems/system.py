"""The capabilities of a system's parts, which commands use without the system's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from bmqctl.carrying.messages.browsing import BrowseEnd
from bmqctl.carrying.messages.ends import Reach
from bmqctl.carrying.messages.posting import PostEnd
from bmqctl.carrying.messages.tailing import TailEnd
from bmqctl.carrying.moving.run import CarryEnd

if TYPE_CHECKING:
    from bmqctl.carrying.replay.destination import Replay
    from bmqctl.systems.explaining.cause import Cause

__all__ = ["End"]


class End(PostEnd, TailEnd, BrowseEnd, CarryEnd, Protocol):
    """A queue or a topic, and the address of its broker or nameserver.

    `names_broker` is True if its URI has that address. `columns` are the names of a message's place.
    """

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def names_broker(self) -> bool: ...
    @property
    def columns(self) -> Sequence[str]: ...

    def replay(self, reach: Reach) -> Replay:
        """Make the destination of a replay. Raises `CannotBegin`."""
        ...

    def causes(self, reach: Reach) -> list[Cause]:
        """Ask why messages wait. Raises `CannotBegin`."""
        ...
