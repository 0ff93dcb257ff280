"""Faults planted in elections and in the ledger."""

# ruff: noqa: E501 - what is changed stands here as it stands in the source.

from __future__ import annotations

from tests.simulator.mutants.planted import Mutant

__all__ = ["AGREEMENT"]

AGREEMENT = (
    Mutant(
        "full-ledger-untold",
        "ledger",
        "A leader that has no room for an assignment says that it is in progress.",
        "broker.bmq.consensus.queue_changes",
        (
            (
                '            # The counts are recomputed, as they do not agree with the ledger now.\n            return Refusal(StatusCategory.REFUSED, f"CSL failure: {full}", ClusterError.CSL_FAILURE)\n',
                '            log.warning("CSL failure: %s", full)\n',
            ),
        ),
    ),
    Mutant(
        "vote-term-not-kept",
        "election",
        "A voter does not keep its term: killed, it may vote in it again.",
        "broker.bmq.consensus.election",
        (("            self._keep_term(term)\n", "            pass\n"),),
    ),
    Mutant(
        "one-vote-too-few",
        "election",
        "A candidate is elected with one vote too few.",
        "broker.bmq.consensus.election",
        (("if len(self._supporters) >= self.quorum:", "if len(self._supporters) >= self.quorum - 1:"),),
    ),
    Mutant(
        "votes-of-old-terms",
        "election",
        "A vote counts in whichever term it was given.",
        "broker.bmq.consensus.election",
        (("elif term == self.term and self.role in (", "elif self.role in ("),),
        hidden="An old vote counts only at a node that is a candidate again over the same link: links keep the order, and where they repeat old words, elections are too few for that.",
        unit="tests/broker/bmq/consensus/test_election_terms.py::test_a_vote_of_an_older_term_counts_for_nothing",
    ),
    Mutant(
        "old-leader-heard",
        "election",
        "The heartbeat of an older term is taken for one of today's.",
        "broker.bmq.consensus.election",
        (
            (
                "        if term < self.term:\n            self._apply(Event.OLD_HEARTBEAT",
                "        if term < 0:\n            self._apply(Event.OLD_HEARTBEAT",
            ),
        ),
    ),
    Mutant(
        "vote-in-any-term",
        "election",
        "A proposal of a term that is over gets a vote.",
        "broker.bmq.consensus.election",
        (
            (
                "case ElectionProposal() if term > self.term and not self._retiring:",
                "case ElectionProposal() if not self._retiring:",
            ),
        ),
    ),
    Mutant(
        "terms-go-back",
        "election",
        "A node takes over the term of a leader, though it knows a newer one.",
        "broker.bmq.consensus.election",
        (
            (
                "        if term < self.term:\n            self._apply(Event.OLD_HEARTBEAT",
                "        if term < 0:\n            self._apply(Event.OLD_HEARTBEAT",
            ),
            ('                assert term >= self.term, "terms only grow"\n', ""),
        ),
    ),
    Mutant(
        "silent-leader-keeps-partitions",
        "election",
        "Who is elected because the leader is silent leaves it its partitions.",
        "broker.bmq.consensus.metadata",
        (("        self._primaries.silent.add(node_id)\n", "        pass\n"),),
        hidden="A world asks only that all is well in the end: the leader is heard again, or its link is given up, soon enough for that.",
        unit="tests/broker/bmq/consensus/test_metadata.py::test_the_partitions_of_a_leader_that_fell_silent_do_not_wait_for_its_links",
    ),
    Mutant(
        "own-ledger-is-highest",
        "ledger",
        "A new leader takes its own ledger for the most advanced.",
        "broker.bmq.consensus.state_exchange",
        (
            (
                "highest = max(self._numbers, key=lambda each: (self._numbers[each], each == self._own_id, -each))",
                "highest = self._own_id",
            ),
        ),
    ),
    Mutant(
        "anybody-leads",
        "ledger",
        "A follower takes in what a node says that is not the leader.",
        "broker.bmq.consensus.replicated",
        (("        elif node_id != self.leader_id:\n", "        elif node_id < 0:\n"),),
        hidden="What is of another term than the leader's is left out too, and only one leads in a term: it takes a node that has lost its leader and is told a snapshot by it all the same, which is seldom.",
        unit="tests/broker/bmq/consensus/test_metadata_orders.py::test_advisories_are_taken_from_the_leader_alone",
    ),
    Mutant(
        "no-snapshot",
        "ledger",
        "A follower takes in advisories before it has the leader's snapshot.",
        "broker.bmq.consensus.replicated",
        (("        if not (self._in_step or is_snapshot):\n", "        if self._in_step is None:\n"),),
    ),
    Mutant(
        "stale-advisories",
        "ledger",
        "A follower takes in an advisory once more.",
        "broker.bmq.consensus.replicated",
        (("        elif number <= self._last:\n", "        elif number < (0, 0):\n"),),
    ),
    Mutant(
        "uncommitted-forgotten",
        "ledger",
        "A rollover of the ledger leaves out what is not committed.",
        "broker.bmq.core.ledger",
        (('head += b"".join([uncommitted.record for uncommitted in self.uncommitted.values()])', 'head += b""'),),
    ),
    Mutant(
        "leases-not-spent",
        "ledger",
        "The lease of a node that was lost goes on when it is back.",
        "broker.bmq.consensus.primaries",
        (
            (
                "        self._spent |= {(each.partition_id, each.primary_lease_id) for each in infos if each.primary_node_id == node_id}\n",
                "        list(infos)\n",
            ),
        ),
        hidden="It takes a primary that is lost and back while the first state of a leader waits for its quorum; and one that has written under its lease asks for another itself.",
        unit="tests/broker/bmq/consensus/test_metadata_orders.py::test_a_primary_that_restarts_before_the_leader_is_healed_has_no_old_lease",
    ),
    Mutant(
        "primaries-unquestioned",
        "ledger",
        "A follower takes in primaries that contradict what it knows.",
        "broker.bmq.consensus.replicated",
        (("            fault = self._refused(advisory)\n", "            fault = None\n"),),
        hidden="No leader of a world advises a lease that is not above the last.",
        unit="tests/broker/bmq/consensus/test_metadata_faults.py::test_primaries_that_cannot_be_are_not_recorded",
    ),
    Mutant(
        "one-ack-too-few",
        "ledger",
        "The leader commits with one ack too few.",
        "broker.bmq.consensus.replicated",
        (
            (
                "1 + len(self._acked.get(advised, ())) < self.quorum:",
                "2 + len(self._acked.get(advised, ())) < self.quorum:",
            ),
        ),
    ),
    Mutant(
        "commits-out-of-order",
        "ledger",
        "An ack of one advisory counts for all before it.",
        "broker.bmq.consensus.replicated",
        (("        covers_earlier = isinstance(acked.advisory, LeaderAdvisory)\n", "        covers_earlier = True\n"),),
        hidden="Links keep the order of what is sent, and a follower acknowledges all that it takes in since the leader's last snapshot, whose ack counts for all before it.",
        unit="tests/broker/bmq/consensus/test_metadata_orders.py::test_the_ack_of_an_update_says_nothing_of_those_before_it",
    ),
    Mutant(
        "acks-of-the-lost",
        "ledger",
        "What a node has acked counts though it was lost since, maybe with its disk.",
        "broker.bmq.consensus.replicated",
        (("            acked.discard(node_id)\n", "            acked.add(node_id)\n"),),
    ),
    Mutant(
        "leases-not-raised",
        "ledger",
        "A lease is given to another node as it is.",
        "broker.bmq.consensus.assigning",
        (
            (
                "min(last + 1, LEASE_ID_MAX)",
                "max(last, 1)",
            ),
        ),
    ),
    Mutant(
        "ledger-not-synced",
        "ledger",
        "With --fsync always the ledger is not waited for.",
        "broker.bmq.node.durability",
        (("            found.append(ledger.file)\n", "            pass\n"),),
    ),
    Mutant(
        "leads-without-quorum",
        "election",
        "A leader counts nodes that it has lost as supporters.",
        "broker.bmq.consensus.election",
        (
            (
                "        self._supporters.discard(node_id)\n        if node_id == self._choice:",
                "        if node_id == self._choice:",
            ),
        ),
    ),
    Mutant(
        "updated-queues-forgotten",
        "ledger",
        "A node whose queue gets other apps forgets that it knows the queue.",
        "broker.bmq.consensus.known_queues",
        (
            (
                "            if new is not None:\n                self._known[uri] = new",
                "            if new is not None and old is None:\n                self._known[uri] = new",
            ),
        ),
    ),
    Mutant(
        "term-kept-one-low",
        "election",
        "A candidate stores the term before its own.",
        "broker.bmq.consensus.election",
        (("            return self._keep(self.term + 1)\n", "            return self._keep(self.term)\n"),),
    ),
)
