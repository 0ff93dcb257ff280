"""A relay's opens at its upstream: each client's request is forwarded at once, and a new upstream gets their sum.

Requests for a queue are forwarded in order, so an answer is awaited only where it matters (source:
mqbblp::ClusterQueueHelper).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.bmq.core.config import ReopenPace
from broker.bmq.queue.handles import Refusal, app_id_of
from broker.bmq.relay.counts import COUNT_MAX, Count
from broker.bmq.relay.reopening import RETRY_MS, Reopening, may_pass
from broker.bmq.relay.unanswered import Unanswered
from broker.bmq.relay.upstream import TRANSITIONS, Trigger, Upstream, UpstreamState
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.codes import DEFAULT_APP_ID, QueueFlag
from formats.bmq.control.messages import (
    CloseQueue,
    ConfigureStream,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    Status,
    StatusCategory,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)

__all__ = ["Opening", "Openings", "UpstreamConsumer"]

log = logging.getLogger("broker.relay")

# Rounds in which an upstream is told of all subscriptions: a consumer may go on changing its own for ever.
CONFIGURE_ROUNDS = 2

# Callback with the result of an open request: None if it is open.
Answered = Callable[[Refusal | None], None]


class Opening:
    """A client's request to open the queue."""

    __slots__ = ("answered", "consumer", "is_withdrawn", "parameters")

    def __init__(self, parameters: QueueHandleParameters, answered: Answered) -> None:
        self.parameters = parameters
        self.answered = answered
        self.consumer: UpstreamConsumer | None = None  # while the upstream is asked
        self.is_withdrawn = False  # the client does not wait any longer


class UpstreamConsumer:
    """An app read by this relay: `reads` counts its opens; `asked` is True if this upstream was told of it.

    `told` are the subscriptions that this upstream was sent.
    """

    __slots__ = ("app_id", "asked", "asking", "is_refused", "reads", "sub_id", "subscriptions", "told")

    def __init__(self, app_id: str, sub_id: int) -> None:
        self.app_id = app_id
        self.sub_id = sub_id
        self.reads = Count()
        self.asking = 0  # open requests in flight
        self.asked = False
        self.is_refused = False  # it is not open at this upstream
        self.subscriptions: tuple[Subscription, ...] = ()
        self.told: tuple[Subscription, ...] = ()

    @property
    def readers(self) -> int:
        return self.reads.open

    @property
    def info(self) -> SubQueueIdInfo | None:
        return None if self.app_id == DEFAULT_APP_ID else SubQueueIdInfo(sub_id=self.sub_id, app_id=self.app_id)


class Openings:
    """The opens of one queue.

    When an upstream knows them all, `opened` is called. It sends the pending posts and confirms, of a broadcast queue
    after `configure_all`, and then calls its argument; after that the subscriptions that the upstream has not got are
    sent, and further data is sent directly. `learn` is called with each successful answer, `reads` with each app that
    the upstream opens later.
    """

    def __init__(
        self,
        uri: str,
        queue_id: int,
        now: Now,
        timers: Timers,
        opened: Callable[[Callable[[], None]], None],
        learn: Callable[[OpenQueueResponse], None],
        reads: Callable[[str], None],
        pace: ReopenPace,
    ) -> None:
        self.uri = uri
        self.queue_id = queue_id
        self.state = UpstreamState.NONE
        self.upstream: Upstream | None = None
        self.writes = Count()
        self.consumers: dict[str, UpstreamConsumer] = {}
        self._opened = opened
        self.learn = learn
        self._reads = reads
        self._waiting: list[Opening] = []
        self._finished = False
        self._unanswered = Unanswered()
        self._in_flight: dict[Opening, None] = {}  # those that this upstream was asked for, oldest first
        self._pausing = 0  # those that wait until the upstream is asked again
        self.is_leaving = False  # the upstream was asked to send no more
        self.sent: list[QueueHandleParameters] = []  # those of them that the upstream has got, and not answered
        self._last_sub_id = 0
        self._reopening = Reopening(self, now, timers, pace)
        # Called with an app whose clients may all have closed it while the upstream was asked for it.
        self.on_asked: Callable[[str], None] = lambda app_id: None
        # Incremented with each upstream: answers of older ones are ignored.
        self.generation = 0

    @property
    def writers(self) -> int:
        """Number of clients' opens for writing."""
        return self.writes.open

    @property
    def is_unused(self) -> bool:
        """Return True if no client has the queue open, or is opening it."""
        return not (self.writers or self.consumers or self._waiting or self._in_flight or self._pausing)

    def finish(self) -> None:
        """Finish: there will be no further upstream, and every request succeeds at once."""
        self._finished = True
        self._open_waiting()

    def _open_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for opening in waiting:
            self._open(opening)

    # -- the upstream comes and goes

    def leave(self, answered: Callable[[], None]) -> int:
        """Ask the upstream, which will be left soon, to send no more messages.

        Returns the number of requests: `answered` is called as often, later.
        """
        self.is_leaving = True
        consumers = [each for each in self.consumers.values() if each.subscriptions and not each.is_refused]
        if self.state is not UpstreamState.OPEN:
            return 0
        for consumer in consumers:
            self._send_subscriptions(consumer, answered)
        return len(consumers)

    def found(self, upstream: Upstream) -> None:
        """Set the upstream, and send it the opens."""
        if self.state is not UpstreamState.NONE:
            self.lost()
        self.state = TRANSITIONS[self.state, Trigger.FOUND]
        self.upstream = upstream
        self.generation += 1
        self._forget_asked()
        self._reopening.begin()

    def lost(self) -> None:
        """Remove the upstream. Pending configurations are answered: the next upstream gets them.

        The next may be the same node: it must not assume that this relay still has its messages.
        """
        if self.upstream is not None and self.upstream.is_up:
            self._close_all()
        self.sent.clear()
        self._forget_asked()
        self.is_leaving = False
        self.state = TRANSITIONS[self.state, Trigger.LOST]
        self.upstream = None
        self.generation += 1
        self._unanswered.give_up()
        self._take_back()

    def _take_back(self) -> None:
        """Have the requests in flight wait for the next upstream: the last one may take its time to answer."""
        in_flight, self._in_flight = self._in_flight, {}
        asking = [each for each in self.consumers.values() if each.asking]
        for consumer in asking:
            consumer.asking = 0
            self._drop_unused(consumer)
        for opening in in_flight:
            self._open(opening)
        for consumer in asking:
            self.on_asked(consumer.app_id)

    def _forget_asked(self) -> None:
        """Reset the state known to the upstream."""
        self._reopening.writers_asked = False
        self.writes.forget()
        for consumer in self.consumers.values():
            consumer.asked = consumer.is_refused = False
            consumer.told = ()
            consumer.reads.forget()

    def all_opened(self) -> None:
        generation = self.generation
        self._opened(lambda: self._kept_sent(generation))

    def configure_all(self, configured: Callable[[], None], rounds: int = CONFIGURE_ROUNDS) -> None:
        """Send the upstream, which knows the opens, all subscriptions; call `configured` when it has answered.

        That never happens if the upstream is to be left. What consumers change meanwhile is sent in further rounds.
        """
        if self.is_leaving:
            return
        generation = self.generation
        consumers = self._untold() if rounds else []
        left = len(consumers)

        def answered() -> None:
            nonlocal left
            left -= 1
            if not left and generation == self.generation:
                self.configure_all(configured, rounds - 1)

        for consumer in consumers:
            self._send_subscriptions(consumer, answered)
        if not consumers:
            configured()

    def _untold(self) -> list[UpstreamConsumer]:
        """Return the consumers whose subscriptions the upstream has not got."""
        return [each for each in self.consumers.values() if each.subscriptions != each.told and not each.is_refused]

    def _kept_sent(self, generation: int) -> None:
        if generation != self.generation:
            return
        self.state = TRANSITIONS[self.state, Trigger.OPENED]
        for consumer in self._untold():
            self._send_subscriptions(consumer, lambda: None)
        self._open_waiting()

    def opened_late(self, consumer: UpstreamConsumer | None, surplus: int) -> None:
        """Handle opens of an app, or of writers, that were refused before; `surplus` have been closed meanwhile."""
        if surplus and consumer is None:
            self._close(self.parameters(None, QueueFlag.WRITE | QueueFlag.ACK, 0, surplus))
        elif surplus:
            self._close(self.parameters(consumer, QueueFlag.READ, surplus, 0))
        if consumer is not None and consumer.reads.told:
            consumer.is_refused = False
            self._reads(consumer.app_id)
            if self.state is UpstreamState.OPEN and consumer.subscriptions:
                self._send_subscriptions(consumer, lambda: None)

    # -- what clients ask

    def open(self, parameters: QueueHandleParameters, answered: Answered) -> Opening:
        """Open the queue upstream for a client."""
        opening = Opening(parameters, answered)
        self._open(opening)
        return opening

    def withdraw(self, opening: Opening) -> None:
        """Have an open refused that its client does not wait for any longer, unless the upstream is being asked."""
        opening.is_withdrawn = True
        if opening in self._waiting:
            self._waiting.remove(opening)
            self._open(opening)

    def _open(self, opening: Opening) -> None:
        if opening.is_withdrawn:
            opening.answered(Refusal(StatusCategory.TIMEOUT, "the client does not wait any longer", -1))
        elif self._finished:
            opening.answered(None)
        elif self.state is not UpstreamState.OPEN:
            self._waiting.append(opening)
        else:
            self._ask_upstream(opening)

    def _ask_upstream(self, opening: Opening) -> None:
        assert self.upstream is not None
        generation, parameters = self.generation, opening.parameters
        consumer: UpstreamConsumer | None = None
        if parameters.flags & QueueFlag.READ:
            app_id = app_id_of(parameters)
            consumer = self.consumers.get(app_id) or self._add_consumer(app_id)
            consumer.asking += 1
            consumer.asked = True
        opening.consumer = consumer
        self._in_flight[opening] = None
        asked = self._ask(parameters, consumer)

        def came(choice: object) -> None:
            if generation != self.generation:
                return
            del self._in_flight[opening]
            if consumer is not None:
                consumer.asking -= 1
            if asked in self.sent:
                self.sent.remove(asked)
            granted = choice is None or isinstance(choice, OpenQueueResponse)
            self._count(parameters, asked, consumer, granted=granted)
            if granted:
                self._granted(opening, choice)
            else:
                self._drop_unused(consumer)
                self._refused(opening, choice)

        if asked.read_count or asked.write_count:
            self.sent.append(asked)
            self.upstream.request(OpenQueue(handle_parameters=asked), came)
        elif self.sent:
            came(Status(category=StatusCategory.NOT_READY, code=0, message="an earlier request is still unanswered"))
        else:
            came(None)

    def asked_late(self, consumer: UpstreamConsumer) -> None:
        """Handle the end of a request for an app that was refused before."""
        consumer.asking -= 1
        self._drop_unused(consumer)
        self.on_asked(consumer.app_id)

    def _granted(self, opening: Opening, choice: object) -> None:
        consumer = opening.consumer
        if isinstance(choice, OpenQueueResponse):
            log.info("received OpenQueueResponse for queue '%s', app '%s'", self.uri, consumer and consumer.app_id)
            self.learn(choice)
        if consumer is not None:
            consumer.is_refused = False
            self._reads(consumer.app_id)
        opening.answered(None)

    def _refused(self, opening: Opening, choice: object) -> None:
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
        """Return the request upstream for a client's open, without counts beyond the maximum."""
        flags = parameters.flags
        reads = writes = 0
        if consumer is not None:
            reads = consumer.reads.ask(parameters.read_count)
            flags &= ~0 if reads else ~QueueFlag.READ
        if parameters.flags & QueueFlag.WRITE:
            writes = self.writes.ask(parameters.write_count)
            flags &= ~0 if writes else ~QueueFlag.WRITE
        return self.parameters(consumer, flags, reads, writes)

    def _open_again(self, opening: Opening) -> None:
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
            self.writes.answered(parameters.write_count, asked.write_count, granted=granted)
            self._reopening.writers_asked |= granted

    def adopt_reads(self, app_id: str, count: int) -> UpstreamConsumer:
        """Adopt opens of clients that come from a root; while there is no upstream."""
        assert self.state is UpstreamState.NONE
        consumer = self.consumers.get(app_id) or self._add_consumer(app_id)
        consumer.reads.open += count
        return consumer

    def adopt_writes(self, count: int) -> None:
        """Adopt opens for writing, like `adopt_reads`."""
        assert self.state is UpstreamState.NONE
        self.writes.open += count

    def give_back_reads(self, app_id: str, count: int) -> None:
        """Give back a client's opens of an app."""
        consumer = self.consumers.get(app_id)
        if consumer is None:
            return
        known = consumer.reads.give_back(count)
        if self.upstream is not None and known:
            if consumer.readers <= 0 and consumer.subscriptions:
                self.configure(app_id, (), lambda: None)
            self._close(self.parameters(consumer, QueueFlag.READ, known, 0))
        self._drop_unused(consumer)

    def give_back_writes(self, count: int) -> None:
        """Give back a client's opens for writing."""
        known = self.writes.give_back(count)
        if self.upstream is not None and known:
            self._close(self.parameters(None, QueueFlag.WRITE | QueueFlag.ACK, 0, known))

    def after_closing(self, closed: Callable[[], None]) -> None:
        """Call `closed` when the upstream, if any, has answered every close request so far, whatever the answers."""
        self._unanswered.after_closing(closed)

    def configure(self, app_id: str, subscriptions: tuple[Subscription, ...], configured: Callable[[], None]) -> None:
        """Set the clients' subscriptions of an app; `configured` is called once the upstream, if any, has them."""
        consumer = self.consumers.get(app_id)
        if consumer is None or consumer.subscriptions == subscriptions:
            configured()
            return
        consumer.subscriptions = subscriptions
        if self.state is UpstreamState.OPEN and not consumer.is_refused:
            self._send_subscriptions(consumer, self._unanswered.configuring(configured))
        else:
            configured()

    def _send_subscriptions(self, consumer: UpstreamConsumer, answered: Callable[[], None]) -> None:
        assert self.upstream is not None
        subscriptions = consumer.told = () if self.is_leaving else consumer.subscriptions
        parameters = StreamParameters(app_id=consumer.app_id, subscriptions=subscriptions)
        request = ConfigureStream(q_id=self.queue_id, stream_parameters=parameters)

        def came(choice: object) -> None:
            if isinstance(choice, Status) and choice.category is not StatusCategory.SUCCESS:
                log.warning("queue '%s', app '%s' is not configured upstream: %s", self.uri, consumer.app_id, choice)
            answered()

        self.upstream.request(request, came)

    def _close_all(self) -> None:
        given_up = [
            self.parameters(consumer, QueueFlag.READ, consumer.reads.told, 0)
            for consumer in self.consumers.values()
            if consumer.reads.told
        ]
        if self.writes.told:
            given_up.append(self.parameters(None, QueueFlag.WRITE | QueueFlag.ACK, 0, self.writes.told))
        # Pending open requests have been processed there, too, when this arrives.
        given_up += self.sent
        for number, parameters in enumerate(given_up, 1):
            self._close(parameters, is_final=number == len(given_up))

    def _close(self, parameters: QueueHandleParameters, *, is_final: bool = False) -> None:
        assert self.upstream is not None
        answered = self._unanswered.closing()

        def came(choice: object) -> None:
            if isinstance(choice, Status):
                log.info("queue '%s' is not closed upstream: %s", self.uri, choice)
            answered()

        self.upstream.request(CloseQueue(handle_parameters=parameters, is_final=is_final), came)

    def _add_consumer(self, app_id: str) -> UpstreamConsumer:
        sub_id = 0
        if app_id != DEFAULT_APP_ID:
            taken = {consumer.sub_id for consumer in self.consumers.values()}
            while sub_id in taken or not sub_id:
                sub_id = self._last_sub_id = self._last_sub_id % COUNT_MAX + 1
        consumer = self.consumers[app_id] = UpstreamConsumer(app_id, sub_id)
        return consumer

    def _drop_unused(self, consumer: UpstreamConsumer | None) -> None:
        if consumer is None or consumer.readers > 0 or consumer.asking:
            return
        if self.consumers.get(consumer.app_id) is consumer:
            del self.consumers[consumer.app_id]

    def _uri(self, consumer: UpstreamConsumer | None) -> str:
        return self.uri if consumer is None or consumer.info is None else f"{self.uri}?id={consumer.app_id}"

    def parameters(
        self, consumer: UpstreamConsumer | None, flags: int, reads: int, writes: int
    ) -> QueueHandleParameters:
        return QueueHandleParameters(
            uri=self._uri(consumer),
            q_id=self.queue_id,
            sub_id_info=None if consumer is None else consumer.info,
            flags=flags,
            read_count=reads,
            write_count=writes,
        )
