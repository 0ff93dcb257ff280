"""The capabilities of a queue or a topic, used by commands without the system's name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from bmqctl.carrying.messages.browsing import Browsed, BrowseOptions, FindOptions, Shown
from bmqctl.carrying.messages.ends import Reach
from bmqctl.carrying.messages.posting import Sink
from bmqctl.carrying.messages.tailing import Feed, TailOptions
from bmqctl.carrying.moving.run import CarryEnd
from bmqctl.carrying.options import PostOptions
from bmqctl.carrying.replay.run import Replay
from bmqctl.systems.explaining.cause import Cause

__all__ = ["End"]


class End(CarryEnd, Protocol):
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

    def open_sink(self, reach: Reach, options: PostOptions) -> AbstractAsyncContextManager[Sink]:
        """Open the place for posting. Raises `ClientError`, `ValueError` or `CannotBegin`."""
        ...

    def open_feed(self, reach: Reach, options: TailOptions) -> AbstractAsyncContextManager[Feed]:
        """Open the place for consuming. Raises `ClientError`, `ValueError` or `CannotBegin`."""
        ...

    async def browse(self, reach: Reach, options: BrowseOptions, shown: Shown) -> Browsed:
        """Show stored messages. Raises `CannotBegin`."""
        ...

    async def find(self, reach: Reach, options: FindOptions, shown: Shown) -> Browsed:
        """Show the wanted ones of the stored messages. Raises `CannotBegin`."""
        ...

    def replay(self, reach: Reach) -> Replay:
        """Make the destination of a replay. Raises `CannotBegin`."""
        ...

    def causes(self, reach: Reach) -> list[Cause]:
        """Ask why messages wait. Raises `CannotBegin`."""
        ...
