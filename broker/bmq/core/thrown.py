# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Freeing of containers with very many unneeded objects, in slices."""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from typing import Any, Final

from broker.bmq.core.redelivery import Returning
from broker.bmq.core.work import Task, Work

__all__ = ["THROWN_PER_UNIT", "Discarded", "throw_away"]

# Objects freed in a unit of work.
THROWN_PER_UNIT: Final = 8

Discarded = MutableMapping[Any, Any] | deque[Any] | Returning


def throw_away(work: Work, thrown: list[Discarded]) -> Task:
    while thrown:
        container = thrown[-1]
        if not isinstance(container, Returning):
            take = container.pop if isinstance(container, deque) else container.popitem
            while container:
                while not work.may_go_on():
                    yield
                count = min(len(container), work.left * THROWN_PER_UNIT)
                work.left -= 1 + count // THROWN_PER_UNIT
                for _ in range(count):
                    take()
        thrown.pop()
