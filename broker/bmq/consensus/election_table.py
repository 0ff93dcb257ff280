"""The roles of a node in elections, and its transitions between them; see `broker.bmq.consensus.election`."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["TRANSITIONS", "Act", "ElectionRole", "ElectionTransition", "Event"]


class ElectionRole(Enum):
    DORMANT = "dormant"
    WAITING = "waiting"  # sees no leader, lets others begin
    SCOUTING = "scouting"  # asks who would vote for it
    SUPPORTING = "supporting"  # has voted for another, which does not lead yet
    FOLLOWING = "following"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Event(Enum):
    """The meaning of a message, a link or a timer, in relation to this node's state."""

    STARTED = "started"
    STOPPED = "stopped"
    RETIRING = "others are to lead"
    WAITED = "the wait is over"
    OVERRULED = "a node of a higher term, or of a lower id in the same term, asks the same"
    SUPPORTED = "a quorum would vote for it"
    REFUSED = "all have answered, no quorum would vote for it"
    UNSUPPORTED = "no quorum has answered in time"
    ELECTED = "a quorum has voted for it"
    UNELECTED = "no quorum has voted in time"
    SILENCE = "the leader is silent"
    ALL_THERE = "all nodes are there"
    OLD_HEARTBEAT = "heartbeat of an older term"
    OWN_HEARTBEAT = "heartbeat of the node that it follows or supports"
    OTHER_HEARTBEAT = "heartbeat of another node in the same term"
    NEW_HEARTBEAT = "heartbeat of a newer term"
    NEW_PROPOSAL = "proposal of a newer term"
    NEWER_TERM = "answer of a newer term"
    CESSION = "the node that it follows or supports gives up"
    OTHER_CESSION = "another node gives up"
    LEADER_GONE = "the node that it follows or supports is gone"
    QUORUM_GONE = "too few supporters are left"
    TERM_UNKEPT = "a newer term cannot be stored"
    NODE_THERE = "a node is there"


class Act(Enum):
    """An action of a transition, in the order of its tuple; "the node" is the one whose message or link it is about."""

    TAKE_TERM = "take over the message's term"
    RAISE_TERM = "begin the term that was scouted"
    CHOOSE = "support the node, or follow it"
    SUPPORT = "send the node a vote"
    CONTRADICT = "send the node an answer of the own term"
    SCOUT = "ask all whether they would vote"
    PROPOSE = "ask all for their votes"
    SHOW = "send the node a heartbeat"
    SHOW_ALL = "send all a heartbeat"
    CEDE = "tell all that it no longer leads"
    LEAVE = "tell all that it no longer takes part"
    HURRY = "wait for a short time only"
    TAKE_TURN = "wait for a short time only, the shorter the longer it has waited"
    ASK = "ask the node, too, whether it would vote"


class ElectionTransition(NamedTuple):
    role: ElectionRole
    acts: tuple[Act, ...] = ()


_WAIT: Final = ElectionTransition(ElectionRole.WAITING)
_FOLLOW: Final = ElectionTransition(ElectionRole.FOLLOWING, (Act.TAKE_TERM, Act.CHOOSE, Act.SUPPORT))
_VOTE: Final = ElectionTransition(ElectionRole.SUPPORTING, (Act.TAKE_TERM, Act.CHOOSE, Act.SUPPORT))
_CEDE: Final = ElectionTransition(ElectionRole.WAITING, (Act.CEDE,))
_LEAVERS: Final = (
    ElectionRole.WAITING,
    ElectionRole.SCOUTING,
    ElectionRole.SUPPORTING,
    ElectionRole.FOLLOWING,
    ElectionRole.CANDIDATE,
    ElectionRole.LEADER,
)

# A pair that is not in the table changes nothing.
TRANSITIONS: dict[tuple[ElectionRole, Event], ElectionTransition] = {
    (ElectionRole.DORMANT, Event.STARTED): _WAIT,
    **{(role, Event.STOPPED): ElectionTransition(ElectionRole.DORMANT, (Act.LEAVE,)) for role in _LEAVERS},
    **{
        (role, Event.OLD_HEARTBEAT): ElectionTransition(role, (Act.CONTRADICT,))
        for role in (
            ElectionRole.WAITING,
            ElectionRole.SCOUTING,
            ElectionRole.SUPPORTING,
            ElectionRole.FOLLOWING,
            ElectionRole.CANDIDATE,
        )
    },
    (ElectionRole.WAITING, Event.WAITED): ElectionTransition(ElectionRole.SCOUTING, (Act.SCOUT,)),
    (ElectionRole.WAITING, Event.ALL_THERE): ElectionTransition(ElectionRole.WAITING, (Act.TAKE_TURN,)),
    (ElectionRole.WAITING, Event.OTHER_HEARTBEAT): _FOLLOW,
    (ElectionRole.WAITING, Event.NEW_HEARTBEAT): _FOLLOW,
    (ElectionRole.WAITING, Event.NEW_PROPOSAL): _VOTE,
    (ElectionRole.SCOUTING, Event.SUPPORTED): ElectionTransition(ElectionRole.CANDIDATE, (Act.RAISE_TERM, Act.PROPOSE)),
    (ElectionRole.SCOUTING, Event.NODE_THERE): ElectionTransition(ElectionRole.SCOUTING, (Act.ASK,)),
    (ElectionRole.SCOUTING, Event.OVERRULED): _WAIT,
    (ElectionRole.SCOUTING, Event.REFUSED): ElectionTransition(ElectionRole.WAITING, (Act.HURRY,)),
    (ElectionRole.SCOUTING, Event.UNSUPPORTED): _WAIT,
    (ElectionRole.SCOUTING, Event.TERM_UNKEPT): _WAIT,
    (ElectionRole.SCOUTING, Event.OTHER_HEARTBEAT): _FOLLOW,
    (ElectionRole.SCOUTING, Event.NEW_HEARTBEAT): _FOLLOW,
    (ElectionRole.SCOUTING, Event.NEW_PROPOSAL): _VOTE,
    (ElectionRole.SUPPORTING, Event.OWN_HEARTBEAT): ElectionTransition(ElectionRole.FOLLOWING),
    (ElectionRole.SUPPORTING, Event.NEW_HEARTBEAT): _FOLLOW,
    (ElectionRole.SUPPORTING, Event.NEW_PROPOSAL): _VOTE,
    (ElectionRole.SUPPORTING, Event.SILENCE): _WAIT,
    (ElectionRole.SUPPORTING, Event.CESSION): _WAIT,
    (ElectionRole.SUPPORTING, Event.LEADER_GONE): _WAIT,
    (ElectionRole.FOLLOWING, Event.NEW_HEARTBEAT): _FOLLOW,
    (ElectionRole.FOLLOWING, Event.SILENCE): _WAIT,
    (ElectionRole.FOLLOWING, Event.CESSION): ElectionTransition(ElectionRole.WAITING, (Act.HURRY,)),
    (ElectionRole.FOLLOWING, Event.LEADER_GONE): ElectionTransition(ElectionRole.WAITING, (Act.HURRY,)),
    (ElectionRole.CANDIDATE, Event.ELECTED): ElectionTransition(ElectionRole.LEADER, (Act.SHOW_ALL,)),
    (ElectionRole.CANDIDATE, Event.UNELECTED): _WAIT,
    (ElectionRole.CANDIDATE, Event.OTHER_HEARTBEAT): _FOLLOW,
    (ElectionRole.CANDIDATE, Event.NEW_HEARTBEAT): _FOLLOW,
    (ElectionRole.CANDIDATE, Event.NEW_PROPOSAL): _VOTE,
    (ElectionRole.LEADER, Event.OLD_HEARTBEAT): ElectionTransition(ElectionRole.LEADER, (Act.SHOW,)),
    (ElectionRole.LEADER, Event.OTHER_HEARTBEAT): _CEDE,
    (ElectionRole.LEADER, Event.NEW_HEARTBEAT): ElectionTransition(
        ElectionRole.FOLLOWING, (Act.TAKE_TERM, Act.CEDE, Act.CHOOSE, Act.SUPPORT)
    ),
    (ElectionRole.LEADER, Event.NEWER_TERM): ElectionTransition(ElectionRole.WAITING, (Act.TAKE_TERM, Act.CEDE)),
    (ElectionRole.LEADER, Event.OTHER_CESSION): ElectionTransition(ElectionRole.LEADER, (Act.SHOW,)),
    (ElectionRole.LEADER, Event.QUORUM_GONE): _CEDE,
    (ElectionRole.LEADER, Event.TERM_UNKEPT): _CEDE,
    (ElectionRole.LEADER, Event.RETIRING): _CEDE,
    (ElectionRole.LEADER, Event.NODE_THERE): ElectionTransition(ElectionRole.LEADER, (Act.SHOW,)),
}
