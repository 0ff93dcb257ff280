"""Idle queues go, and apps come and go, through the leader and in every node's records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.core.changes import reconfigure
from broker.core.config import DomainConfig
from formats.codes import AckStatus
from tests.broker.cluster.member_bus import MemberClient, Members, members
from tests.broker.rig import ACK, READ, WRITE, guid

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"


def expire(cluster: Members, keepalive_ms: int = 2000) -> None:
    """Let queues that nobody uses be old enough to go."""
    for process in cluster.processes.values():
        process.node.keepalive_ms = keepalive_ms


def known(cluster: Members) -> list[list[str]]:
    return [list(process.member.metadata.state.queues) for process in cluster.processes.values()]


def apps(cluster: Members, node_id: int) -> list[str]:
    return sorted(app.app_id for app in cluster.processes[node_id].member.metadata.state.queues[FANOUT].app_ids)


def post(client: MemberClient, number: int) -> None:
    client.put(1, guid(number), b"%d" % number)
    client.members.run()
    assert [AckStatus(ack.status) for ack in client.acks()] == [AckStatus.SUCCESS]


@pytest.mark.parametrize("at", [0, 1])
def test_an_idle_queue_goes_everywhere(at: int) -> None:
    cluster = members()
    expire(cluster)
    client = cluster.connect(at)
    client.open(1, QUEUE, WRITE | ACK)
    assert known(cluster) == [[QUEUE]] * 3
    cluster.run(5000)
    assert known(cluster) == [[QUEUE]] * 3
    client.close(1, QUEUE, WRITE | ACK)
    cluster.run(5000)
    assert known(cluster) == [[]] * 3
    assert [cluster.queue(node_id, QUEUE) for node_id in cluster.ids] == [None] * 3
    assert cluster.faults() == []
    # It comes back as another.
    client.open(1, QUEUE, WRITE | ACK)
    post(client, 1)
    assert known(cluster) == [[QUEUE]] * 3
    assert cluster.faults() == []


def test_a_queue_with_messages_stays() -> None:
    cluster = members()
    expire(cluster)
    client = cluster.connect(2)
    client.open(1, QUEUE, WRITE | ACK)
    post(client, 1)
    client.close(1, QUEUE, WRITE | ACK)
    cluster.run(5000)
    assert known(cluster) == [[QUEUE]] * 3


def test_who_opens_a_queue_that_is_going_gets_the_next() -> None:
    cluster = members()
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    client.close(1, QUEUE, WRITE | ACK)
    old = cluster.queue(0, QUEUE)
    assert old is not None
    cluster.processes[0].node.take_away(old)
    # The leader has advised it; nobody has acked yet.
    late, here = cluster.connect(1), cluster.connect(0)
    late.open(1, QUEUE, READ)
    late.configure(1)
    here.open(1, QUEUE, WRITE | ACK)
    new = cluster.queue(0, QUEUE)
    assert new is not None
    assert new.key != old.key
    post(here, 1)
    cluster.run(1000)
    assert late.payloads() == [b"1"]
    assert cluster.faults() == []


def test_the_next_primary_erases_what_the_last_had_no_time_for() -> None:
    cluster = members()
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    client.close(1, QUEUE, WRITE | ACK)
    leader = cluster.processes[0]
    shard = leader.node.shards[0]
    leader.node.queues.pop(QUEUE)
    info = leader.member.metadata.state.queues[QUEUE]
    leader.member.metadata.unassign(info, lambda refusal: None)
    cluster.run()
    assert known(cluster) == [[]] * 3
    assert info.key in shard.stores
    cluster.kill(0)
    cluster.until(lambda: any(each.member.metadata.is_active_leader for each in cluster.processes.values()))
    cluster.run(3000)
    assert all(info.key not in each.node.shards[0].stores for each in cluster.processes.values())
    assert all(not each.node.queues for each in cluster.processes.values())
    assert cluster.faults() == []


def configure(cluster: Members, config: DomainConfig) -> None:
    """The administrator has all nodes read a domain's configuration anew, one after the other."""
    cluster.domains[config.name] = config
    for process in cluster.processes.values():
        domain = process.node.domain(config.name)
        assert domain is not None
        reconfigure(process.node, domain, config)
        cluster.run()


@pytest.mark.parametrize("at", [0, 1])
def test_apps_come_and_go(at: int) -> None:
    cluster = members()
    client = cluster.connect(at)
    client.open(1, FANOUT, WRITE | ACK)
    post(client, 1)
    configure(cluster, replace(cluster.domains["fanout"], app_ids=("bar", "qux")))
    assert [apps(cluster, node_id) for node_id in cluster.ids] == [["bar", "qux"]] * 3
    post(client, 2)
    readers = [cluster.connect(node_id) for node_id in (0, 1)]
    readers[0].read(1, FANOUT, "bar", 1)
    readers[1].read(1, FANOUT, "qux", 1)
    cluster.run(1000)
    assert [reader.payloads() for reader in readers] == [[b"1", b"2"], [b"2"]]
    assert cluster.faults() == []


def test_a_new_leader_gives_queues_the_apps_that_their_domains_name() -> None:
    cluster = members()
    client = cluster.connect(1)
    client.open(1, FANOUT, WRITE | ACK)
    post(client, 1)
    cluster.domains["fanout"] = replace(cluster.domains["fanout"], app_ids=("foo", "qux"))
    for node_id in cluster.ids:
        directory = cluster.kill(node_id)
        cluster.run(3000)
        cluster.start(node_id, directory)
        cluster.run(3000)
    assert [apps(cluster, node_id) for node_id in cluster.ids] == [["foo", "qux"]] * 3
    reader = cluster.connect(0)
    reader.read(1, FANOUT, "foo", 1)
    cluster.run(1000)
    assert reader.payloads() == [b"1"]
    assert cluster.faults() == []
