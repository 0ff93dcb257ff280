"""What is done to a queue from outside: its messages expire or are purged, its apps come and go."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from itertools import islice

from broker.core.messages import Message
from broker.core.queue import Queue, recall
from broker.core.reports import arrival_time
from broker.core.routing import App
from formats.disk.journal import DeletionRecordFlag

__all__ = ["add_app", "expire", "purge", "purge_app", "remove_app"]

log = logging.getLogger("broker.queue")

# So many messages expire in one step, that others need not wait long (mqbblp::LocalQueue, 1000 in a finer rhythm).
EXPIRE_BATCH = 5000


def expire(queue: Queue) -> int:
    """Remove messages that are older than the domain lets them become, as many as go into one step; their number."""
    _give_up(queue)
    ttl_s = queue.config.message_ttl_s
    if ttl_s is None:
        return 0
    before_ms = queue.now.ms - ttl_s * 1000
    expired: list[Message] = []
    for message in queue.messages.values():
        if message.arrived_ms >= before_ms or len(expired) == EXPIRE_BATCH:
            break
        expired.append(message)
    for message in expired:
        queue.drop(message, DeletionRecordFlag.TTL_EXPIRATION)
    queue.statistics.expired += len(expired)
    if expired:
        # Who held them has room; and what waits must not wait behind what is gone.
        for app in queue.apps.values():
            queue.deliver(app)
        _log_expired(queue, ttl_s, len(expired), arrival_time(expired[-1], queue.now))
    return len(expired)


def _give_up(queue: Queue) -> None:
    """Remove messages that too few nodes have, after so long that their producers have given them up as well."""
    patience_ms = queue.config.deduplication_time_ms
    if not patience_ms:
        return
    late = [
        message
        for message in map(queue.messages.__getitem__, islice(queue.awaiting, EXPIRE_BATCH))
        if queue.now.ms - message.arrived_ms > patience_ms
    ]
    for message in late:
        queue.drop(message, DeletionRecordFlag.NO_SC_QUORUM)
    if late:
        log.warning("queue '%s': %d messages found no quorum in %d ms; removed", queue.uri, len(late), patience_ms)


def purge(queue: Queue) -> tuple[int, int]:
    """Remove all messages; how many, and their bytes.

    Those that were never acknowledged go one by one, so that their records say so; the others with one record. `Full`,
    none of these removed, if that cannot be recorded.
    """
    count, size = len(queue.messages), queue.bytes
    for message in [queue.messages[guid] for guid in queue.awaiting]:
        queue.drop(message, DeletionRecordFlag.NO_SC_QUORUM)
    messages = list(queue.messages.values())
    if messages:
        queue.log.purge()
    for message in messages:
        queue.log.release(message.outstanding.bit_count())
        queue.forget(message)
    for app in queue.apps.values():
        app.clear()
    return count, size


def purge_app(queue: Queue, app: App) -> tuple[int, int]:
    """Remove all that one app has not confirmed; how many messages, and their bytes. `Full` as in `purge`."""
    wanted = [message for message in queue.messages.values() if message.outstanding & app.bit]
    if wanted:
        queue.log.purge(app.key, wanted[0])
        _take_from(queue, app, wanted)
    return len(wanted), sum(message.size for message in wanted)


def _take_from(queue: Queue, app: App, wanted: list[Message]) -> None:
    """An app is done with messages, which a purge has recorded; those that nobody else wants are removed."""
    for message in wanted:
        recall(app, message)
        if message.outstanding == app.bit:
            queue.record_removal(message)
            app.forget(message)
            queue.gone(message)
        else:
            queue.log.release(1)
            app.forget(message)
    app.clear()


def add_app(queue: Queue, app_id: str, key: bytes) -> App:
    """An app of a fanout queue, from now on: those who read it already get what comes. It is recorded already."""
    taken = 0
    for app in queue.apps.values():
        taken |= app.bit
    bit = ~taken & (taken + 1)
    known = queue.unregistered.pop(app_id, None)
    app = known or App(app_id, key, bit)
    app.key, app.bit = key, bit
    queue.apps[app_id] = app
    queue.apps_changed()
    return app


def remove_app(queue: Queue, app: App) -> None:
    """An app is no more; those who read it stay, and get nothing. What it had is recorded as purged already."""
    _take_from(queue, app, [message for message in queue.messages.values() if message.outstanding & app.bit])
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
