"""What administration needs to know of the world around the core; the composition root fills it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.admin.results import ClusterInfo
from broker.core.node import Node

__all__ = ["Context", "Environment", "Failed", "Throttle"]


class Throttle:
    """At most `BURST` snapshots at once, and one more every quarter of a second (mqbstat's safeguard)."""

    BURST = 4
    REFILL_MS = 250

    def __init__(self) -> None:
        self._full_at_ms = 0  # when all of the burst is there again

    def permits(self, now_ms: int) -> bool:
        """Whether one more is fine; it counts if it is."""
        full_at = max(self._full_at_ms, now_ms) + self.REFILL_MS
        if full_at - now_ms > self.BURST * self.REFILL_MS:
            return False
        self._full_at_ms = full_at
        return True


class Failed(Exception):
    """A command that cannot be carried out; the text is its answer."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Configurations are as the reference writes them in JSON: names in camelCase, nothing that is empty.

    `clusters` are those that this node is in or speaks to, its own first; `node_name` is its name there.
    `forget_domain` drops what is remembered of one domain, or of all (None); False if nothing was.
    """

    broker_config: dict[str, Any]
    clusters: tuple[ClusterInfo, ...]
    node_name: str
    storage_location: str
    forget_domain: Callable[[str | None], bool]


@dataclass(slots=True)
class Context:
    """What a command works on. The quorums are those of a cluster of one until somebody sets others."""

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
        """This node as the reference names nodes: `[name, id]`."""
        return self.describe(self.node.identity.node_id)

    def describe(self, node_id: int) -> str:
        """A node of this node's cluster, likewise."""
        if node_id == self.node.identity.node_id:
            return f"[{self.environment.node_name}, {node_id}]"
        names = {node.node_id: node.host_name for node in self.environment.clusters[0].nodes}
        return f"[{names.get(node_id, '')}, {node_id}]"
