"""The positions of the broker's own groups, which read what it notes in its own topics."""

from __future__ import annotations

from collections.abc import Iterator

from broker.rocketmq.consuming.pop.revive_log import REVIVE_GROUP
from broker.rocketmq.tables import names
from broker.rocketmq.tables.services import Services
from formats.rocketmq.topic_names import TRANSACTION_GROUP

__all__ = ["set_back"]


def set_back(services: Services) -> bool:
    """Set positions after the end of a queue back to it; return whether there were any.

    After a loss of power, a position may count messages that no longer exist. New messages reuse their offsets.
    """
    store, offsets = services.store, services.offsets
    found = False
    for topic, group, queue_id, processed in _positions(services):
        offset, end = offsets.get(topic, group, queue_id), store.end(topic, queue_id) - processed
        if offset is not None and offset > end:
            offsets.commit_own(topic, group, queue_id, end)
            found = True
    return found


def _positions(services: Services) -> Iterator[tuple[str, str, int, int]]:
    """Yield topic, group and queue of each position, and by how many processed messages it is too low: 0 or 1."""
    yield names.HALF_TOPIC, TRANSACTION_GROUP, 0, 0
    yield names.OP_TOPIC, TRANSACTION_GROUP, 0, 0
    for queue_id in range(services.options.revive_queues):
        yield names.revive_topic(services.options.cluster), REVIVE_GROUP, queue_id, 1
