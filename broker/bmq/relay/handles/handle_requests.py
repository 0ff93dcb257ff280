# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A relay's opens at its upstream: each client's request is forwarded at once, and a new upstream gets their sum.

Requests for a queue are forwarded in order, so an answer is awaited only where it matters (source:
mqbblp::ClusterQueueHelper).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Final, Protocol

from broker.bmq.core.config import ReopenPace
from broker.bmq.queue.handles import Refusal, app_id_of
from broker.bmq.relay.handles.client_handles import ClientHandles, UpstreamConsumer
from broker.bmq.relay.handles.reopen_requests import RETRY_MS, ReopenRequests, may_pass
from broker.bmq.relay.upstream import TRANSITIONS, Upstream, UpstreamState, UpstreamTrigger
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.codes import QueueFlag
from formats.bmq.control.messages import (
    CloseQueue,
    ConfigureStream,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    Status,
    StatusCategory,
    StreamParameters,
    Subscription,
)

__all__ = ["HandleRequest", "HandleRequests", "HandleRequestsListener"]

log: Final = logging.getLogger("broker.relay")

# Rounds in which an upstream is sent all subscriptions: a consumer may change its own without end.
CONFIGURE_ROUNDS: Final = 2

# Called with the result of an open request: None if it is open.
Answered = Callable[[Refusal | None], None]


Action = Callable[[], None]


class PendingAnswers:
    """Clients that wait for an upstream's answers to the configurations and close requests of one queue."""

    def __init__(self) -> None:
        self._configuring: list[Action] = []
        self._closing: dict[int, list[Action]] = {}  # by the number of the close request
        self._numbers = count()

    def configuring(self, configured: Action) -> Action:
        """Note a configuration that is sent; return the callback for its answer."""
        self._configuring.append(configured)

        def answered() -> None:
            if configured in self._configuring:
                self._configuring.remove(configured)
                configured()

        return answered

    def closing(self) -> Action:
        """Note a close request that is sent; return the callback for its answer."""
        number = next(self._numbers)
        self._closing[number] = []

        def answered() -> None:
            for closed in self._closing.pop(number, ()):
                closed()

        return answered

    def after_closing(self, closed: Action) -> None:
        """Call `closed` when every close request so far is answered."""
        if self._closing:
            # Requests for one queue are carried out in order.
            next(reversed(self._closing.values())).append(closed)
        else:
            closed()

    def give_up(self) -> None:
        configuring, self._configuring = self._configuring, []
        closing, self._closing = self._closing, {}
        for action in configuring:
            action()
        for waiting in closing.values():
            for action in waiting:
                action()


class HandleRequest:
    """A client's request to open the queue."""

    __slots__ = ("answered", "consumer", "is_withdrawn", "parameters")

    def __init__(self, parameters: QueueHandleParameters, answered: Answered) -> None:
        self.parameters = parameters
        self.answered = answered
        self.consumer: UpstreamConsumer | None = None  # while the upstream is asked
        self.is_withdrawn = False  # the client does not wait any longer


class HandleRequestsListener(Protocol):
    """The relay whose opens these are."""

    def send_kept(self, sent: Callable[[], None]) -> None:
        """Send the pending posts and confirms to an upstream that knows all opens, and then call `sent`.

        Those of a broadcast queue are sent after `HandleRequests.configure_all`.
        """
        ...

    def learn(self, response: OpenQueueResponse) -> None:
        """Take the parameters in the upstream's response to an open request."""
        ...

    def reads(self, app_id: str) -> None:
        """Handle an app opened by the upstream, before its first push."""
        ...

    def asked(self, app_id: str) -> None:
        """Handle the end of a request for an app, which all its clients may have closed meanwhile."""
        ...


class HandleRequests:
    """The requests for one queue's opens.

    An upstream that knows them all gets the pending posts and confirms, then the subscriptions that it has not got;
    further data is sent directly.
    """

    def __init__(
        self, opens: ClientHandles, now: Now, timers: Timers, listener: HandleRequestsListener, pace: ReopenPace
    ) -> None:
        self._opens = opens
        self._listener = listener
        self._waiting: list[HandleRequest] = []
        self._finished = False
        self._unanswered = PendingAnswers()
        self._in_flight: dict[HandleRequest, None] = {}  # sent to this upstream, oldest first
        self._pausing = 0  # requests that wait for a retry
        self._now = now
        self._reopening = ReopenRequests(opens, now, timers, pace, self)

    @property
    def is_unused(self) -> bool:
        return not (self._opens.writers or self._opens.consumers or self._waiting or self._in_flight or self._pausing)

    def finish(self) -> None:
        """Finish: there will be no further upstream, and every request succeeds at once."""
        self._finished = True
        self._open_waiting()

    def _open_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for opening in waiting:
            self._open(opening)

    def leave(self, answered: Callable[[], None]) -> int:
        """Ask the upstream, which will be left soon, to send no more messages.

        Returns the number of requests; `answered` is called for each, later.
        """
        self._opens.is_leaving = True
        consumers = [each for each in self._opens.consumers.values() if each.subscriptions and not each.is_refused]
        if self._opens.state is not UpstreamState.OPEN:
            return 0
        for consumer in consumers:
            self._send_subscriptions(consumer, answered)
        return len(consumers)

    def found(self, upstream: Upstream) -> None:
        if self._opens.state is not UpstreamState.NONE:
            self.lost()
        self._opens.state = TRANSITIONS[self._opens.state, UpstreamTrigger.FOUND]
        self._opens.upstream = upstream
        self._opens.generation += 1
        self._opens.found_ms = self._now.ms
        self._opens.forget_asked()
        self._reopening.begin()

    def lost(self) -> None:
        """Remove the upstream. Pending configurations are answered: the next upstream gets them.

        The next may be the same node: it must not assume that this relay still has its messages.
        """
        if self._opens.upstream is not None and self._opens.upstream.is_up:
            self._close_all()
        self._opens.sent.clear()
        self._opens.forget_asked()
        self._opens.is_leaving = False
        self._opens.state = TRANSITIONS[self._opens.state, UpstreamTrigger.LOST]
        self._opens.upstream = None
        self._opens.generation += 1
        self._unanswered.give_up()
        self._take_back()

    def _take_back(self) -> None:
        """Leave the requests in flight to the next upstream: the last one may take its time to answer."""
        in_flight, self._in_flight = self._in_flight, {}
        asking = [each for each in self._opens.consumers.values() if each.asking]
        for consumer in asking:
            consumer.asking = 0
            self._opens.drop_unused(consumer)
        for opening in in_flight:
            self._open(opening)
        for consumer in asking:
            self._listener.asked(consumer.app_id)

    def all_opened(self) -> None:
        generation = self._opens.generation
        self._listener.send_kept(lambda: self._kept_sent(generation))

    def configure_all(self, configured: Callable[[], None], rounds: int = CONFIGURE_ROUNDS) -> None:
        """Send the upstream, which knows the opens, all subscriptions; call `configured` when it has answered.

        It is not called if the upstream is to be left. Later changes by consumers are sent in further rounds.
        """
        if self._opens.is_leaving:
            return
        generation = self._opens.generation
        consumers = self._opens.untold if rounds else []
        left = len(consumers)

        def answered() -> None:
            nonlocal left
            left -= 1
            if not left and generation == self._opens.generation:
                self.configure_all(configured, rounds - 1)

        for consumer in consumers:
            self._send_subscriptions(consumer, answered)
        if not consumers:
            configured()

    def _kept_sent(self, generation: int) -> None:
        if generation != self._opens.generation:
            return
        self._opens.state = TRANSITIONS[self._opens.state, UpstreamTrigger.OPENED]
        for consumer in self._opens.untold:
            self._send_subscriptions(consumer, lambda: None)
        self._open_waiting()

    def learn(self, response: OpenQueueResponse) -> None:
        self._listener.learn(response)

    def opened_late(self, consumer: UpstreamConsumer | None, surplus: int) -> None:
        if surplus and consumer is None:
            self._close(self._opens.parameters(None, QueueFlag.WRITE | QueueFlag.ACK, 0, surplus))
        elif surplus:
            self._close(self._opens.parameters(consumer, QueueFlag.READ, surplus, 0))
        if consumer is not None and consumer.reads.told:
            consumer.is_refused = False
            self._listener.reads(consumer.app_id)
            if self._opens.state is UpstreamState.OPEN and consumer.subscriptions:
                self._send_subscriptions(consumer, lambda: None)

    def open(self, parameters: QueueHandleParameters, answered: Answered) -> HandleRequest:
        opening = HandleRequest(parameters, answered)
        self._open(opening)
        return opening

    def withdraw(self, opening: HandleRequest) -> None:
        """Have an open refused that its client no longer awaits, unless the upstream is being asked."""
        opening.is_withdrawn = True
        if opening in self._waiting:
            self._waiting.remove(opening)
            self._open(opening)

    def _open(self, opening: HandleRequest) -> None:
        if opening.is_withdrawn:
            opening.answered(Refusal(StatusCategory.TIMEOUT, "the client does not wait any longer", -1))
        elif self._finished:
            opening.answered(None)
        elif self._opens.state is not UpstreamState.OPEN:
            self._waiting.append(opening)
        else:
            self._ask_upstream(opening)

    def _ask_upstream(self, opening: HandleRequest) -> None:
        assert self._opens.upstream is not None
        generation, parameters = self._opens.generation, opening.parameters
        consumer: UpstreamConsumer | None = None
        if parameters.flags & QueueFlag.READ:
            app_id = app_id_of(parameters)
            consumer = self._opens.consumer(app_id)
            consumer.asking += 1
            consumer.asked = True
        opening.consumer = consumer
        self._in_flight[opening] = None
        asked = self._ask(parameters, consumer)

        def came(choice: object) -> None:
            if generation != self._opens.generation:
                return
            del self._in_flight[opening]
            if consumer is not None:
                consumer.asking -= 1
            if asked in self._opens.sent:
                self._opens.sent.remove(asked)
            granted = choice is None or isinstance(choice, OpenQueueResponse)
            self._count(parameters, asked, consumer, granted=granted)
            if granted:
                self._granted(opening, choice)
            else:
                self._opens.drop_unused(consumer)
                self._refused(opening, choice)

        if asked.read_count or asked.write_count:
            self._opens.sent.append(asked)
            self._opens.upstream.request(OpenQueue(handle_parameters=asked), came)
        elif self._opens.sent:
            came(Status(category=StatusCategory.NOT_READY, code=0, message="an earlier request is still unanswered"))
        else:
            came(None)

    def asked_late(self, consumer: UpstreamConsumer) -> None:
        consumer.asking -= 1
        self._opens.drop_unused(consumer)
        self._listener.asked(consumer.app_id)

    def _granted(self, opening: HandleRequest, choice: object) -> None:
        consumer = opening.consumer
        if isinstance(choice, OpenQueueResponse):
            app_id = consumer and consumer.app_id
            log.info("received OpenQueueResponse for queue '%s', app '%s'", self._opens.uri, app_id)
            self._listener.learn(choice)
        if consumer is not None:
            consumer.is_refused = False
            self._listener.reads(consumer.app_id)
        opening.answered(None)

    def _refused(self, opening: HandleRequest, choice: object) -> None:
        if isinstance(choice, Status) and may_pass(choice):
            # Until then the queue must not look unused.
            self._pausing += 1
            self._reopening.after(RETRY_MS, lambda: self._open_again(opening))
            return
        status = choice if isinstance(choice, Status) else None
        category = status.category if status else StatusCategory.UNKNOWN
        text = status.message if status else "no answer to an open request"
        opening.answered(Refusal(category, text, status.code if status else -1))

    def _ask(self, parameters: QueueHandleParameters, consumer: UpstreamConsumer | None) -> QueueHandleParameters:
        """Return the request upstream for an open, without counts beyond the maximum."""
        flags = parameters.flags
        reads = writes = 0
        if consumer is not None:
            reads = consumer.reads.ask(parameters.read_count)
            flags &= ~0 if reads else ~QueueFlag.READ
        if parameters.flags & QueueFlag.WRITE:
            writes = self._opens.writes.ask(parameters.write_count)
            flags &= ~0 if writes else ~QueueFlag.WRITE
        return self._opens.parameters(consumer, flags, reads, writes)

    def _open_again(self, opening: HandleRequest) -> None:
        self._pausing -= 1
        self._open(opening)

    def _count(
        self,
        parameters: QueueHandleParameters,
        asked: QueueHandleParameters,
        consumer: UpstreamConsumer | None,
        *,
        granted: bool,
    ) -> None:
        if consumer is not None:
            consumer.reads.answered(parameters.read_count, asked.read_count, granted=granted)
        if parameters.flags & QueueFlag.WRITE:
            self._opens.writes.answered(parameters.write_count, asked.write_count, granted=granted)
            self._opens.writers_asked |= granted

    def give_back_reads(self, app_id: str, count: int) -> None:
        consumer = self._opens.consumers.get(app_id)
        if consumer is None:
            return
        known = consumer.reads.give_back(count)
        if self._opens.upstream is not None and known:
            if consumer.readers <= 0 and consumer.subscriptions:
                self.configure(app_id, (), lambda: None)
            self._close(self._opens.parameters(consumer, QueueFlag.READ, known, 0))
        self._opens.drop_unused(consumer)

    def give_back_writes(self, count: int) -> None:
        known = self._opens.writes.give_back(count)
        if self._opens.upstream is not None and known:
            self._close(self._opens.parameters(None, QueueFlag.WRITE | QueueFlag.ACK, 0, known))

    def after_closing(self, closed: Callable[[], None]) -> None:
        """Call `closed` when the upstream, if any, has answered every close request so far, whatever the answers."""
        self._unanswered.after_closing(closed)

    def configure(self, app_id: str, subscriptions: tuple[Subscription, ...], configured: Callable[[], None]) -> None:
        """Set the clients' subscriptions of an app; `configured` is called once the upstream, if any, has them."""
        consumer = self._opens.consumers.get(app_id)
        if consumer is None or consumer.subscriptions == subscriptions:
            configured()
            return
        consumer.subscriptions = subscriptions
        if self._opens.state is UpstreamState.OPEN and not consumer.is_refused:
            self._send_subscriptions(consumer, self._unanswered.configuring(configured))
        else:
            configured()

    def _send_subscriptions(self, consumer: UpstreamConsumer, answered: Callable[[], None]) -> None:
        assert self._opens.upstream is not None
        subscriptions = consumer.told = () if self._opens.is_leaving else consumer.subscriptions
        parameters = StreamParameters(app_id=consumer.app_id, subscriptions=subscriptions)
        request = ConfigureStream(q_id=self._opens.queue_id, stream_parameters=parameters)

        def came(choice: object) -> None:
            if isinstance(choice, Status) and choice.category is not StatusCategory.SUCCESS:
                uri, app_id = self._opens.uri, consumer.app_id
                log.warning("queue '%s', app '%s' is not configured upstream: %s", uri, app_id, choice)
            answered()

        self._opens.upstream.request(request, came)

    def _close_all(self) -> None:
        given_up = [
            self._opens.parameters(consumer, QueueFlag.READ, consumer.reads.told, 0)
            for consumer in self._opens.consumers.values()
            if consumer.reads.told
        ]
        if self._opens.writes.told:
            given_up.append(self._opens.parameters(None, QueueFlag.WRITE | QueueFlag.ACK, 0, self._opens.writes.told))
        # Pending open requests have been processed there, too, when this arrives.
        given_up += self._opens.sent
        for number, parameters in enumerate(given_up, 1):
            self._close(parameters, is_final=number == len(given_up))

    def _close(self, parameters: QueueHandleParameters, *, is_final: bool = False) -> None:
        assert self._opens.upstream is not None
        answered = self._unanswered.closing()

        def came(choice: object) -> None:
            if isinstance(choice, Status):
                log.info("queue '%s' is not closed upstream: %s", self._opens.uri, choice)
            answered()

        self._opens.upstream.request(CloseQueue(handle_parameters=parameters, is_final=is_final), came)
