"""The environment of administration outside the core, provided by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.bmq.admin.answers.results import ClusterInfo
from broker.bmq.node.node import Node

__all__ = ["CommandContext", "Environment", "Failed", "Throttle"]


class Throttle:
    """Limit of snapshots: `BURST` at once, and one more every quarter of a second (mqbstat's safeguard)."""

    BURST = 4
    REFILL_MS = 250

    def __init__(self) -> None:
        self._full_at_ms = 0  # time at which the whole burst is available again

    def permits(self, now_ms: int) -> bool:
        full_at = max(self._full_at_ms, now_ms) + self.REFILL_MS
        if full_at - now_ms > self.BURST * self.REFILL_MS:
            return False
        self._full_at_ms = full_at
        return True


class Failed(Exception):
    """A command that cannot be carried out; the text is its answer."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of commands. Configurations are in the reference's JSON: camelCase names, without empty members.

    `clusters` lists the clusters that this node is in, then its clusters as a proxy; more may be added later.
    `node_name` is its name there. `forget_domain` drops the cache entry of one domain, or of all (None); False if none.
    """

    broker_config: dict[str, Any]
    clusters: Sequence[ClusterInfo]
    node_name: str
    storage_location: str
    forget_domain: Callable[[str | None], bool]


@dataclass(slots=True)
class CommandContext:
    """The context of a command. The quorums are those of a single node until they are set."""

    node: Node
    environment: Environment
    elector_quorum: int = field(default=1)
    replication_quorum: int = field(default=1)
    throttle: Throttle = field(default_factory=Throttle)

    @property
    def cluster_name(self) -> str:
        return self.node.identity.cluster_name

    @property
    def node_description(self) -> str:
        return self.describe(self.node.identity.node_id)

    def describe(self, node_id: int) -> str:
        if node_id == self.node.identity.node_id:
            return f"[{self.environment.node_name}, {node_id}]"
        names = {node.node_id: node.host_name for node in self.environment.clusters[0].nodes}
        return f"[{names.get(node_id, '')}, {node_id}]"
