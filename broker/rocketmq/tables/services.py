"""The state of a broker that most of its parts share."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.rocketmq.remoting.scheduler import Scheduler
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.tables.clients import Clients
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.options import BrokerOptions
from broker.rocketmq.tables.statistics import Statistics
from broker.rocketmq.tables.topics import Topics

__all__ = ["Services"]


@dataclass(frozen=True, slots=True, eq=False)
class Services:
    """The configuration, tables, store, counters and sliced work of one broker.

    `leaving` has the deleted parent topics whose lite topics are still to be removed.
    """

    options: BrokerOptions
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients
    store: MessageStore
    statistics: Statistics
    scheduler: Scheduler = field(default_factory=Scheduler)
    leaving: set[str] = field(default_factory=set)
