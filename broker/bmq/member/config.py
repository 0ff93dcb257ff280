"""The configuration of the members of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.bmq.consensus.election import ElectionTimes

__all__ = ["MemberConfig"]


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The configuration common to all members. `spread`: primaries are not all given to the leader.

    `quorum` is that of elections. Agreement needs a majority of the nodes, or `quorum` if that is more; a stored
    message needs a majority. An operator may set either while the node runs, even to less than a majority if the other
    nodes are lost and the rest is to agree, heal and continue alone.
    """

    quorum: int
    spread: bool = False
    times: ElectionTimes = field(default_factory=ElectionTimes)
