"""The queues that a topic has on other brokers, by their nameservers (source: TopicRouteInfoManager)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE, QueueData
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.routing import GetRouteInfoRequest

__all__ = ["FindQueues", "QueueFinder"]

log = logging.getLogger("broker.rocketmq.routes")

# The time for which an answer is used.
KEEP_MS: Final = 30_000
TOPICS_MAX: Final = 10_000


class _Link(Protocol):
    """A nameserver elsewhere; see `registration.NameserverLink`."""

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> bool: ...


class FindQueues(Protocol):
    """Finds the queues of a topic, at once or later."""

    def __call__(self, topic: str, now_ms: int, done: Callable[[Sequence[QueueData]], None]) -> None: ...


class _KnownBroker(NamedTuple):
    queues: list[QueueData]
    asked_ms: int


class QueueFinder:
    """Asks the nameserver of this process, and one elsewhere."""

    def __init__(self, near: Callable[[str], Sequence[QueueData]], links: Sequence[_Link]) -> None:
        self._near = near
        self._links = tuple(links)
        self._known: dict[str, _KnownBroker] = {}

    def __call__(self, topic: str, now_ms: int, done: Callable[[Sequence[QueueData]], None]) -> None:
        """Call `done` with the queues of a topic, now or when a nameserver has answered."""
        known = self._known.get(topic)
        if known is not None and 0 <= now_ms - known.asked_ms < KEEP_MS:
            done([*self._near(topic), *known.queues])
            return
        frame = Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, ext_fields=write_header(GetRouteInfoRequest(topic)))
        take = partial(self._answered, topic, now_ms, done)
        if not any(link.ask(frame, now_ms, take) for link in self._links):
            take(None)

    def _answered(
        self, topic: str, now_ms: int, done: Callable[[Sequence[QueueData]], None], answer: Frame | None
    ) -> None:
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            try:
                queues = TOPIC_ROUTE.read(answer.body).queue_datas
            except FormatError as error:
                log.warning("a nameserver's answer about topic %s cannot be read: %s", topic, error)
            else:
                if len(self._known) >= TOPICS_MAX:
                    self._known.clear()
                self._known[topic] = _KnownBroker(queues, now_ms)
        known = self._known.get(topic)
        done([*self._near(topic), *(known.queues if known is not None else ())])
