"""The subscriptions of clients to lite topics (source: LiteSubscriptionRegistryImpl).

All queues here are queues of lite topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from broker.rocketmq.remoting.requests import Peer

__all__ = ["Evicted", "LiteSubscriber", "Registry"]


@dataclass(slots=True, eq=False)
class LiteSubscriber:
    """A client, its queues, and the connection over which it is notified of changes.

    With `takes_all`, it is subscribed to all queues of the parent topic.
    """

    client_id: str
    group: str
    parent: str
    peer: Peer
    heard_ms: int
    takes_all: bool = False
    queues: dict[str, None] = field(default_factory=dict)


class Evicted(NamedTuple):
    """A client that lost its subscription to a queue to another client of its group."""

    subscriber: LiteSubscriber
    queue: str


class Registry:
    """All subscriptions, by client and by queue. A client has at most one, to lite topics of one parent."""

    def __init__(self) -> None:
        self._clients: dict[str, LiteSubscriber] = {}
        # By queue and group.
        self._queues: dict[str, dict[str, dict[str, None]]] = {}
        # The clients of groups that take all, by parent topic and group.
        self._takers: dict[str, dict[str, dict[str, None]]] = {}
        self.count = 0

    def get(self, client_id: str) -> LiteSubscriber | None:
        return self._clients.get(client_id)

    def __len__(self) -> int:
        return len(self._clients)

    # -- changes

    def hear(self, client_id: str, group: str, parent: str, peer: Peer, now_ms: int) -> LiteSubscriber:
        """Return the subscription of a client, and end a former one in another group or topic."""
        known = self._clients.get(client_id)
        if known is not None and (known.group, known.parent) != (group, parent):
            self.leave(client_id)
            known = None
        if known is None:
            known = self._clients[client_id] = LiteSubscriber(client_id, group, parent, peer, now_ms)
        known.peer, known.heard_ms = peer, now_ms
        return known

    def add(self, subscriber: LiteSubscriber, queues: Iterable[str]) -> list[str]:
        new = [queue for queue in dict.fromkeys(queues) if queue not in subscriber.queues]
        for queue in new:
            subscriber.queues[queue] = None
            self._queues.setdefault(queue, {}).setdefault(subscriber.group, {})[subscriber.client_id] = None
        self.count += len(new)
        return new

    def add_exclusively(self, subscriber: LiteSubscriber, queues: Iterable[str]) -> tuple[list[str], list[Evicted]]:
        """Subscribe a client to queues as the only one of its group; return the new ones, and the evicted clients."""
        wanted = list(queues)
        evicted = []
        for queue in wanted:
            for client_id in self.members(queue, subscriber.group):
                if client_id != subscriber.client_id:
                    other = self._clients[client_id]
                    self.remove(other, [queue])
                    evicted.append(Evicted(other, queue))
        return self.add(subscriber, wanted), evicted

    def replace(self, subscriber: LiteSubscriber, queues: Iterable[str]) -> list[str]:
        wanted = dict.fromkeys(queues)
        self.remove(subscriber, [queue for queue in subscriber.queues if queue not in wanted])
        return self.add(subscriber, wanted)

    def take_all(self, subscriber: LiteSubscriber) -> bool:
        """Subscribe a client to all queues of its parent topic; return whether that is new."""
        is_new = not subscriber.takes_all
        subscriber.takes_all = True
        self._takers.setdefault(subscriber.parent, {}).setdefault(subscriber.group, {})[subscriber.client_id] = None
        self.count += is_new
        return is_new

    def remove(self, subscriber: LiteSubscriber, queues: Iterable[str]) -> list[str]:
        """End a client's subscription to queues; return those to which it was subscribed."""
        gone = [queue for queue in list(queues) if queue in subscriber.queues]
        for queue in gone:
            del subscriber.queues[queue]
            groups = self._queues[queue]
            del groups[subscriber.group][subscriber.client_id]
            if not groups[subscriber.group]:
                del groups[subscriber.group]
            if not groups:
                del self._queues[queue]
        self.count -= len(gone)
        return gone

    def leave(self, client_id: str) -> LiteSubscriber | None:
        subscriber = self._clients.pop(client_id, None)
        if subscriber is None:
            return None
        self.remove(subscriber, list(subscriber.queues))
        if subscriber.takes_all:
            groups = self._takers[subscriber.parent]
            del groups[subscriber.group][client_id]
            if not groups[subscriber.group]:
                del groups[subscriber.group]
            if not groups:
                del self._takers[subscriber.parent]
            self.count -= 1
        return subscriber

    def drop_queue(self, queue: str) -> None:
        for clients in [list(clients) for clients in self._queues.get(queue, {}).values()]:
            for client_id in clients:
                self.remove(self._clients[client_id], [queue])

    def expire(self, before_ms: int) -> list[LiteSubscriber]:
        """Forget and return the clients that have reported nothing since a time."""
        silent = [each.client_id for each in self._clients.values() if each.heard_ms < before_ms]
        return [gone for gone in map(self.leave, silent) if gone is not None]

    # -- subscribers

    def groups(self, queue: str, parent: str) -> list[str]:
        return list({**self._queues.get(queue, {}), **self._takers.get(parent, {})})

    def some(self, queue: str, parent: str, group: str, most: int, choose: Callable[[int], int]) -> list[str]:
        """Return up to `most` of a group's clients that are subscribed to a queue, from a chosen one on."""
        members, takers = self._queues.get(queue, {}).get(group, {}), self._takers.get(parent, {}).get(group, {})
        count = len(members) + len(takers)
        first = choose(count) if count > 1 else 0
        return list(islice(chain(members, takers, members, takers), first, first + min(count, most)))

    def members(self, queue: str, group: str) -> list[str]:
        """Return a group's clients that are subscribed to this queue by name."""
        return list(self._queues.get(queue, {}).get(group, ()))

    def subscribers(self, queue: str, parent: str) -> list[LiteSubscriber]:
        clients = [each for group in self._queues.get(queue, {}).values() for each in group]
        clients += [each for group in self._takers.get(parent, {}).values() for each in group]
        return [self._clients[each] for each in dict.fromkeys(clients)]

    def of_group(self, group: str) -> list[LiteSubscriber]:
        return [each for each in self._clients.values() if each.group == group]
