"""The broker's interface to POP consumption."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain

from broker.rocketmq.consuming.pop.acks import PopAcks
from broker.rocketmq.consuming.pop.inquiries import Inquiries
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.consuming.pop.popping import Popper
from broker.rocketmq.consuming.pop.revival import Revival
from broker.rocketmq.consuming.pop.revive_log import ReviveLog
from broker.rocketmq.consuming.pop.waiting import ALL_QUEUES, Place
from broker.rocketmq.delays.levels import Storing
from broker.rocketmq.remoting.requests import Handlers
from broker.rocketmq.tables.services import Services

__all__ = ["PopService"]

log = logging.getLogger("broker.rocketmq.popping")


class PopService:
    """Carries out requests and due work."""

    def __init__(
        self,
        services: Services,
        orders: Orders,
        storing: Storing,
        choose: Callable[[int], int],
        failed: Callable[[object, Exception], None],
    ) -> None:
        self._scheduler = services.scheduler
        self._orders = orders
        revive_log = ReviveLog(services.options, storing)
        self._popper = popper = Popper(services, orders, revive_log, choose, failed)
        self._inquiries = Inquiries(services, orders, choose, popper.waits.count, failed)
        acks = PopAcks(services, orders, revive_log, self._freed)
        self._revival = Revival(services, storing)
        self.handlers: Handlers = {**popper.handlers, **self._inquiries.handlers, **acks.handlers}

    def arrived(self, topic: str, queue_id: int, now_ms: int) -> None:
        """Answer the requests that wait for messages of a queue, which has got one."""
        asking, popping = self._inquiries.places(topic, queue_id), self._popper.waits.places(topic, queue_id)
        if asking or popping:
            self._wake(("pop", topic, queue_id), asking, popping)

    def _freed(self, topic: str, group: str, queue_id: int, now_ms: int) -> None:
        """Answer the requests that wait for a queue consumed in order, which has become free."""
        places = [Place(topic, group, ALL_QUEUES), Place(topic, group, queue_id)]
        has_messages = self._popper.has_more(topic, group, queue_id)
        self._wake(("freed", topic, group, queue_id), places, places if has_messages else [])

    def _wake(self, key: tuple[str | int, ...], asking: list[Place], popping: list[Place]) -> None:
        # Notifications first: pops take the messages.
        self._scheduler.again(key, lambda: chain(self._inquiries.waking(asking), self._popper.waking(popping)))

    def disconnected(self, connection: object) -> None:
        """Forget the waiting requests of a closed connection."""
        self._popper.disconnected(connection)
        self._inquiries.disconnected(connection)

    def end_waits(self) -> None:
        """Answer all waiting requests: another broker becomes master, or this one restarts its work."""
        self._popper.end_waits()
        self._inquiries.end_waits()

    def revive(self, now_ms: int, *, is_behind: bool) -> bool:
        """Revive messages that were not acknowledged in time; return True if there is more to do.

        `is_behind`: notes that are due are not in the log yet.
        """
        return self._revival.give_out(now_ms, is_behind=is_behind)

    def tick(self, now_ms: int) -> None:
        """Answer requests whose time is over, and requests for queues that have become free."""
        for topic, group, queue_id in self._orders.freed(now_ms):
            self._freed(topic, group, queue_id, now_ms)
        self._popper.tick(now_ms)
        self._inquiries.tick(now_ms)
