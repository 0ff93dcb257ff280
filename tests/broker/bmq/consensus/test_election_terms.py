"""Terms: which are taken from others, and what becomes of a node that cannot keep them."""

from __future__ import annotations

import errno
import logging

import pytest

from broker.bmq.consensus.election import TERM_JUMP_MAX, TERM_MAX
from broker.bmq.consensus.election_table import ElectionRole, Event
from formats.bmq.control.messages import (
    ElectionProposal,
    ElectionResponse,
    HeartbeatResponse,
    LeaderHeartbeat,
    LeadershipCessionNotification,
    ScoutingRequest,
    ScoutingResponse,
)
from formats.errors import FormatError
from tests.broker.bmq.consensus.election_rig import One, World, raise_event

ANY_TERM = (LeaderHeartbeat(), ElectionProposal(), ElectionResponse(), HeartbeatResponse(), ScoutingRequest())


def sick() -> One:
    """A node of three whose disk keeps no terms until `keeps` is set."""
    one = One()
    one.keeps = False
    return one


@pytest.mark.parametrize(
    "role", [ElectionRole.DORMANT, ElectionRole.WAITING, ElectionRole.FOLLOWING, ElectionRole.LEADER]
)
@pytest.mark.parametrize("choice", ANY_TERM, ids=lambda choice: type(choice).__name__)
def test_a_term_that_no_election_comes_to_is_refused(role: ElectionRole, choice: object) -> None:
    one = One()
    one.bring(role)
    one.wires.take()
    before = one.election.term, one.election.role, list(one.kept)
    for term in (one.election.term + TERM_JUMP_MAX + 1, TERM_MAX + 1, (1 << 64) - 1):
        with pytest.raises(FormatError, match=r"ElectorMessage\.term"):
            one.receive(2, term, choice)
    assert (one.election.term, one.election.role, one.kept) == before
    assert one.wires.take() == []


def test_a_term_far_ahead_is_taken_up_to_the_bound() -> None:
    one = One()
    one.bring(ElectionRole.WAITING)
    one.receive(2, TERM_JUMP_MAX, LeaderHeartbeat())
    assert one.kept == [TERM_JUMP_MAX]
    assert one.election.leader_id == 2


def test_node_that_cannot_store_a_term_does_not_vote_in_it(caplog: pytest.LogCaptureFixture) -> None:
    one = sick()
    one.bring(ElectionRole.WAITING)
    with caplog.at_level(logging.INFO):
        assert one.receive(2, 1, ElectionProposal()) == []
        assert one.receive(2, 1, ElectionProposal()) == []
    assert (one.election.term, one.election.role) == (0, ElectionRole.WAITING)
    # It says so once.
    (alarm,) = [record.getMessage() for record in caplog.records if "ALARM" in record.getMessage()]
    assert "term 1 cannot be stored: No space left on device" in alarm
    # It supports no scout either, while that lasts.
    assert one.receive(3, 2, ScoutingRequest()) == [(3, 0, ScoutingResponse(will_vote=False))]
    one.keeps = True
    assert one.receive(3, 2, ScoutingRequest()) == [(3, 0, ScoutingResponse(will_vote=True))]
    assert one.receive(3, 2, ElectionProposal()) == [(3, 2, ElectionResponse())]
    assert one.kept[-1] == 2


def test_node_that_cannot_store_a_term_follows_its_leader_as_soon_as_it_can() -> None:
    one = sick()
    one.bring(ElectionRole.WAITING)
    for _ in range(3):
        assert one.receive(2, 4, LeaderHeartbeat()) == []
        assert one.election.leader_id is None
    one.keeps = True
    assert one.receive(2, 4, LeaderHeartbeat()) == [(2, 4, ElectionResponse())]
    assert one.election.leader_id == 2
    assert one.kept == [4]


def test_a_scout_that_cannot_keep_its_term_waits_and_tries_again() -> None:
    one = sick()
    one.bring(ElectionRole.SCOUTING)
    one.wires.take()
    assert one.receive(2, 0, ScoutingResponse(will_vote=True)) == []
    assert one.receive(3, 0, ScoutingResponse(will_vote=True)) == []
    assert (one.election.role, one.election.term) == (ElectionRole.WAITING, 0)
    # While its disk is as it is, it asks nobody.
    one.wait(30_000)
    assert one.wires.take() == []
    one.keeps = True
    one.wait(10_000)
    assert {type(choice) for _, _, choice in one.wires.take()} == {ScoutingRequest}


def test_a_leader_that_cannot_keep_a_newer_term_gives_up_its_own() -> None:
    for choice in (LeaderHeartbeat(), HeartbeatResponse(), ElectionResponse()):
        one = One()
        one.bring(ElectionRole.LEADER)
        own = one.election.term
        one.wires.take()
        one.keeps = False
        sent = one.receive(2, own + 5, choice)
        assert sent == [(each, own, LeadershipCessionNotification()) for each in (2, 3)]
        assert (one.election.role, one.election.term) == (ElectionRole.WAITING, own)
        assert one.told[-1] == (None, own)


@pytest.mark.parametrize("seed", range(10))
def test_a_majority_that_can_keep_terms_has_a_leader(seed: int) -> None:
    world = World(3, seed)
    broken = world.random.choice(world.ids)
    for node_id in world.ids:
        world.start(node_id)

    def fail(term: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    world.nodes[broken]._keep_term = fail
    world.run(20_000)
    leaders = {world.nodes[each].leader_id for each in world.ids if each != broken}
    (leader,) = leaders
    assert leader not in (None, broken)
    assert world.nodes[broken].term == 0
    assert world.nodes[broken].leader_id is None


def test_a_vote_of_an_older_term_counts_for_nothing() -> None:
    one = One()
    one.bring(ElectionRole.CANDIDATE)
    for event in (Event.UNELECTED, Event.WAITED, Event.SUPPORTED):
        raise_event(one, event)
    assert (one.election.role, one.election.term) == (ElectionRole.CANDIDATE, 2)
    # A vote for the last proposal, which was long under way.
    one.receive(2, 1, ElectionResponse())
    assert (one.election.role, one.told) == (ElectionRole.CANDIDATE, [])
    one.receive(2, 2, ElectionResponse())
    assert one.told == [(1, 2)]
