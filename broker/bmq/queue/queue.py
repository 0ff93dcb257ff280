# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The queue engine: decides about each message, independently of the protocol.

A `Queue` holds messages in the order of their arrival and knows for each app whether it waits, is with a consumer, or
is confirmed. A `Sink` carries out deliveries and a `Log` stores the messages. A `RootQueue` gets messages from posters,
a relay from its upstream.

Invariants, for every message in `Queue.messages` that is not in `Queue.awaiting` and every app `a` with
`message.outstanding & a.bit`: it is in exactly one of `a.redelivery`, `a.returning`, `a.pending`, `a.aside`, and the
`unconfirmed` of one stream of `a`; an app's bit is cleared once, and a message whose last bit is cleared is removed
from the log and from the queue. A part of the backlog in `a.pending` stands for all messages in it that `a` wants (see
`broker.bmq.queue.backlog`). `a.pending`, `a.redelivery` and `a.returning` may still hold messages that the app no
longer wants; they are skipped when reached. A message in `awaiting` is in none of them: too few nodes have it to
deliver it.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from broker.bmq.core.alarms import alarm
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.history import History
from broker.bmq.core.messages import (
    Buffer,
    Content,
    Full,
    Log,
    Message,
    MessagePoster,
    Posted,
    Sink,
    message_of,
)
from broker.bmq.core.redelivery import Wanted
from broker.bmq.core.schemas import SchemaMultiplexer
from broker.bmq.core.statistics import QueueStatistics
from broker.bmq.queue.backlog import Backlog
from broker.bmq.queue.capacity import Usage
from broker.bmq.queue.consumers import Consumers
from broker.bmq.queue.consumption import ConsumptionMonitor
from broker.bmq.queue.delivery import STOP, Delivery, release
from broker.bmq.queue.queue_ports import Surroundings, UpkeepState
from broker.bmq.queue.rejects import Rejects
from broker.bmq.queue.reports import app_report
from broker.bmq.queue.routing import NEVER_MS, App, Stream, Subscription
from broker.bmq.store.chunked import Chunked
from broker.common.faults import Inconsistent
from formats.bmq.codes import AckStatus
from formats.bmq.disk.journal import DeletionRecordFlag
from formats.bmq.expressions import compile_expression
from formats.bmq.wire.event import Frame

__all__ = [
    "App",
    "Content",
    "Full",
    "Log",
    "Message",
    "MessagePoster",
    "Posted",
    "Queue",
    "Sink",
    "Stream",
    "Subscription",
    "Surroundings",
    "Usage",
    "recall",
]

log: Final = logging.getLogger("broker.queue")

Guid = bytes
# Posters that get a post's result, with queue id and correlation id.
Waiting = list[tuple[MessagePoster, int, int]]


class HeldPost(NamedTuple):
    """A post that waits until the log takes messages."""

    content: Content
    posters: Waiting


class Queue:
    """One queue and the decisions about it.

    `domain_usage` is shared by the queues of the domain, and is the parent of `usage`.
    """

    # Slots: a dictionary of this many attributes is slower.
    __slots__ = (
        "_consumers",
        "all_apps",
        "apps",
        "around",
        "awaiting",
        "broadcast",
        "config",
        "consumption",
        "delivery",
        "domain_usage",
        "ghosts",
        "held",
        "history",
        "key",
        "log",
        "messages",
        "now",
        "schemas",
        "statistics",
        "unregistered",
        "upkeep",
        "uri",
        "usage",
        "work",
        "writers",
    )

    # True if its messages are stored here; False for a relay.
    is_root = False

    def __init__(
        self,
        uri: str,
        key: bytes,
        config: DomainConfig,
        app_keys: Iterable[tuple[str, bytes]],
        log: Log,
        domain_usage: Usage,
        around: Surroundings,
        rejects: Rejects,
    ) -> None:
        self.uri = uri
        self.key = key
        self.apps = {app_id: App(app_id, app_key, 1 << n) for n, (app_id, app_key) in enumerate(app_keys)}
        self.unregistered: dict[str, App] = {}  # apps that the domain does not name, while they have readers
        self.log = log
        self.usage = Usage(f"queue [{uri}]", domain_usage, self._details)
        self.domain_usage = domain_usage
        self.around = around
        self.now = around.now
        self.work = around.work
        self.messages = Backlog()
        self.awaiting: Chunked[Waiting] = Chunked()
        self.held: dict[Guid, HeldPost] = {}  # posts that the log does not take at present
        self.ghosts: dict[int, int] = {}  # bits that apps had before a purge: how many messages still have them
        self.writers = 0
        self.upkeep = UpkeepState()
        self.schemas = SchemaMultiplexer()
        self.statistics = QueueStatistics()
        self.history = History(config.deduplication_time_ms)
        self.consumption = ConsumptionMonitor(self)
        self._consumers = Consumers(self, rejects)
        self.delivery = Delivery(self)
        self.all_apps = 0
        self.configure_domain(config)

    def configure_domain(self, config: DomainConfig) -> None:
        """Apply the domain's parameters; the apps stay (see `broker.bmq.queue.upkeep`)."""
        self.config = config
        self.broadcast = config.mode is Mode.BROADCAST
        self.usage.set_limits(
            config.queue_messages_max,
            config.queue_bytes_max,
            config.queue_messages_ratio,
            config.queue_bytes_ratio,
        )
        self.history.window_ms = config.deduplication_time_ms
        self.consumption.configure(0 if self.broadcast else config.idle_time_max_ms)
        self.apps_changed()

    def judge_copies(self) -> None:
        """Decide if messages wait for replicas: with strong consistency, and always while the node is cut off."""

    def apps_changed(self) -> None:
        texts = self.config.app_subscriptions
        self.all_apps = 0
        for app in self.apps.values():
            self.all_apps |= app.bit
            text = texts.get(app.app_id, "")
            app.subscription = compile_expression(text) if text else None

    def free_bit(self) -> int:
        """Return a bit that no app has, or had lately."""
        taken = 0
        for bit in chain([app.bit for app in self.apps.values()], self.ghosts):
            taken |= bit
        return ~taken & (taken + 1)

    @property
    def attempts_max(self) -> int | None:
        """Maximum number of deliveries of a message to an app; None for no limit."""
        return self._consumers.rejects.attempts_max

    @property
    def bytes(self) -> int:
        return self.usage.bytes

    @property
    def is_idle(self) -> bool:
        """True if it is empty and not open; never for a relay, since the root decides."""
        return False

    @property
    def is_open(self) -> bool:
        readers = any(app.streams for apps in (self.apps, self.unregistered) for app in apps.values())
        return bool(self.writers or readers)

    # -- messages in

    @abstractmethod
    def post(
        self,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer = b"",
        waiting: tuple[MessagePoster, int, int] | None = None,
    ) -> Posted | None:
        """Store consecutive messages, then deliver them to every app. Raises `Full`, without effect.

        DUPLICATE is a repetition of one that is or was here: acknowledged again, stored once. PENDING waits for
        replicas: `waiting`, a poster with its queue id and correlation id, gets the result. None, without effect, if
        several have to be posted one by one; only a single one may have options.
        """

    def post_one(self, guid: Guid, content: Content) -> Posted | None:
        message = message_of(guid, len(content.data), content, self.all_apps, self.now.ms)
        return self.post((message,), (content.data,), content.options)

    @abstractmethod
    def acknowledge_later(self, guid: Guid, poster: MessagePoster, queue_id: int, correlation_id: int) -> None:
        """Notify the poster of a PENDING message later that it is kept, or lost (UNKNOWN)."""

    def forward(
        self, poster: MessagePoster, number: int, queue_id: int, data: memoryview, frames: Sequence[Frame]
    ) -> bool:
        """Forward events of posts unchanged to a root elsewhere; return False, without effect, if they need more.

        They are the poster's, to its queue `queue_id`; `number` identifies the poster, for the schemas of its
        properties.
        """
        return False

    def offer(self, app: App, message: Message, data: Buffer) -> None:
        """Offer a new message to an app's consumers; it waits if none has room."""
        if self.delivery.offer(app, message, data) is STOP:
            self.delivery.log_exit(app, message)
            app.pending.append(message)

    def _acknowledge(self, guid: Guid, status: AckStatus) -> None:
        posters = self.awaiting.take(guid)
        assert posters is not None, "it waits"
        self.answer(posters, guid, status)

    def answer(self, posters: Waiting, guid: Guid, status: AckStatus) -> None:
        for poster, queue_id, correlation_id in posters:
            if status is AckStatus.SUCCESS:
                self.statistics.acks += 1
            else:
                self.statistics.nacks += 1
            try:
                poster.acknowledge(queue_id, correlation_id, guid, status)
            except Exception as error:
                poster.fail(error)

    def deliver(self, app: App) -> None:
        self.delivery.deliver(app)

    # -- confirms and rejects

    def confirm(self, stream: Stream, guids: Sequence[Guid]) -> int:
        """Apply an app's confirms; return the number of messages that it had."""
        app = stream.app
        if len(guids) > 1 and not app.is_at_rest:
            return self._confirm_each(stream, guids)
        try:
            statistics, not_bit, now_ms = app.statistics, ~app.bit, self.now.ms
            unconfirmed = stream.unconfirmed
            newest = unconfirmed.newest
            run: list[Message] = []
            size = left = 0
            for guid in guids:
                held = newest.pop(guid, None)
                if held is None and unconfirmed.older:
                    held = unconfirmed.take(guid)
                if held is not None:
                    message, subscription = held
                    release(subscription, message)
                else:
                    found = self._delivered_before(app, guid)
                    if found is None:
                        continue
                    message = found
                statistics.answered(now_ms - message.sent_ms)
                size += message.size
                run.append(message)
                message.outstanding = outstanding = message.outstanding & not_bit
                left |= outstanding
            if not run:
                return 0
            count = len(run)
            self.statistics.confirms += count
            app.leave_out(run, size)
            self.log.settle(run, app.key)
            if not left:
                self.gone(run, is_confirmed=True)
            elif count > 1 and (gone := [each for each in run if not each.outstanding]):
                self.gone(gone, is_confirmed=True)
            if app.delayed_until_ms != NEVER_MS and stream.last_sent is run[0]:
                # The poisonous message was confirmed: no delay is needed.
                stream.last_sent_ms = NEVER_MS
                app.delayed_until_ms = NEVER_MS
            if app.redelivery or app.pending or app.aside.newest or app.aside.older:
                self.delivery.deliver(app)
        except Exception as error:
            raise Inconsistent(f"the confirmation of messages of queue '{self.uri}'", error) from error
        return count

    def _confirm_each(self, stream: Stream, guids: Sequence[Guid]) -> int:
        """Apply confirms one by one: the deliveries that each allows precede the next."""
        return sum([self.confirm(stream, (guid,)) for guid in guids])

    def on_unknown(self, app: App, guid: Guid) -> None:
        """Note a confirm of a message that is not here, or that the app is done with."""

    def _delivered_before(self, app: App, guid: Guid) -> Message | None:
        """Return the message of a confirm from a client that reconnected; None if the app is done with it."""
        found = self.messages.get(guid)
        if found is None or not found.outstanding & app.bit:
            self.on_unknown(app, guid)
            return None
        recall(app, found)
        return found

    def reject(self, stream: Stream, guid: Guid, *, told: bool = True) -> None:
        """Decrement the attempts of a message rejected by a consumer; after the last, the app is done with it.

        `told` logs it; the caller decides, since there may be very many.
        """
        self._consumers.rejects.reject(stream, guid, told=told)

    def taken_back(self, app: App, wanted: Wanted | None) -> Wanted | None:
        """Return a filter of a consumer's messages that go back to the app: those `wanted`, at a relay even fewer."""
        return wanted

    def gone(self, messages: Sequence[Message], *, is_confirmed: bool = False) -> None:
        """Finish messages whose removal is recorded.

        A message that was never acknowledged is refused, and not added to the history: it may be posted again. But if
        its last app has confirmed it, delivered by another primary, it is acknowledged: nothing is left to lose.
        """
        statistics, usage = self.statistics, self.usage
        backlog, awaiting = self.messages, self.awaiting
        awaits = awaiting.newest or awaiting.older
        if usage.messages > statistics.messages_max or usage.bytes > statistics.bytes_max:
            statistics.observe(usage.messages, usage.bytes)
        newest = backlog.newest
        history, now_ms, size = self.history, self.now.ms, 0
        for message in messages:
            guid = message.guid
            if newest.pop(guid, None) is None:
                del backlog[guid]
            size += message.size
            if awaits and guid in awaiting:
                self._acknowledge(guid, AckStatus.SUCCESS if is_confirmed else AckStatus.UNKNOWN)
                if not is_confirmed:
                    continue
            history.add(guid, now_ms)
        usage.remove(size, len(messages))

    def drop(self, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        """Remove a message, even if apps want it."""
        self.record_removal(message, flag)
        self.forget(message)

    def record_removal(self, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        """Record the removal of a message, with a flag if it was never acknowledged.

        Recovery leaves a flagged message out of the history (`broker.bmq.store.recovery`).
        """
        self.log.remove(message, DeletionRecordFlag.NO_SC_QUORUM if message.guid in self.awaiting else flag)

    def forget(self, message: Message) -> None:
        for app in self.apps.values():
            if message.outstanding & app.bit:
                recall(app, message)
                app.forget(message)
        self.gone((message,))

    def forget_ghost(self, message: Message, bit: int) -> None:
        """Release a message from a purged app's old bit; see `broker.bmq.queue.purges`."""
        self.ghosts[bit] -= 1
        if message.outstanding == bit:
            self.record_removal(message)
            message.outstanding = 0
            self.gone((message,))
        else:
            self.log.release(1)
            message.outstanding &= ~bit

    # -- consumers

    def app(self, app_id: str) -> App:
        """Return the app of that name for a reader; one that the domain does not name receives nothing."""
        app = self.apps.get(app_id) or self.unregistered.get(app_id)
        if app is None:
            alarm(
                log,
                "FANOUT_UNREGISTERED_APPID",
                f"AppId '{app_id}' is not authorized for queue '{self.uri}' - please update the domain configuration "
                "to include the appId to enable consumption.",
            )
            app = self.unregistered[app_id] = App(app_id, b"", 0)
        return app

    def attach(self, stream: Stream) -> None:
        stream.app.streams.append(stream)

    def configure(self, stream: Stream, subscriptions: list[Subscription]) -> None:
        """Replace a stream's subscriptions; its unconfirmed messages count against the new ones.

        A stream without subscriptions keeps its messages until it confirms or closes. A broker gives back messages that
        its clients no longer want. Nothing is sent yet: call `deliver` after the client's answer.
        """
        self._consumers.configure(stream, subscriptions)

    def is_wanted(self, message: Message, texts: Iterable[str]) -> bool:
        return self._consumers.is_wanted(message, texts)

    def reconfigure(self, stream: Stream, subscriptions: list[Subscription], configured: Callable[[], None]) -> None:
        self.configure(stream, subscriptions)
        configured()

    def give_back_reads(self, app_id: str, count: int) -> None:
        """Give back `count` requested opens of an app; they count only where opens are requested upstream."""

    def give_back_writes(self, count: int) -> None:
        """Give back `count` requested opens for writing, like `give_back_reads`."""

    def after_closing(self, app_id: str, closed: Callable[[], None]) -> None:
        """Call `closed` when returned opens, of the writers and of an app, are returned upstream, too."""
        closed()

    def detach(self, stream: Stream, *, lost: bool = False) -> None:
        """Remove the stream of a client that closed the app or disconnected; its messages go to others, in order.

        If the client is `lost`, each of them has one attempt less: one may be the reason.
        """
        self._consumers.detach(stream, lost=lost)

    def rebuild(self, app: App) -> None:
        self._consumers.rebuild(app)

    def resume(self, stream: Stream) -> None:
        if not self.broadcast:
            for subscription in stream.subscriptions:
                if subscription.group is not None:
                    subscription.group.blocked = False
            self.deliver(stream.app)

    def snapshot(self) -> None:
        """Take a snapshot of the statistics; to be called every `SNAPSHOT_MS`."""
        self.statistics.snapshot(len(self.messages), self.usage.bytes)
        for app in self.apps.values():
            app.statistics.snapshot(app.messages, app.bytes)

    def _details(self) -> str:
        return "".join(app_report(self, app) for app in self.apps.values())


def recall(app: App, message: Message) -> None:
    for stream in app.streams:
        held = stream.unconfirmed.take(message.guid)
        if held is not None:
            release(held[1], message)
