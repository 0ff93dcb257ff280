"""The place that the messages of a replay go to."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from bmqctl.carrying.replay.messages import Stored
from bmqctl.carrying.replay.run import Run

__all__ = ["Replay", "ReplayOptions"]


class ReplayOptions(NamedTuple):
    """`speed` is a factor of the original pace, None as fast as possible; `makes_topics` makes topics that lack."""

    speed: float | None
    window: int
    patience_s: float
    makes_topics: bool = False


class Replay(Protocol):
    """A queue or a topic for all messages, or with `target` "" a broker or cluster at which each keeps its own."""

    @property
    def target(self) -> str: ...

    def lasting(self, text: str) -> str:
        """Return `text`, which names this place, without what may differ in a later run."""
        ...

    def check_target(self, name: str) -> None:
        """Raise `BadRename` unless messages can go to a queue or a topic with this name."""
        ...

    def check_delayed(self) -> None:
        """Raise `CannotBegin` if messages cannot be delayed here."""
        ...

    def convert(self, message: Stored) -> object:
        """Make the message that would go out. Raises `Unfit`."""
        ...

    async def carry_out(self, run: Run, options: ReplayOptions) -> None:
        """Post what is left. Raises `CannotBegin` if no message can be posted at all."""
        ...

    def about_repeated(self, run: Run, count: int, silent_s: float) -> str | None:
        """Say what became of messages that an earlier run, which ended `silent_s` ago, left without an answer."""
        ...
