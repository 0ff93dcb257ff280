"""Exchange of ledgers' states: a new leader's search for the most advanced ledger, and followers' registration.

Source: mqbc::ClusterStateManager, its do_ functions for sequence numbers, follower states and registrations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from broker.bmq.consensus.cluster_table import Event, State
from broker.bmq.consensus.coverage import covers
from broker.bmq.consensus.exchange import Exchange, Response
from broker.bmq.consensus.primaries import Primaries
from broker.bmq.consensus.replicated import ReplicatedLedger
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.ledger import ClusterState, Ledger
from broker.bmq.links.links import Links
from formats.bmq.control.messages import (
    ControlMessage,
    FollowerClusterStateRequest,
    FollowerClusterStateResponse,
    FollowerLSNRequest,
    FollowerLSNResponse,
    LeaderAdvisory,
    LeaderMessageSequence,
    RegistrationRequest,
    RegistrationResponse,
    Status,
)
from formats.bmq.disk.numbers import LedgerNumber
from formats.errors import FormatError

__all__ = ["NOBODY", "ExchangeCause", "StateExchange", "number_of", "sequence_of"]

log: Final = logging.getLogger("broker.cluster")


class ExchangeCause(NamedTuple):
    """The cause of an event: its sender, the request to answer, and the data received."""

    node_id: int | None = None
    request: ControlMessage | None = None
    number: LedgerNumber | None = None
    snapshot: LeaderAdvisory | None = None
    partition_ids: tuple[int, ...] = ()


NOBODY: Final = ExchangeCause()


class StateExchange:
    """The actions of the cluster state machine that query other nodes, or answer them; `Metadata` runs the machine."""

    fsm_state: State
    leader_id: int | None
    term: int
    ledger: Ledger
    replicated: ReplicatedLedger
    _links: Links
    _exchange: Exchange
    _primaries: Primaries
    _numbers: dict[int, LedgerNumber]
    # The nodes that may have recorded more than their ledgers show.
    _damaged: set[int]
    # The state from a follower that is ahead, until this node's own ledger has it.
    _pulled: ClusterState | None
    _apply: Callable[..., None]

    @property
    def _own_id(self) -> int:
        return self._links.own_id

    # -- comparison of ledgers

    def _store_own_number(self, event: Event, cause: ExchangeCause) -> None:
        if self.ledger.damage.is_there:
            self._damaged.add(self._own_id)
        else:
            self._numbers[self._own_id] = self.ledger.number

    def _note_damaged(self, event: Event, cause: ExchangeCause) -> None:
        assert cause.node_id is not None
        self._damaged.add(cause.node_id)

    def _store_number(self, event: Event, cause: ExchangeCause) -> None:
        assert cause.node_id is not None
        assert cause.number is not None
        self._numbers[cause.node_id] = cause.number
        self._damaged.discard(cause.node_id)

    def _remove_number(self, event: Event, cause: ExchangeCause) -> None:
        assert cause.node_id is not None
        self._numbers.pop(cause.node_id, None)

    def _cleanup_numbers(self, event: Event, cause: ExchangeCause) -> None:
        self._numbers.clear()
        self._damaged.clear()
        self._pulled = None

    def _check_quorum(self, event: Event, cause: ExchangeCause) -> None:
        nodes, quorum = 1 + len(self._links.other_ids), self.replicated.quorum
        if len(self._numbers) >= quorum or covers(len(self._numbers), len(self._damaged), nodes, quorum):
            self._apply(Event.QUORUM_LSN)
        elif self.fsm_state is State.LDR_HEALING_STG2:
            self._apply(Event.LOST_QUORUM_LSN)

    def _find_highest(self, event: Event, cause: ExchangeCause) -> None:
        # Among equals prefer this node, then the first.
        highest = max(self._numbers, key=lambda each: (self._numbers[each], each == self._own_id, -each))
        self._apply(
            Event.SELF_HIGHEST_LSN if highest == self._own_id else Event.FOL_HIGHEST_LSN, ExchangeCause(highest)
        )

    # -- requests among the nodes

    def _respond(self, cause: ExchangeCause, response: Response) -> None:
        assert cause.node_id is not None
        assert cause.request is not None
        self._exchange.respond(cause.node_id, cause.request, response)

    def _refuse(self, cause: ExchangeCause, code: int, text: str) -> None:
        assert cause.node_id is not None
        assert cause.request is not None
        self._exchange.refuse(cause.node_id, cause.request, code, text)

    def _ask_numbers(self, event: Event, cause: ExchangeCause) -> None:
        for node_id in self._links.other_ids:
            if self._links.is_up(node_id):
                self._exchange.ask(node_id, FollowerLSNRequest(), partial(self._numbered, node_id))

    def _numbered(self, node_id: int, choice: object) -> None:
        if isinstance(choice, FollowerLSNResponse):
            self._apply(Event.FOL_LSN_RSPN, ExchangeCause(node_id, number=self._reported(choice.sequence_number)))
        elif isinstance(choice, Status) and choice.code == ClusterError.CSL_FAILURE:
            self._apply(Event.FOL_DAMAGED, ExchangeCause(node_id))
        else:
            self._apply(Event.FAIL_FOL_LSN_RSPN, ExchangeCause(node_id))

    def _reported(self, sequence: LeaderMessageSequence) -> LedgerNumber:
        """Return the number that a follower reports of its ledger. Raises FormatError for an impossible one.

        The cluster takes over the state with the highest number, and only the leader records for its term.
        """
        number, own = number_of(sequence), self.ledger.number
        most = own if own.term >= self.term else LedgerNumber(self.term, 0)
        if self.leader_id == self._own_id and number > most:
            raise FormatError("LeaderMessageSequence", 0, f"{number} is beyond what this leader recorded, {most}")
        return number

    def _tell_number(self, event: Event, cause: ExchangeCause) -> None:
        if self._is_leaders(cause) and self._is_sound(cause):
            self._respond(cause, FollowerLSNResponse(sequence_number=sequence_of(self.ledger.number)))

    def _is_sound(self, cause: ExchangeCause) -> bool:
        """Return True if this node's ledger is reliable; otherwise report to the leader that it is not."""
        if self.ledger.damage.is_there:
            self._refuse(cause, ClusterError.CSL_FAILURE, "Ledger is damaged")
        return not self.ledger.damage.is_there

    def _refuse_number(self, event: Event, cause: ExchangeCause) -> None:
        if self.fsm_state is State.FOL_WAITING:
            self._refuse(cause, ClusterError.FOLLOWER_WAITING, "Self follower waiting for RegistrationResponse")
        else:
            self._refuse(cause, ClusterError.NOT_FOLLOWER, "Not a follower")

    def _is_leaders(self, cause: ExchangeCause) -> bool:
        """Return True if the request is the leader's; refuse any other."""
        if cause.node_id != self.leader_id:
            self._refuse(cause, ClusterError.SOURCE_NOT_LEADER, "Source node is not recognized as the leader")
        return cause.node_id == self.leader_id

    def _ask_state(self, event: Event, cause: ExchangeCause) -> None:
        assert cause.node_id is not None
        self._exchange.ask(cause.node_id, FollowerClusterStateRequest(), partial(self._told_state, cause.node_id))

    def _told_state(self, node_id: int, choice: object) -> None:
        if isinstance(choice, FollowerClusterStateResponse):
            excess = self._primaries.excess(choice.cluster_state_snapshot.partitions)
            if excess is not None:
                log.error("the state reported by node %d is ignored: %s", node_id, excess)
                self._apply(Event.FAIL_FOL_CSL_RSPN, ExchangeCause(node_id))
                return
            self._apply(Event.FOL_CSL_RSPN, ExchangeCause(node_id, snapshot=choice.cluster_state_snapshot))
        else:
            self._apply(Event.FAIL_FOL_CSL_RSPN, ExchangeCause(node_id))

    def _tell_state(self, event: Event, cause: ExchangeCause) -> None:
        if self._is_leaders(cause) and self._is_sound(cause):
            recorded = self.ledger.recorded
            snapshot = LeaderAdvisory(
                sequence_number=sequence_of(self.ledger.number),
                partitions=tuple(recorded.primaries.values()),
                queues=tuple(recorded.queues.values()),
            )
            self._respond(cause, FollowerClusterStateResponse(cluster_state_snapshot=snapshot))

    def _refuse_state(self, event: Event, cause: ExchangeCause) -> None:
        self._refuse(cause, ClusterError.NOT_FOLLOWER, "Not a follower")

    def _register(self, event: Event, cause: ExchangeCause) -> None:
        assert self.leader_id is not None
        if self.ledger.damage.is_there:
            # A registration would count among the ledgers that the leader compares. The leader advises its state to all
            # when it has one, and to a node that requests it.
            self._exchange.ask(self.leader_id, FollowerClusterStateRequest(), self._registered)
            return
        request = RegistrationRequest(sequence_number=sequence_of(self.ledger.number))
        self._exchange.ask(self.leader_id, request, self._registered)

    def _registered(self, choice: object) -> None:
        registered = isinstance(choice, RegistrationResponse)
        self._apply(
            Event.REGISTRATION_RSPN if registered else Event.FAIL_REGISTRATION_RSPN, ExchangeCause(self.leader_id)
        )

    def _confirm_registration(self, event: Event, cause: ExchangeCause) -> None:
        self._respond(cause, RegistrationResponse())

    def _refuse_registration(self, event: Event, cause: ExchangeCause) -> None:
        self._refuse(cause, ClusterError.NOT_LEADER, "Not a leader")


def number_of(sequence: LeaderMessageSequence) -> LedgerNumber:
    return LedgerNumber(sequence.elector_term, sequence.sequence_number)


def sequence_of(number: LedgerNumber) -> LeaderMessageSequence:
    return LeaderMessageSequence(elector_term=number.term, sequence_number=number.sequence_number)
