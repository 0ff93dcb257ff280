"""The live brokers and their progress, by heartbeats (source: DefaultBrokerHeartbeatManager)."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["LAST_PRIORITY", "TIMEOUT_MS", "BrokerKey", "Live", "Liveness"]

TIMEOUT_MS: Final = 10_000
# A broker without a priority is elected last; the least goes first.
LAST_PRIORITY: Final = (1 << 31) - 1


class BrokerKey(NamedTuple):
    name: str
    broker_id: int


class Live(NamedTuple):
    """A live broker: the time of its heartbeat, how long that counts, and its content. `owner` is its connection."""

    heard_ms: int
    timeout_ms: int
    epoch: int
    max_offset: int
    priority: int
    owner: object


class Liveness:
    """All live brokers. `since_ms`: the time since which heartbeats are received."""

    def __init__(self, since_ms: int = -TIMEOUT_MS) -> None:
        self._since_ms = since_ms
        self._live: dict[BrokerKey, Live] = {}
        self._heard: set[BrokerKey] = set()

    def hear(self, key: BrokerKey, live: Live) -> None:
        self._live[key] = live
        if live.heard_ms - self._since_ms < TIMEOUT_MS:
            self._heard.add(key)

    def is_unheard(self, key: BrokerKey, now_ms: int) -> bool:
        """Return whether a broker may be alive whose first heartbeat had too little time to come."""
        return now_ms - self._since_ms < TIMEOUT_MS and key not in self._heard

    def get(self, key: BrokerKey, now_ms: int) -> Live | None:
        """Return the last heartbeat of a live broker; None if it is not alive."""
        live = self._live.get(key)
        return live if live is not None and now_ms - live.heard_ms <= live.timeout_ms else None

    def live(self, now_ms: int) -> list[BrokerKey]:
        return [key for key in self._live if self.get(key, now_ms) is not None]

    def lost(self, owner: object) -> list[BrokerKey]:
        gone = [key for key, live in self._live.items() if live.owner is owner]
        for key in gone:
            del self._live[key]
        return gone

    def expire(self, now_ms: int) -> list[BrokerKey]:
        gone = [key for key, live in self._live.items() if now_ms - live.heard_ms > live.timeout_ms]
        for key in gone:
            del self._live[key]
        return gone
