"""What is done to a queue's messages from outside: they expire, and are purged."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from broker.core.messages import Message
from broker.core.queue import Queue
from broker.core.reports import arrival_time
from formats.disk.journal import DeletionRecordFlag

__all__ = ["expire"]

log = logging.getLogger("broker.queue")

# So many messages expire in one step, that others need not wait long (mqbblp::LocalQueue, 1000 in a finer rhythm).
EXPIRE_BATCH = 5000


def expire(queue: Queue) -> int:
    """Remove messages that are older than the domain lets them become, as many as go into one step; their number."""
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
    if expired:
        _log_expired(queue, ttl_s, len(expired), arrival_time(expired[-1], queue.now))
    return len(expired)


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
