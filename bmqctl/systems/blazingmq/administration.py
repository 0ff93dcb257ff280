"""Administration of a BlazingMQ cluster, which is by files: refusals name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from bmqctl.systems.administration import ConnectedClient, DefinitionHolder, Move, Seek
from bmqctl.systems.system import Unanswered

__all__ = ["BlazingMQAdministration"]

_WHERE: Final = {
    "topics": "BlazingMQ has no topics: `bmqctl queue` and `bmqctl domain` are for its queues and their domains",
    "groups": "BlazingMQ has no groups: `bmqctl domain` is for its domains, with the apps of a fan-out",
    "users": "BlazingMQ's users are those of its authenticators, appConfig.authentication in the bmqbrkrcfg.json of "
    "each node, which is read at the start",
    "acls": "BlazingMQ's rights are the rules of appConfig.authorization in the bmqbrkrcfg.json of each node, which is "
    "read at the start",
    "settings": "BlazingMQ's settings are in the bmqbrkrcfg.json and clusters.json of each node, which are read at the "
    "start; `bmqctl domain alter` changes a domain, and `bmqctl admin HELP` lists the parameters that SET changes",
}


class BlazingMQAdministration:
    """Refuses each request, and names the file or command for it."""

    def places(self, kinds: Sequence[str]) -> list[DefinitionHolder]:
        raise Unanswered(_WHERE[kinds[0]])

    def forget_topics(self, names: Sequence[str]) -> None:
        raise Unanswered(_WHERE["topics"])

    def clients(self) -> list[ConnectedClient]:
        raise Unanswered("BlazingMQ's nodes list their clients in `bmqctl admin STAT SHOW`, below channels")

    def members(self, group: str) -> list[ConnectedClient]:
        raise Unanswered(_WHERE["groups"])

    def plan_seek(self, wanted: Seek) -> list[Move]:
        _cannot_seek()

    def seek(self, wanted: Seek) -> None:
        _cannot_seek()

    def step_down(self, name: str, wanted: int | None) -> str:
        raise Unanswered("BlazingMQ's nodes hand over when they stop: send SIGTERM to the node, and start it again")


def _cannot_seek() -> NoReturn:
    raise Unanswered("BlazingMQ's queues remove what is confirmed: `bmqctl replay` posts messages of a store again")
