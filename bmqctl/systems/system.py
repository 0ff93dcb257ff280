"""The capabilities of a system's queues and clusters, which commands use without the system's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bmqctl.carrying.moving.run import CarryEnd

if TYPE_CHECKING:
    from bmqctl.carrying.messages.browsing import Browsed, BrowseOptions, Shown
    from bmqctl.carrying.messages.ends import Reach
    from bmqctl.carrying.messages.posting import PostOptions, Sink
    from bmqctl.carrying.messages.tailing import Feed, TailOptions
    from bmqctl.carrying.replay.run import Replay
    from bmqctl.systems.bundling.archive import Archive
    from bmqctl.systems.checking.verdict import Measured
    from bmqctl.systems.explaining.cause import Cause
    from bmqctl.systems.watching.watcher import Watcher

__all__ = ["Cluster", "ClusterOptions", "End", "Unanswered", "Views"]


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

    def check_browsing(self, options: BrowseOptions) -> None:
        """Raise `CannotBegin` for options that this place does not support."""
        ...

    async def browse(self, reach: Reach, options: BrowseOptions, shown: Shown) -> Browsed:
        """Show messages that the place holds. Raises `CannotBegin`."""
        ...

    def replay(self, reach: Reach) -> Replay:
        """Make the destination of a replay. Raises `CannotBegin`."""
        ...

    def causes(self, reach: Reach) -> list[Cause]:
        """Ask why messages wait. Raises `CannotBegin`."""
        ...


class Unanswered(Exception):
    """The lack of an answer from all nodes; the text is the reason."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options that name a cluster: a node of BlazingMQ's, or what RocketMQ's has, by default on this host."""

    broker: str | None = None
    is_rocketmq: bool = False
    nameservers: Sequence[str] | None = None
    controllers: Sequence[str] | None = None
    broker_names: Sequence[str] | None = None
    timeout_s: float = 5
    authority: Path | None = None
    mechanism: str | None = None
    data: str = ""

    @property
    def names_rocketmq(self) -> bool:
        """True if the cluster is RocketMQ's."""
        return bool(self.is_rocketmq or self.nameservers or self.controllers or self.broker_names)


class Views(NamedTuple):
    """Answers of a cluster: lines, JSON if it is not the rows, rows with their keys, and the number of problems."""

    lines: Iterable[str]
    value: Any
    rows: Iterable[Mapping[str, Any]]
    keys: Sequence[str]
    problems: int


class Cluster(Protocol):
    """A cluster. Each method asks its nodes, and raises `Unanswered` if none answers."""

    @property
    def place(self) -> str:
        """The addresses that are asked first."""
        ...

    def status(self) -> Views:
        """Ask for the state of the cluster."""
        ...

    def problems(self) -> Views:
        """Ask for the problems of the cluster."""
        ...

    def measure(self) -> Measured:
        """Measure what is checked."""
        ...

    def watcher(self) -> Watcher:
        """Make the source of samples of the cluster's queues."""
        ...

    def bundle(self, archive: Archive) -> None:
        """Add the answers of all nodes to an archive, or the reasons why there are none."""
        ...
