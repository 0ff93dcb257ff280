# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The root of a queue: stores posted messages, and delivers them once enough nodes have them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.messages import (
    DUPLICATE,
    KEPT,
    PENDING,
    Buffer,
    Full,
    Held,
    Log,
    Message,
    MessagePoster,
    Posted,
    content_of,
)
from broker.bmq.queue.capacity import Usage
from broker.bmq.queue.packing import pack_restored
from broker.bmq.queue.queue import Guid, HeldPost, Queue
from broker.bmq.queue.queue_ports import Surroundings
from broker.bmq.queue.rejects import Rejects
from broker.bmq.queue.routing import App
from broker.bmq.queue.unknown_confirms import UnknownConfirms
from broker.bmq.store.chunked import FULL
from broker.common.faults import Inconsistent
from formats.bmq.codes import AckStatus

__all__ = ["COMPARED_AFTER_MS", "RootQueue"]

log: Final = logging.getLogger("broker.queue")

# A payload that has waited for replicas for longer is compared with its checksum before delivery.
COMPARED_AFTER_MS: Final = 100

# Memory of a held post besides its bytes.
HELD_SIZE: Final = 512


class RootQueue(Queue):
    """A queue whose messages are stored at this node.

    `unknown_confirms` are those of messages that are not here; None before the first.
    """

    __slots__ = (
        "_awaits_copies",
        "_has_app_subscriptions",
        "_on_copied",
        "unknown_confirms",
    )

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
        self.unknown_confirms: UnknownConfirms | None = None
        self._on_copied = self._all_copied
        super().__init__(uri, key, config, app_keys, log, domain_usage, around, Rejects(self))

    def configure_domain(self, config: DomainConfig) -> None:
        super().configure_domain(config)
        self.judge_copies()

    @property
    def is_idle(self) -> bool:
        return not (self.messages or self.held or self.is_open)

    def judge_copies(self) -> None:
        self._awaits_copies = (self.config.strong or self.log.is_cut_off) and self.log.wants_copies

    def apps_changed(self) -> None:
        super().apps_changed()
        self._has_app_subscriptions = any(app.subscription is not None for app in self.apps.values())

    # -- messages in

    def post(
        self,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer = b"",
        waiting: tuple[MessagePoster, int, int] | None = None,
    ) -> Posted | None:
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

    def _deliver_new(self, message: Message, data: Buffer) -> None:
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
                self.offer(app, message, data)

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
        # A lookup in the history has no effect, and may be repeated.
        return self.history.are_new(guids) or (len(set(guids)) == count and all(map(self.history.is_new, guids)))

    def _repeated(self, guid: Guid, waiting: tuple[MessagePoster, int, int] | None) -> Posted:
        posters = self.awaiting.get(guid)
        if posters is None:
            return DUPLICATE
        if waiting is not None:
            posters.append(waiting)
        return PENDING

    def acknowledge_later(self, guid: Guid, poster: MessagePoster, queue_id: int, correlation_id: int) -> None:
        posters = self.awaiting.get(guid)
        if posters is None:
            posters = self.held[guid].posters
        posters.append((poster, queue_id, correlation_id))

    def _select_apps(self, message: Message, data: Buffer) -> int:
        """Restrict a message to the apps that its domain subscriptions and confirms leave; return their bits."""
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
        """Restore a message from the log: in order, before any consumer comes."""
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

    # -- messages that wait for the log, or for replicas

    def _hold(
        self, message: Message, data: Buffer, options: Buffer, waiting: tuple[MessagePoster, int, int] | None
    ) -> Posted:
        guid = message.guid
        if guid not in self.held:
            kept = content_of(message, bytes(data), bytes(options))
            self.log.when_open(lambda: self._post_held(guid), len(kept.data) + len(kept.options) + HELD_SIZE)
            self.held[guid] = HeldPost(kept, [])
        if waiting is not None:
            self.held[guid].posters.append(waiting)
        return PENDING

    def _post_held(self, guid: Guid) -> None:
        held = self.held.pop(guid, None)
        if held is None:
            return  # dropped when the queue moved to another node
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
        if len(messages) == 1 or not self._copied_at_once(messages):
            for message in messages:
                self._copied(message)

    def _copied_at_once(self, messages: Sequence[Message]) -> bool:
        """Do `_copied` for messages that one consumer gets now; otherwise return False without effect."""
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
            self.offer(app, message, data)

    def on_unknown(self, app: App, guid: Guid) -> None:
        if self.unknown_confirms is None:
            self.unknown_confirms = UnknownConfirms(self.around.kept_confirms)
        self.unknown_confirms.add(guid, app.app_id)


def _keys_besides(apps: Iterable[App], bits: int) -> list[bytes]:
    return [app.key for app in apps if not bits & app.bit]
