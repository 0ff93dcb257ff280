"""Service between the slices of a busy partition: posts to another partition, and the heartbeats of its nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.bmq.core.messages import KEPT, Content
from broker.bmq.queue.purges import purge
from formats.bmq.codes import AckStatus
from formats.bmq.wire.event import EventType, iter_frames
from formats.bmq.wire.receipt import build_receipt_event
from tests.broker.bmq.member.member_bus import Members, Process, members
from tests.broker.bmq.member.test_member import Sieve
from tests.broker.bmq.rig import ACK, START_S, WRITE, guid

BUSY, OTHER = "bmq://priority/busy", "bmq://priority/other"
MANY = 200
AMOUNT = 5


def post(process: Process, uri: str, number: int) -> object:
    queue = process.node.queues[uri]
    return queue.post_one(guid(number), Content(b"x" * 8, 0, 0, False, 0))


def roll_over(process: Process) -> None:
    process.node.partitions[partition_of(process, BUSY)].roll_over()


def purge_all(process: Process) -> None:
    purge(process.node.queues[BUSY])


def awaiting(primary: Process) -> int:
    return len(primary.node.partitions[partition_of(primary, BUSY)].kept.awaiting)


def receipts(cluster: Members, primary: Process) -> Callable[[Process], None]:
    """The receipts that a follower owes the primary come at last: one for all that it has."""
    node_id = next(each for each in cluster.processes if each != primary.node_id)
    follower = cluster.processes[node_id].member.partitions[partition_of(primary, BUSY)]

    def come(process: Process) -> None:
        event = memoryview(build_receipt_event(follower.partition_id, *follower.position))
        (frame,) = iter_frames(event, 0, len(event), len(event))
        process.member.receive(node_id, event, frame)

    return come


def partition_of(process: Process, uri: str) -> int:
    key = process.node.queues[uri].key
    (number,) = [number for number, stored in process.node.partitions.items() if key in stored.records.stores]
    return number


def a_second_later(cluster: Members, process: Process) -> None:
    cluster.now.ms += 1000
    cluster.now.wall_s = START_S + (cluster.now.ms - 1_000_000) // 1000
    process.now.ms, process.now.wall_s = cluster.now.ms, cluster.now.wall_s
    process.node.tick()


@pytest.mark.parametrize("act", [roll_over, purge_all])
def test_others_are_served_between_two_slices(act: Callable[[Process], None]) -> None:
    cluster = members(partition_count=2)
    primary = cluster.leader
    client = cluster.connect(primary.node_id)
    for number, uri in enumerate((BUSY, OTHER)):
        client.open(number, uri, WRITE | ACK)
    assert partition_of(primary, BUSY) != partition_of(primary, OTHER)
    for number in range(MANY):
        post(primary, BUSY, number)
    cluster.run(2000)
    work = primary.node.work
    work.amount = work.left = AMOUNT
    act(primary)
    slices = 0
    while any(primary.node.end_step()):
        slices += 1
        assert post(primary, OTHER, 10_000 + slices) is KEPT
        wires = [
            cluster.wires[primary.node_id, other].events for other in cluster.processes if other != primary.node_id
        ]
        sent = [len(events) for events in wires]
        a_second_later(cluster, primary)
        # Each follower is sent a heartbeat: records go at the end of a step.
        assert all(len(events) > count for events, count in zip(wires, sent, strict=True))
        assert slices < 10 * MANY
    assert slices > 2
    for process in cluster.processes.values():
        process.node.work.amount = process.node.work.left = 1000
    cluster.run(3000)
    assert len(primary.node.queues[OTHER].messages) == slices
    assert len(primary.node.queues[BUSY].messages) == (MANY if act is roll_over else 0)
    assert cluster.leader is primary


@pytest.mark.parametrize("what", ["copied", "purged"])
def test_others_are_served_while_very_many_that_wait_for_copies_are_told_of(what: str) -> None:
    cluster = members(partition_count=2)
    cluster.domains["priority"] = replace(cluster.domains["priority"], strong=True)
    primary = cluster.leader
    client, other = cluster.connect(primary.node_id), cluster.connect(primary.node_id)
    client.open(1, BUSY, WRITE | ACK)
    other.open(1, "bmq://fanout/other", WRITE | ACK)
    for node_id in cluster.processes:
        if node_id != primary.node_id:
            cluster.wires[node_id, primary.node_id].events = Sieve(EventType.REPLICATION_RECEIPT)
    for number in range(MANY):
        client.put(1, guid(number), b"x")
    cluster.run()
    queue = primary.node.queues[BUSY]
    assert len(queue.awaiting) == awaiting(primary) == MANY
    come = receipts(cluster, primary)
    work = primary.node.work
    work.amount = work.left = AMOUNT
    if what == "copied":
        come(primary)
    else:
        purge(queue)
    told, slices = len(client.acks()), 0
    assert told <= AMOUNT
    while any(primary.node.end_step()):
        slices += 1
        assert other.post(1, guid(10_000 + slices), b"y") is AckStatus.SUCCESS
        more = len(client.acks())
        assert more <= AMOUNT
        told += more
        primary.now.ms += 1
        assert slices < 10 * MANY
    told += len(client.acks())
    assert slices > MANY // AMOUNT // 2
    assert told == MANY
    assert not queue.awaiting
    assert len(queue.messages) == (MANY if what == "copied" else 0)
