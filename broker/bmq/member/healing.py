# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Healing of other nodes from this member's partitions, which take turns."""

from __future__ import annotations

from collections.abc import Mapping

from broker.bmq.replication.healing_pace import HealingPace
from broker.bmq.replication.partition import ReplicatedPartition

__all__ = ["Healing"]


class Healing:
    """The partitions of a member, of which some heal other nodes.

    `is_needed` is True if one of them had something to send at the end of the last step.
    """

    def __init__(self, partitions: Mapping[int, ReplicatedPartition], pace: HealingPace) -> None:
        self.is_needed = False
        self._partitions = partitions
        self._pace = pace
        self._turn = 0  # the partition that is first in the next step

    def is_behind(self, node_id: int) -> bool:
        return self.is_needed and any(each.has_fallen_behind(node_id) for each in self._partitions.values())

    def go_on(self) -> bool:
        partitions = list(self._partitions.values())
        self._pace.end_step(awaited=any(partition.stored.kept.awaiting for partition in partitions))
        turn = self._turn = (self._turn + 1) % len(partitions)
        for partition in partitions[turn:] + partitions[:turn]:
            partition.heal()
        return any(partition.busy for partition in partitions)
