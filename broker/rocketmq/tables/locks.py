"""Locks of queues, by which the consumers of a group keep its order (source: RebalanceLockManager).

The holder renews a lock within a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from formats.rocketmq.remoting.bodies.clients import MessageQueue

__all__ = ["LOCK_MS", "Locks"]

LOCK_MS: Final = 60_000
# The maximum for all groups.
LOCKS_MAX: Final = 200_000


@dataclass(slots=True)
class _Lock:
    client_id: str
    taken_ms: int


class Locks:
    """The locks of ordered consumption: their holders by group and queue."""

    def __init__(self, locks_max: int = LOCKS_MAX) -> None:
        self._locks_max = locks_max
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(self, group: str, queues: list[MessageQueue], client_id: str, now_ms: int) -> list[MessageQueue]:
        """Take or renew the locks of queues; return the queues that the client has locked now."""
        held = self._groups.setdefault(group, {})
        locked = []
        for queue in queues:
            lock = held.get(queue)
            if lock is None:
                if self._count >= self._locks_max:
                    continue
                self._count += 1
            if lock is None or lock.client_id == client_id or now_ms - lock.taken_ms > LOCK_MS:
                held[queue] = _Lock(client_id, now_ms)
                locked.append(queue)
        if not held:
            del self._groups[group]
        return locked

    def unlock(self, group: str, queues: list[MessageQueue], client_id: str) -> None:
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                self._count -= 1
        if not held:
            self._groups.pop(group, None)

    def are_held(self, group: str, now_ms: int) -> bool:
        return any(now_ms - lock.taken_ms <= LOCK_MS for lock in self._groups.get(group, {}).values())

    def expire(self, now_ms: int) -> None:
        """Forget expired locks; those of unknown names would stay otherwise."""
        for group, held in list(self._groups.items()):
            for queue in [queue for queue, lock in held.items() if now_ms - lock.taken_ms > LOCK_MS]:
                del held[queue]
                self._count -= 1
            if not held:
                del self._groups[group]
