# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The relays of a member by the partition and the key of their queues."""

from __future__ import annotations

from broker.bmq.relay.relay import RelayQueue

__all__ = ["RelayPlaces"]


class RelayPlaces:
    """The relays of a member.

    A removed queue's key may belong to another queue of its partition; a place then names the relay added last.
    """

    def __init__(self) -> None:
        self._at: dict[tuple[int, bytes], RelayQueue] = {}
        self._place_of: dict[int, tuple[int, bytes]] = {}  # by queue id
        self._in: dict[int, dict[int, RelayQueue]] = {}  # by partition, then by queue id

    def at(self, partition_id: int, queue_key: bytes) -> RelayQueue | None:
        return self._at.get((partition_id, queue_key))

    def of_partition(self, partition_id: int) -> list[RelayQueue]:
        return list(self._in.get(partition_id, {}).values())

    def add(self, relay: RelayQueue, partition_id: int) -> None:
        place = self._place_of[relay.queue_id] = (partition_id, relay.key)
        self._at[place] = relay
        self._in.setdefault(partition_id, {})[relay.queue_id] = relay

    def remove(self, relay: RelayQueue) -> None:
        """Remove a relay from the place under which it was added; its key may have changed since."""
        place = self._place_of.pop(relay.queue_id)
        if self._at.get(place) is relay:
            del self._at[place]
        del self._in[place[0]][relay.queue_id]
