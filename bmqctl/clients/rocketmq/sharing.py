"""The queues of a topic, shared by the consumers of a group (source: AllocateMessageQueueAveragely).

Each consumer computes the shares by itself, of the same two sorted lists; so ours share with each other, and with the
consumers of Apache's clients, which do so by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Place", "share_of"]


class Place(NamedTuple):
    """A queue of a topic, wherever its broker's master is. Shares are of the queues in this order."""

    topic: str
    broker_name: str
    queue_id: int


def share_of(client_id: str, client_ids: Iterable[str], places: Sequence[Place]) -> list[Place] | None:
    """Return the queues of one consumer; None if it is not among the consumers.

    They are neighbours, and no two consumers' numbers of queues differ by more than one.
    """
    members = sorted(set(client_ids))
    if client_id not in members:
        return None
    at = members.index(client_id)
    each, more = divmod(len(places), len(members))
    begin = at * each + min(at, more)
    return sorted(places)[begin : begin + each + (at < more)]
