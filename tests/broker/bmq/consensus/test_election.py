"""The election: its table, its stories among several nodes, and the reference's messages replayed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker.bmq.consensus.election_table import TRANSITIONS, Act, ElectionRole, Event
from formats.bmq.codes import EventType
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
from formats.bmq.wire.event import iter_frames, schema_message
from tests.broker.bmq.consensus.election_rig import LENGTH_MAX, One, World, raise_event
from tests.families import mostly_slow
from tests.golden.captures import streams

CHOICES = {
    Act.SUPPORT: ElectionResponse,
    Act.CONTRADICT: HeartbeatResponse,
    Act.SCOUT: ScoutingRequest,
    Act.ASK: ScoutingRequest,
    Act.PROPOSE: ElectionProposal,
    Act.SHOW: LeaderHeartbeat,
    Act.SHOW_ALL: LeaderHeartbeat,
    Act.CEDE: LeadershipCessionNotification,
    Act.LEAVE: ElectorNodeStatus,
}
TO_ALL = {Act.SCOUT, Act.PROPOSE, Act.SHOW_ALL, Act.CEDE, Act.LEAVE}


@pytest.mark.parametrize(("role", "event"), TRANSITIONS, ids=lambda value: value.name)
def test_each_row_of_the_table(role: ElectionRole, event: Event) -> None:
    one = One()
    one.bring(role)
    if event in (Event.OLD_HEARTBEAT, Event.OTHER_HEARTBEAT):
        one.election.term += 4  # a message without a term is none
    raise_event(one, event)
    transition = TRANSITIONS[role, event]
    assert one.election.role is transition.role
    acts = [act for act in transition.acts if act in CHOICES]
    expected = [CHOICES[act] for act in acts for _ in range(len(one.wires.up) if act in TO_ALL else 1)]
    sent = [type(choice) for _, _, choice in one.wires.take() if not isinstance(choice, ScoutingResponse)]
    assert sent[: len(expected)] == expected
    leader = {ElectionRole.LEADER: 1, ElectionRole.FOLLOWING: 3 if Act.CHOOSE in transition.acts else 2}.get(
        transition.role
    )
    assert one.election.leader_id == leader


def test_event_missing_from_the_table_changes_nothing() -> None:
    one = One()
    one.bring(ElectionRole.FOLLOWING)
    assert one.receive(3, 2, ElectionProposal()) == []  # it has a leader: no vote, whatever the term
    assert one.receive(3, 1, LeaderHeartbeat()) == []
    assert one.receive(3, 1, LeadershipCessionNotification()) == []
    assert (one.election.role, one.election.leader_id, one.election.term) == (ElectionRole.FOLLOWING, 2, 1)
    one = One()
    for choice in (LeaderHeartbeat(), ScoutingRequest(), ElectionProposal()):
        assert one.receive(2, 9, choice) == []
    assert one.election.role is ElectionRole.DORMANT


def test_scouting_is_answered_by_what_would_be_voted() -> None:
    one = One()
    one.bring(ElectionRole.FOLLOWING)
    assert one.receive(3, 9, ScoutingRequest()) == [(3, 1, ScoutingResponse(will_vote=False))]
    one.election.node_down(2)
    assert one.receive(3, 1, ScoutingRequest()) == [(3, 1, ScoutingResponse(will_vote=False))]
    assert one.receive(3, 2, ScoutingRequest()) == [(3, 1, ScoutingResponse(will_vote=True))]


def test_of_two_scouts_the_one_that_can_win_is_supported() -> None:
    for node_id, term, will_vote in ((2, 1, True), (2, 2, True), (4, 2, True), (4, 1, False), (2, 0, False)):
        one = One(own_id=3, nodes=4, quorum=3)
        one.bring(ElectionRole.SCOUTING)
        answer = ScoutingResponse(will_vote=will_vote)
        assert one.receive(node_id, term, ScoutingRequest()) == [(node_id, 0, answer)]
        assert one.election.role is (ElectionRole.WAITING if will_vote else ElectionRole.SCOUTING)


def test_a_term_is_kept_before_anybody_hears_of_it_and_gets_one_vote() -> None:
    one = One()
    one.bring(ElectionRole.WAITING)
    assert one.receive(2, 7, ElectionProposal()) == [(2, 7, ElectionResponse())]
    assert one.kept == [7]
    again = One(term=one.kept[-1])
    again.bring(ElectionRole.WAITING)
    assert again.receive(3, 7, ElectionProposal()) == []
    assert again.receive(3, 8, ElectionProposal()) == [(3, 8, ElectionResponse())]


def test_a_leader_without_a_quorum_gives_up_and_says_so_to_its_node() -> None:
    one = One(nodes=5)
    one.bring(ElectionRole.SCOUTING)
    for node_id in (2, 3):
        one.receive(node_id, 0, ScoutingResponse(will_vote=True))
    for node_id in (2, 3):
        one.receive(node_id, 1, ElectionResponse())
    one.receive(4, 1, ElectionResponse())
    assert one.told == [(1, 1)]
    one.election.node_down(5)
    one.election.node_down(4)
    assert one.election.role is ElectionRole.LEADER
    one.election.node_down(2)
    assert one.told == [(1, 1), (None, 1)]
    assert {choice for _, _, choice in one.wires.take()} == {LeadershipCessionNotification()}


def test_heartbeats_go_out_until_it_leads_no_longer_and_keep_followers() -> None:
    one = One()
    one.bring(ElectionRole.LEADER)
    one.wait(10_000)
    assert len(one.wires.take()) == 2 * 5
    one.receive(3, 2, LeaderHeartbeat())
    assert one.election.leader_id == 3
    for _ in range(20):
        one.wait(2_000)
        one.receive(3, 2, LeaderHeartbeat())
    assert one.election.leader_id == 3
    assert not one.wires.take()


def test_a_node_that_retires_gives_up_and_follows_but_votes_and_leads_no_more() -> None:
    one = One()
    one.bring(ElectionRole.LEADER)
    one.election.retire()
    assert one.wires.take() == [(node_id, 1, LeadershipCessionNotification()) for node_id in (2, 3)]
    one.wait(60_000)
    assert one.wires.take() == []
    assert one.receive(2, 2, ElectionProposal()) == []
    one.receive(2, 2, LeaderHeartbeat())
    assert one.election.leader_id == 2


@pytest.mark.parametrize("role", [ElectionRole.FOLLOWING, ElectionRole.SUPPORTING])
def test_silent_peer_is_reported_and_disconnected_peer_is_not(role: ElectionRole) -> None:
    one = One()
    one.bring(role)
    one.wait(21_000)
    assert one.silent == [2]
    other = One()
    other.bring(role)
    other.wires.up.discard(2)
    other.election.node_down(2)
    other.wait(21_000)
    assert other.silent == []


def test_one_node_elects_itself_at_once() -> None:
    one = One(nodes=1)
    one.election.start()
    one.wait(1_000)
    assert one.told == [(1, 1)]


def test_the_same_leader_in_a_newer_term_is_told_anew() -> None:
    one = One()
    one.bring(ElectionRole.FOLLOWING)
    one.receive(2, 5, LeaderHeartbeat())
    assert one.told == [(2, 1), (2, 5)]


# -- several


@pytest.mark.parametrize("count", [3, 5, 7])
@pytest.mark.parametrize("seed", range(5))
def test_nodes_that_start_together_have_a_leader_within_two_seconds(count: int, seed: int) -> None:
    world = World(count, seed)
    for node_id in world.ids:
        world.start(node_id)
    world.run(2_000)
    assert world.leader in world.ids


@pytest.mark.parametrize("seed", range(10))
def test_of_nodes_that_start_one_by_one_the_first_leads(seed: int) -> None:
    world = World(4, seed)
    order = world.random.sample(world.ids, 4)
    for node_id in order:
        world.start(node_id)
        world.run(700)
    world.run(1_000)
    assert world.leader == order[0]


@pytest.mark.parametrize("seed", range(5))
def test_a_scout_asks_the_nodes_that_come_up_meanwhile(seed: int) -> None:
    """Three of four nodes make the quorum, and the third comes up when the first has scouted already."""
    world = World(4, seed)
    for node_id, until_ms in ((2, 3_000), (1, 8_500), (4, 9_000)):
        world.start(node_id)
        world.run(until_ms - world.now.ms)
    assert world.leader == 2


@pytest.mark.parametrize("supports_another", [True, False])
def test_a_scout_asks_nobody_else_once_it_supports_another(supports_another: bool) -> None:
    one = One(own_id=3, nodes=4)
    one.wires.up.clear()
    one.election.start()
    one.wires.up.update((1, 4))
    one.wait(9_000)
    assert one.election.role is ElectionRole.SCOUTING
    one.wires.take()
    if supports_another:
        assert one.receive(4, 1, ScoutingRequest()) == [(4, 0, ScoutingResponse(will_vote=True))]
    one.wires.up.add(2)
    one.election.node_up(2)
    assert one.wires.take() == ([] if supports_another else [(2, 1, ScoutingRequest())])


@pytest.mark.parametrize(("count", "limit_ms"), [(3, 800), (5, 2_000)])
@pytest.mark.parametrize("seed", range(10))
def test_another_leads_soon_after_a_leaders_death(count: int, limit_ms: int, seed: int) -> None:
    world = World(count, seed)
    for node_id in world.ids:
        world.start(node_id)
    world.run(2_000)
    first = world.leader
    world.kill(first)
    world.run(limit_ms)
    second = world.leader
    assert second != first
    world.start(first)
    world.run(500)
    assert world.leader == second  # one that comes back unseats nobody


@pytest.mark.parametrize("seed", mostly_slow(range(20), 5))
def test_never_two_leaders_in_one_term_and_always_one_in_the_end(seed: int) -> None:
    world = World(5, seed)
    for node_id in world.ids:
        world.start(node_id)
    for _ in range(60):
        match world.random.randrange(4):
            case 0 if len(world.nodes) > 2:
                world.kill(world.random.choice(sorted(world.nodes)))
            case 1:
                dead = [node_id for node_id in world.ids if node_id not in world.nodes]
                for node_id in dead[:1]:
                    world.start(node_id)
            case 2:
                first, second = world.random.sample(world.ids, 2)
                world.cut.add(frozenset((first, second)))
                world.disconnect(first, second)
            case 3 if world.cut:
                pair = min(world.cut, key=sorted)
                world.cut.discard(pair)
                first, second = pair
                if first in world.nodes and second in world.nodes:
                    world.connect(first, second)
        world.run(world.random.randrange(3_000))
    for first, second in [sorted(pair) for pair in world.cut]:
        if first in world.nodes and second in world.nodes:
            world.connect(first, second)
    world.cut.clear()
    for node_id in world.ids:
        if node_id not in world.nodes:
            world.start(node_id)
    world.run(60_000)
    assert world.leader in world.ids
    terms = sorted(world.leaders)
    assert all(later > earlier for earlier, later in pairwise(terms))


# -- the reference's messages

# Dialing and listening node ids of the connections, by the captures' names.
BETWEEN = {"cluster.04": (1, 3), "cluster.05": (1, 2), "cluster.06": (2, 3)}


def elector_messages() -> dict[tuple[int, int], list[ElectorMessage]]:
    """Sender and target, and what the sender said on their first connection."""
    out: dict[tuple[int, int], list[ElectorMessage]] = {}
    for name, data in streams("wire-cluster"):
        ends = BETWEEN.get(name.rpartition("/")[2][:10])
        if ends is None:
            continue
        view = memoryview(data)
        said = [
            ber.decode(ElectorMessage, schema_message(view, frame.body, frame.end))
            for frame in iter_frames(view, 0, len(view), LENGTH_MAX)
            if frame.type == EventType.ELECTOR
        ]
        out[ends if ".c2s." in name else (ends[1], ends[0])] = said
    return out


def test_the_references_first_election_and_its_fail_over() -> None:
    """Node 3 leads first; when it is killed, node 1 follows it with node 2's vote."""
    said = elector_messages()
    voter = One(own_id=1)
    voter.bring(ElectionRole.WAITING)
    for message in said[3, 1]:
        voter.election.receive(3, message)
    assert voter.wires.take() == [(3, message.term, message.choice) for message in said[1, 3]]
    assert voter.told == [(3, 1)]
    # Node 3 is gone; what node 1 says to node 2 begins with its scouting, and node 2 answers each in turn.
    voter.wires.up.discard(3)
    voter.election.node_down(3)
    voter.wait(1_000)
    sent = []
    for answer in said[2, 1]:
        sent += voter.wires.take()
        voter.election.receive(2, answer)
    sent += voter.wires.take()
    assert [choice for _, _, choice in sent] == [message.choice for message in said[1, 2][:3]]
    assert [term for _, term, _ in sent] == [message.term for message in said[1, 2][:3]] == [2, 2, 2]
    assert voter.told[-1] == (1, 2)

    second = One(own_id=2)
    second.bring(ElectionRole.WAITING)
    for message in said[3, 2]:
        second.election.receive(3, message)
    assert second.wires.take() == [(3, message.term, message.choice) for message in said[2, 3]]
    second.wires.up.discard(3)
    second.election.node_down(3)
    for message in said[1, 2]:
        second.election.receive(1, message)
    assert second.wires.take() == [(1, message.term, message.choice) for message in said[2, 1]]
    assert second.told[-1] == (1, 2)
