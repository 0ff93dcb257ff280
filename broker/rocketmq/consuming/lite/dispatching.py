"""Assigns each event in the queue of a lite topic to one client of each group (source: LiteEventDispatcher)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from broker.rocketmq.consuming.lite.events import Idle
from broker.rocketmq.consuming.lite.popping import LitePopper
from broker.rocketmq.consuming.lite.registry import LiteSubscriber, Registry
from broker.rocketmq.consuming.pop.order import Key, Orders
from broker.rocketmq.tables.services import Services
from formats.rocketmq.lite import QUEUE_ID, queue_name, split_queue_name

__all__ = ["Dispatcher"]


# Units of examining one client; see `Scheduler`.
_CLIENT_UNITS: Final = 500
_WAITS: Final = 3
# Maximum of clients examined to choose one.
_LOOKS_MAX: Final = 64
# Interval of the search for idle clients.
_LOOK_MS: Final = 500


class Dispatcher:
    """Assigns queues with messages to clients. `choose(n)` returns a number from 0 to n - 1."""

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
        popper.pass_on = self.go_on
        self._events = popper.events
        self._looked_ms = 0

    def arrived(self, queue: str) -> None:
        """Assign a queue that has got a message to one client of each subscribed group."""
        self._services.scheduler.again(("lite", queue), lambda: self._tell_groups(queue))

    def _tell_groups(self, queue: str) -> Iterator[None]:
        lite = split_queue_name(queue)
        for group in list(self._registry.groups(queue, lite[0])) if lite is not None else ():
            self.tell(queue, group, self._services.scheduler.now_ms)
            yield

    def tell(self, queue: str, group: str, now_ms: int, without: str | None = None) -> None:
        """Assign a queue to a client of a group: preferably one that waits, and another than `without`."""
        lite = split_queue_name(queue)
        if lite is None:
            return
        client_id, best = "", -1
        for each in self._registry.some(queue, lite[0], group, _LOOKS_MAX, self._choose):
            self._services.scheduler.spend(_CLIENT_UNITS)
            fitness = self._fitness(each, without, now_ms)
            if fitness > best:
                client_id, best = each, fitness
            if best == _WAITS:
                break
        if best >= 0:
            self._events.tell(client_id, queue, now_ms)
            self._popper.wake(client_id, now_ms)

    def _fitness(self, client_id: str, without: str | None, now_ms: int) -> int:
        if client_id == without:
            return 0
        if self._popper.waits(client_id):
            return _WAITS
        return 2 if self._events.has_asked(client_id, now_ms) else 1

    def go_on(self, queue: str, group: str, now_ms: int) -> None:
        """Assign a queue to a client if the group has messages left there, and none under way."""
        key = (queue, group, QUEUE_ID)
        if self.has_more(queue, group) and not self._orders.is_blocked(key, None, now_ms):
            self.tell(queue, group, now_ms)

    def has_more(self, queue: str, group: str) -> bool:
        _, end = self._services.store.span(queue, QUEUE_ID)
        return end > (self._services.offsets.get(queue, group, QUEUE_ID) or 0)

    def subscribed(self, subscriber: LiteSubscriber, queues: Iterable[str]) -> None:
        """Assign the queues of a client's new subscriptions, if they have messages."""
        group = subscriber.group
        self._services.scheduler.add(("lite", group), self._tell_full(list(queues), group))

    def queues_of(self, parent: str) -> list[str]:
        prefix = queue_name(parent, "")
        return [name for name, _ in self._services.store.queues if name.startswith(prefix)]

    def dispatch_all(self, subscriber: LiteSubscriber) -> None:
        parent, group = subscriber.parent, subscriber.group
        if subscriber.takes_all:
            key = ("lite", group, parent)
            self._services.scheduler.again(key, lambda: self._tell_full(self.queues_of(parent), group))
        else:
            self.subscribed(subscriber, subscriber.queues)

    def _tell_full(self, queues: list[str], group: str) -> Iterator[None]:
        for queue in queues:
            if self.has_more(queue, group):
                self.tell(queue, group, self._services.scheduler.now_ms)
            yield

    def left(self, subscriber: LiteSubscriber) -> None:
        self._pass_on(Idle(subscriber.client_id, self._events.leave(subscriber.client_id)), subscriber.group)

    def _pass_on(self, idle: Idle, group: str) -> None:
        if idle.queues:
            self._services.scheduler.add(("lite", group), self._tell_others(idle, group))

    def _tell_others(self, idle: Idle, group: str) -> Iterator[None]:
        for queue in idle.queues:
            self.tell(queue, group, self._services.scheduler.now_ms, without=idle.client_id)
            yield

    def tick(self, now_ms: int) -> None:
        """Assign the queues of idle clients to others, and queues in which groups may continue."""
        if not 0 <= now_ms - self._looked_ms < _LOOK_MS:
            self._looked_ms = now_ms
            for idle in self._events.take_idle(now_ms):
                subscriber = self._registry.get(idle.client_id)
                if subscriber is not None:
                    self._pass_on(idle, subscriber.group)
        freed = self._orders.freed(now_ms)
        if freed:
            self._services.scheduler.add(self, self._go_on_all(freed))

    def _go_on_all(self, freed: list[Key]) -> Iterator[None]:
        for queue, group, _ in freed:
            self.go_on(queue, group, self._services.scheduler.now_ms)
            yield
