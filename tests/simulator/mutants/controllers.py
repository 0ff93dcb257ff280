"""Faults planted in the controllers of RocketMQ's brokers, and in their agreement."""

# ruff: noqa: E501 - what is changed stands here as it stands in the source.

from __future__ import annotations

from tests.simulator.mutants.planted import Mutant

__all__ = ["CONTROLLERS"]


def _mutant(name: str, says: str, module: str, old: str, new: str, hidden: str = "", unit: str = "") -> Mutant:
    return Mutant(f"controllers-{name}", "controllers", says, f"broker.rocketmq.{module}", ((old, new),), hidden, unit)


CONTROLLERS = (
    _mutant(
        "two-votes",
        "A controller votes for everybody in a term.",
        "raft.raft",
        ' and (is_new or self._journal.vote in ("", sender))',
        "",
    ),
    _mutant(
        "vote-for-less",
        "A controller votes for one whose log lacks what it has itself.",
        "raft.raft",
        "        is_behind = (asked.last_term, asked.last_index) < own\n",
        "        is_behind = (asked.last_term, asked.last_index) < (0, 0)\n",
    ),
    _mutant(
        "vote-forgotten",
        "Terms and votes are not in the file.",
        "raft.journal",
        '        self._write([JournalRecord("vote", term, 0, vote)])\n',
        "",
    ),
    _mutant(
        "entries-forgotten",
        "Entries are not in the file.",
        "raft.journal",
        '        self._write([JournalRecord("entry", entry.term, begin + n, entry.text) for n, entry in enumerate(entries)])\n',
        "",
    ),
    _mutant(
        "votes-while-led",
        "A controller votes though it has just heard a leader, whom the lease lets answer alone.",
        "raft.raft",
        "        has_leader = self.role is Role.LEADER or now_ms - self._heard_ms < self._times.loyal_ms\n",
        "        has_leader = False\n",
    ),
    _mutant(
        "lease-of-answers",
        "The lease runs from when an answer comes, not from when that was sent which it answers.",
        "raft.raft",
        "        follower.answered_ms = max(follower.answered_ms or 0, answer.sent_ms)\n",
        "        follower.answered_ms = now_ms\n",
        hidden="Answers must be late by most of a lease while others elect: world 318 shows it, and none of the first 200.",
        unit="tests/broker/rocketmq/raft/test_raft.py::test_leader_is_sure_while_a_majority_answers_and_gives_up_in_the_end",
    ),
    _mutant(
        "long-lease",
        "A leader is sure of itself for longer than followers wait.",
        "raft.raft",
        "        return self.election_ms * 3 // 4\n",
        "        return self.election_ms * 3\n",
    ),
    _mutant(
        "sure-too-early",
        "A leader is sure of itself before it has applied what was agreed to.",
        "raft.raft",
        "        if self.role is not Role.LEADER or self.applied < self._first_own:\n",
        "        if self.role is not Role.LEADER:\n",
        hidden="What it decides then is an entry behind those that it has not applied, and mostly the same: none of the first 40 worlds shows it.",
        unit="tests/broker/rocketmq/raft/test_raft.py::test_leader_is_not_sure_before_what_others_had_agreed_to_is_applied",
    ),
    _mutant(
        "agreed-by-too-few",
        "One controller less than a majority has to have an entry.",
        "raft.raft",
        "        agreed = has[self._quorum - 1]\n",
        "        agreed = has[max(0, self._quorum - 2)]\n",
    ),
    _mutant(
        "earlier-terms",
        "An entry of an earlier term is agreed to because a majority has it.",
        "raft.raft",
        "        if agreed > self._commit and self._journal.term_of(agreed) == self.term:\n",
        "        if agreed > self._commit:\n",
        hidden="Three leaders in a row must fail, each at a certain moment: none of the first 40 worlds shows it.",
        unit="tests/broker/rocketmq/raft/test_raft.py::test_leader_is_not_sure_before_what_others_had_agreed_to_is_applied",
    ),
    _mutant(
        "previous-unlooked",
        "A follower takes entries behind another one than the leader has.",
        "raft.raft",
        "        elif journal.term_of(message.previous_index) != message.previous_term:\n",
        "        elif journal.term_of(message.previous_index) is None:\n",
    ),
    _mutant(
        "other-entries-kept",
        "A follower keeps the entries that it has where the leader has others.",
        "raft.raft",
        "        while known < len(entries) and journal.term_of(begin + known) == entries[known].term:\n",
        "        while known < len(entries) and journal.term_of(begin + known) is not None:\n",
    ),
    _mutant(
        "agreed-beyond",
        "A follower takes entries for agreed to that the leader has not compared.",
        "raft.raft",
        "        self._commit = max(self._commit, min(message.commit, end))\n",
        "        self._commit = max(self._commit, min(message.commit, journal.last))\n",
        hidden="A message has up to 64 entries, mostly all that are agreed to: none of the first 40 worlds shows it.",
        unit="tests/broker/rocketmq/raft/test_raft.py::test_entries_that_the_leader_has_not_compared_are_not_agreed_to",
    ),
    _mutant(
        "lost-still-counted",
        "A leader counts entries of a controller that has lost them with its disk.",
        "raft.raft",
        "            follower.match = 0\n",
        "            pass\n",
    ),
    _mutant(
        "state-sent-once",
        "A leader sends its state once to a controller that lacks it, and never again.",
        "raft.raft",
        "        if follower.installed_ms is None or now_ms - follower.installed_ms >= self._times.snapshot_ms:\n",
        "        if follower.installed_ms is None:\n",
    ),
    _mutant(
        "told-too-early",
        "A decision is told before it is agreed to.",
        "controller.turns",
        "            elif raft.applied >= proposed.position:\n",
        "            else:\n",
    ),
    _mutant(
        "not-in-sync-elected",
        "A broker is elected that is not in sync.",
        "controller.decisions",
        "        others = group.replicas if self.unclean else ()\n",
        "        others = group.replicas\n",
    ),
    _mutant(
        "old-set",
        "A master changes a set that it does not know.",
        "controller.decisions",
        "        if epoch != group.members_epoch:\n",
        "        if epoch > group.members_epoch:\n",
        hidden="A proposal must come late by seconds, and the master have made another one meanwhile: none of the first 40 worlds shows it.",
        unit="tests/broker/rocketmq/controller/test_decisions.py::test_set_that_is_refused",
    ),
    _mutant(
        "id-given-twice",
        "Two brokers get one id.",
        "controller.decisions",
        " or (known is not None and known.check_code != code):\n",
        ":\n",
    ),
    _mutant(
        "members-stay",
        "Those who were in sync with the old master count as in sync with the new one.",
        "controller.groups",
        "        group.members = frozenset({master})\n",
        "        group.members |= {master}\n",
        hidden="They copy from the new master, and it waits for all of them: nothing is lost by it, it only takes longer.",
        unit="tests/broker/rocketmq/controller/test_decisions.py::test_old_master_is_fenced_after_an_election",
    ),
    _mutant(
        "old-master-obeyed",
        "A master of an earlier epoch changes the set.",
        "controller.decisions",
        "        if asked.master_epoch != group.master_epoch:\n",
        "        if asked.master_epoch > group.master_epoch:\n",
        hidden="The number of the set has changed by the election, too, and that is looked at next.",
        unit="tests/broker/rocketmq/controller/test_decisions.py::test_old_master_is_fenced_after_an_election",
    ),
    _mutant(
        "set-unnumbered",
        "An election does not count as a change of the set of brokers in sync.",
        "controller.groups",
        "        group.members = frozenset({master})\n        group.members_epoch += 1\n",
        "        group.members = frozenset({master})\n",
    ),
    _mutant(
        "state-not-restored",
        "A controller notes the state that a leader sends, and goes on with its own.",
        "raft.raft",
        "        self._machine.restore(message.text)\n        self._commit = max",
        "        self._commit = max",
    ),
    _mutant(
        "master-forgets-set",
        "A group without a master has nobody in sync: anybody may be elected next.",
        "controller.groups",
        "    if master is not None:\n        group.members = frozenset({master})\n",
        "    if master is None:\n        group.members = frozenset(group.replicas)\n    else:\n        group.members = frozenset({master})\n",
    ),
    _mutant(
        "snapshot-ahead",
        "A snapshot is noted with the index of the last entry, though it lacks those that are not agreed to.",
        "raft.raft",
        "            self._journal.keep_snapshot(Snapshot(self.applied, term, self._machine.state()))\n",
        "            self._journal.keep_snapshot(Snapshot(self._journal.last, term, self._machine.state()))\n",
    ),
    _mutant(
        "vote-kept-with-term-only",
        "A controller keeps its vote only if the term is new to it.",
        "raft.raft",
        "        if is_new or (granted and not self._journal.vote):\n",
        "        if is_new:\n",
    ),
    _mutant(
        "older-set-followed",
        "A set of brokers in sync is accepted though it follows an older one.",
        "controller.decisions",
        "        if epoch != group.members_epoch:\n",
        "        if epoch > group.members_epoch:\n",
    ),
    _mutant(
        "asker-elected-without-master",
        "A name without a master gets the broker that asks, though another one may have more.",
        "controller.decisions",
        "        if group.master_epoch == 0 and asks_itself:",
        "        if group.master is None and asks_itself:",
    ),
)
