"""Administration of a system, without the system's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from bmqctl.systems.definitions.model import Change, Definitions

__all__ = ["ClusterAdministration", "ConnectedClient", "DefinitionHolder", "Move", "Seek", "Shift"]


class DefinitionHolder(NamedTuple):
    """A holder of definitions: a folder of BlazingMQ's configuration, or a master of RocketMQ's.

    `apply` makes changes in order. It raises `Unanswered`, also at a refusal, or `OSError`.
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
    """A number of messages forward; backward if negative."""


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
        return max(0, self.before - self.after)

    @property
    def skipped(self) -> int:
        return max(0, self.after - self.before)


class ClusterAdministration(Protocol):
    """Administrative requests to a cluster. Each raises `Unanswered`, also at a refusal."""

    def places(self, kinds: Sequence[str]) -> list[DefinitionHolder]: ...

    def forget_topics(self, names: Sequence[str]) -> None:
        """Have nameservers forget topics that all brokers have deleted."""
        ...

    def clients(self) -> list[ConnectedClient]: ...

    def members(self, group: str) -> list[ConnectedClient]: ...

    def plan_seek(self, wanted: Seek) -> list[Move]: ...

    def seek(self, wanted: Seek) -> None:
        """Have a group, with its connected consumers, continue elsewhere."""
        ...

    def step_down(self, name: str, wanted: int | None) -> str:
        """Have another broker of a name, or the one with this id, become master; return the master's address."""
        ...
