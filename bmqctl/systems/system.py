"""The capabilities of a system's cluster, used by commands without the system's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from bmqctl.carrying.messages.ends import Reach

if TYPE_CHECKING:
    from bmqctl.systems.bundling.archive import Archive
    from bmqctl.systems.checking.verdict import Measured
    from bmqctl.systems.watching.watcher import Watcher

__all__ = ["Cluster", "ClusterOptions", "Unanswered", "Views"]


_USUAL: Final = Reach("bmqctl", timeout_s=5)


class Unanswered(Exception):
    """The lack of an answer from all nodes; the text is the reason."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options that name a cluster: a node of BlazingMQ's, or processes of RocketMQ's, by default on this host."""

    broker: str | None = None
    is_rocketmq: bool = False
    nameservers: Sequence[str] | None = None
    controllers: Sequence[str] | None = None
    broker_names: Sequence[str] | None = None
    reach: Reach = _USUAL

    @property
    def names_rocketmq(self) -> bool:
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
        """The addresses asked first."""
        ...

    def status(self) -> Views: ...

    def problems(self) -> Views: ...

    def measure(self) -> Measured: ...

    def watcher(self) -> Watcher: ...

    def bundle(self, archive: Archive) -> None:
        """Add the answers of all nodes to an archive, or the reasons for their absence."""
        ...
