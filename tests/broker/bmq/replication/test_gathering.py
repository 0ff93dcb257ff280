"""Confirms and deletions wait briefly for a message to go with; nothing else does, and they do not wait for long."""

from __future__ import annotations

import pytest

from broker.bmq.replication.replication import GATHERED_BYTES_MAX, GATHERED_MS_MAX
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import EventType
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from tests.broker.bmq.replication.partition_bus import Bus, Node

POSTED = range(1, 701)
STORAGE = EventType.STORAGE


@pytest.fixture
def primary() -> Node:
    bus = Bus(limits=PartitionLimits(journal=1 << 20, data=1 << 20, qlist=1 << 16))
    node = bus.assign(0)
    bus.settle()
    node.post(*POSTED)
    bus.settle()
    return node


def sent(node: Node) -> list[bytes]:
    """Return the records on the way to one of the replicas, an event each."""
    return [event for event in node.bus.links[0, 1] if event[4] & 0x3F == STORAGE]


def test_deletions_go_with_the_next_message(primary: Node) -> None:
    partition = primary.partition
    primary.remove(1)
    partition.flush(gathers=True)
    assert not sent(primary)
    primary.post(1000)
    partition.flush(gathers=True)
    assert len(sent(primary)) == 1
    primary.bus.settle()
    primary.bus.check_equal()


def test_deletions_go_after_a_time_without_messages(primary: Node) -> None:
    primary.remove(1)
    primary.partition.flush(gathers=True)
    for number in range(GATHERED_MS_MAX):
        primary.remove(2 + number)
        primary.bus.now.ms += 1
        assert not sent(primary)
        primary.partition.flush(gathers=True)
    assert len(sent(primary)) == 1
    # Later records have as much time.
    primary.remove(100)
    primary.partition.flush(gathers=True)
    assert len(sent(primary)) == 1


def test_many_deletions_do_not_wait(primary: Node) -> None:
    count = GATHERED_BYTES_MAX // JOURNAL_RECORD_SIZE
    primary.remove(*range(1, count))
    primary.partition.flush(gathers=True)
    assert not sent(primary)
    primary.remove(count)
    primary.partition.flush(gathers=True)
    assert len(sent(primary)) == 1


def test_a_sync_point_does_not_wait(primary: Node) -> None:
    primary.remove(1)
    primary.stored.sync()
    primary.partition.flush(gathers=True)
    assert len(sent(primary)) == 1


def test_deletions_go_before_a_rollover(primary: Node) -> None:
    primary.remove(1)
    primary.partition.flush(gathers=True)
    primary.stored.roll_over()
    primary.bus.settle()
    assert not primary.partition.gathers
    primary.bus.check_equal()


def test_deletions_go_before_the_lease_ends(primary: Node) -> None:
    primary.remove(1)
    primary.partition.flush(gathers=True)
    primary.bus.assign(1)
    assert sent(primary)
    primary.bus.settle()
    primary.bus.check_equal()
