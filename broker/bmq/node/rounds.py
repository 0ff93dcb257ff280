# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Periodic upkeep of all queues of a node, in slices since there may be very many.

It expires messages and remembered GUIDs, packs waiting messages, takes snapshots of statistics, and removes unused
queues.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from broker.bmq.core.messages import Full
from broker.bmq.core.statistics import SNAPSHOT_MS
from broker.bmq.core.work import Task, Work
from broker.bmq.node.changes import has_been_idle
from broker.bmq.node.role import Role
from broker.bmq.queue.packing import pack
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.upkeep import expire
from broker.common.clock import Now

__all__ = ["NodeRounds"]

log: Final = logging.getLogger("broker.node")

# Interval between the beginnings of rounds; a round that takes longer delays the next.
ROUND_MS: Final = 100
SECOND_MS: Final = 1000

# Queues examined in a unit of work.
QUEUES_PER_UNIT: Final = 8


class RoundsNode(Protocol):
    """The node, as far as its queues go."""

    now: Now
    work: Work
    queues: dict[str, Queue]

    @property
    def keepalive_ms(self) -> int: ...

    @property
    def role(self) -> Role: ...


class NodeRounds:
    def __init__(self, holder: RoundsNode) -> None:
        self._holder = holder
        self._is_under_way = False
        self._began_ms = self._second_ms = self._snapshots_ms = holder.now.ms

    def begin(self) -> None:
        """Begin a round if it is time for one; to be called a few times a second."""
        now_ms = self._holder.now.ms
        if self._is_under_way or now_ms - self._began_ms < ROUND_MS:
            return
        self._is_under_way = True
        self._began_ms = now_ms
        self._holder.work.start(self._round())

    def _round(self) -> Task:
        holder = self._holder
        now_ms, work = holder.now.ms, holder.work
        keeps_snapshots = now_ms - self._snapshots_ms >= SNAPSHOT_MS
        if keeps_snapshots:
            self._snapshots_ms = now_ms
        is_whole = now_ms - self._second_ms >= SECOND_MS
        if is_whole:
            self._second_ms = now_ms
        for number, queue in enumerate(list(holder.queues.values())):
            if number % QUEUES_PER_UNIT == 0:
                work.left -= 1 + QUEUES_PER_UNIT * keeps_snapshots
                while not work.may_go_on():
                    yield
            if holder.queues.get(queue.uri) is not queue:
                continue
            if keeps_snapshots:
                queue.snapshot()
            if queue.messages:
                expire(queue)
                pack(queue)
            if is_whole:
                queue.history.expire(holder.now.ms)
                self._take_away_if_idle(queue)
        self._is_under_way = False

    def _take_away_if_idle(self, queue: Queue) -> None:
        holder = self._holder
        try:
            if queue.is_root and has_been_idle(queue, holder.now.ms, holder.keepalive_ms):
                holder.role.take_away(queue)
        except Full as full:
            log.error("unused queue '%s' is kept: %s", queue.uri, full)
