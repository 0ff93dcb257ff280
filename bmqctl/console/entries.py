"""The nodes by which a BlazingMQ cluster is asked: those that are named, and those that it has told of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["Entries", "Place"]

# The host and the port of a node.
Place = tuple[str, int]

# A cluster that tells of more nodes is not believed.
_LEARNED_MAX: Final = 64


class Entries:
    """Nodes in the order in which they are to be asked; all persons at a console share them.

    The node that answered last comes first, so that one that is gone is not waited for again and again.
    """

    def __init__(self, named: Sequence[Place]) -> None:
        self._named = tuple(dict.fromkeys(named))
        self._learned: tuple[Place, ...] = ()
        self._answered: Place = self._named[0]

    def in_order(self) -> list[Place]:
        """Return all of them, each once."""
        return list(dict.fromkeys((self._answered, *self._named, *self._learned)))

    def answered(self, place: Place) -> None:
        """Take note that a node answers."""
        self._answered = place

    def learn(self, places: Iterable[Place]) -> None:
        """Replace what the cluster has told of earlier."""
        self._learned = tuple(dict.fromkeys(places))[:_LEARNED_MAX]
