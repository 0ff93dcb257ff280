"""The queue engine: what becomes of each message. It knows no protocol's frames.

A `Queue` holds messages in the order of their arrival and, per app, which of them wait, which are with a
consumer and which the app has confirmed. It decides who gets what; a `Sink` carries it there and a `Log`
keeps it.

Invariants, for every message in `Queue.messages` that is not in `Queue.awaiting` and every app `a` with
`message.outstanding & a.bit`: it is in exactly one of `a.redelivery`, `a.returning`, `a.pending`, `a.aside`, and the
`unconfirmed` of one stream of `a`; an app's bit is cleared once, and a message whose last bit is cleared is removed
from the log and from the queue.
`a.pending`, `a.redelivery` and `a.returning` may still hold messages that the app no longer wants; they are passed over
when they come up. A message in `awaiting` is in none of them: too few nodes have it, and nobody may know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from broker.core.alarms import alarm
from broker.core.capacity import Usage
from broker.core.config import DomainConfig, Mode
from broker.core.consumers import Consumers
from broker.core.consumption import ConsumptionMonitor
from broker.core.delivery import STOP, Delivery, release
from broker.core.expressions import compile_expression
from broker.core.faults import Inconsistent
from broker.core.history import History
from broker.core.messages import (
    DUPLICATE,
    KEPT,
    PENDING,
    Buffer,
    Content,
    Full,
    Held,
    Log,
    Message,
    Posted,
    Poster,
    Sink,
)
from broker.core.queue_ports import Hold, Surroundings
from broker.core.redelivery import Wanted
from broker.core.rejects import Rejects
from broker.core.reports import app_report
from broker.core.routing import NEVER_MS, App, Stream, Subscription
from broker.core.schemas import SchemaMultiplexer
from broker.core.statistics import QueueStatistics
from broker.core.unknown_confirms import UnknownConfirms
from broker.store.chunked import FULL, Chunked
from formats.codes import AckStatus
from formats.disk.journal import DeletionRecordFlag

__all__ = [
    "App",
    "Content",
    "Full",
    "Log",
    "Message",
    "Posted",
    "Poster",
    "Queue",
    "Sink",
    "Stream",
    "Subscription",
    "Surroundings",
    "Usage",
    "recall",
]

log = logging.getLogger("broker.queue")

Guid = bytes
# Who is to be told what becomes of a post: whom, and that one's queue id and correlation id.
Waiting = list[tuple[Poster, int, int]]

# A payload that has waited for copies for longer is compared with its checksum before it is handed out.
COMPARED_AFTER_MS = 100

# The memory that a post takes that is held, besides its bytes.
HELD_SIZE = 512


class HeldPost(NamedTuple):
    """A post that waits until the log takes messages, and who is to be told."""

    content: Content
    posters: Waiting


class Queue:
    """One queue and the decisions about it.

    `usage` is how full it is; `domain_usage`, shared by the queues of the domain, is above it.
    """

    # Slots: an object of so many attributes is slower with a dictionary.
    __slots__ = (
        "_all_apps",
        "_awaits_copies",
        "_consumers",
        "_has_app_subscriptions",
        "_rejects",
        "apps",
        "awaiting",
        "broadcast",
        "config",
        "consumption",
        "delivery",
        "domain_usage",
        "expiry_hold",
        "faults",
        "ghosts",
        "held",
        "history",
        "idle_since_ms",
        "is_expiring",
        "keep_rejected",
        "key",
        "log",
        "messages",
        "now",
        "schemas",
        "statistics",
        "throttle",
        "timers",
        "unknown_confirms",
        "unregistered",
        "uri",
        "usage",
        "was_opened",
        "work",
        "writers",
    )

    # Whether its messages are kept here; False for a hop towards where they are.
    is_root = True

    def __init__(
        self,
        uri: str,
        key: bytes,
        config: DomainConfig,
        app_keys: Iterable[tuple[str, bytes]],
        log: Log,
        domain_usage: Usage,
        around: Surroundings,
    ) -> None:
        self.uri = uri
        self.key = key
        self.apps = {app_id: App(app_id, app_key, 1 << n) for n, (app_id, app_key) in enumerate(app_keys)}
        self.unregistered: dict[str, App] = {}  # apps that the domain does not name, while somebody reads them
        self.log = log
        self.usage = Usage(f"queue [{uri}]", domain_usage, self._details)
        self.domain_usage = domain_usage
        self.now = around.now
        self.timers = around.timers
        self.throttle = around.throttle
        self.work = around.work
        self.faults = around.faults
        self.keep_rejected = around.keep_rejected
        self.messages: Chunked[Message] = Chunked()
        self.awaiting: Chunked[Waiting] = Chunked()
        self.held: dict[Guid, HeldPost] = {}  # posts that the log does not take for now
        self.ghosts: dict[int, int] = {}  # bits that apps had before a purge, and how many messages still have them
        self.writers = 0  # how often it is open for writing
        self.expiry_hold: Hold | None = None  # why what was restored does not expire yet
        self.is_expiring = False  # a task removes what is too old
        self.was_opened = False  # since the node started
        self.idle_since_ms: int | None = None  # when it was first seen to be idle
        self.schemas = SchemaMultiplexer()
        self.statistics = QueueStatistics()
        self.history = History(config.deduplication_time_ms)
        self.unknown_confirms: UnknownConfirms | None = None  # if there were any; a hop sends them up
        self.consumption = ConsumptionMonitor(self)
        self._rejects = Rejects(self)
        self._consumers = Consumers(self)
        self.delivery = Delivery(self)
        self._all_apps = 0
        self.configure_domain(config)

    def configure_domain(self, config: DomainConfig) -> None:
        """Take up the domain's parameters, which may have changed; the apps stay (see `broker.core.upkeep`)."""
        self.config = config
        self.broadcast = config.mode is Mode.BROADCAST
        self.judge_copies()
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
        """Decide if messages wait for copies: those of strong consistency do, and all while the node is cut off."""
        self._awaits_copies = (self.config.strong or self.log.is_cut_off) and self.log.has_copies

    def apps_changed(self) -> None:
        """The apps or what they want of messages is another."""
        texts = self.config.app_subscriptions
        self._has_app_subscriptions = False
        self._all_apps = 0
        for app in self.apps.values():
            self._all_apps |= app.bit
            text = texts.get(app.app_id, "")
            app.subscription = compile_expression(text) if text else None
            self._has_app_subscriptions |= bool(text)

    def free_bit(self) -> int:
        """A bit of `Message.outstanding` that no app has, nor had lately."""
        taken = 0
        for bit in chain((app.bit for app in self.apps.values()), self.ghosts):
            taken |= bit
        return ~taken & (taken + 1)

    @property
    def attempts_max(self) -> int | None:
        """How often a message may be delivered to an app; None for as often as it takes."""
        return self.config.delivery_attempts_max or None

    @property
    def bytes(self) -> int:
        return self.usage.bytes

    @property
    def is_idle(self) -> bool:
        """Return whether nobody has it open and nothing is in it."""
        return not (self.messages or self.held or self.is_open)

    @property
    def is_open(self) -> bool:
        """Return whether somebody has it open."""
        readers = any(app.streams for apps in (self.apps, self.unregistered) for app in apps.values())
        return bool(self.writers or readers)

    # -- messages in

    def post(self, guid: Guid, content: Content) -> Posted:
        """Take a message: keep it, then hand it to every app. Raises `Full`, having changed nothing.

        DUPLICATE is a retransmission of one that is here or was: acknowledged again, kept once. PENDING waits for
        copies: whoever wants to know says so with `acknowledge_later`.
        """
        messages = self.messages
        if guid in messages.newest or (messages.older and guid in messages) or not self.history.is_new(guid):
            return PENDING if guid in self.awaiting else DUPLICATE
        data = content.data
        size = len(data)
        message = Message(guid, size, content, self._all_apps, self.now.ms)
        if self._has_app_subscriptions:
            self._select_apps(message, data)
        outstanding = message.outstanding
        if not outstanding:
            return KEPT  # nobody will ever read it
        if self.broadcast:
            self.statistics.puts += 1
            self.statistics.put_bytes += size
            self.delivery.broadcast(message, data)
            return KEPT
        usage = self.usage
        if usage.at_limit or self.domain_usage.at_limit:
            usage.check()
        try:
            if outstanding == self._all_apps:
                self.log.append(message, content, len(self.apps))
            else:
                others = [app.key for app in self.apps.values() if not outstanding & app.bit]
                self.log.append(message, content, outstanding.bit_count(), others)
        except Held:
            return self._hold(guid, content)
        try:
            statistics = self.statistics
            statistics.puts += 1
            statistics.put_bytes += size
            newest = messages.newest
            newest[guid] = message
            if len(newest) >= FULL:
                messages.turn()
            usage.add(size)
            if self.consumption.max_idle_ms:
                self.consumption.on_post()
            # What follows a message that waits must not overtake it.
            awaiting = self.awaiting
            awaits = self._awaits_copies or bool(awaiting.newest or awaiting.older)
            for app in self.apps.values():
                if not outstanding & app.bit:
                    continue
                app.messages += 1
                app.bytes += size
                if awaits:
                    continue
                if app.pending or app.redelivery or app.is_behind:
                    app.pending.append(message)
                    continue
                only = app.only
                if only is not None and (subscription := only.choose()) is not None:
                    self.delivery.send(subscription, message, data)
                else:
                    self._offer(app, message, data)
            if awaits:
                awaiting.add(guid, [])
                self.log.when_copied(message, self._copied)
                return PENDING
        except Exception as error:
            raise Inconsistent(f"taking a message into queue '{self.uri}'", error) from error
        return KEPT

    def _offer(self, app: App, message: Message, data: Buffer) -> None:
        if self.delivery.offer(app, message, data) is STOP:
            self.delivery.log_exit(app, message)
            app.pending.append(message)

    def acknowledge_later(self, guid: Guid, poster: Poster, queue_id: int, correlation_id: int) -> None:
        """Tell the poster of a PENDING message when it is kept, or that it will not be (UNKNOWN)."""
        posters = self.awaiting.get(guid)
        if posters is None:
            posters = self.held[guid].posters
        posters.append((poster, queue_id, correlation_id))

    def _hold(self, guid: Guid, content: Content) -> Posted:
        """The log takes no messages for now: keep this one in memory, unacknowledged, until it does."""
        if guid not in self.held:
            kept = content._replace(data=bytes(content.data), options=bytes(content.options))
            self.log.when_open(lambda: self._post_held(guid), len(kept.data) + len(kept.options) + HELD_SIZE)
            self.held[guid] = HeldPost(kept, [])
        return PENDING

    def _post_held(self, guid: Guid) -> None:
        """The log takes messages again."""
        held = self.held.pop(guid, None)
        if held is None:
            return  # it went with the queue to another node
        try:
            is_pending = self.post(guid, held.content) is PENDING
        except Full as full:
            log.info("queue '%s': refused PUT %s: %s", self.uri, guid.hex().upper(), full)
            self.answer(held.posters, guid, AckStatus[full.status])
            return
        if is_pending:
            for poster, queue_id, correlation_id in held.posters:
                self.acknowledge_later(guid, poster, queue_id, correlation_id)
        else:
            self.answer(held.posters, guid, AckStatus.SUCCESS)

    def _copied(self, message: Message) -> None:
        """Enough nodes have a message: now it is acknowledged and handed out, unless it went in the meantime."""
        messages = self.messages
        if messages.newest.get(message.guid) is not message and messages.get(message.guid) is not message:
            return
        self._acknowledge(message.guid, AckStatus.SUCCESS)
        for bit in list(self.ghosts) if self.ghosts else ():
            if message.outstanding & bit:
                self.forget_ghost(message, bit)
        data = None
        has_waited = self.now.ms - message.arrived_ms > COMPARED_AFTER_MS
        for app in self.apps.values():
            if not message.outstanding & app.bit:
                continue
            if app.pending or app.redelivery or app.is_behind or has_waited:
                app.pending.append(message)
                if has_waited:
                    self.deliver(app)
                continue
            data = self.log.read(message) if data is None else data
            self._offer(app, message, data)

    def _acknowledge(self, guid: Guid, status: AckStatus) -> None:
        posters = self.awaiting.take(guid)
        assert posters is not None, "it waits"
        self.answer(posters, guid, status)

    def answer(self, posters: Waiting, guid: Guid, status: AckStatus) -> None:
        """Tell those who wait what becomes of a post."""
        for poster, queue_id, correlation_id in posters:
            if status is AckStatus.SUCCESS:
                self.statistics.acks += 1
            else:
                self.statistics.nacks += 1
            try:
                poster.acknowledge(queue_id, correlation_id, guid, status)
            except Exception as error:
                poster.fail(error)

    def _select_apps(self, message: Message, data: Buffer) -> None:
        """Leave the message to those apps that want it, as the domain says."""
        for app in self.apps.values():
            if app.subscription is not None and not app.subscription.matches(self.delivery.properties(message, data)):
                message.outstanding &= ~app.bit

    def restore(self, message: Message) -> None:
        """Put back a message that the log holds from before; call in order, before any consumer comes."""
        self.schemas.keep(message.schema_id)
        self.messages.add(message.guid, message)
        self.history.is_new(message.guid)  # its producer may try it again after it is gone
        self.usage.restore(message.size)
        for app in self.apps.values():
            if message.outstanding & app.bit:
                app.messages += 1
                app.bytes += message.size
                app.pending.append(message)
        if self.consumption.max_idle_ms:
            self.consumption.on_post()

    def deliver(self, app: App) -> None:
        """Send what waits, oldest first, for as long as somebody has room."""
        self.delivery.deliver(app)

    # -- confirms and rejects

    def confirm(self, stream: Stream, guid: Guid) -> bool:
        """An app is done with a message. False when the app had no such message to confirm."""
        app = stream.app
        try:
            unconfirmed = stream.unconfirmed
            held = unconfirmed.newest.pop(guid, None)
            if held is None and unconfirmed.older:
                held = unconfirmed.take(guid)
            if held is not None:
                message, subscription = held
                subscription.messages_left += 1
                subscription.bytes_left += message.size
                if subscription.group is not None:
                    subscription.group.blocked = False
            else:
                # A client that reconnected may confirm what was delivered to it before.
                found = self.messages.get(guid)
                if found is None or not found.outstanding & app.bit:
                    if self.is_root:
                        self._keep_unknown(app, guid)
                    return False
                message = found
                recall(app, message)
            self.statistics.confirms += 1
            app.statistics.answered(self.now.ms - message.sent_ms)
            app.forget(message)
            if message.outstanding:
                self.log.confirm(message, app.key)
            else:
                self.log.remove(message)
                self.gone(message)
            if app.delayed_until_ms != NEVER_MS and stream.last_sent is message:
                # The poisonous one went well: no need to keep the distance.
                stream.last_sent_ms = NEVER_MS
                app.delayed_until_ms = NEVER_MS
            if app.redelivery or app.pending or app.aside.newest or app.aside.older:
                self.delivery.deliver(app)
        except Exception as error:
            raise Inconsistent(f"the confirmation of a message of queue '{self.uri}'", error) from error
        return True

    def _keep_unknown(self, app: App, guid: Guid) -> None:
        """Keep a confirm that another primary may be waiting for."""
        if self.unknown_confirms is None:
            self.unknown_confirms = UnknownConfirms()
        self.unknown_confirms.add(self.now.ms, guid, app.app_id)

    def reject(self, stream: Stream, guid: Guid, *, told: bool = True) -> None:
        """A consumer failed on a message: it has one attempt less; after the last, the app is done with it.

        Whether it is `told` in the log is the caller's to say: there may be very many.
        """
        self._rejects.reject(stream, guid, told=told)

    def reject_all(self, stream: Stream) -> Wanted | None:
        """All that a lost consumer holds has one attempt less: as it is given back, for there may be very much."""
        return self._rejects.reject_all(stream)

    def taken_back(self, app: App, wanted: Wanted | None) -> Wanted | None:
        """Of what a consumer held, say which go back to the app: those `wanted`, and at a hop not even all of these."""
        return wanted

    def gone(self, message: Message) -> None:
        """No app wants it, and the log knows.

        A message that was never acknowledged is refused now, and not remembered: its producer may post it again.
        """
        statistics, usage, messages = self.statistics, self.usage, self.messages
        if usage.messages > statistics.messages_max or usage.bytes > statistics.bytes_max:
            statistics.observe(usage.messages, usage.bytes)
        if messages.newest.pop(message.guid, None) is None:
            del messages[message.guid]
        usage.remove(message.size)
        awaiting = self.awaiting
        if (awaiting.newest or awaiting.older) and message.guid in awaiting:
            self._acknowledge(message.guid, AckStatus.UNKNOWN)
        else:
            self.history.add(message.guid, self.now.ms)

    def drop(self, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        """Remove a message, whoever wants it."""
        self.record_removal(message, flag)
        self.forget(message)

    def record_removal(self, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        """Write that a message is removed; the record of one that was never acknowledged says so.

        By that record a restart, or the next primary, knows not to remember it (`broker.store.recovery`).
        """
        self.log.remove(message, DeletionRecordFlag.NO_SC_QUORUM if message.guid in self.awaiting else flag)

    def forget(self, message: Message) -> None:
        """The log has removed a message, whoever wanted it."""
        for app in self.apps.values():
            if message.outstanding & app.bit:
                recall(app, message)
                app.forget(message)
        self.gone(message)

    def forget_ghost(self, message: Message, bit: int) -> None:
        """An app that was purged has nothing to do with a message any longer; see `broker.core.purges`."""
        self.ghosts[bit] -= 1
        if message.outstanding == bit:
            self.record_removal(message)
            message.outstanding = 0
            self.gone(message)
        else:
            self.log.release(1)
            message.outstanding &= ~bit

    # -- consumers

    def app(self, app_id: str) -> App:
        """The app of that name, for a reader: one that the domain does not name may be read, and receives nothing."""
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
        """A client opened an app for reading; it receives once it is configured."""
        stream.app.streams.append(stream)

    def configure(self, stream: Stream, subscriptions: list[Subscription]) -> None:
        """Replace a stream's subscriptions; what it holds unconfirmed counts against the new ones.

        A stream left without subscriptions keeps what it holds until it confirms or closes. A broker gives back what
        none of its clients wants any longer. Nothing is sent yet: call `deliver` when the client has its answer.
        """
        self._consumers.configure(stream, subscriptions)

    def is_wanted(self, message: Message, texts: Iterable[str]) -> bool:
        """Return whether one of these expressions matches a message; such as do not compile match all."""
        return self._consumers.is_wanted(message, texts)

    def reconfigure(self, stream: Stream, subscriptions: list[Subscription], configured: Callable[[], None]) -> None:
        """As `configure`; `configured` is called once it is so, now or later."""
        self.configure(stream, subscriptions)
        configured()

    def give_back_reads(self, app_id: str, count: int) -> None:
        """Somebody has given up opening an app so often, or will not come; that counts only where it was asked for."""

    def give_back_writes(self, count: int) -> None:
        """As `give_back_reads`, for writing."""

    def detach(self, stream: Stream, *, lost: bool = False) -> None:
        """The client closed the app or went away: others get what it did not confirm, in order.

        A client that is `lost` may have been lost because of what it holds: that has one attempt less each.
        """
        self._consumers.detach(stream, lost=lost)

    def rebuild(self, app: App) -> None:
        """The app's streams or what they want are others: route anew."""
        self._consumers.rebuild(app)

    def resume(self, stream: Stream) -> None:
        """The stream's sink is ready again."""
        if not self.broadcast:
            for subscription in stream.subscriptions:
                if subscription.group is not None:
                    subscription.group.blocked = False
            self.deliver(stream.app)

    def snapshot(self) -> None:
        """Keep what the statistics say now; to be called every `SNAPSHOT_MS`."""
        self.statistics.snapshot(len(self.messages), self.usage.bytes)
        for app in self.apps.values():
            app.statistics.snapshot(app.messages, app.bytes)

    def _details(self) -> str:
        """What an alarm about the queue says of its apps."""
        return "".join(app_report(self, app) for app in self.apps.values())


def recall(app: App, message: Message) -> None:
    """Take back a message from whichever stream of `app` holds it."""
    for stream in app.streams:
        held = stream.unconfirmed.take(message.guid)
        if held is not None:
            release(held[1], message)
