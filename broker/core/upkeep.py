"""What is done to a queue from outside: its messages expire, its apps come and go."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from itertools import islice, takewhile

from broker.core.messages import Message
from broker.core.purges import strip
from broker.core.queue import Queue
from broker.core.reports import arrival_time
from broker.core.routing import App
from broker.core.work import Task
from formats.disk.journal import DeletionRecordFlag

__all__ = ["add_app", "expire", "remove_app"]

log = logging.getLogger("broker.queue")


def expire(queue: Queue) -> None:
    """Remove messages that are older than the domain lets them become: of many, the rest in slices."""
    if queue.is_expiring or not (queue.awaiting or queue.config.message_ttl_s is not None):
        return
    queue.is_expiring = queue.work.start(_expire(queue))


def _expire(queue: Queue) -> Task:
    """As many messages a slice as it may do; the operator hears of all of them at the end."""
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
            # Who held them has room; and what waits must not wait behind what is gone.
            for app in queue.apps.values():
                queue.deliver(app)
        queue.work.left -= len(expired)
        if not (late or expired):
            break
    queue.is_expiring = False
    if given_up:
        patience_ms = queue.config.deduplication_time_ms
        log.warning("queue '%s': %d messages found no quorum in %d ms; removed", queue.uri, given_up, patience_ms)
    if latest is not None and queue.config.message_ttl_s is not None:
        _log_expired(queue, queue.config.message_ttl_s, count, arrival_time(latest, queue.now))


def _late(queue: Queue) -> list[Message]:
    """Messages that too few nodes have, after so long that their producers have given them up as well."""
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
    oldest = islice(queue.messages.values(), queue.work.left)
    hold = queue.expiry_hold
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
    """An app of a fanout queue, from now on: those who read it already get what comes. It is recorded already."""
    bit = queue.free_bit()
    known = queue.unregistered.pop(app_id, None)
    app = known or App(app_id, key, bit)
    app.key, app.bit = key, bit
    queue.apps[app_id] = app
    queue.apps_changed()
    return app


def remove_app(queue: Queue, app: App) -> None:
    """An app is no more; those who read it stay, and get nothing. What it had is recorded as purged already."""
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
