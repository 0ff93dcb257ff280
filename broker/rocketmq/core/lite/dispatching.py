"""The choice of the client that is told of something in the queue of a lite topic (source: LiteEventDispatcher)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from broker.rocketmq.core.lite.popping import LitePopper
from broker.rocketmq.core.lite.registry import Registry, Subscriber
from broker.rocketmq.core.pop.order import Orders
from broker.rocketmq.core.services import Services
from formats.rocketmq.lite import QUEUE_ID, is_lite_queue, split_queue_name

__all__ = ["Dispatcher"]


# The work of looking at one client; see `Turns`.
_CLIENT_UNITS: Final = 500
_WAITS: Final = 3


class Dispatcher:
    """Tells one client of each group. `choose` gives a number from 0 on below the one that it is given."""

    def __init__(
        self,
        services: Services,
        registry: Registry,
        orders: Orders,
        popper: LitePopper,
        choose: Callable[[int], int],
    ) -> None:
        self._services = services
        self._registry = registry
        self._orders = orders
        self._choose = choose
        self._popper = popper
        self._events = popper.events

    def arrived(self, queue: str) -> None:
        """A message has come into a queue."""
        self._services.turns.again(("lite", queue), lambda: self._tell_groups(queue))

    def _tell_groups(self, queue: str) -> Iterator[None]:
        lite = split_queue_name(queue)
        for group in list(self._registry.groups(queue, lite[0])) if lite is not None else ():
            self.tell(queue, group, self._services.turns.now_ms)
            yield

    def tell(self, queue: str, group: str, now_ms: int, without: str | None = None) -> None:
        """Tell a client of a group of a queue: rather one that waits, and rather any other than `without`."""
        lite = split_queue_name(queue)
        if lite is None:
            return
        members = self._registry.members(queue, group)
        takers = self._registry.takers(lite[0], group)
        clients = list(dict.fromkeys((*members, *takers)))
        if not clients:
            return
        first = self._choose(len(clients)) if len(clients) > 1 else 0
        best = -1
        for each in clients[first:] + clients[:first]:
            self._services.turns.spend(_CLIENT_UNITS)
            fitness = self._fitness(each, without, now_ms)
            if fitness > best:
                client_id, best = each, fitness
            if best == _WAITS:
                break
        self._events.tell(client_id, queue, now_ms)
        self._popper.wake(client_id, now_ms)

    def _fitness(self, client_id: str, without: str | None, now_ms: int) -> int:
        if client_id == without:
            return 0
        if self._popper.waits(client_id):
            return _WAITS
        return 2 if self._events.has_asked(client_id, now_ms) else 1

    def go_on(self, queue: str, group: str, now_ms: int) -> None:
        """Tell a client of a queue if a group may go on there: nothing is under way, and there is something left."""
        key = (queue, group, QUEUE_ID)
        if self.has_more(queue, group) and not self._orders.is_blocked(key, None, now_ms):
            self.tell(queue, group, now_ms)

    def has_more(self, queue: str, group: str) -> bool:
        """Return whether there are messages in a queue that a group has not consumed."""
        _, end = self._services.store.span(queue, QUEUE_ID)
        return end > (self._services.offsets.get(queue, group, QUEUE_ID) or 0)

    def subscribed(self, subscriber: Subscriber, queues: Iterable[str], now_ms: int) -> None:
        """Tell the group of a client of the queues that it is subscribed to from now on, where they have messages."""
        for queue in queues:
            if self.has_more(queue, subscriber.group):
                self.tell(queue, subscriber.group, now_ms)

    def queues_of(self, parent: str) -> list[str]:
        """The queues of all lite topics of a parent."""
        names = (name for name, _ in self._services.store.queues if is_lite_queue(name))
        return [name for name in names if (split_queue_name(name) or ("",))[0] == parent]

    def dispatch_all(self, subscriber: Subscriber, now_ms: int) -> None:
        """Tell the group of a client of all its queues that have messages."""
        queues = self.queues_of(subscriber.parent) if subscriber.takes_all else list(subscriber.queues)
        self.subscribed(subscriber, queues, now_ms)

    def left(self, subscriber: Subscriber, now_ms: int) -> None:
        """Tell others of a client's group of what it was told: it is gone."""
        for queue in self._events.leave(subscriber.client_id):
            self.tell(queue, subscriber.group, now_ms)

    def tick(self, now_ms: int) -> None:
        """Tell others of what those were told who do not ask, and of queues in which nothing is under way any more."""
        for idle in self._events.take_idle(now_ms):
            subscriber = self._registry.get(idle.client_id)
            for queue in idle.queues if subscriber is not None else ():
                assert subscriber is not None
                self.tell(queue, subscriber.group, now_ms, without=idle.client_id)
        for queue, group, _ in self._orders.freed(now_ms):
            self.go_on(queue, group, now_ms)
