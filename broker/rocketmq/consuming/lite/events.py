"""The queues of lite topics that clients must look into (source: LiteEventDispatcher).

Each event goes to one of a group's clients that are subscribed to the queue; it looks into the queue at its next
request for messages. Unlike the original, there is no limit per client: it has no more queues here than subscriptions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["IDLE_MS", "Events", "Idle"]

# A client without requests for this time loses its queues to others of its group.
IDLE_MS: Final = 10_000


class Idle(NamedTuple):
    """A client that does not request messages, and the queues assigned to it."""

    client_id: str
    queues: list[str]


class _Client:
    __slots__ = ("asked_ms", "consumed_ms", "queues")

    def __init__(self, now_ms: int) -> None:
        self.queues: dict[str, None] = {}
        self.asked_ms = now_ms
        self.consumed_ms = -1


class Events:
    """The queues to look into by client, oldest first."""

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def tell(self, client_id: str, queue: str, now_ms: int) -> None:
        client = self._clients.get(client_id)
        if client is None:
            client = self._clients[client_id] = _Client(now_ms)
        client.queues[queue] = None

    def ask(self, client_id: str, now_ms: int) -> None:
        client = self._clients.get(client_id)
        if client is None:
            client = self._clients[client_id] = _Client(now_ms)
        client.asked_ms = now_ms

    def next(self, client_id: str, now_ms: int) -> str | None:
        """Remove and return a client's oldest queue; None if it has none."""
        client = self._clients.get(client_id)
        if client is None or not client.queues:
            return None
        queue = next(iter(client.queues))
        del client.queues[queue]
        client.consumed_ms = now_ms
        return queue

    def times(self, client_id: str) -> tuple[int, int]:
        """Return the times of a client's last request, and of its last look into a queue; -1 for never."""
        client = self._clients.get(client_id)
        return (-1, -1) if client is None else (client.asked_ms, client.consumed_ms)

    def has_asked(self, client_id: str, now_ms: int) -> bool:
        """Return whether a client has requested messages within `IDLE_MS`."""
        client = self._clients.get(client_id)
        return client is not None and now_ms - client.asked_ms <= IDLE_MS

    def leave(self, client_id: str) -> list[str]:
        client = self._clients.pop(client_id, None)
        return [] if client is None else list(client.queues)

    def take_idle(self, now_ms: int) -> list[Idle]:
        found = []
        for client_id, client in self._clients.items():
            if client.queues and now_ms - client.asked_ms > IDLE_MS:
                found.append(Idle(client_id, list(client.queues)))
                client.queues.clear()
        return found
