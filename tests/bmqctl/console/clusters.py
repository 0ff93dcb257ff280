"""A cluster in memory, for the console: three messages more in each look."""

from __future__ import annotations

from typing import Any

from bmqctl.console.cluster import ClusterFault, Login, LoginNeeded, Plan, Seen, Words
from bmqctl.systems.watching.model import Counted, Sample

__all__ = ["QUEUE", "MemoryCluster", "MemoryClusters"]

QUEUE = "bmq://shop/orders"


class MemoryCluster:
    """A cluster as one person sees it."""

    def __init__(self, login: Login | None) -> None:
        self.login = login
        self.looks = 0
        self.fault: Exception | None = None
        self.is_closed = False
        self.acted: list[tuple[str, dict[str, str]]] = []

    def look(self) -> Seen:
        if self.fault is not None:
            raise self.fault
        self.looks += 1
        put = 3 * self.looks
        counted = (Counted(QUEUE, "", "node 1", put, 0, put, 1.5, 1, 0), Counted(QUEUE, "audit", "node 1", put, 0, put))
        return Seen({"name": "east", "problems": []}, Sample(float(self.looks), "BlazingMQ", counted))

    def ask(self, question: str, words: Words) -> dict[str, Any]:
        if words["name"] != QUEUE:
            raise ClusterFault(f"there is no queue {words['name']}")
        return {"causes": [], "asked": question} if question == "detail" else {"asked": question, **words}

    def plan(self, action: str, words: Words) -> Plan:
        return Plan(f"{action}?", f"{words['name']} will be gone", "Do it")

    def act(self, action: str, words: Words) -> str:
        self.acted.append((action, dict(words)))
        return "done"

    def close(self) -> None:
        self.is_closed = True


class MemoryClusters:
    """Makes clusters; with `users`, by name and password, nobody else is admitted."""

    def __init__(self, users: dict[str, str] | None = None) -> None:
        self._users = users
        self.made: list[MemoryCluster] = []

    def __call__(self, login: Login | None) -> MemoryCluster:
        cluster = MemoryCluster(login)
        if self._users is not None and (login is None or self._users.get(login.user) != login.password):
            cluster.fault = LoginNeeded("the broker refused: Connection not authorized")
        self.made.append(cluster)
        return cluster
