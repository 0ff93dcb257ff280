"""The state of the controllers: the brokers of each name, and the commands that change it.

Source: ReplicasInfoManager. Controllers that apply the same commands in the same order have the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "FIRST_ID",
    "ApplyId",
    "CleanBrokers",
    "Command",
    "Elect",
    "Group",
    "Groups",
    "Replica",
    "SetAddress",
    "SetMembers",
]

FIRST_ID = 1


class Replica(NamedTuple):
    """A broker: its address, and the code that identifies it when it applies for its id again."""

    address: str
    check_code: str


@dataclass(slots=True)
class Group:
    """The brokers of one name. `members` are those in sync; both epochs count the changes of the field before them."""

    cluster: str
    name: str
    replicas: dict[int, Replica] = field(default_factory=dict)
    next_id: int = FIRST_ID
    master: int | None = None
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    members_epoch: int = 0

    def address(self, broker_id: int | None) -> str | None:
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address


class ApplyId(NamedTuple):
    """A broker takes an id, unless it has it."""

    cluster: str
    name: str
    broker_id: int
    replica: Replica


class SetAddress(NamedTuple):
    name: str
    broker_id: int
    address: str


class SetMembers(NamedTuple):
    """Other brokers are in sync."""

    name: str
    members: frozenset[int]


class Elect(NamedTuple):
    """A broker becomes master, the only one in sync; with None there is no master."""

    name: str
    master: int | None


class CleanBrokers(NamedTuple):
    """Brokers are forgotten; with None the whole name."""

    name: str
    broker_ids: frozenset[int] | None


Command = ApplyId | SetAddress | SetMembers | Elect | CleanBrokers


class Groups:
    """All names."""

    def __init__(self) -> None:
        self.by_name: dict[str, Group] = {}

    def apply(self, command: Command) -> None:
        """Execute a command. One for an unknown name changes nothing."""
        if isinstance(command, ApplyId):
            self._apply_id(command)
            return
        group = self.by_name.get(command.name)
        if group is None:
            return
        if isinstance(command, SetAddress):
            replica = group.replicas.get(command.broker_id)
            if replica is not None:
                group.replicas[command.broker_id] = replica._replace(address=command.address)
        elif isinstance(command, SetMembers):
            group.members = command.members
            group.members_epoch += 1
        elif isinstance(command, Elect):
            _elect(group, command.master)
        else:
            self._clean(group, command.broker_ids)

    def _apply_id(self, command: ApplyId) -> None:
        group = self.by_name.setdefault(command.name, Group(command.cluster, command.name))
        if command.broker_id not in group.replicas:
            group.replicas[command.broker_id] = command.replica
            group.next_id = max(group.next_id, command.broker_id) + 1

    def _clean(self, group: Group, broker_ids: frozenset[int] | None) -> None:
        for each in broker_ids or ():
            group.replicas.pop(each, None)
        if broker_ids is None or not group.replicas:
            del self.by_name[group.name]
            return
        group.members -= broker_ids
        if group.master in broker_ids:
            group.master = None


def _elect(group: Group, master: int | None) -> None:
    group.master = master
    group.master_epoch += 1
    if master is not None:
        group.members = frozenset({master})
        group.members_epoch += 1
