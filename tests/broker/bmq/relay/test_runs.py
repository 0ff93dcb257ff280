"""Runs of 1 to n messages at a relay, against a model that takes them one by one."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.relay.relay import RelayQueue
from formats.bmq.codes import AckStatus
from formats.bmq.wire.ack import build_ack_event
from formats.bmq.wire.event import EventType, build_event
from formats.bmq.wire.put import append_put
from tests.broker.bmq.proxy.tree import Tree
from tests.broker.bmq.rig import ACK, WRITE, guid

URIS = ("bmq://priority/a", "bmq://priority/b")
STATUSES = (0, 0, 0, int(AckStatus.UNKNOWN), int(AckStatus.LIMIT_BYTES))


@pytest.mark.parametrize("seed", range(20))
def test_each_ack_goes_to_its_poster_in_order(seed: int) -> None:
    rng = random.Random(seed)
    tree = Tree({"priority": DomainConfig("priority", Mode.PRIORITY)})
    proxy = tree.proxy("proxy")
    link = tree.join(proxy, tree.root().node)
    producers = [tree.client(proxy.node) for _ in range(2)]
    for producer in producers:
        for queue_id, uri in enumerate(URIS):
            producer.open(queue_id, uri, WRITE | ACK)
    link.up_blocked = link.blocked = True
    relays = [queue for queue in proxy.node.queues.values() if isinstance(queue, RelayQueue)]
    posted: list[tuple[int, int, bytes]] = []  # the number of the producer, the queue's, and the GUID
    while len(posted) < 60:
        number, queue_id, body = rng.randrange(2), rng.randrange(2), bytearray()
        for _ in range(rng.choice((1, 1, 2, 5, 20))):
            posted.append((number, queue_id, guid(len(posted))))
            append_put(body, queue_id, posted[-1][2], b"x", crc32c(b"x"))
        producers[number].send(build_event(EventType.PUT, bytes(body)))
    for queue_id, relay in enumerate(relays):
        assert list(relay.unacknowledged) == [each for _, of_queue, each in posted if of_queue == queue_id]
        assert relay.posts.room.messages == len(posted)
    acks = [(rng.choice(STATUSES), *each) for each in posted]
    if seed % 2:
        rng.shuffle(acks)
    at = 0
    while at < len(acks):
        some = acks[at : at + rng.choice((1, 1, 2, 7, 30))]
        at += len(some)
        event = build_ack_event([(status, 0, each, relays[queue_id].queue_id) for status, _, queue_id, each in some])
        assert link.lower.receive(memoryview(event)) == len(event)
    for number, producer in enumerate(producers):
        wanted = [(queue_id, each, status) for status, to, queue_id, each in acks if to == number]
        assert [(ack.queue_id, ack.guid, ack.status) for ack in producer.acks()] == wanted
    for queue_id, relay in enumerate(relays):
        good = [status == 0 for status, _, of_queue, _ in acks if of_queue == queue_id]
        assert (relay.statistics.acks, relay.statistics.nacks) == (sum(good), len(good) - sum(good))
        assert not relay.unacknowledged
        assert relay.posts.room.messages == relay.posts.room.bytes == 0
