# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Admission of members: a node comes from its configured address, or proves to be that node.

A proof is a principal that the session has authenticated as, or a name in its certificate. If either is configured for
the cluster, the address is not enough: any process on a node's host connects from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.bmq.links.origins import Origins, address_of
from broker.bmq.session.entrance import Entrance

__all__ = ["Admission", "KnownNode"]


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A configured node, and the principals that identify it."""

    name: str
    principals: frozenset[str] = frozenset()


class Admission:
    """Tells the nodes of a cluster from strangers; `needs_proof` where the right address is not enough."""

    def __init__(self, nodes: Mapping[int, KnownNode], origins: Origins, *, needs_proof: bool = False) -> None:
        self._nodes = nodes
        self._needs_proof = needs_proof
        self.origins = origins

    def refusal(self, node_id: int, entrance: Entrance) -> str | None:
        """Return the reason not to accept a session as this node of the cluster, or None."""
        node = self._nodes[node_id]
        principal, names = entrance.proven, entrance.certified()
        if principal in node.principals or node.name in names:
            return None
        shown = self._shown(principal, names)
        if self._needs_proof:
            return f"claims to be node {node_id}, '{node.name}', but {shown}"
        address = address_of(entrance.peer)
        if self.origins.has(node_id, address):
            return None
        where = self.origins.shown(node_id)
        return f"claims to be node {node_id}, '{node.name}', but connects from {address}, not from {where}; it {shown}"

    def may_have_moved(self, node_id: int, entrance: Entrance) -> bool:
        """Look up the address of a node that connects from elsewhere; return False if that cannot help.

        The session waits meanwhile.
        """
        if self._needs_proof:
            return False
        entrance.hold()
        if self.origins.renew(node_id, entrance.resume):
            return True
        entrance.release()
        return False

    def _shown(self, principal: str | None, names: frozenset[str]) -> str:
        said = []
        if principal is not None:
            said.append(f"has authenticated as '{principal}'")
        if names:
            said.append(f"has a certificate for {', '.join(sorted(names))}")
        return " and ".join(said) or "has not authenticated"
