"""What the nodes of a cluster must agree upon, whatever happens: leaders, the ledger, primaries."""

from __future__ import annotations

from broker.cluster.election import Election, Role
from tests.simulator.invariants import Violation

__all__ = ["Agreement"]


class Agreement:
    """What nodes were seen to believe, since the world began."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # by term
        self._terms: dict[int, int] = {}  # by node: the newest that it knew
        self._seen: dict[int, tuple[Role, int, int | None]] = {}

    def look(self, node_id: int, election: Election) -> None:
        """After each step of a node: one leader per term, whom all who follow one follow; terms only grow."""
        now = (election.role, election.term, election.leader_id)
        if self._seen.get(node_id) == now:
            return
        self._seen[node_id] = now
        if election.term < self._terms.get(node_id, 0):
            raise Violation(f"n{node_id} goes back from term {self._terms[node_id]} to term {election.term}")
        self._terms[node_id] = election.term
        if election.role is Role.LEADER:
            known = self.leaders.setdefault(election.term, node_id)
            if known != node_id:
                raise Violation(f"n{known} and n{node_id} both lead in term {election.term}")
        elif election.leader_id is not None and self.leaders.get(election.term) != election.leader_id:
            raise Violation(f"n{node_id} follows n{election.leader_id}, who does not lead in term {election.term}")
