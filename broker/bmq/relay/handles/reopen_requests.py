# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A relay's opens at a new upstream: a request for each app, and the writers with the default app's or on their own.

A request that the upstream cannot decide yet is repeated soon, and until then the queue does not count as open there. A
request that it refuses, for a consumer above its limit for example, is repeated at the configured pace, while the rest
of the queue works (source: mqbblp::ClusterQueueHelper::onReopenQueueResponse).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.bmq.core.alarms import alarm
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.config import ReopenPace
from broker.bmq.relay.handles.client_handles import ClientHandles, UpstreamConsumer
from broker.bmq.relay.handles.handle_counts import Count
from broker.bmq.relay.upstream import UpstreamState
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.codes import QueueFlag
from formats.bmq.control.messages import (
    ControlMessage,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    Status,
    StatusCategory,
)
from formats.bmq.control.printed import printed

__all__ = ["RETRY_MS", "ReopenListener", "ReopenRequests", "may_pass"]

log: Final = logging.getLogger("broker.relay")

RETRY_MS: Final = 200

# Failures after which a request may succeed when repeated, here or at another node.
PASSING: Final = {
    StatusCategory.TIMEOUT,
    StatusCategory.NOT_CONNECTED,
    StatusCategory.CANCELED,
    StatusCategory.NOT_READY,
}
# Codes of refusals that end when the partition has its next primary, or that one has heard of the queue.
PASSING_CODES: Final = {ClusterError.STOPPING, ClusterError.NOT_PRIMARY, ClusterError.UNKNOWN_QUEUE}


class HandlePart(NamedTuple):
    """The clients' opens in one request: of an app's readers, of the writers, or of both."""

    consumer: UpstreamConsumer | None
    writes: bool

    @property
    def flags(self) -> int:
        reads = QueueFlag.READ if self.consumer is not None else 0
        return reads | (QueueFlag.WRITE if self.writes else 0)

    @property
    def name(self) -> str:
        return "" if self.consumer is None else self.consumer.app_id


class ReopenListener(Protocol):
    """The requests of clients, which continue when the upstream knows the opens."""

    def all_opened(self) -> None:
        """Go on, since the upstream knows all opens, or has refused them."""
        ...

    def learn(self, response: OpenQueueResponse) -> None: ...

    def opened_late(self, consumer: UpstreamConsumer | None, surplus: int) -> None:
        """Handle opens of an app, or of writers, that were refused before; `surplus` have been closed meanwhile."""
        ...

    def asked_late(self, consumer: UpstreamConsumer) -> None:
        """Handle the end of a request for an app that was refused before."""
        ...


class ReopenRequests:
    """The opens of one queue, after each change of its upstream."""

    def __init__(
        self, opens: ClientHandles, now: Now, timers: Timers, pace: ReopenPace, listener: ReopenListener
    ) -> None:
        self._opens = opens
        self._listener = listener
        self._now = now
        self._timers = timers
        self._pace = pace
        self._left = 0  # requests without an answer
        self._again = False  # one of them is to be repeated

    def begin(self) -> None:
        opens = self._opens
        self._left, self._again = 0, False
        writes = bool(opens.writers) and not self._opens.writers_asked
        readers = [each for each in opens.consumers.values() if each.readers and not each.asked]
        parts = [HandlePart(each, writes and each.info is None) for each in readers]
        if writes and not any(part.writes for part in parts):
            parts.insert(0, HandlePart(None, True))
        for part in parts:
            self._send_all(part)
        if not parts:
            self._listener.all_opened()

    def _send_all(self, part: HandlePart) -> None:
        opens, consumer = self._opens, part.consumer
        reads = writes = 0
        if consumer is not None:
            consumer.asked = True
            reads = consumer.reads.tell()
        if part.writes:
            self._opens.writers_asked = True
            writes = opens.writes.tell()
        self._left += 1
        self._send(part, opens.parameters(consumer, part.flags, reads, writes), 1, self._answered)

    def _send(
        self,
        part: HandlePart,
        parameters: QueueHandleParameters,
        attempt: int,
        answered: Callable[[HandlePart, SentOpen, object], None],
    ) -> None:
        opens, upstream = self._opens, self._opens.upstream
        assert upstream is not None
        generation = opens.generation

        def came(choice: object) -> None:
            if generation == opens.generation:
                answered(part, asked, choice)

        request = OpenQueue(handle_parameters=parameters)
        asked = SentOpen(upstream.request(request, came), request, attempt)
        # The texts are the reference's: programs wait for them in the log.
        log.info("Sent ReopenQueue request for queue '%s', app '%s' to %s", opens.uri, part.name, upstream.description)
        log.info("Sending request to '%s' [request: %s]", upstream.description, asked)

    def _answered(self, part: HandlePart, asked: SentOpen, choice: object) -> None:
        opens = self._opens
        self._left -= 1
        if isinstance(choice, OpenQueueResponse):
            self._listener.learn(choice)
        elif isinstance(choice, Status):
            self._forget(part, is_asked=not may_pass(choice))
            if may_pass(choice):
                log.warning("queue '%s' cannot be opened again upstream for %s: %s", opens.uri, part.name, choice)
                self._again = True
            elif part.consumer is not None and part.writes:
                # The readers may be too many: the writers do not wait for that.
                self._refused(HandlePart(part.consumer, False), asked, choice)
                self._send_all(HandlePart(None, True))
            else:
                self._refused(part, asked, choice)
        if self._left:
            return
        if self._again:
            generation = opens.generation
            self.after(RETRY_MS, lambda: self._begin_again(generation))
        else:
            self._listener.all_opened()

    def _begin_again(self, generation: int) -> None:
        if generation == self._opens.generation and self._opens.state is UpstreamState.OPENING:
            self.begin()

    def _forget(self, part: HandlePart, *, is_asked: bool) -> None:
        """Note that the upstream does not know of a part, and that `begin` is to skip it if it `is_asked`."""
        if part.consumer is not None:
            part.consumer.asked = part.consumer.is_refused = is_asked
            part.consumer.reads.forget()
        if part.writes:
            self._opens.writers_asked = is_asked
            self._opens.writes.forget()

    def after(self, wait_ms: int, action: Callable[[], None]) -> None:
        self._timers.at(self._now.ms + wait_ms, action)

    def _refused(self, part: HandlePart, asked: SentOpen, status: Status) -> None:
        """Ask again later what is refused, unless that was the last attempt."""
        answer = printed(ControlMessage(r_id=asked.number, choice=status))
        if 0 < self._pace.attempts_max <= asked.attempt:
            alarm(
                log,
                "QUEUE_REOPEN_FAILURE",
                f"error while reopening queue [{asked}, response: {answer}]: not retried",
            )
            return
        log.warning(
            "queue reopen-request failed. Request: %s, error response: %s. Attempt number was: %d. "
            "Attempting again after %d milliseconds.",
            asked,
            answer,
            asked.attempt,
            self._pace.interval_ms,
        )
        self._ask_later(part, asked.attempt + 1, self._pace.interval_ms)

    def _ask_later(self, part: HandlePart, attempt: int, wait_ms: int) -> None:
        generation = self._opens.generation

        def ask() -> None:
            if generation == self._opens.generation:
                self._ask_missing(part, attempt)

        self.after(wait_ms, ask)

    def _ask_missing(self, part: HandlePart, attempt: int) -> None:
        opens, count = self._opens, self._count(part)
        missing = count.ask(max(0, count.open - count.told))
        if not missing:
            return
        reads, writes = (0, missing) if part.consumer is None else (missing, 0)
        parameters = opens.parameters(part.consumer, part.flags, reads, writes)
        opens.sent.append(parameters)
        if part.consumer is not None:
            # Clients that close the app and open it again meanwhile keep the same number.
            part.consumer.asking += 1
        self._send(part, parameters, attempt, self._missing_answered)

    def _missing_answered(self, part: HandlePart, asked: SentOpen, choice: object) -> None:
        opens, count = self._opens, self._count(part)
        parameters = asked.request.handle_parameters
        if parameters in opens.sent:
            opens.sent.remove(parameters)
        granted = isinstance(choice, OpenQueueResponse)
        count.answered(0, parameters.read_count + parameters.write_count, granted=granted)
        if isinstance(choice, OpenQueueResponse):
            self._listener.learn(choice)
            self._listener.opened_late(part.consumer, count.give_back(0))
        elif isinstance(choice, Status):
            if may_pass(choice):
                self._ask_later(part, asked.attempt, RETRY_MS)
            else:
                self._refused(part, asked, choice)
        if part.consumer is not None:
            self._listener.asked_late(part.consumer)

    def _count(self, part: HandlePart) -> Count:
        return self._opens.writes if part.consumer is None else part.consumer.reads


class SentOpen(NamedTuple):
    """A request, its number, and the number of times that it was sent."""

    number: int
    request: OpenQueue
    attempt: int

    def __str__(self) -> str:
        return printed(ControlMessage(r_id=self.number, choice=self.request))


def may_pass(status: Status) -> bool:
    return status.category in PASSING or status.code in PASSING_CODES
