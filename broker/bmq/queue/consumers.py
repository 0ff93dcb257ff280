# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The consumers of a queue: their arrival, reconfiguration and departure."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

from broker.bmq.core.messages import Log, Message
from broker.bmq.core.redelivery import Wanted
from broker.bmq.core.work import Task, Work
from broker.bmq.queue.delivery import Delivery, release
from broker.bmq.queue.rejects import Rejects
from broker.bmq.queue.routing import NEVER_MS, App, Stream, Subscription
from broker.bmq.store.chunked import Chunked
from broker.common.faults import Change
from formats.bmq.expressions import ExpressionError, compile_expression

__all__ = ["Consumers"]

log: Final = logging.getLogger("broker.queue")


class ConsumedQueue(Protocol):
    """The consumed queue."""

    uri: str
    log: Log
    delivery: Delivery
    work: Work
    unregistered: dict[str, App]

    def taken_back(self, app: App, wanted: Wanted | None) -> Wanted | None:
        """Return a filter of a leaving consumer's messages that are still wanted, None for all."""
        ...


class Consumers:
    """The parts of a queue that change with its consumers, and the `rejects` of their messages."""

    __slots__ = ("_source", "rejects")

    def __init__(self, source: ConsumedQueue, rejects: Rejects) -> None:
        self._source = source
        self.rejects = rejects

    def configure(self, stream: Stream, subscriptions: list[Subscription]) -> None:
        for each in subscriptions:
            # Compiled expressions are cached, and faults must show before any change.
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
        """Run a task that gives messages back, at once or in slices; nothing is sent before the broker's answer."""
        if app.is_behind or any(True for _ in islice(task, 1)):
            self._source.delivery.begin_with(app, task)
        else:
            self._source.delivery.take_back(app)

    def _give_back(self, stream: Stream, left: set[Subscription], texts: set[str], wanted: Wanted | None) -> Task:
        """Take messages of dropped subscriptions back from a broker whose clients no longer want them.

        The broker forgot them before it said so. Between slices the app delivers nothing: the broker cannot get any of
        them again, and no newer message overtakes them.
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
        # A stream that was removed or purged has given back everything.
        lot: dict[bytes, tuple[Message, Subscription]] = {}
        for guid, held in unwanted.items():
            taken = stream.unconfirmed.take(guid)
            # Compare the items: compiled tuples have no identity.
            if taken is not None and taken[0] is held[0] and taken[1] is held[1]:
                lot[guid] = held
                release(held[1], held[0])
        if lot:
            stream.app.give_back([lot], wanted)

    def is_wanted(self, message: Message, texts: Iterable[str]) -> bool:
        """Return True if one of these expressions matches a message; one that does not compile matches all."""
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
        if stream in stream.app.streams:
            with Change(f"the end of a consumer of queue '{self._source.uri}'"):
                self._detach(stream, lost=lost)

    def _detach(self, stream: Stream, *, lost: bool) -> None:
        app = stream.app
        wanted = None
        if lost and stream.unconfirmed:
            count = len(stream.unconfirmed)
            log.info("Queue '%s' rejecting %d messages because of a client crash.", self._source.uri, count)
            wanted = self.rejects.reject_all(stream)
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


def succeed(stream: Stream, subscriptions: list[Subscription]) -> set[Subscription]:
    """Replace the subscriptions of a stream; return the old ones that still hold messages and have no successor.

    Up to a million messages refer to the subscription that they were sent for. So they are not changed: the old
    subscription object replaces its successor, which is the new one with the same id and expression, else with the same
    expression, else with the same id.
    """
    by_id = {each.subscription_id: each for each in subscriptions}
    by_text = {each.text: each for each in subscriptions}
    heirs: dict[Subscription, Subscription] = {}  # by new subscription: the old one in its place
    merged: dict[Subscription, Subscription] = {}  # by old subscription: the one that takes all its messages
    left: set[Subscription] = set()
    for old in [*stream.subscriptions, *stream.former]:
        if not old.holds:
            continue
        new = by_id.get(old.subscription_id)
        if new is None or new.text != old.text:
            new = by_text.get(old.text, new)
        if new is None:
            left.add(old)
        elif new in heirs:
            merged[old] = heirs[new]
        else:
            heirs[new] = old
    for new, old in heirs.items():
        old.become(new)
    if merged:
        for guid, (message, old) in stream.unconfirmed.items():
            if old in merged:
                target = merged[old]
                target.messages_left -= 1
                target.bytes_left -= message.size
                stream.unconfirmed[guid] = (message, target)
    # The order of a set differs between processes.
    stream.former = [old for old in [*stream.subscriptions, *stream.former] if old in left]
    stream.subscriptions = [heirs.get(each, each) for each in subscriptions]
    return left
