"""Options of a member of a consumer group."""

from __future__ import annotations

import time
from typing import NamedTuple

from formats.rocketmq.remoting.bodies.clients import SQL92, Subscription, make_subscription

__all__ = ["ConsumerOptions"]


class ConsumerOptions(NamedTuple):
    """Options of a consumer; `Session.consume` explains them."""

    topic: str
    group: str
    tags: str
    sql: str | None
    from_start: bool
    broadcast: bool
    messages_max: int
    bytes_max: int
    since_ms: int | None = None

    @property
    def subscription(self) -> Subscription:
        version = time.time_ns() // 1_000_000
        if self.sql is not None:
            return Subscription(self.topic, self.sql, SQL92, version)
        return make_subscription(self.topic, self.tags, version)
