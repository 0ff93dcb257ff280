"""The consumers of a queue as they come, change what they want, and go."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Protocol

from broker.core.delivery import Delivery, release
from broker.core.expressions import ExpressionError, compile_expression
from broker.core.faults import Change
from broker.core.messages import Log, Message
from broker.core.redelivery import Wanted
from broker.core.routing import NEVER_MS, App, Stream, Subscription
from broker.core.succession import succeed
from broker.core.work import Task, Work
from broker.store.chunked import Chunked

__all__ = ["Consumers"]

log = logging.getLogger("broker.queue")


class Source(Protocol):
    """The queue that is consumed."""

    uri: str
    log: Log
    delivery: Delivery
    work: Work
    unregistered: dict[str, App]

    def reject_all(self, stream: Stream) -> Wanted | None:
        """All that a lost consumer holds has one attempt less; which of it is still wanted, None for all."""
        ...

    def taken_back(self, app: App, wanted: Wanted | None) -> Wanted | None:
        """Of what is given back as a consumer leaves, which is still wanted, None for all."""
        ...


class Consumers:
    """The parts of a queue that change with its consumers."""

    __slots__ = ("_source",)

    def __init__(self, source: Source) -> None:
        self._source = source

    def configure(self, stream: Stream, subscriptions: list[Subscription]) -> None:
        """As `Queue.configure`."""
        for each in subscriptions:
            # They are remembered: whatever is wrong with one shows before anything is changed.
            if each.text:
                with suppress(ExpressionError):
                    compile_expression(each.text)
        with Change(f"the configuration of a consumer of queue '{self._source.uri}'"):
            self._configure(stream, subscriptions)

    def _configure(self, stream: Stream, subscriptions: list[Subscription]) -> None:
        left = succeed(stream, subscriptions)
        self.rebuild(stream.app)
        if left and subscriptions and stream.sink.takes_all:
            texts = {each.text for each in subscriptions}
            wanted = self._source.taken_back(stream.app, None)
            self._settle(stream.app, self._give_back(stream, left, texts, wanted))

    def _settle(self, app: App, task: Task) -> None:
        """Do a task that gives messages back, now or in slices; nothing is sent before the broker has its answer."""
        if app.is_behind or any(True for _ in islice(task, 1)):
            self._source.delivery.begin_with(app, task)
        else:
            self._source.delivery.take_back(app)

    def _give_back(self, stream: Stream, left: set[Subscription], texts: set[str], wanted: Wanted | None) -> Task:
        """Take from a broker what none of its clients wants any longer, of the subscriptions that it has left.

        It has forgotten that itself before it said so. Between slices the app hands nothing out: neither can the broker
        get any of this again, nor anything newer go before it.
        """
        work = self._source.work
        for chunk in stream.unconfirmed.chunks:
            unwanted: dict[bytes, tuple[Message, Subscription]] = {}
            for guid in list(chunk):
                if work.left <= 0 and not work.may_go_on():
                    self._take_from(stream, unwanted, wanted)
                    unwanted = {}
                    while not work.may_go_on():
                        yield
                work.left -= 1
                held = chunk.get(guid)
                if held is not None and held[1] in left and not self.is_wanted(held[0], texts):
                    unwanted[guid] = held
            self._take_from(stream, unwanted, wanted)

    def _take_from(
        self, stream: Stream, unwanted: dict[bytes, tuple[Message, Subscription]], wanted: Wanted | None
    ) -> None:
        # A stream that has gone, or was purged, has given back all.
        lot = {guid: held for guid, held in unwanted.items() if stream.unconfirmed.take(guid) is held}
        for message, subscription in lot.values():
            release(subscription, message)
        if lot:
            stream.app.give_back([lot], wanted)

    def is_wanted(self, message: Message, texts: Iterable[str]) -> bool:
        """Return whether one of these expressions matches a message; such as do not compile match all."""
        for text in texts:
            try:
                expression = compile_expression(text) if text else None
            except ExpressionError:
                expression = None
            if expression is None or expression.matches(
                self._source.delivery.properties(message, self._source.log.read(message))
            ):
                return True
        return False

    def detach(self, stream: Stream, *, lost: bool) -> None:
        """As `Queue.detach`."""
        if stream in stream.app.streams:
            with Change(f"the end of a consumer of queue '{self._source.uri}'"):
                self._detach(stream, lost=lost)

    def _detach(self, stream: Stream, *, lost: bool) -> None:
        app = stream.app
        wanted = None
        if lost and stream.unconfirmed:
            count = len(stream.unconfirmed)
            log.info("Queue '%s' rejecting %d messages because of a client crash.", self._source.uri, count)
            wanted = self._source.reject_all(stream)
        app.streams.remove(stream)
        stream.subscriptions, stream.former = [], []
        if stream.unconfirmed:
            log.info(
                "Lost a reader for queue '%s' %s, redelivering %d message(s) to %d remaining readers starting from %s",
                self._source.uri,
                app.app_id,
                len(stream.unconfirmed),
                len(app.streams),
                next(iter(stream.unconfirmed)).hex().upper(),
            )
            app.give_back(stream.unconfirmed.chunks, self._source.taken_back(app, wanted))
            stream.unconfirmed = Chunked()
        if not app.streams:
            self._source.unregistered.pop(app.app_id, None)
        self.rebuild(app)
        self._source.delivery.deliver(app)

    def rebuild(self, app: App) -> None:
        """The app's streams or what they want are others: route anew."""
        app.delayed_until_ms = NEVER_MS
        for text, fault in app.rebuild().items():
            log.warning(
                "#BMQ_SUBSCRIPTION_FAILURE for queue '%s', error rebuilding routing: "
                '[ [ expression: "%s", rc: %d, reason: "%s" ] ]',
                self._source.uri,
                text,
                fault.code,
                fault.code.text,
            )
        self._source.delivery.take_back(app)
