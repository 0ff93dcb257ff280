"""The judge of controllers' votes: what disks have had, and the leaders that follow from it."""

from __future__ import annotations

from functools import partial

import pytest

from broker.rocketmq.raft.journal import Journal
from tests.simulator.controllers.votes import VotedFile, Votes
from tests.simulator.controllers.world import ControllerWorld
from tests.simulator.judges.invariants import Violation


def _journal(votes: Votes, name: str) -> Journal:
    file = VotedFile(voted=partial(votes.voted, name))
    return Journal.open(file, lambda text: None, lambda text: None)


def test_a_leader_needs_the_votes_of_a_majority_of_disks() -> None:
    votes = Votes(3)
    journals = {name: _journal(votes, name) for name in ("a", "b", "c")}
    journals["a"].keep_vote(4, "a")
    journals["b"].keep_vote(4, "")
    with pytest.raises(Violation, match=r"a leads term 4 with the votes of \['a'\] of 3 disks"):
        votes.leads("a", 4)
    votes = Votes(3)
    journals = {name: _journal(votes, name) for name in ("a", "b", "c")}
    journals["a"].keep_vote(4, "a")
    journals["b"].keep_vote(4, "a")
    votes.leads("a", 4)
    with pytest.raises(Violation, match="a and b lead term 4"):
        votes.leads("b", 4)


def test_a_disk_has_one_vote_in_a_term() -> None:
    votes = Votes(3)
    journal = _journal(votes, "a")
    journal.keep_vote(4, "b")
    journal.keep_vote(5, "c")
    with pytest.raises(Violation, match="the disk of a has votes for b and for c in term 4"):
        votes.voted("a", 4, "c")


def test_a_vote_whose_flush_failed_counts_once_a_start_finds_it() -> None:
    votes = Votes(1)
    file = VotedFile(voted=partial(votes.voted, "a"))
    journal = Journal.open(file, lambda text: None, lambda text: None)
    file.fails_to_flush = True
    with pytest.raises(OSError, match="error"):
        journal.keep_vote(1, "a")
    with pytest.raises(Violation):
        votes.leads("a", 1)
    votes = Votes(1)
    file.voted = partial(votes.voted, "a")
    assert Journal.open(file, lambda text: None, lambda text: None).vote == "a"
    votes.leads("a", 1)


def test_a_process_that_forgets_entries_which_it_has_carried_out() -> None:
    world = ControllerWorld(1)
    controller = next(iter(world.controllers.values()))
    controller.start()
    world._check_controllers()
    controller.seen += 1
    with pytest.raises(Violation, match="goes back from entry 1 to entry 0"):
        world._check_controllers()


def test_controllers_that_give_an_entry_two_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    world = next(world for world in map(ControllerWorld, range(20)) if len(world.controllers) == 3)
    for controller in world.controllers.values():
        controller.start()
    while min(each.seen for each in world.controllers.values()) < 1:
        world.step()
    next(iter(world.controllers.values())).seen = 0
    monkeypatch.setattr(Journal, "term_of", lambda self, index: 99)
    with pytest.raises(Violation, match="has another state than another one after entry"):
        world._check_controllers()
