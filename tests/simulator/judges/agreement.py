"""Agreement among the nodes of a cluster: leaders, the ledger, primaries."""

from __future__ import annotations

from dataclasses import replace

from broker.bmq.consensus.election import Election
from broker.bmq.consensus.election_table import ElectionRole
from broker.bmq.consensus.metadata import Metadata
from broker.bmq.node.node import Node
from formats.bmq.control.messages import QueueInfo
from tests.simulator.actors.operator import EXTRA_APP
from tests.simulator.judges.invariants import Violation
from tests.simulator.judges.ledgers import LedgerView

__all__ = ["Agreement"]


class Agreement:
    """The nodes' observed beliefs since the world began."""

    def __init__(self, quorum: int) -> None:
        self._quorum = quorum
        self.leaders: dict[int, int] = {}  # by term
        self.ledgers = LedgerView(quorum)
        self._votes: dict[int, dict[int, int]] = {}  # by term: who has voted for whom
        self.assigned: dict[str, QueueInfo] = {}  # the place of a queue that somebody has heard of
        self._leases: dict[tuple[int, int], int] = {}  # by partition and lease id: who is primary
        self._primaries: dict[int, object] = {}  # by node: what its ledger said at the last look
        self._terms: dict[int, int] = {}  # by node: the newest that it knew
        self._seen: dict[int, tuple[ElectionRole, int, int | None]] = {}

    def look(self, node_id: int, node: Node, metadata: Metadata, election: Election) -> None:
        """Check a node after its step."""
        self.ledgers.look(node_id, node, self._terms.get(node_id, 0))
        self._look_at_election(node_id, election)
        if not metadata.healed:
            return  # it may know things of old that never took effect
        primaries = metadata.state.primaries
        if self._primaries.get(node_id) != primaries:
            self._primaries[node_id] = dict(primaries)
            for partition_id, info in primaries.items():
                if info.primary_node_id < 0:
                    continue
                lease = (partition_id, info.primary_lease_id)
                known = self._leases.setdefault(lease, info.primary_node_id)
                if known != info.primary_node_id:
                    raise Violation(f"n{known} and n{info.primary_node_id} are both primary under {lease}")

    def started(self, node_id: int) -> None:
        """A process begins on what is on the disk."""
        self.ledgers.forget(node_id)

    def told_place(self, uri: str, info: QueueInfo) -> None:
        """Check the answer to a question about a queue's place: it never changes, except for apps that come and go."""
        known = self.assigned.setdefault(uri, _lasting(info))
        if known != _lasting(info):
            raise Violation(f"{uri} is {info} now, and was {known}")

    def difference(self, ledgers: dict[str, Metadata]) -> str:
        """Describe a disagreement of healed nodes; empty if there is none."""
        (first_name, first), *others = ledgers.items()
        for uri, info in self.assigned.items():
            has = first.state.queues.get(uri)
            if has is None or _lasting(has) != info:
                return f"{first_name} does not know {info}, but {has}"
        for name, other in others:
            if other.state.queues != first.state.queues:
                return f"{name} and {first_name} know different queues"
            if other.state.primaries != first.state.primaries:
                return f"{name} and {first_name} know different primaries"
        return ""

    def voted(self, node_id: int, term: int, for_id: int) -> None:
        """A node gives its vote, which it may do once in a term; a node that leads already needs none."""
        if self.leaders.get(term) == for_id:
            return
        known = self._votes.setdefault(term, {}).setdefault(node_id, for_id)
        if known != for_id:
            raise Violation(f"n{node_id} votes for n{known} and n{for_id} in term {term}")

    def _look_at_election(self, node_id: int, election: Election) -> None:
        """One leader per term, by the votes of a quorum, whom all who follow one follow; terms only grow."""
        now = (election.role, election.term, election.leader_id)
        if self._seen.get(node_id) == now:
            return
        self._seen[node_id] = now
        if election.term < self._terms.get(node_id, 0):
            raise Violation(f"n{node_id} goes back from term {self._terms[node_id]} to term {election.term}")
        self._terms[node_id] = election.term
        if election.role in (ElectionRole.CANDIDATE, ElectionRole.LEADER):
            self.voted(node_id, election.term, node_id)
        if election.role is ElectionRole.LEADER:
            known = self.leaders.setdefault(election.term, node_id)
            if known != node_id:
                raise Violation(f"n{known} and n{node_id} both lead in term {election.term}")
            voters = sorted(voter for voter, for_id in self._votes[election.term].items() if for_id == node_id)
            if len(voters) < self._quorum:
                raise Violation(f"n{node_id} leads in term {election.term} by the votes of {voters}")
        elif election.leader_id is not None and self.leaders.get(election.term) != election.leader_id:
            raise Violation(f"n{node_id} follows n{election.leader_id}, who does not lead in term {election.term}")


def _lasting(info: QueueInfo) -> QueueInfo:
    lasting = [app for app in info.app_ids if app.app_id != EXTRA_APP]
    return replace(info, app_ids=tuple(sorted(lasting, key=lambda app: app.app_id)))
