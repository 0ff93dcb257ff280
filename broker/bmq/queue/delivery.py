# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Delivery of a queue's messages to the consumers of its apps.

A message is offered to an app's groups (see `broker.bmq.queue.routing`). It is sent, put aside, or stops the app if no
consumer has room; then all newer messages wait. Messages put aside are tried again when a matching group has room, and
when the app's subscriptions change.

One step delivers a limited amount. Beyond it the app `is_behind` and a task continues (see `broker.bmq.core.work`).

A rejected message with few attempts left goes only to a consumer that was not just sent a message that had waited;
until there is one, the app waits (source: mqbblp::QueueEngineUtil_AppState).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, Protocol

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.message_values import message_values
from broker.bmq.core.messages import Buffer, Log, Message
from broker.bmq.core.redelivery import Returning
from broker.bmq.core.statistics import QueueStatistics
from broker.bmq.core.work import UNIT_BYTES_BITS, Task, Work
from broker.bmq.queue.backlog import Part
from broker.bmq.queue.consumption import ConsumptionMonitor
from broker.bmq.queue.queue_ports import Surroundings
from broker.bmq.queue.routing import NEVER_MS, App, Group, Stream, Subscription
from broker.bmq.store.chunked import FULL, Chunked
from broker.common.clock import Now
from broker.common.faults import Change, Inconsistent
from formats.bmq.codes import DEFAULT_SUBSCRIPTION_ID
from formats.bmq.expressions import Values

__all__ = ["ASIDE", "SENT", "STOP", "Delivery", "Outcome", "release"]

log: Final = logging.getLogger("broker.queue")

# Limit of log lines for each app and period about deliveries that end for lack of room.
EXIT_LINES_MAX: Final = 32
EXIT_LINES_MS: Final = 5000


class Outcome(Enum):
    """The result of offering a message to an app's consumers."""

    SENT = "sent"
    ASIDE = "put aside"
    STOP = "no consumer has room"


# A lookup of an enumeration's member costs as much as the rest of a delivery's bookkeeping.
SENT, ASIDE, STOP = Outcome.SENT, Outcome.ASIDE, Outcome.STOP


class DeliveredQueue(Protocol):
    """The queue whose messages are delivered."""

    uri: str
    config: DomainConfig
    log: Log
    apps: dict[str, App]
    consumption: ConsumptionMonitor
    statistics: QueueStatistics

    @property
    def now(self) -> Now: ...

    @property
    def work(self) -> Work: ...

    @property
    def around(self) -> Surroundings: ...


class Delivery:
    """The delivery of one queue's messages; remembers the properties of the last one.

    A fault in a push affects that consumer only: the message counts as sent to it, and goes to others after the end of
    its session. An expression that cannot be evaluated for a message does not match it.
    """

    def __init__(self, source: DeliveredQueue) -> None:
        self._source = source
        self._log = source.log
        self._now = source.now
        self._work = source.work
        self.is_over = False  # another object delivers the messages
        self._statistics = source.statistics
        self._values_of: Message | None = None
        self._values: Values = {}
        self._exit_lines: dict[App, tuple[int, int]] = {}
        self._first: dict[App, deque[Task]] = {}  # to be done before deliveries of these apps
        # Messages that consumers had before the queue came here; they must come back.
        self.inherited: dict[Stream, Chunked[tuple[Message, Subscription]]] = {}

    def end(self) -> None:
        self.is_over = True

    def deliver(self, app: App) -> None:
        """Send waiting messages, oldest first, while a consumer has room; at once, or partly in slices."""
        try:
            if not (app.is_behind or self.is_over or self._deliver(app)):
                self._catch_up_later(app)
        except Exception as error:
            raise Inconsistent(f"handing out messages of queue '{self._source.uri}'", error) from error

    def begin_with(self, app: App, task: Task) -> None:
        """Run a task, after earlier ones, before any delivery of an app; `is_behind` is true until then."""
        self._first.setdefault(app, deque()).append(task)
        if not app.is_behind:
            app.is_behind = True
            try:
                self._work.start(self._catch_up(app))
            except Exception as error:
                raise Inconsistent(f"handing out messages of queue '{self._source.uri}'", error) from error

    def is_settled(self, app: App) -> bool:
        """Return True if no messages are being returned to an app, and none may be."""
        return app.returning is None and app not in self._first

    def take_back(self, app: App) -> None:
        with Change(f"giving back messages of queue '{self._source.uri}'"):
            if app.returning is not None and not (app.is_behind or self._settle(app, app.returning)):
                self._catch_up_later(app)

    def _catch_up_later(self, app: App) -> None:
        app.is_behind = True
        self._work.add(self._catch_up(app))

    def _catch_up(self, app: App) -> Task:
        while not self.is_over:
            first = self._first.get(app)
            if first is not None:
                yield from first[0]
                first.popleft()
                if not first:
                    del self._first[app]
                continue
            returning = app.returning
            if (returning is None or self._settle(app, returning)) and self._deliver(app):
                app.is_behind = False
                return
            yield

    def _settle(self, app: App, returning: Returning) -> bool:
        if not returning.settle(app.redelivery, self._work):
            return False
        app.returning = None
        return True

    def _deliver(self, app: App) -> bool:
        """Send waiting messages; return True if none is left that could be sent now."""
        work = self._work
        for group in app.groups.values():
            if group.waiting and not group.blocked and not self._drain(app, group):
                return False
        bit = app.bit
        while True:
            source: deque[Message] | deque[Message | Part] = app.redelivery or app.pending
            if not source:
                return True
            if work.left <= 0 and not work.may_go_on():
                return False
            message = source[0]
            if isinstance(message, Part):
                app.unfold()
                continue
            work.left -= 1
            if message.outstanding & bit:
                attempts = app.attempts
                if (attempts.newest or attempts.older) and message.guid in attempts and self._throttles(app, message):
                    outcome = self._offer_poisonous(app, message)
                else:
                    outcome = self.offer(app, message, None)
                if outcome is STOP:
                    if app.delayed_until_ms == NEVER_MS and not self._log.awaits_payload(message):
                        self.log_exit(app, message)
                    return True
                work.left -= message.size >> UNIT_BYTES_BITS
            source.popleft()
            if self._source.consumption.idle:
                self._source.consumption.on_sent(app)

    def _drain(self, app: App, group: Group) -> bool:
        """Send messages put aside until the group has no room; return True when done."""
        work = self._work
        while group.waiting:
            if work.left <= 0 and not work.may_go_on():
                return False
            message = group.waiting[0]
            work.left -= 1
            if app.aside.get(message.guid) is message:
                subscription = group.choose()
                if subscription is None:
                    return True
                work.left -= message.size >> UNIT_BYTES_BITS
                data = self._log.read_sound(message)
                if data is not None:
                    del app.aside[message.guid]
                    self.send(subscription, message, data)
                    self._note_sent(subscription.stream, message)
                    if self._source.consumption.idle:
                        self._source.consumption.on_sent(app)
                elif self._log.awaits_payload(message):
                    return True
            group.waiting.popleft()
        return True

    def offer(self, app: App, message: Message, data: Buffer | None) -> Outcome:
        """Find a consumer for a message and send it; `data` is None for a message that has waited."""
        if app.only is not None:
            subscription = app.only.choose()
            if subscription is None:
                return STOP
            if data is not None:
                self.send(subscription, message, data)
                return SENT
            data = self._log.read_sound(message)
            if data is None:
                return self._withhold(app, message)
            self.send(subscription, message, data)
            self._note_sent(subscription.stream, message)
            return SENT
        if not app.has_room():
            return STOP
        contents = self._log.read_sound(message) if data is None else data
        if contents is None:
            return self._withhold(app, message)
        values = self.properties(message, contents)
        matched: list[Group] = []
        for level in app.levels:
            for group in level:
                try:
                    matches = group.matches(values)
                except Exception as error:
                    matches = self._cannot_match(error)
                if matches:
                    subscription = None if group.blocked else group.choose()
                    if subscription is not None:
                        self.send(subscription, message, contents)
                        if data is None:
                            self._note_sent(subscription.stream, message)
                        return SENT
                    matched.append(group)
            if matched:
                break
        if not app.has_room():
            return STOP
        # No consumer wants it, or none that does has room: later messages must not wait.
        for group in matched:
            group.waiting.append(message)
        app.aside[message.guid] = message
        return ASIDE

    def _withhold(self, app: App, message: Message) -> Outcome:
        """Make a corrupted payload wait while another node may have it intact; then let others pass it."""
        if self._log.awaits_payload(message):
            return STOP
        app.aside[message.guid] = message
        return ASIDE

    def go_on(self, mended: Iterable[Message]) -> None:
        for app in self._source.apps.values():
            lot = {each.guid: each for each in mended if app.aside.take(each.guid) is each}
            if lot:
                app.give_back([lot])
                self.take_back(app)
            self.deliver(app)

    def forget_properties(self) -> None:
        self._values_of = None
        self._values = {}

    def properties(self, message: Message, data: Buffer) -> Values:
        """Return a message's properties for expressions, and cache them."""
        if self._values_of is not message:
            try:
                values = message_values(message, memoryview(data))
            except Exception as error:
                self._source.around.faults.note(
                    f"reading the properties of a message of queue '{self._source.uri}'", error
                )
                values = {}
            self._values_of, self._values = message, values
        return self._values

    def _matches(self, group: Group, message: Message, data: Buffer) -> bool:
        try:
            return group.expression is None or group.matches(self.properties(message, data))
        except Exception as error:
            return self._cannot_match(error)

    def _cannot_match(self, error: Exception) -> bool:
        self._source.around.faults.note(f"evaluating an expression on a message of queue '{self._source.uri}'", error)
        return False

    def send(self, subscription: Subscription, message: Message, data: Buffer) -> None:
        stream = subscription.stream
        unconfirmed = stream.unconfirmed.newest
        unconfirmed[message.guid] = (message, subscription)
        if len(unconfirmed) >= FULL:
            stream.unconfirmed.turn()
        subscription.messages_left -= 1
        subscription.bytes_left -= message.size
        message.sent_ms = now = self._now.ms
        stream.app.statistics.waited(now - message.arrived_ms)
        statistics = self._statistics
        statistics.pushes += 1
        statistics.push_bytes += message.size
        schema_id = message.schema_id
        if schema_id:
            schema_id = _announced(stream, schema_id)
        try:
            stream.sink.push(stream.queue_id, message, data, subscription.subscription_id, schema_id)
        except Exception as error:
            stream.sink.fail(error)

    def send_run(
        self, messages: Sequence[Message], payloads: Sequence[Buffer], size: int, app: App | None = None
    ) -> bool:
        """Send messages, of `size` bytes together, if one consumer gets all of them without waiting.

        They are for one app, or for all. Otherwise return False, without effect.
        """
        subscription = self._only_consumer(len(messages), size, app)
        if subscription is None or any(message.schema_id for message in messages):
            return False
        stream, now_ms = subscription.stream, self._now.ms
        newest, waits, late = stream.unconfirmed.newest, stream.app.statistics, 0
        for message in messages:
            newest[message.guid] = (message, subscription)
            if message.arrived_ms != now_ms:
                message.sent_ms = now_ms
                waits.waited(now_ms - message.arrived_ms)
                late += 1
        count = len(messages)
        waits.waits += count - late
        subscription.messages_left -= count
        subscription.bytes_left -= size
        self._statistics.pushes += count
        self._statistics.push_bytes += size
        try:
            stream.sink.push_run(stream.queue_id, messages, payloads, subscription.subscription_id)
        except Exception as error:
            stream.sink.fail(error)
        return True

    def _only_consumer(self, count: int, size: int, app: App | None) -> Subscription | None:
        """Return the consumer that gets all `count` messages now; None if there may be others."""
        if app is None:
            if len(self._source.apps) != 1:
                return None
            (app,) = self._source.apps.values()
        group = app.only
        if group is None or len(group.subscriptions) != 1 or app.pending or app.redelivery or app.is_behind:
            return None
        subscription = group.subscriptions[0]
        if (
            subscription.messages_left < count
            or subscription.bytes_left < size
            or len(subscription.stream.unconfirmed.newest) + count >= FULL
            or not subscription.stream.sink.takes_run(size)
        ):
            return None
        return subscription

    def _push(self, stream: Stream, message: Message, data: Buffer, subscription_id: int) -> None:
        self._statistics.pushes += 1
        self._statistics.push_bytes += message.size
        schema_id = message.schema_id
        if schema_id:
            schema_id = _announced(stream, schema_id)
        try:
            stream.sink.push(stream.queue_id, message, data, subscription_id, schema_id)
        except Exception as error:
            stream.sink.fail(error)

    def _push_to_broker(self, stream: Stream, message: Message, data: Buffer) -> None:
        """Push a broadcast message to a broker once, if a consumer there has the highest priority."""
        if stream.sink.has_room and any(
            each.group is not None and each.priority == each.group.priority for each in stream.subscriptions
        ):
            self._push(stream, message, data, DEFAULT_SUBSCRIPTION_ID)

    def log_exit(self, app: App, message: Message) -> None:
        since, count = self._exit_lines.get(app, (NEVER_MS, 0))
        now = self._source.now.ms
        if now - since > EXIT_LINES_MS:
            since, count = now, 0
        self._exit_lines[app] = (since, count + 1)
        if count < EXIT_LINES_MAX:
            log.info(
                "[THROTTLED] Queue '%s', appId = '%s' does not have any subscription capacity; early exits delivery "
                "at %s",
                self._source.uri,
                app.app_id,
                message.guid.hex().upper(),
            )

    def _throttles(self, app: App, message: Message) -> bool:
        return app.attempts[message.guid] <= self._source.around.throttle.high_threshold

    def _offer_poisonous(self, app: App, message: Message) -> Outcome:
        """Find a consumer of the highest priority that was sent nothing for a while; otherwise the app waits."""
        throttle, now = self._source.around.throttle, self._source.now.ms
        left = app.attempts[message.guid]
        delay_ms = throttle.low_interval_ms if left > throttle.low_threshold else throttle.high_interval_ms
        data = self._log.read_sound(message)
        if data is None:
            return self._withhold(app, message)
        scheduled, app.delayed_until_ms = app.delayed_until_ms, NEVER_MS
        wait_ms = None
        matched: list[Group] = []
        for level in app.levels:
            matched = [group for group in level if self._matches(group, message, data)]
            if matched:
                break
        for subscription in [each for group in matched for each in group.subscriptions]:
            stream = subscription.stream
            if subscription.messages_left <= 0 or subscription.bytes_left <= 0 or not stream.sink.ready:
                continue
            wait_until = stream.last_sent_ms + delay_ms
            if wait_until <= now:
                self.send(subscription, message, data)
                self._note_sent(stream, message)
                return SENT
            wait_ms = wait_until if wait_ms is None else min(wait_ms, wait_until)
        if not matched and app.has_room():
            # No consumer wants it: others must not wait for it.
            app.aside[message.guid] = message
            return ASIDE
        if wait_ms is not None:
            app.delayed_until_ms = wait_ms
            if wait_ms != scheduled:
                self._source.around.timers.at(wait_ms, lambda: self.deliver(app))
        return STOP

    def _note_sent(self, stream: Stream, message: Message) -> None:
        if self._source.config.delivery_attempts_max:
            stream.last_sent, stream.last_sent_ms = message, self._source.now.ms

    def broadcast(self, message: Message, data: Buffer) -> None:
        """Send a message at most once to connected consumers with room; nothing is stored."""
        for app in self._source.apps.values():
            for stream in app.streams:
                if stream.sink.takes_all:
                    self._push_to_broker(stream, message, data)
                elif stream.sink.has_room:
                    for subscription in stream.subscriptions:
                        group = subscription.group
                        if (
                            group is not None
                            and subscription.priority == group.priority
                            and subscription.messages_left > 0
                            and self._matches(group, message, data)
                        ):
                            self._push(stream, message, data, subscription.subscription_id)
                            break


def release(subscription: Subscription, message: Message) -> None:
    messages_left, bytes_left = subscription.messages_left, subscription.bytes_left
    if messages_left > 0 and bytes_left > 0:
        subscription.messages_left = messages_left + 1
        subscription.bytes_left = bytes_left + message.size
        if subscription.group is not None:
            subscription.group.blocked = False
    else:
        subscription.regain(message.size)


def _announced(stream: Stream, schema_id: int) -> int:
    """Return the wire schema id, its low bit set when this reader meets the id for the first time."""
    if schema_id in stream.schemas_sent and not schema_id & 1:
        return schema_id
    stream.schemas_sent.add(schema_id & ~1)
    return schema_id | 1
