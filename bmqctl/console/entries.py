"""The nodes through which a BlazingMQ cluster is asked, configured or learned from the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["Entries", "Place"]

# The host and the port of a node.
Place = tuple[str, int]

# Maximum number of nodes learned from a cluster.
_LEARNED_MAX: Final = 64


class Entries:
    """Nodes in the order in which they are asked, shared by all sessions of a console.

    The node that answered last comes first, so that requests do not wait for a lost one again and again.
    """

    def __init__(self, named: Sequence[Place]) -> None:
        self._named = tuple(dict.fromkeys(named))
        self._learned: tuple[Place, ...] = ()
        self._answered: Place = self._named[0]

    def in_order(self) -> list[Place]:
        """Return all nodes, each once."""
        return list(dict.fromkeys((self._answered, *self._named, *self._learned)))

    def answered(self, place: Place) -> None:
        """Note that a node answers."""
        self._answered = place

    def learn(self, places: Iterable[Place]) -> None:
        """Replace the nodes learned from the cluster."""
        self._learned = tuple(dict.fromkeys(places))[:_LEARNED_MAX]
