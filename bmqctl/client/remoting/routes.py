"""The queues of a topic in a nameserver's answer, and their shares among a group's consumers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from bmqctl.client.remoting.faults import NotWritable
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.routes import MASTER_ID, TOPIC_ROUTE, Permission
from formats.schema import Buffer

__all__ = ["QUEUES_MAX", "Place", "Queue", "Route", "read_route", "share_of"]

# The largest credible number of a topic's queues.
QUEUES_MAX: Final = 1 << 16


class Queue(NamedTuple):
    """A queue of a topic, on the master of a broker name. The order of queues alternates between brokers."""

    queue_id: int
    broker_name: str
    address: str


class Route(NamedTuple):
    """The queues of a topic whose brokers have a master: the readable ones, and the writable ones.

    `has_master` is true if a broker that has the topic has a master.
    """

    readable: tuple[Queue, ...] = ()
    writable: tuple[Queue, ...] = ()
    has_master: bool = False

    @property
    def addresses(self) -> list[str]:
        return sorted({queue.address for queue in (*self.readable, *self.writable)})

    def to_write(self, topic: str) -> tuple[Queue, ...]:
        """The writable queues; none without a master. Raises `NotWritable` if the masters have none."""
        if self.has_master and not self.writable:
            raise NotWritable(topic)
        return self.writable


def read_route(topic: str, body: Buffer) -> Route:
    """Read the body of an answer. Raises `FormatError`, also for an impossible number of queues."""
    route = TOPIC_ROUTE.read(bytes(body))
    addresses = {broker.broker_name: broker.broker_addrs.get(MASTER_ID) for broker in route.broker_datas}
    most = sum(max(0, data.read_queue_nums, data.write_queue_nums) for data in route.queue_datas)
    if most > QUEUES_MAX:
        raise FormatError("TopicRouteData.queueDatas", 0, f"topic {topic} has {most} queues, more than {QUEUES_MAX}")
    readable: list[Queue] = []
    writable: list[Queue] = []
    for data in route.queue_datas:
        address = addresses.get(data.broker_name)
        if not address:
            continue
        for found, bit, count in (
            (readable, Permission.READ, data.read_queue_nums),
            (writable, Permission.WRITE, data.write_queue_nums),
        ):
            if data.perm & bit:
                found += [Queue(number, data.broker_name, address) for number in range(count)]
    has_master = any(addresses.get(data.broker_name) for data in route.queue_datas)
    return Route(tuple(sorted(readable)), tuple(sorted(writable)), has_master)


class Place(NamedTuple):
    """A queue of a topic, wherever its broker's master is. Shares follow the order of places."""

    topic: str
    broker_name: str
    queue_id: int


def share_of(client_id: str, client_ids: Iterable[str], places: Sequence[Place]) -> list[Place] | None:
    """The queues of one consumer; None if it is not among the consumers.

    They are neighbours, and no two consumers' numbers of queues differ by more than one. Each consumer computes the
    shares from the same two sorted lists, as Apache's clients do by default (source: AllocateMessageQueueAveragely);
    both can share a group.
    """
    members = sorted(set(client_ids))
    if client_id not in members:
        return None
    at = members.index(client_id)
    each, more = divmod(len(places), len(members))
    begin = at * each + min(at, more)
    return sorted(places)[begin : begin + each + (at < more)]
