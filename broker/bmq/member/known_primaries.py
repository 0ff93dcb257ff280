# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The primaries of partitions, as the ledger assigns them and as they report themselves."""

from __future__ import annotations

__all__ = ["KnownPrimaries"]


class KnownPrimaries:
    """The primary of each partition, which serves it once it has reported so under its present lease."""

    def __init__(self) -> None:
        self._assigned: dict[int, tuple[int | None, int]] = {}  # by partition, the node and its lease
        self._reported: dict[int, int] = {}  # by partition, the last node to report that it is active

    def assign(self, partition_id: int, node_id: int | None, primary_lease_id: int) -> bool:
        """Note a partition's primary; return True if it has yet to report, since node or lease differ."""
        if self._assigned.get(partition_id) == (node_id, primary_lease_id):
            return False
        self._assigned[partition_id] = (node_id, primary_lease_id)
        self._reported.pop(partition_id, None)
        return True

    def report(self, partition_id: int, node_id: int, *, active: bool) -> None:
        if active:
            self._reported[partition_id] = node_id
        elif self._reported.get(partition_id) == node_id:
            del self._reported[partition_id]

    def lose(self, node_id: int) -> list[int]:
        lost = [partition_id for partition_id, active in self._reported.items() if active == node_id]
        for partition_id in lost:
            del self._reported[partition_id]
        return lost

    def serving(self, partition_id: int) -> int | None:
        node_id, _ = self._assigned.get(partition_id, (None, 0))
        return node_id if node_id is not None and self._reported.get(partition_id) == node_id else None

    def partitions_of(self, node_id: int) -> list[int]:
        return [partition_id for partition_id, (primary, _) in self._assigned.items() if primary == node_id]
