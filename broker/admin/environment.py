"""What administration needs to know of the world around the core; the composition root fills it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.admin.results import ClusterInfo
from broker.core.node import Node

__all__ = ["Context", "Environment", "Failed"]


class Failed(Exception):
    """A command that cannot be carried out; the text is its answer."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Configurations are as the reference writes them in JSON: names in camelCase, nothing that is empty.

    `clusters` are those that this node is in or speaks to, its own first; `node_name` is its name there.
    `domain_config` gives the parameters of a domain by its name, or None; it raises ValueError for a faulty file.
    `forget_domain` drops what is remembered of one domain, or of all (None); False if nothing was.
    """

    broker_config: dict[str, Any]
    clusters: tuple[ClusterInfo, ...]
    node_name: str
    storage_location: str
    domain_config: Callable[[str], dict[str, Any] | None]
    forget_domain: Callable[[str | None], bool]


@dataclass(slots=True)
class Context:
    """What a command works on. The quorums are those of a cluster of one until somebody sets others."""

    node: Node
    environment: Environment
    elector_quorum: int = field(default=1)
    replication_quorum: int = field(default=1)

    @property
    def cluster_name(self) -> str:
        return self.node.identity.cluster_name

    @property
    def node_description(self) -> str:
        """This node as the reference names nodes: `[name, id]`."""
        return f"[{self.environment.node_name}, {self.node.identity.node_id}]"
