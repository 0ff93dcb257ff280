"""The messages of a topic's queues, read by offset: no group gets or commits anything."""

from __future__ import annotations

from typing import Final

from bmqctl.client.arguments import INT_MAX, LONG_MAX, check_whole
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.faults import FAULTS, words_of
from bmqctl.client.remoting.routes import Queue
from bmqctl.client.rocketmq.cluster import Cluster
from bmqctl.client.rocketmq.errors import RequestRefused
from bmqctl.client.rocketmq.message import Content

__all__ = ["StoredQueue", "stored_queues"]

# Brokers require a name in each pull.
_GROUP: Final = "bmqctl-browse"
_PULLED_MAX: Final = 32
# A broker answers immediately for offsets that it has, and redirects from deleted ones.
_EMPTY_MAX: Final = 3


class StoredQueue:
    """A queue of a topic, whose messages were [`first`, `end`) when it was requested.

    Made by `Session.stored_queues`.
    """

    def __init__(self, cluster: Cluster, topic: str, queue: Queue, first: int, end: int) -> None:
        self.topic = topic
        self.broker = queue.broker_name
        self.queue_id = queue.queue_id
        self.first = first
        self.end = end
        self._cluster = cluster
        self._address = queue.address

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.broker} of topic {self.topic}"

    def __repr__(self) -> str:
        return f"<StoredQueue {self}: {self.first} to {self.end}>"

    async def read(self, offset: int, count_max: int = 32) -> list[Content]:
        """Read at most `count_max` messages from an offset on, and none from `end` on.

        Deleted messages are left out. Raises `RequestRefused` if the broker does not answer, or refuses.
        """
        check_whole("offset", offset, 0, LONG_MAX)
        check_whole("count_max", count_max, 1, INT_MAX)
        try:
            puller = await _puller(self._cluster, self._address, self.topic, self.queue_id)
            puller.offset = max(offset, self.first)
            found: list[Content] = []
            empty = 0
            while puller.offset < self.end and len(found) < count_max and empty < _EMPTY_MAX:
                records = await puller.pull_records(min(_PULLED_MAX, count_max - len(found)))
                empty = 0 if records else empty + 1
                found += [
                    Content(record, self.topic, self.broker) for record in records if record.queue_offset < self.end
                ]
            return found[:count_max]
        except FAULTS as fault:
            raise RequestRefused(f"{self}: {words_of(fault)}") from None


async def stored_queues(cluster: Cluster, topic: str) -> list[StoredQueue]:
    """Ask the brokers for the readable queues of a topic. Raises `RequestRefused`."""
    try:
        route = await cluster.route(topic)
        found = []
        for queue in route.readable:
            puller = await _puller(cluster, queue.address, topic, queue.queue_id)
            await puller.seek_end()
            end = puller.offset
            await puller.seek_begin()
            found.append(StoredQueue(cluster, topic, queue, min(puller.offset, end), end))
    except FAULTS as fault:
        raise RequestRefused(f"topic {topic} at {cluster}: {words_of(fault)}") from None
    return sorted(found, key=lambda each: (each.broker, each.queue_id))


async def _puller(cluster: Cluster, address: str, topic: str, queue_id: int) -> QueuePuller:
    return QueuePuller(await cluster.link_to(address), _GROUP, topic, queue_id, cluster.timeout_s)
