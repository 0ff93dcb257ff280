"""The broker's interface to lite topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.rocketmq.consuming.lite.acks import LiteAcks
from broker.rocketmq.consuming.lite.dispatching import Dispatcher
from broker.rocketmq.consuming.lite.expiry import Expiry
from broker.rocketmq.consuming.lite.inquiries import LiteInquiries
from broker.rocketmq.consuming.lite.popping import LitePopper
from broker.rocketmq.consuming.lite.registry import Registry
from broker.rocketmq.consuming.lite.subscribing import Subscribing
from broker.rocketmq.consuming.pop.order import Orders
from broker.rocketmq.remoting.requests import Handlers
from broker.rocketmq.tables.routes import FindQueues
from broker.rocketmq.tables.services import Services
from formats.rocketmq.lite import QUEUE_ID, is_lite_queue

__all__ = ["LiteService"]

_UNUSED_MS: Final = 300_000


class LiteService:
    """Carries out requests and due work. `others` handles acknowledgements of messages of other topics."""

    def __init__(
        self,
        services: Services,
        choose: Callable[[int], int],
        failed: Callable[[object, Exception], None],
        others: Handlers,
        find_queues: FindQueues,
        now_ms: int,
    ) -> None:
        self._registry = registry = Registry()
        # Messages of lite topics under way are known in memory only.
        self._orders = orders = Orders(b"")
        self._popper = popper = LitePopper(services, registry, orders, failed)
        self._dispatcher = dispatcher = Dispatcher(services, registry, orders, popper, choose)
        self._subscribing = Subscribing(services, registry, orders, dispatcher)
        self._expiry = Expiry(services, registry, orders, now_ms)
        self._tidied_ms = now_ms
        inquiries = LiteInquiries(services, registry, orders, popper.events, dispatcher, find_queues)
        parts = (popper, self._subscribing, LiteAcks(services, orders, dispatcher, others), inquiries)
        self.handlers: Handlers = {code: handler for part in parts for code, handler in part.handlers.items()}

    def arrived(self, queue: str, queue_id: int, now_ms: int) -> None:
        """Notify the subscribers of a queue that has got a message."""
        if queue_id == QUEUE_ID and is_lite_queue(queue):
            self._dispatcher.arrived(queue)

    def removed(self, topic: str) -> None:
        self._expiry.remove_all(topic)

    def disconnected(self, connection: object) -> None:
        """Forget the waiting requests of a closed connection; its client stays subscribed for a while."""
        self._popper.disconnected(connection)

    def end_waits(self) -> None:
        """Answer all waiting requests: another broker becomes master, or this one restarts its work."""
        self._popper.end_waits()

    def tick(self, now_ms: int) -> None:
        """Do the work that is due."""
        self._dispatcher.tick(now_ms)
        self._subscribing.tick(now_ms)
        self._popper.tick(now_ms)
        self._expiry.tick(now_ms)
        if not 0 <= now_ms - self._tidied_ms < _UNUSED_MS:
            self._tidied_ms = now_ms
            self._orders.drop_unused(now_ms)
