# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Upkeep of a queue: expiry of messages, addition and removal of apps."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Final

from broker.bmq.core.messages import Message
from broker.bmq.core.work import Task
from broker.bmq.queue.purges import strip
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.reports import arrival_time
from broker.bmq.queue.routing import App
from formats.bmq.disk.journal import DeletionRecordFlag

__all__ = ["add_app", "expire", "remove_app"]

log: Final = logging.getLogger("broker.queue")


def expire(queue: Queue) -> None:
    if queue.upkeep.is_expiring or not (queue.awaiting or queue.config.message_ttl_s is not None):
        return
    queue.upkeep.is_expiring = queue.work.start(_expire(queue))


def _expire(queue: Queue) -> Task:
    given_up = count = 0
    latest: Message | None = None
    while True:
        while not queue.work.may_go_on():
            yield
        late = _late(queue)
        given_up += len(late)
        for message in late:
            queue.drop(message, DeletionRecordFlag.NO_SC_QUORUM)
        queue.work.left -= len(late)
        expired = _expired(queue)
        count += len(expired)
        for message in expired:
            queue.drop(message, DeletionRecordFlag.TTL_EXPIRATION)
            latest = message
        queue.statistics.expired += len(expired)
        if expired:
            # Removed messages leave their consumers room for waiting ones.
            for app in queue.apps.values():
                queue.deliver(app)
        queue.work.left -= len(expired)
        if not (late or expired):
            break
    queue.upkeep.is_expiring = False
    if given_up:
        patience_ms = queue.config.deduplication_time_ms
        log.warning("queue '%s': removed %d messages that reached no quorum in %d ms", queue.uri, given_up, patience_ms)
    if latest is not None and queue.config.message_ttl_s is not None:
        _log_expired(queue, queue.config.message_ttl_s, count, arrival_time(latest, queue.now))


def _late(queue: Queue) -> list[Message]:
    """Return messages that too few nodes have had for so long that their producers have given them up."""
    patience_ms = queue.config.deduplication_time_ms
    if not (patience_ms and queue.awaiting):
        return []
    before_ms = queue.now.ms - patience_ms
    waiting = map(queue.messages.__getitem__, islice(queue.awaiting, queue.work.left))
    return list(takewhile(lambda message: message.arrived_ms < before_ms, waiting))


def _expired(queue: Queue) -> list[Message]:
    ttl_s = queue.config.message_ttl_s
    if ttl_s is None:
        return []
    before_ms = queue.now.ms - ttl_s * 1000
    first_ms = queue.messages.first_arrived_ms
    if first_ms is None or first_ms >= before_ms:
        return []
    oldest = islice(queue.messages.values(), queue.work.left)
    hold = queue.upkeep.expiry_hold
    if hold is None:
        return list(takewhile(lambda message: message.arrived_ms < before_ms, oldest))
    if hold.holds(ttl_s):
        return []
    since_ms, younger_ms = hold.since_ms, hold.younger_ms
    return list(
        takewhile(
            lambda message: message.arrived_ms + (younger_ms if message.arrived_ms <= since_ms else 0) < before_ms,
            oldest,
        )
    )


def add_app(queue: Queue, app_id: str, key: bytes) -> App:
    """Add an app to a fanout queue, after its record: existing readers receive new messages."""
    bit = queue.free_bit()
    known = queue.unregistered.pop(app_id, None)
    app = known or App(app_id, key, bit)
    app.key, app.bit = key, bit
    queue.apps[app_id] = app
    queue.apps_changed()
    return app


def remove_app(queue: Queue, app: App) -> None:
    """Remove an app, after its record and purge: its readers stay, and receive nothing."""
    strip(queue, app)
    del queue.apps[app.app_id]
    queue.consumption.forget(app)
    app.key, app.bit = b"", 0
    if app.streams:
        queue.unregistered[app.app_id] = app
    queue.apps_changed()


def _log_expired(queue: Queue, ttl_s: int, count: int, latest: datetime) -> None:
    log.info(
        "For storage for queue [%s] and queueKey [%s] configured with TTL value of [%d] seconds, garbage-collected "
        "[%d] messages due to TTL expiration. Timestamp (UTC) of the latest encountered message: %s (Epoch: %d). "
        "Current time (UTC): %s (Epoch: %d). Num messages remaining in the storage: %d. Storage type: %s",
        queue.uri,
        queue.key.hex().upper(),
        ttl_s,
        count,
        f"{latest:%d%b%Y_%H:%M:%S}".upper(),
        int(latest.timestamp()),
        f"{datetime.fromtimestamp(queue.now.wall_s, UTC):%d%b%Y_%H:%M:%S}".upper(),
        queue.now.wall_s,
        len(queue.messages),
        "persistent." if queue.config.persistent else "in-memory.",
    )
