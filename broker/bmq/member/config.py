"""The configuration of the members of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.bmq.consensus.election import ElectionTimes

__all__ = ["MemberConfig"]


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The configuration common to all members. With `spread`, the leader does not get all primaries.

    `quorum` is that of elections. Agreement needs a majority of the nodes, or `quorum` if that is more; a stored
    message needs a majority. An operator may set either at run time, even lower, so that the remaining nodes can
    continue when the others are lost.
    """

    quorum: int
    spread: bool = False
    times: ElectionTimes = field(default_factory=ElectionTimes)
