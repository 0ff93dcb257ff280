"""Election of the leader: terms, votes, and heartbeats (source: mqbnet::Elector).

A node that sees no leader waits for a random time, asks the others whether they would vote for it (scouting), and only
then proposes itself in a new term. So a node that restarts never unseats a leader that the others can see. A leader
leads while a quorum supports it. `broker.bmq.consensus.election_table` has the behaviour in each role.

Departures from the reference, with which members of both kinds still work together:

- A term is stored (`keep_term`) before any message with it is sent, so a node that restarts cannot vote twice in one. A
  node that cannot store terms ignores messages with newer ones, except that it stops leading. It retries with each such
  message, and before it would scout or support a scout.
- The wait is short where a long one has no purpose: all nodes are up and none leads; the leader's link has just broken,
  or the leader has resigned; some nodes that answered had not noticed that yet. When all nodes are up, the wait is in
  proportion to the part of it that is left, so that the node that was started first leads, as with the reference.
- A scout asks the nodes that come up while it scouts, too.
- A node supports one scout at a time: of two, the one of the higher term, which does not support the other, or of the
  lower id in the same term. So two nodes rarely propose themselves and split the votes.
- A leader that follows a newer one supports it; two leaders in one term both resign.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.bmq.consensus.election_table import TRANSITIONS, Act, ElectionRole, ElectionTransition, Event
from broker.bmq.core.alarms import alarm
from broker.bmq.links.links import Links
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ElectionProposal,
    ElectionResponse,
    ElectorMessage,
    ElectorNodeStatus,
    HeartbeatResponse,
    LeaderHeartbeat,
    LeadershipCessionNotification,
    ScoutingRequest,
    ScoutingResponse,
)
from formats.bmq.wire.event import EventType, build_schema_event
from formats.errors import FormatError

__all__ = ["TERM_JUMP_MAX", "TERM_MAX", "Election", "ElectionTimes"]

log: Final = logging.getLogger("broker.election")

# Elections increment the term by one. A term further ahead is not from an election, and would exhaust the range.
TERM_JUMP_MAX: Final = 1 << 32
TERM_MAX: Final = (1 << 63) - 1

# Divisor of the random wait when there is certainly no leader.
HURRY: Final = 8
# Divisor of the wait for the time in which a node supports one scout only.
PROMISE: Final = 20


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """Periods of an election (source: mqbcfg::ElectorConfig)."""

    initial_wait_timeout_ms: int = 8000
    max_random_wait_timeout_ms: int = 3000
    scouting_result_timeout_ms: int = 4000
    election_result_timeout_ms: int = 4000
    heartbeat_broadcast_period_ms: int = 2000
    heartbeat_check_period_ms: int = 1000
    heartbeat_miss_count: int = 10


class Election:
    """One node's part in the election of its cluster's leader.

    `on_leader(leader_id, term)` is called when a leader is known (maybe this node), and with None when it is lost.
    `on_silence(node_id)` is called when the leader is lost because it sends no heartbeats although its link is up.
    `random_below(n)` gives an integer from 0 to n - 1. `keep_term` stores a term durably, or raises OSError.

    Invariants: `term` only grows. `leader_id` is known in the roles FOLLOWING and LEADER only. A node votes once in a
    term: only if it is newer than its own, which it raises first.
    """

    def __init__(
        self,
        links: Links,
        quorum: int,
        now: Now,
        timers: Timers,
        random_below: Callable[[int], int],
        on_leader: Callable[[int | None, int], None],
        times: ElectionTimes | None = None,
        term: int = 0,
        keep_term: Callable[[int], None] = lambda term: None,
        on_silence: Callable[[int], None] = lambda node_id: None,
    ) -> None:
        self.role = ElectionRole.DORMANT
        self.term = term
        self.quorum = quorum
        self.leader_id: int | None = None
        self._links = links
        self._now = now
        self._timers = timers
        self._random_below = random_below
        self._on_leader = on_leader
        self._times = times or ElectionTimes()
        self._keep_term = keep_term
        self._on_silence = on_silence
        self._retiring = False
        self._unkept = False  # the last term could not be stored
        self._choice: int | None = None  # the node that it follows or supports
        self._supporters: set[int] = set()  # the nodes that voted for it, or follow it
        self._answers: dict[int, bool] = {}  # by node: it would vote for this one
        self._promise = (links.own_id, now.ms)  # the scout that it supports, and the end of that support
        self._heard_ms = 0  # last sign of life of the node of choice; before it, the role's beginning
        self._entered = 0  # counts the roles entered: timers of earlier ones are void

    # -- events

    def start(self) -> None:
        """Take part. An existing leader is discovered before the first wait is over."""
        self._apply(Event.STARTED)
        self._entered += 1
        self._schedule(self._times.initial_wait_timeout_ms, Event.WAITED)
        self._look_around()

    def retire(self) -> None:
        """Follow, but stop leading and voting: this node is about to stop, and the others must form the quorum."""
        self._retiring = True
        self._apply(Event.RETIRING)

    def stop(self) -> None:
        self._apply(Event.STOPPED)

    def node_up(self, node_id: int) -> None:
        self._apply(Event.NODE_THERE, node_id)
        self._look_around()

    def _look_around(self) -> None:
        if all(self._links.is_up(other) for other in self._links.other_ids):
            self._apply(Event.ALL_THERE)

    def node_down(self, node_id: int) -> None:
        self._answers.pop(node_id, None)
        self._supporters.discard(node_id)
        if node_id == self._choice:
            self._apply(Event.LEADER_GONE, node_id)
        elif len(self._supporters) < self.quorum:
            if self.role is ElectionRole.LEADER:
                log.warning("Elector:LEADER lost quorum due to node [%d]", node_id)
            self._apply(Event.QUORUM_GONE, node_id)
        if self.role is ElectionRole.SCOUTING:
            self._count_answers()

    def receive(self, node_id: int, message: ElectorMessage) -> None:
        """Process a node's message. Raises FormatError for an impossible term."""
        term = message.term
        if term > min(self.term + TERM_JUMP_MAX, TERM_MAX):
            raise FormatError("ElectorMessage.term", 0, f"{term} is too far beyond this node's term, {self.term}")
        if self.role is ElectionRole.DORMANT:
            return
        match message.choice:
            case LeaderHeartbeat() if term:
                self._on_heartbeat(node_id, term)
            case ElectionProposal() if term > self.term and not self._retiring:
                self._apply(Event.NEW_PROPOSAL, node_id, term)
            case ElectionResponse():
                self._on_vote(node_id, term)
            case HeartbeatResponse() if term > self.term:
                self._apply(Event.NEWER_TERM, node_id, term)
            case ScoutingRequest():
                self._send(node_id, ScoutingResponse(will_vote=self._will_vote(node_id, term)))
            case ScoutingResponse(will_vote=will_vote) if self.role is ElectionRole.SCOUTING:
                self._answers[node_id] = will_vote
                self._count_answers()
            case LeadershipCessionNotification() if term >= self.term and node_id == self._choice:
                self._apply(Event.CESSION, node_id, term)
            case LeadershipCessionNotification() if term <= self.term:
                self._apply(Event.OTHER_CESSION, node_id, term)
            case ElectorNodeStatus(is_available=False):
                self.node_down(node_id)
            case ElectorNodeStatus(is_available=True):
                self._apply(Event.NODE_THERE, node_id)

    def _will_vote(self, node_id: int, term: int) -> bool:
        if self._retiring or self.leader_id is not None or term <= self.term or not self._keeps_terms():
            return False
        if self.role is ElectionRole.SCOUTING and (-term, node_id) < (-self.term - 1, self._links.own_id):
            self._apply(Event.OVERRULED, node_id)
        elif self._promised(node_id):
            return False
        self._promise = node_id, self._now.ms + self._times.max_random_wait_timeout_ms // PROMISE
        return True

    def _promised(self, node_id: int) -> bool:
        promised_id, until_ms = self._promise
        return promised_id != node_id and self._now.ms < until_ms

    def _on_heartbeat(self, node_id: int, term: int) -> None:
        if term < self.term:
            self._apply(Event.OLD_HEARTBEAT, node_id, term)
        elif term > self.term:
            self._apply(Event.NEW_HEARTBEAT, node_id, term)
        elif node_id == self._choice:
            self._heard_ms = self._now.ms
            self._apply(Event.OWN_HEARTBEAT, node_id, term)
        else:
            self._apply(Event.OTHER_HEARTBEAT, node_id, term)

    def _on_vote(self, node_id: int, term: int) -> None:
        if term > self.term:
            self._apply(Event.NEWER_TERM, node_id, term)
        elif term == self.term and self.role in (ElectionRole.CANDIDATE, ElectionRole.LEADER):
            self._supporters.add(node_id)
            self._count_votes()

    def _count_votes(self) -> None:
        if len(self._supporters) >= self.quorum:
            self._apply(Event.ELECTED)

    def _count_answers(self) -> None:
        there = 1 + sum(map(self._links.is_up, self._links.other_ids))
        if sum(self._answers.values()) >= self.quorum:
            self._apply(Event.SUPPORTED)
        elif len(self._answers) >= there >= self.quorum:
            self._apply(Event.REFUSED)

    # -- actions

    def _apply(self, event: Event, node_id: int | None = None, term: int = 0) -> None:
        transition = TRANSITIONS.get((self.role, event))
        if transition is not None and not self._keep_newer(transition, term):
            transition = TRANSITIONS.get((self.role, Event.TERM_UNKEPT))
        if transition is None:
            return
        before = self.role
        role, acts = transition
        if role is not before or Act.CHOOSE in acts:
            self._enter(role)
        known = self.leader_id, self.term
        for act in acts:
            self._act(act, node_id, term)
        if role is ElectionRole.LEADER:
            self.leader_id = self._links.own_id
        elif role is ElectionRole.FOLLOWING:
            self.leader_id = self._choice
        else:
            self.leader_id = None
        if role is not before or known != (self.leader_id, self.term):
            self._tell(before)
        if role is ElectionRole.SCOUTING and before is not role:
            self._count_answers()
        elif role is ElectionRole.CANDIDATE and before is not role:
            self._count_votes()

    def _tell(self, before: ElectionRole) -> None:
        log.info("node %d is %s [term: %d, leader: %s]", self._links.own_id, self.role.value, self.term, self.leader_id)
        if self.role in (ElectionRole.LEADER, ElectionRole.FOLLOWING):
            self._on_leader(self.leader_id, self.term)
        elif before in (ElectionRole.LEADER, ElectionRole.FOLLOWING):
            self._on_leader(None, self.term)

    def _act(self, act: Act, node_id: int | None, term: int) -> None:
        match act:
            case Act.TAKE_TERM:
                assert term >= self.term, "terms only grow"
                self.term = term
            case Act.RAISE_TERM:
                self.term += 1
            case Act.CHOOSE:
                self._choice = node_id
            case Act.SUPPORT:
                self._send(node_id, ElectionResponse())
            case Act.CONTRADICT:
                self._send(node_id, HeartbeatResponse())
            case Act.SCOUT:
                self._send(None, ScoutingRequest(), self.term + 1)
            case Act.PROPOSE:
                self._send(None, ElectionProposal())
            case Act.SHOW:
                self._send(node_id, LeaderHeartbeat())
            case Act.SHOW_ALL:
                self._send(None, LeaderHeartbeat())
            case Act.CEDE:
                self._send(None, LeadershipCessionNotification())
            case Act.LEAVE:
                self._send(None, ElectorNodeStatus(is_available=False), 0)
            case Act.ASK:
                # Not if it has promised its own vote to another scout since.
                if self._will_vote(self._links.own_id, self.term + 1):
                    self._send(node_id, ScoutingRequest(), self.term + 1)
            case Act.HURRY:
                self._wait_again(self._random_below(self._times.max_random_wait_timeout_ms // HURRY + 1))
            case Act.TAKE_TURN:
                self._wait_again(self._turn_ms())

    def _turn_ms(self) -> int:
        """Return the wait of a node among nodes that are all up: nodes that were started one by one scout in turn."""
        times = self._times
        if not self._links.other_ids:
            return 0
        longest_ms = times.max_random_wait_timeout_ms // HURRY
        left_ms = max(0, self._heard_ms + times.initial_wait_timeout_ms - self._now.ms)
        # Nodes that were started together, as after a power cut, seldom scout at the same moment either.
        jitter_ms = self._random_below(longest_ms // HURRY + 1)
        return longest_ms * left_ms // max(1, times.initial_wait_timeout_ms) + jitter_ms

    def _wait_again(self, delay_ms: int) -> None:
        self._entered += 1
        self._schedule(delay_ms, Event.WAITED)

    def _keep_newer(self, transition: ElectionTransition, term: int) -> bool:
        """Store the term of a transition; return True if it is stored, or not newer than the current one."""
        if Act.RAISE_TERM in transition.acts:
            return self._keep(self.term + 1)
        return Act.TAKE_TERM not in transition.acts or term <= self.term or self._keep(term)

    def _keeps_terms(self) -> bool:
        """Return True if terms can be stored; retry if the last attempt failed."""
        return not self._unkept or self._keep(self.term)

    def _keep(self, term: int) -> bool:
        try:
            self._keep_term(term)
        except OSError as error:
            if not self._unkept:
                reason = error.strerror or str(error)
                alarm(
                    log,
                    "CLUSTER",
                    f"term {term} cannot be stored: {reason}; until it can, this node neither votes nor follows a "
                    "leader of a newer term: free space on the disk of its store, or repair it",
                )
            self._unkept = True
            return False
        if self._unkept:
            log.info("node %d can store terms again", self._links.own_id)
            self._unkept = False
        return True

    def _enter(self, role: ElectionRole) -> None:
        self.role = role
        self._entered += 1
        times, own_id = self._times, self._links.own_id
        self._heard_ms = self._now.ms
        if role not in (ElectionRole.SUPPORTING, ElectionRole.FOLLOWING):
            self._choice = None
        if role is not ElectionRole.LEADER:
            self._supporters.clear()
        self._answers.clear()
        match role:
            case ElectionRole.WAITING:
                self._schedule(self._random_below(times.max_random_wait_timeout_ms + 1), Event.WAITED)
            case ElectionRole.SCOUTING:
                self._answers[own_id] = self._will_vote(own_id, self.term + 1)
                self._schedule(times.scouting_result_timeout_ms, Event.UNSUPPORTED)
            case ElectionRole.CANDIDATE:
                self._supporters.add(own_id)
                self._schedule(times.election_result_timeout_ms, Event.UNELECTED)
            case ElectionRole.SUPPORTING | ElectionRole.FOLLOWING:
                self._promise = own_id, self._now.ms
                self._again(times.heartbeat_check_period_ms, self._check)
            case ElectionRole.LEADER:
                self._again(times.heartbeat_broadcast_period_ms, lambda: self._act(Act.SHOW_ALL, None, 0))

    def _check(self) -> None:
        times = self._times
        silent_id = self._choice
        if self._now.ms - self._heard_ms >= times.heartbeat_miss_count * times.heartbeat_broadcast_period_ms:
            log.warning("node %d: the leader is silent, new code: LEADER_NO_HEARTBEAT", self._links.own_id)
            assert silent_id is not None
            self._on_silence(silent_id)
            self._apply(Event.SILENCE)

    def _schedule(self, delay_ms: int, event: Event) -> None:
        entered = self._entered

        def happen() -> None:
            if self._entered != entered or (event is Event.WAITED and self._retiring):
                return
            if event is Event.WAITED and not self._keeps_terms():
                self._timers.at(self._now.ms + self._times.max_random_wait_timeout_ms, happen)
            elif event is Event.WAITED and self._promised(self._links.own_id):
                # Wait for the result of the other first.
                self._timers.at(self._promise[1], happen)
            else:
                self._apply(event)

        self._timers.at(self._now.ms + delay_ms, happen)

    def _again(self, period_ms: int, action: Callable[[], None]) -> None:
        entered = self._entered

        def happen() -> None:
            if self._entered == entered:
                self._timers.at(self._now.ms + period_ms, happen)
                action()

        self._timers.at(self._now.ms + period_ms, happen)

    def _send(self, node_id: int | None, choice: object, term: int | None = None) -> None:
        """Send to a node, or to all (None)."""
        message = ElectorMessage(term=self.term if term is None else term, choice=choice)  # type: ignore[arg-type]
        event = build_schema_event(ber.encode(message), EventType.ELECTOR)
        for target in self._links.other_ids if node_id is None else (node_id,):
            self._links.send(target, event)
