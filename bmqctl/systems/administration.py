"""Administration of a system, without the system's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from bmqctl.systems.definitions.model import Change, Definitions

__all__ = ["ClusterAdministration", "ConnectedClient", "DefinitionHolder", "Move", "Seek", "Shift"]


class DefinitionHolder(NamedTuple):
    """A holder of definitions: a folder of BlazingMQ's configuration, or a master of RocketMQ's.

    `apply` makes changes, one after the other. It raises `Unanswered`, also at a refusal, or `OSError`.
    """

    name: str
    definitions: Definitions
    apply: Callable[[Sequence[Change]], None]


class ConnectedClient(NamedTuple):
    """A client in a group of consumers or of producers; `subscriptions` are a consumer group's."""

    broker: str
    role: str
    group: str
    client: str
    address: str
    language: str
    version: str
    subscriptions: str = ""


class Shift(int):
    """A number of messages forward; backward if it is negative."""


class Seek(NamedTuple):
    """A group of a topic, and where it continues: `begin`, `end`, a time, an offset (`int`), or a `Shift` from here."""

    topic: str
    group: str
    to: str | datetime | int


class Move(NamedTuple):
    """A queue, and the offsets at which the group continues before and after the seek."""

    broker: str
    queue_id: int
    before: int
    after: int

    @property
    def again(self) -> int:
        """The number of messages that come again."""
        return max(0, self.before - self.after)

    @property
    def skipped(self) -> int:
        """The number of messages that are skipped."""
        return max(0, self.after - self.before)


class ClusterAdministration(Protocol):
    """The requests of administration to a cluster. Each raises `Unanswered`, also at a refusal."""

    def places(self, kinds: Sequence[str]) -> list[DefinitionHolder]:
        """Ask each holder for its definitions of some kinds."""
        ...

    def forget_topics(self, names: Sequence[str]) -> None:
        """Have nameservers forget topics that all brokers have deleted."""
        ...

    def clients(self) -> list[ConnectedClient]:
        """List the producers, and the consumers of all groups."""
        ...

    def members(self, group: str) -> list[ConnectedClient]:
        """List the consumers of a group."""
        ...

    def plan_seek(self, wanted: Seek) -> list[Move]:
        """Return what a seek would do now, by queue."""
        ...

    def seek(self, wanted: Seek) -> None:
        """Have a group continue elsewhere, with its connected consumers."""
        ...

    def step_down(self, name: str, wanted: int | None) -> str:
        """Have another broker of a name become master, or the one with this id; return the address of the master."""
        ...
