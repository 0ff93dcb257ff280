"""One controller's part in the agreement on a log: elections, and the replication of entries (Raft, with pre-votes).

A term is written (see `Journal`) before any message with it is sent, a vote before it is given, and entries before they
are acknowledged. A controller that cannot write sends nothing, as if it had failed.

Beyond plain Raft:

- A controller without a leader first asks whether it would be elected (`Solicit.pre`), and begins a term only then. So
  one that was cut off does not unseat a leader that the others follow.
- A leader leads while a majority has answered messages that it sent a short time ago (`is_sure`), and resigns when that
  time is long. Followers give no vote for a longer time after a leader's message, nor for that time after their start.
  So an answer that a leader gives without an entry holds at that time, too.
- A leader begins its term with an entry without a command; once this one is applied, all earlier agreed entries are.
  Until then it does not lead (`is_sure`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from broker.common.faults import Change
from broker.rocketmq.raft.journal import Journal, Snapshot
from formats.errors import FormatError
from formats.rocketmq.remoting.raft import (
    ENTRIES_MAX,
    NUMBER_MAX,
    Append,
    Appended,
    Ballot,
    Entry,
    Install,
    Message,
    Solicit,
)

__all__ = ["Machine", "NotLeading", "Raft", "Role", "Times"]

log = logging.getLogger("broker.rocketmq.controller")

# Maximum lead of a term or entry over the last one here. Each takes an election or a write: a greater lead is forged.
JUMP_MAX: Final = 1 << 32
# Above this number a snapshot replaces entries.
KEPT_MAX: Final = 1_000


class NotLeading(Exception):
    """Another controller leads, or none."""


class Role(Enum):
    """The part of a controller."""

    FOLLOWER = "follower"
    ASKING = "asks who would vote for it"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Machine(Protocol):
    """The state machine of the commands. Both checks raise `FormatError`."""

    def check(self, text: str) -> None: ...

    def check_state(self, text: str) -> None: ...

    def apply(self, text: str) -> None: ...

    def restore(self, text: str) -> None: ...

    def state(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Times:
    """Periods in milliseconds. A controller without a leader waits between one and two of `election_ms`."""

    election_ms: int = 1_000
    heartbeat_ms: int = 200
    snapshot_ms: int = 2_000

    @property
    def lease_ms(self) -> int:
        """The time for which an answer counts: less than followers wait, as clocks may run at different rates."""
        return self.election_ms * 3 // 4

    @property
    def loyal_ms(self) -> int:
        """The time for which no vote is given after a leader's message.

        It is longer than `lease_ms`, and shorter than any controller's wait without a leader: one that got the leader's
        last message a little later than the candidate does not refuse, which would cost another wait.
        """
        return self.election_ms * 9 // 10


@dataclass(slots=True)
class _Follower:
    """Another controller, as its leader knows it: the entry that it gets next, and the last that it has.

    `answered_ms` is the sending time of the last answered message, and `matched_ms` that of the entry that it has.
    """

    next: int
    match: int = 0
    matched_ms: int = 0
    answered_ms: int | None = None
    installed_ms: int | None = None


class Raft:
    """One controller. `send` sends a message, which may be lost; `random_below(n)` returns a number from 0 to n - 1.

    `now_ms` is a clock that never goes back. Invariants: `term` only grows; entries up to `applied` never change; a
    term has at most one leader.
    """

    def __init__(
        self,
        own_id: str,
        other_ids: Collection[str],
        journal: Journal,
        machine: Machine,
        send: Callable[[str, Message], None],
        random_below: Callable[[int], int],
        now_ms: int,
        times: Times | None = None,
    ) -> None:
        self.own_id = own_id
        self.role = Role.FOLLOWER
        self.leader_id: str | None = None
        self.applied = journal.snapshot.index
        self._others = tuple(other_ids)
        self._quorum = (len(self._others) + 1) // 2 + 1
        self._journal = journal
        self._machine = machine
        self._send = send
        self._random_below = random_below
        self._times = times or Times()
        self._commit = journal.snapshot.index
        # The time of a leader's last message, which it may have forgotten at its start.
        self._heard_ms = now_ms
        self._due_ms = now_ms
        self._votes: set[str] = set()
        self._followers: dict[str, _Follower] = {}
        self._led_ms = 0
        self._first_own = 0
        self._fault = ""
        if journal.snapshot.text:
            machine.restore(journal.snapshot.text)
        if self._others:
            self._wait(now_ms)

    # -- queries

    @property
    def term(self) -> int:
        return self._journal.term

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def known_leader(self) -> str | None:
        """The leader that others can turn to."""
        return None if self.is_leader and self.applied < self._first_own else self.leader_id

    def is_sure(self, now_ms: int) -> bool:
        """Return whether no other controller can lead now, and all earlier agreed entries are applied."""
        if self.role is not Role.LEADER or self.applied < self._first_own:
            return False
        heard_ms = self._majority_answered_ms(now_ms)
        return heard_ms is not None and now_ms - heard_ms < self._times.lease_ms

    def _majority_answered_ms(self, now_ms: int) -> int | None:
        """Return the time since which a majority, with this one, has answered a message sent then."""
        answered = [now_ms, *(each.answered_ms for each in self._followers.values() if each.answered_ms is not None)]
        return None if len(answered) < self._quorum else sorted(answered, reverse=True)[self._quorum - 1]

    # -- events

    def tick(self, now_ms: int) -> None:
        """Do the work that is due; call this several times in each period."""
        if self.role is Role.LEADER:
            self._lead_on(now_ms)
        elif now_ms >= self._due_ms:
            if self._others:
                self._solicit(Role.ASKING, now_ms)
            else:
                self._stand(now_ms)

    def propose(self, text: str, now_ms: int) -> int:
        """Append a command; return its index. It is agreed once `applied` reaches it in the same term.

        Raises `NotLeading`, and `OSError` if it cannot be written.
        """
        if self.role is not Role.LEADER:
            raise NotLeading
        self._machine.check(text)
        index = self._journal.last + 1
        try:
            self._journal.keep_entries(index, [Entry(self.term, text)])
        except OSError as error:
            self._note(error)
            if self._others:
                # A controller whose disk works should lead.
                self._follow(None, now_ms)
            raise
        self._send_all(now_ms)
        self._agree()
        return index

    def receive(self, sender: str, message: Message, now_ms: int) -> None:
        """Handle another controller's message, whose types were checked."""
        if sender not in self._others:
            log.warning("controller %s: a message of %s, which is not in the group", self.own_id, sender[:80])
            return
        position = message.position if isinstance(message, Install) else 0
        if message.term > min(self.term + JUMP_MAX, NUMBER_MAX) or position > self._journal.last + JUMP_MAX:
            log.error(
                "controller %s: %s has impossible numbers: term %d, entry %d", self.own_id, sender, message[0], position
            )
            return
        try:
            if isinstance(message, Solicit):
                self._answer_solicit(sender, message, now_ms)
            elif isinstance(message, Ballot):
                self._take_ballot(sender, message, now_ms)
            elif isinstance(message, Appended):
                self._take_appended(sender, message, now_ms)
            else:
                self._take_leaders(sender, message, now_ms)
        except OSError as error:
            self._note(error)
        else:
            self._fault = ""

    def _note(self, error: OSError) -> None:
        if str(error) != self._fault:
            self._fault = str(error)
            log.error("controller %s takes no part while its log cannot be written: %s", self.own_id, error)

    # -- elections

    def _wait(self, now_ms: int) -> None:
        self._due_ms = now_ms + self._times.election_ms + self._random_below(self._times.election_ms)

    def _solicit(self, role: Role, now_ms: int) -> None:
        self.role = role
        self.leader_id = None
        self._votes = {self.own_id}
        self._wait(now_ms)
        is_pre = role is Role.ASKING
        for other in self._others:
            term = self.term + 1 if is_pre else self.term
            self._send(other, Solicit(term, self._journal.last, self._journal.last_term, is_pre))

    def _stand(self, now_ms: int) -> None:
        try:
            self._journal.keep_vote(self.term + 1, self.own_id)
        except OSError as error:
            self._note(error)
            self._follow(None, now_ms)
            return
        self._solicit(Role.CANDIDATE, now_ms)
        self._count(now_ms)

    def _count(self, now_ms: int) -> None:
        if len(self._votes) < self._quorum:
            return
        if self.role is Role.ASKING:
            self._stand(now_ms)
        elif self.role is Role.CANDIDATE:
            self._lead(now_ms)

    def _answer_solicit(self, sender: str, asked: Solicit, now_ms: int) -> None:
        has_leader = self.role is Role.LEADER or now_ms - self._heard_ms < self._times.loyal_ms
        own = (self._journal.last_term, self._journal.last)
        is_behind = (asked.last_term, asked.last_index) < own
        if asked.pre:
            granted = asked.term > self.term and not has_leader and not is_behind
            self._send(sender, Ballot(asked.term if granted else self.term, granted, True))
            return
        if has_leader:
            return
        is_new = asked.term > self.term
        granted = asked.term >= self.term and not is_behind and (is_new or self._journal.vote in ("", sender))
        if is_new or (granted and not self._journal.vote):
            self._journal.keep_vote(asked.term, sender if granted else "")
        if is_new or granted:
            self._follow(None, now_ms)
        self._send(sender, Ballot(self.term, granted))

    def _take_ballot(self, sender: str, ballot: Ballot, now_ms: int) -> None:
        if not ballot.granted:
            if ballot.term > self.term:
                self._adopt(ballot.term, now_ms)
            return
        wanted = (Role.ASKING, self.term + 1) if ballot.pre else (Role.CANDIDATE, self.term)
        if (self.role, ballot.term) == wanted:
            self._votes.add(sender)
            self._count(now_ms)

    def _adopt(self, term: int, now_ms: int) -> None:
        self._journal.keep_vote(term, "")
        self._follow(None, now_ms)

    def _follow(self, leader_id: str | None, now_ms: int) -> None:
        if self.role is Role.LEADER or (leader_id is not None and leader_id != self.leader_id):
            log.info("controller %s follows %s in term %d", self.own_id, leader_id or "nobody", self.term)
        self.role = Role.FOLLOWER
        self.leader_id = leader_id
        self._followers = {}
        self._wait(now_ms)

    # -- the leader

    def _lead(self, now_ms: int) -> None:
        first = self._journal.last + 1
        try:
            self._journal.keep_entries(first, [Entry(self.term, "")])
        except OSError as error:
            self._note(error)
            self._follow(None, now_ms)
            return
        log.info("controller %s leads term %d", self.own_id, self.term)
        self.role = Role.LEADER
        self.leader_id = self.own_id
        self._first_own = first
        self._led_ms = now_ms
        self._followers = {other: _Follower(first) for other in self._others}
        self._send_all(now_ms)
        self._agree()

    def _lead_on(self, now_ms: int) -> None:
        heard_ms = self._majority_answered_ms(now_ms)
        if now_ms - (self._led_ms if heard_ms is None else heard_ms) >= 2 * self._times.election_ms:
            log.warning("controller %s no longer leads: too few others answer", self.own_id)
            self._follow(None, now_ms)
        elif now_ms >= self._due_ms:
            self._send_all(now_ms)

    def _send_all(self, now_ms: int) -> None:
        self._due_ms = now_ms + self._times.heartbeat_ms
        for other in self._others:
            self._send_entries(other, now_ms)

    def _send_entries(self, other: str, now_ms: int) -> None:
        follower, journal = self._followers[other], self._journal
        if follower.next < journal.first:
            self._send_snapshot(other, follower, now_ms)
            return
        previous = follower.next - 1
        previous_term = journal.term_of(previous)
        assert previous_term is not None
        entries = journal.slice(follower.next, ENTRIES_MAX)
        self._send(other, Append(self.term, previous, previous_term, self._commit, now_ms, entries))

    def _send_snapshot(self, other: str, follower: _Follower, now_ms: int) -> None:
        snapshot = self._journal.snapshot
        if follower.installed_ms is None or now_ms - follower.installed_ms >= self._times.snapshot_ms:
            follower.installed_ms = now_ms
            self._send(other, Install(self.term, snapshot.index, snapshot.term, now_ms, snapshot.text))
        else:
            # A heartbeat, which does not match.
            self._send(other, Append(self.term, snapshot.index, snapshot.term, self._commit, now_ms))

    def _take_appended(self, sender: str, answer: Appended, now_ms: int) -> None:
        if answer.term > self.term:
            self._adopt(answer.term, now_ms)
            return
        if self.role is not Role.LEADER or answer.term < self.term:
            return
        follower = self._followers[sender]
        if not self._led_ms <= answer.sent_ms <= now_ms:
            # It answers a message that this controller sent as an earlier leader.
            return
        if answer.ok and answer.position > self._journal.last:
            log.error("controller %s: %s has what was not sent: %s", self.own_id, sender, answer)
            return
        follower.answered_ms = max(follower.answered_ms or 0, answer.sent_ms)
        if not answer.ok:
            self._go_back(sender, follower, answer, now_ms)
        elif answer.position > follower.match:
            follower.match, follower.matched_ms = answer.position, answer.sent_ms
            follower.next = answer.position + 1
            self._agree()
            if follower.next <= self._journal.last:
                self._send_entries(sender, now_ms)

    def _go_back(self, other: str, follower: _Follower, answer: Appended, now_ms: int) -> None:
        """Send earlier entries to a follower that lacks those before its last ones."""
        if answer.position < follower.match and answer.sent_ms > follower.matched_ms:
            # Otherwise it is a late answer.
            log.error("controller %s: %s has lost entries that it had acknowledged", self.own_id, other)
            follower.match = 0
        follower.next = max(follower.match + 1, min(follower.next - 1, answer.position + 1))
        if follower.next >= self._journal.first or follower.installed_ms is None:
            self._send_entries(other, now_ms)

    def _agree(self) -> None:
        """Apply the entries that a majority has. Entries of earlier terms are agreed with one of this term."""
        has = sorted([self._journal.last, *(each.match for each in self._followers.values())], reverse=True)
        agreed = has[self._quorum - 1]
        if agreed > self._commit and self._journal.term_of(agreed) == self.term:
            self._commit = agreed
            self._apply()

    # -- the follower

    def _take_leaders(self, sender: str, message: Append | Install, now_ms: int) -> None:
        if message.term < self.term:
            self._send(sender, Appended(self.term, False, self._journal.last, message.sent_ms))
            return
        if message.term > self.term:
            self._adopt(message.term, now_ms)
        if self.role is Role.LEADER or (self.role is Role.FOLLOWER and self.leader_id not in (None, sender)):
            log.error("controller %s: %s leads term %d, too?", self.own_id, sender, self.term)
            return
        self._heard_ms = now_ms
        self._follow(sender, now_ms)
        if isinstance(message, Install):
            self._install(message)
            answer = Appended(self.term, True, message.position, message.sent_ms)
        else:
            answer = self._append(message)
        self._send(sender, answer)

    def _append(self, message: Append) -> Appended:
        journal, begin, entries = self._journal, message.previous_index + 1, message.entries
        end = message.previous_index + len(entries)
        if begin < journal.first:
            # All entries in the snapshot were agreed: they are the same.
            entries = entries[journal.first - begin :]
            begin = journal.first
        elif journal.term_of(message.previous_index) != message.previous_term:
            index = max(0, min(journal.last, message.previous_index - 1))
            return Appended(self.term, False, index, message.sent_ms)
        for entry in entries:
            if entry.text:
                self._machine.check(entry.text)
        known = 0
        while known < len(entries) and journal.term_of(begin + known) == entries[known].term:
            known += 1
        if known < len(entries):
            if begin + known <= self.applied:
                raise FormatError("append.entries", 0, f"entry {begin + known} was agreed to, and is to be another one")
            journal.keep_entries(begin + known, entries[known:])
        self._commit = max(self._commit, min(message.commit, end))
        self._apply()
        return Appended(self.term, True, end, message.sent_ms)

    def _install(self, message: Install) -> None:
        if message.position <= self.applied:
            return
        self._machine.check_state(message.text)
        self._journal.keep_snapshot(Snapshot(message.position, message.entry_term, message.text))
        self._machine.restore(message.text)
        self._commit = max(self._commit, message.position)
        self.applied = message.position

    # -- both

    def _apply(self) -> None:
        while self.applied < self._commit:
            text = self._journal.entry(self.applied + 1).text
            with Change("a command that the controllers have agreed to"):
                if text:
                    self._machine.apply(text)
                self.applied += 1
        if len(self._journal.entries) > KEPT_MAX and self.applied > self._journal.snapshot.index:
            self._shorten()

    def _shorten(self) -> None:
        term = self._journal.term_of(self.applied)
        assert term is not None
        try:
            self._journal.keep_snapshot(Snapshot(self.applied, term, self._machine.state()))
        except OSError as error:
            self._note(error)
