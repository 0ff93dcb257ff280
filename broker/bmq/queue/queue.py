# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The queue engine: decides about each message, independently of the protocol.

A `Queue` holds messages in the order of their arrival and knows of each, for each app, whether it waits, is with a
consumer, or is confirmed. It decides about deliveries; a `Sink` carries them out and a `Log` stores the messages.

Invariants, for every message in `Queue.messages` that is not in `Queue.awaiting` and every app `a` with
`message.outstanding & a.bit`: it is in exactly one of `a.redelivery`, `a.returning`, `a.pending`, `a.aside`, and the
`unconfirmed` of one stream of `a`; an app's bit is cleared once, and a message whose last bit is cleared is removed
from the log and from the queue.
A part of the backlog in `a.pending` stands for all messages in it that `a` wants (see `broker.bmq.queue.backlog`).
`a.pending`, `a.redelivery` and `a.returning` may still hold messages that the app no longer wants; these are skipped
when their turn comes. A message in `awaiting` is in none of them: too few nodes have it to deliver it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from broker.bmq.core.alarms import alarm
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.history import History
from broker.bmq.core.messages import (
    DUPLICATE,
    KEPT,
    PENDING,
    Buffer,
    Content,
    Full,
    Held,
    Log,
    Message,
    MessagePoster,
    Posted,
    Sink,
    content_of,
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
from broker.bmq.queue.packing import pack_restored
from broker.bmq.queue.queue_ports import Hold, Surroundings
from broker.bmq.queue.rejects import Rejects
from broker.bmq.queue.reports import app_report
from broker.bmq.queue.routing import NEVER_MS, App, Stream, Subscription
from broker.bmq.queue.unknown_confirms import UnknownConfirms
from broker.bmq.store.chunked import FULL, Chunked
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
# The posters that get the result of a post, each with its queue id and correlation id.
Waiting = list[tuple[MessagePoster, int, int]]

# A payload that has waited for replicas for longer is compared with its checksum before delivery.
COMPARED_AFTER_MS: Final = 100

# Memory of a held post besides its bytes.
HELD_SIZE: Final = 512


class HeldPost(NamedTuple):
    """A post that waits until the log takes messages, with the posters that get its result."""

    content: Content
    posters: Waiting


class Queue:
    """One queue and the decisions about it.

    `usage` is its usage; `domain_usage`, shared by the queues of the domain, is above it.
    """

    # Slots: access to this many attributes is slower with a dictionary.
    __slots__ = (
        "_awaits_copies",
        "_consumers",
        "_has_app_subscriptions",
        "_kept_confirms",
        "_on_copied",
        "_rejects",
        "all_apps",
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
        "is_packing",
        "keep_rejected",
        "key",
        "log",
        "messages",
        "now",
        "packs_at_ms",
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

    # True if its messages are stored here; False for a relay.
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
        self.messages = Backlog()
        self.awaiting: Chunked[Waiting] = Chunked()
        self.held: dict[Guid, HeldPost] = {}  # posts that the log does not take at present
        self.ghosts: dict[int, int] = {}  # bits that apps had before a purge, and how many messages still have them
        self.writers = 0  # number of opens for writing
        self.expiry_hold: Hold | None = None  # keeps restored messages from expiring
        self.is_expiring = False  # a task removes what is too old
        self.is_packing = False  # a task packs what waits
        self.packs_at_ms = NEVER_MS  # not before
        self.was_opened = False  # since the node started
        self.idle_since_ms: int | None = None  # when it was first seen to be idle
        self.schemas = SchemaMultiplexer()
        self.statistics = QueueStatistics()
        self.history = History(config.deduplication_time_ms)
        self.unknown_confirms: UnknownConfirms | None = None  # if there were any; a relay sends them up
        self._kept_confirms = around.kept_confirms
        self.consumption = ConsumptionMonitor(self)
        self._rejects = Rejects(self)
        self._consumers = Consumers(self)
        self.delivery = Delivery(self)
        self.all_apps = 0
        self._on_copied = self._all_copied
        self.configure_domain(config)

    def configure_domain(self, config: DomainConfig) -> None:
        """Apply the domain's parameters, which may have changed; the apps stay (see `broker.bmq.queue.upkeep`)."""
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
        """Decide if messages wait for replicas: with strong consistency, and always while the node is cut off."""
        self._awaits_copies = (self.config.strong or self.log.is_cut_off) and self.log.wants_copies

    def apps_changed(self) -> None:
        """Recompute the routing after a change of apps or their subscriptions."""
        texts = self.config.app_subscriptions
        self._has_app_subscriptions = False
        self.all_apps = 0
        for app in self.apps.values():
            self.all_apps |= app.bit
            text = texts.get(app.app_id, "")
            app.subscription = compile_expression(text) if text else None
            self._has_app_subscriptions |= bool(text)

    def free_bit(self) -> int:
        """Return a bit of `Message.outstanding` that no app has, or had lately."""
        taken = 0
        for bit in chain([app.bit for app in self.apps.values()], self.ghosts):
            taken |= bit
        return ~taken & (taken + 1)

    @property
    def attempts_max(self) -> int | None:
        """Maximum number of deliveries of a message to an app; None for no limit."""
        return self.config.delivery_attempts_max or None

    @property
    def bytes(self) -> int:
        return self.usage.bytes

    @property
    def is_idle(self) -> bool:
        """True if nobody has it open and it is empty."""
        return not (self.messages or self.held or self.is_open)

    @property
    def is_open(self) -> bool:
        """True if somebody has it open."""
        readers = any(app.streams for apps in (self.apps, self.unregistered) for app in apps.values())
        return bool(self.writers or readers)

    # -- messages in

    def post(
        self,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer = b"",
        waiting: tuple[MessagePoster, int, int] | None = None,
    ) -> Posted | None:
        """Store messages in a row, then deliver them to every app. Raises `Full`, without effect.

        DUPLICATE is a repetition of one that is or was here: acknowledged again, stored once. PENDING waits for
        replicas: `waiting`, a poster with its queue id and correlation id, gets the result. None, without effect, if
        several have to be posted one by one; only a single one may have options.
        """
        count, message, backlog = len(messages), messages[0], self.messages
        guid, size, newest = message.guid, message.size, backlog.newest
        if count > 1:
            size = sum([message.size for message in messages])
            if not self._takes_together(messages, size):
                return None
        elif guid in newest or (backlog.older and guid in backlog) or not self.history.is_new(guid):
            return self._repeated(guid, waiting)
        outstanding = all_apps = self.all_apps
        if self._has_app_subscriptions or self.unknown_confirms is not None:
            outstanding = self._select_apps(message, payloads[0])
        if not outstanding:
            # Nobody will ever read it, nor a repetition of it.
            self.history.add(guid, self.now.ms)
            return KEPT
        statistics = self.statistics
        if self.broadcast:
            statistics.puts += count
            statistics.put_bytes += size
            self.delivery.broadcast(message, payloads[0])
            return KEPT
        usage = self.usage
        if usage.at_limit or self.domain_usage.at_limit:
            usage.check()
        try:
            if outstanding == all_apps:
                is_stored = self.log.append(messages, payloads, options, len(self.apps))
            else:
                others = _keys_besides(self.apps.values(), outstanding)
                is_stored = self.log.append(messages, payloads, options, outstanding.bit_count(), others)
        except Held:
            return self._hold(message, payloads[0], options, waiting)
        if not is_stored:
            return None
        try:
            statistics.puts += count
            statistics.put_bytes += size
            if count == 1:
                newest[guid] = message
            else:
                newest.update([(each.guid, each) for each in messages])
            if len(newest) >= FULL:
                backlog.turn()
            usage.add(size, count)
            if self.consumption.max_idle_ms:
                self.consumption.on_post()
            # Later messages must not overtake one that waits.
            awaiting = self.awaiting
            awaits = self._awaits_copies or bool(awaiting.newest or awaiting.older)
            for app in self.apps.values():
                if outstanding & app.bit:
                    app.messages += count
                    app.bytes += size
            if awaits:
                for each in messages:
                    awaiting.add(each.guid, [] if waiting is None else [waiting])
                self.log.when_copied(messages, self._on_copied)
                return PENDING
            if count == 1:
                self._deliver_new(message, payloads[0])
            elif not self.delivery.send_run(messages, payloads, size):
                for each, data in zip(messages, payloads, strict=True):
                    self._deliver_new(each, data)
        except Exception as error:
            raise Inconsistent(f"taking messages into queue '{self.uri}'", error) from error
        return KEPT

    def forward(
        self, poster: MessagePoster, number: int, queue_id: int, data: memoryview, frames: Sequence[Frame]
    ) -> bool:
        """Forward events of posts unchanged to a root elsewhere; return False, without effect, if they need more.

        They are the poster's, to its queue `queue_id`; `number` is the poster's, for the schemas of its properties.
        """
        return False

    def _deliver_new(self, message: Message, data: Buffer) -> None:
        """Deliver a message that was stored just now to each app that wants it."""
        outstanding = message.outstanding
        for app in self.apps.values():
            if not outstanding & app.bit:
                continue
            if app.pending or app.redelivery or app.is_behind:
                app.pending.append(message)
                continue
            only = app.only
            if only is not None and (subscription := only.choose()) is not None:
                self.delivery.send(subscription, message, data)
            else:
                self._offer(app, message, data)

    def _takes_together(self, messages: Sequence[Message], size: int) -> bool:
        """Return True if all messages are new, and `post` only stores and delivers them, without nearing a limit."""
        count, usage = len(messages), self.usage
        if (
            not self.all_apps
            or self.broadcast
            or self._has_app_subscriptions
            or self.unknown_confirms is not None
            or usage.at_limit
            or self.domain_usage.at_limit
            or not usage.has_ease(count, size)
            or len(self.messages.newest) + count >= FULL
        ):
            return False
        guids = [message.guid for message in messages]
        if not self.messages.none_of(guids):
            return False
        # A lookup in the history has no effect, so that it may be repeated.
        return self.history.are_new(guids) or (len(set(guids)) == count and all(map(self.history.is_new, guids)))

    def _repeated(self, guid: Guid, waiting: tuple[MessagePoster, int, int] | None) -> Posted:
        posters = self.awaiting.get(guid)
        if posters is None:
            return DUPLICATE
        if waiting is not None:
            posters.append(waiting)
        return PENDING

    def post_one(self, guid: Guid, content: Content) -> Posted | None:
        """Post a message whose result nobody waits for."""
        message = message_of(guid, len(content.data), content, self.all_apps, self.now.ms)
        return self.post((message,), (content.data,), content.options)

    def _offer(self, app: App, message: Message, data: Buffer) -> None:
        if self.delivery.offer(app, message, data) is STOP:
            self.delivery.log_exit(app, message)
            app.pending.append(message)

    def acknowledge_later(self, guid: Guid, poster: MessagePoster, queue_id: int, correlation_id: int) -> None:
        """Tell the poster of a PENDING message later that it is kept, or that it will not be (UNKNOWN)."""
        posters = self.awaiting.get(guid)
        if posters is None:
            posters = self.held[guid].posters
        posters.append((poster, queue_id, correlation_id))

    def _hold(
        self, message: Message, data: Buffer, options: Buffer, waiting: tuple[MessagePoster, int, int] | None
    ) -> Posted:
        """Hold a message in memory, unacknowledged, until the log takes messages again."""
        guid = message.guid
        if guid not in self.held:
            kept = content_of(message, bytes(data), bytes(options))
            self.log.when_open(lambda: self._post_held(guid), len(kept.data) + len(kept.options) + HELD_SIZE)
            self.held[guid] = HeldPost(kept, [])
        if waiting is not None:
            self.held[guid].posters.append(waiting)
        return PENDING

    def _post_held(self, guid: Guid) -> None:
        """Post a held message, once the log takes messages again."""
        held = self.held.pop(guid, None)
        if held is None:
            return  # it was dropped when the queue moved to another node
        try:
            is_pending = self.post_one(guid, held.content) is PENDING
        except Full as full:
            log.info("queue '%s': refused PUT %s: %s", self.uri, guid.hex().upper(), full)
            self.answer(held.posters, guid, AckStatus[full.status])
            return
        if is_pending:
            for poster, queue_id, correlation_id in held.posters:
                self.acknowledge_later(guid, poster, queue_id, correlation_id)
        else:
            self.answer(held.posters, guid, AckStatus.SUCCESS)

    def _all_copied(self, messages: Sequence[Message]) -> None:
        """Acknowledge and deliver messages that enough nodes have."""
        if len(messages) == 1 or not self._copied_at_once(messages):
            for message in messages:
                self._copied(message)

    def _copied_at_once(self, messages: Sequence[Message]) -> bool:
        """Do what `_copied` does for messages that one consumer gets now; otherwise return False without effect."""
        newest, all_apps, oldest_ms = self.messages.newest, self.all_apps, self.now.ms - COMPARED_AFTER_MS
        size = 0
        for message in messages:
            if (
                newest.get(message.guid) is not message
                or message.outstanding != all_apps
                or message.arrived_ms < oldest_ms
            ):
                return False
            size += message.size
        if self.ghosts or not self.delivery.send_run(messages, [self.log.read(each) for each in messages], size):
            return False
        run: list[Guid] = []
        shared: tuple[MessagePoster, int, int] | None = None
        for message in messages:
            posters = self.awaiting.take(message.guid)
            assert posters is not None, "it waits"
            if len(posters) != 1:
                self.answer(posters, message.guid, AckStatus.SUCCESS)
                continue
            if posters[0] != shared:
                self._answer_run(shared, run)
                shared, run = posters[0], []
            run.append(message.guid)
        self._answer_run(shared, run)
        return True

    def _answer_run(self, waiting: tuple[MessagePoster, int, int] | None, guids: Sequence[Guid]) -> None:
        """Tell a poster that messages are kept."""
        if waiting is None:
            return
        poster, queue_id, correlation_id = waiting
        self.statistics.acks += len(guids)
        try:
            poster.acknowledge_kept(queue_id, correlation_id, guids)
        except Exception as error:
            poster.fail(error)

    def _copied(self, message: Message) -> None:
        """Acknowledge and deliver a message that enough nodes have, unless it was removed in the meantime."""
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
        """Tell the waiting posters the result of a post."""
        for poster, queue_id, correlation_id in posters:
            if status is AckStatus.SUCCESS:
                self.statistics.acks += 1
            else:
                self.statistics.nacks += 1
            try:
                poster.acknowledge(queue_id, correlation_id, guid, status)
            except Exception as error:
                poster.fail(error)

    def _select_apps(self, message: Message, data: Buffer) -> int:
        """Restrict a message to the apps whose domain's subscriptions match it, and which have not confirmed it before.

        Return their bits.
        """
        confirmed = () if self.unknown_confirms is None else self.unknown_confirms.apps_of(message.guid)
        for app in self.apps.values():
            subscription = app.subscription
            if subscription is not None and not subscription.matches(self.delivery.properties(message, data)):
                message.outstanding &= ~app.bit
        for app_id in confirmed:
            if app_id in self.apps:
                message.outstanding &= ~self.apps[app_id].bit
        return message.outstanding

    def restore(self, message: Message) -> None:
        """Restore a message from the log; call this in order, before any consumer comes."""
        self.schemas.keep(message.schema_id)
        self.messages.add(message.guid, message)
        self.history.is_new(message.guid)  # its producer may repeat it after its removal
        self.usage.restore(message.size)
        for app in self.apps.values():
            if message.outstanding & app.bit:
                app.messages += 1
                app.bytes += message.size
                app.pending.append(message)
        count, part = len(self.messages.newest), self.work.part
        if count >= 2 * part and count % part == 0:
            pack_restored(self)
        if self.consumption.max_idle_ms:
            self.consumption.on_post()

    def deliver(self, app: App) -> None:
        """Send waiting messages, oldest first, while a consumer has room."""
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
        """Apply confirms one by one: what each of them lets through goes before the next one."""
        return sum([self.confirm(stream, (guid,)) for guid in guids])

    def _delivered_before(self, app: App, guid: Guid) -> Message | None:
        """Return the message of a confirm from a client that reconnected; None if the app is done with it."""
        found = self.messages.get(guid)
        if found is None or not found.outstanding & app.bit:
            if self.is_root:
                self._keep_unknown(app, guid)
            return None
        recall(app, found)
        return found

    def _keep_unknown(self, app: App, guid: Guid) -> None:
        """Keep a confirm that another primary may need."""
        if self.unknown_confirms is None:
            self.unknown_confirms = UnknownConfirms(self._kept_confirms)
        self.unknown_confirms.add(guid, app.app_id)

    def reject(self, stream: Stream, guid: Guid, *, told: bool = True) -> None:
        """Decrement the attempts of a message rejected by a consumer; after the last, the app is done with it.

        The caller decides with `told` if it is logged, since there may be very many.
        """
        self._rejects.reject(stream, guid, told=told)

    def reject_all(self, stream: Stream) -> Wanted | None:
        """Decrement the attempts of a lost consumer's messages as they are given back, since they may be very many."""
        return self._rejects.reject_all(stream)

    def taken_back(self, app: App, wanted: Wanted | None) -> Wanted | None:
        """Return a filter of a consumer's messages that go back to the app: those `wanted`, at a relay even fewer."""
        return wanted

    def gone(self, messages: Sequence[Message], *, is_confirmed: bool = False) -> None:
        """Finish messages whose removal is recorded.

        A message that was never acknowledged is refused now, and not added to the history: it may be posted again.
        Not so if its last app has confirmed it, which had it from another primary: then it is acknowledged, as there is
        nothing left to lose.
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

        By that flag a restart, or the next primary, leaves it out of the history (`broker.bmq.store.recovery`).
        """
        self.log.remove(message, DeletionRecordFlag.NO_SC_QUORUM if message.guid in self.awaiting else flag)

    def forget(self, message: Message) -> None:
        """Forget a message that the log has removed."""
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
        """Add a client's stream of an app, which receives messages once it is configured."""
        stream.app.streams.append(stream)

    def configure(self, stream: Stream, subscriptions: list[Subscription]) -> None:
        """Replace a stream's subscriptions; its unconfirmed messages count against the new ones.

        A stream without subscriptions keeps its messages until it confirms or closes. A broker gives back messages that
        none of its clients wants any longer. Nothing is sent yet: call `deliver` after the client's answer.
        """
        self._consumers.configure(stream, subscriptions)

    def is_wanted(self, message: Message, texts: Iterable[str]) -> bool:
        """Return True if one of these expressions matches a message; one that does not compile matches all."""
        return self._consumers.is_wanted(message, texts)

    def reconfigure(self, stream: Stream, subscriptions: list[Subscription], configured: Callable[[], None]) -> None:
        """Configure a stream like `configure`; `configured` is called when done, at once or later."""
        self.configure(stream, subscriptions)
        configured()

    def give_back_reads(self, app_id: str, count: int) -> None:
        """Give back `count` requested opens of an app; they count only where opens are requested upstream."""

    def give_back_writes(self, count: int) -> None:
        """Give back `count` requested opens for writing, like `give_back_reads`."""

    def after_closing(self, app_id: str, closed: Callable[[], None]) -> None:
        """Call `closed` when opens that were given back, of the writers and of an app, are given back upstream, too."""
        closed()

    def detach(self, stream: Stream, *, lost: bool = False) -> None:
        """Remove the stream of a client that closed the app or disconnected: its messages go to others, in order.

        A client that is `lost` may have failed because of its messages: each of them has one attempt less.
        """
        self._consumers.detach(stream, lost=lost)

    def rebuild(self, app: App) -> None:
        """Recompute the routing after a change of the app's streams or their subscriptions."""
        self._consumers.rebuild(app)

    def resume(self, stream: Stream) -> None:
        """Resume deliveries to a stream whose sink is ready again."""
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
        """Format the apps for an alarm about the queue."""
        return "".join(app_report(self, app) for app in self.apps.values())


def recall(app: App, message: Message) -> None:
    """Take a message back from the stream of `app` that holds it."""
    for stream in app.streams:
        held = stream.unconfirmed.take(message.guid)
        if held is not None:
            release(held[1], message)


def _keys_besides(apps: Iterable[App], bits: int) -> list[bytes]:
    """Return the keys of the apps without these bits."""
    return [app.key for app in apps if not bits & app.bit]
