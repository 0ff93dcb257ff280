"""Idle queues go, and apps come and go, through the leader and in every node's records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.bmq.core.config import DomainConfig
from broker.bmq.node.changes import reconfigure
from broker.bmq.queue.queue import Queue
from broker.bmq.relay.relay import RelayQueue
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import QueueInfo
from tests.broker.bmq.member.member_bus import MemberClient, Members, members
from tests.broker.bmq.rig import ACK, READ, WRITE, guid

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"


def expire(cluster: Members, keepalive_ms: int = 2000) -> None:
    """Let queues that nobody uses be old enough to go."""
    for process in cluster.processes.values():
        process.node.configure(replace(process.node.settings, keepalive_ms=keepalive_ms))


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


def removing(cluster: Members) -> Queue:
    """Have the leader, which is also the primary, record the removal of an idle queue; no other node has acked it."""
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    client.close(1, QUEUE, WRITE | ACK)
    old = cluster.queue(0, QUEUE)
    assert old is not None
    cluster.processes[0].node.role.take_away(old)
    return old


def test_opening_a_queue_during_its_removal_gives_the_next_one() -> None:
    cluster = members()
    old = removing(cluster)
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


def test_a_queue_stays_closed_until_its_recorded_removal_is_decided() -> None:
    cluster = members()
    old = removing(cluster)
    # The leader has recorded the removal, and no other node has. It leads again, and its ledger is the newest.
    for other in (1, 2):
        for here, there in ((0, other), (other, 0)):
            cluster.wires[here, there].events.clear()
            cluster.processes[here].member.peer_down(there)
    for other in (1, 2):
        for here, there in ((0, other), (other, 0)):
            cluster.processes[here].member.peer_up(there, cluster.wires[here, there])
    local = cluster.connect(0)
    local.open(1, QUEUE, WRITE | ACK)
    new = cluster.queue(0, QUEUE)
    assert new is not None
    assert new.key != old.key
    post(local, 1)
    late = cluster.connect(1)
    late.open(1, QUEUE, READ)
    late.configure(1)
    cluster.run(1000)
    assert late.payloads() == [b"1"]
    assert known(cluster) == [[QUEUE]] * 3
    assert cluster.faults() == []


def test_the_next_primary_erases_what_the_last_had_no_time_for() -> None:
    cluster = members()
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    client.close(1, QUEUE, WRITE | ACK)
    leader = cluster.processes[0]
    stored = leader.node.partitions[0]
    leader.node.queues.pop(QUEUE)
    info = leader.member.metadata.state.queues[QUEUE]
    leader.member.metadata.unassign(info, lambda refusal: None)
    cluster.run()
    assert known(cluster) == [[]] * 3
    assert info.key in stored.records.stores
    cluster.kill(0)
    cluster.until(lambda: any(each.member.metadata.is_active_leader for each in cluster.processes.values()))
    cluster.run(3000)
    assert all(info.key not in each.node.partitions[0].records.stores for each in cluster.processes.values())
    assert all(not each.node.queues for each in cluster.processes.values())
    assert cluster.faults() == []


def test_a_restored_queue_does_not_take_the_place_of_the_next_of_its_name() -> None:
    cluster = members(partition_count=2)
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    client.close(1, QUEUE, WRITE | ACK)
    leader = cluster.processes[0]
    queue, info = leader.node.queues.pop(QUEUE), leader.member.metadata.state.queues[QUEUE]
    leader.member.metadata.unassign(info, lambda refusal: None)
    cluster.run()
    # The former partition has another queue now, so that the next of the name goes to the other partition.
    client.open(1, "bmq://priority/other", WRITE | ACK)
    client.open(2, QUEUE, WRITE | ACK)
    new = cluster.processes[1].member.metadata.state.queues[QUEUE]
    assert (new.partition_id, new.key) != (info.partition_id, info.key)
    assert info.key in leader.node.partitions[info.partition_id].records.stores
    cluster.kill(0)
    cluster.until(lambda: any(each.member.metadata.is_active_leader for each in cluster.processes.values()))
    cluster.run(3000)
    client.put(2, guid(1), b"1")
    cluster.run(1000)
    assert [AckStatus(ack.status) for ack in client.acks()] == [AckStatus.SUCCESS]
    reader = cluster.connect(2)
    reader.open(1, QUEUE, READ)
    reader.configure(1)
    cluster.run(1000)
    assert reader.payloads() == [b"1"]
    assert all(
        info.key not in each.node.partitions[info.partition_id].records.stores for each in cluster.processes.values()
    )
    assert queue.key == info.key
    assert cluster.faults() == []


def configure(cluster: Members, config: DomainConfig) -> None:
    """The administrator has all nodes reread a domain's configuration, one after the other."""
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


def roll_out(cluster: Members, *app_ids: str) -> None:
    """All nodes get a domain's configuration with other apps, and restart one after the other."""
    cluster.domains["fanout"] = replace(cluster.domains["fanout"], app_ids=app_ids)
    for node_id in cluster.ids:
        directory = cluster.kill(node_id)
        cluster.run(3000)
        cluster.start(node_id, directory)
        cluster.run(3000)


def leader_of(cluster: Members) -> int:
    return next(each for each, process in cluster.processes.items() if process.member.metadata.is_active_leader)


def read(cluster: Members, at: int, app: str) -> list[bytes]:
    reader = cluster.connect(at)
    reader.read(1, FANOUT, app, 1)
    cluster.run(1000)
    return reader.payloads()


def test_a_new_leader_adds_the_apps_that_domains_name_and_removes_none(caplog: pytest.LogCaptureFixture) -> None:
    cluster = members()
    client = cluster.connect(1)
    client.open(1, FANOUT, WRITE | ACK)
    post(client, 1)
    roll_out(cluster, "foo", "qux")
    assert [apps(cluster, node_id) for node_id in cluster.ids] == [["bar", "baz", "foo", "qux"]] * 3
    (line, *_) = [each for each in caplog.messages if "ALARM [FANOUT_APPIDS_DIFFER] Queues have" in each]
    assert "'bar', 'baz'" in line
    assert "domain 'fanout'" in line
    assert "DOMAINS RECONFIGURE fanout to the leader" in line
    assert [read(cluster, 0, app) for app in ("foo", "bar", "qux")] == [[b"1"], [b"1"], []]
    # The operator wants it so: nobody else than the leader removes them.
    leader_id = leader_of(cluster)
    for node_id in sorted(cluster.ids, key=lambda each: each == leader_id):
        assert apps(cluster, leader_id) == ["bar", "baz", "foo", "qux"]
        node = cluster.processes[node_id].node
        domain = node.domain("fanout")
        assert domain is not None
        reconfigure(node, domain, cluster.domains["fanout"])
        cluster.run()
    assert [apps(cluster, node_id) for node_id in cluster.ids] == [["foo", "qux"]] * 3
    (root,) = (queue for each in cluster.ids if (queue := cluster.queue(each, FANOUT)) is not None and queue.is_root)
    assert (set(root.apps), set(root.messages)) == ({"foo", "qux"}, {guid(1)})
    assert cluster.faults() == []


def test_a_fail_over_to_a_node_with_an_older_configuration_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    cluster = members()
    client = cluster.connect(2)
    client.open(1, FANOUT, WRITE | ACK)
    old = cluster.domains["fanout"]
    new = replace(old, app_ids=(*old.app_ids, "qux"))
    # The leader has the new configuration; the others have not been given it yet.
    leader_id = leader_of(cluster)
    node = cluster.processes[leader_id].node
    domain = node.domain("fanout")
    assert domain is not None
    reconfigure(node, domain, new)
    cluster.run()
    post(client, 1)
    caplog.clear()
    cluster.kill(leader_id)
    cluster.until(lambda: any(each.member.metadata.is_active_leader for each in cluster.processes.values()))
    cluster.run(3000)
    (follower_id,) = {1, 2} - {leader_of(cluster)}
    assert [apps(cluster, each) for each in (1, 2)] == [["bar", "baz", "foo", "qux"]] * 2
    assert caplog.text.count("ALARM [FANOUT_APPIDS_DIFFER] Queues have the apps 'qux'") == 2
    assert read(cluster, follower_id, "qux") == [b"1"]
    assert cluster.faults() == []


def test_a_node_with_a_newer_configuration_than_the_cluster_says_so(caplog: pytest.LogCaptureFixture) -> None:
    cluster = members()
    client = cluster.connect(0)
    client.open(1, FANOUT, WRITE | ACK)
    cluster.domains["fanout"] = replace(cluster.domains["fanout"], app_ids=("bar", "baz", "foo", "qux"))
    (last_id, *_) = {1, 2} - {leader_of(cluster)}
    cluster.start(last_id, cluster.kill(last_id))
    cluster.run(3000)
    assert apps(cluster, last_id) == ["bar", "baz", "foo"]
    assert "ALARM [FANOUT_APPIDS_DIFFER] Queues lack the apps 'qux'" in caplog.text


def test_many_domains_are_compared_a_few_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    cluster = members()
    old = cluster.domains["fanout"]
    for number in range(30):
        cluster.domains[f"fanout{number}"] = replace(old, name=f"fanout{number}")
    client = cluster.connect(0)
    for number in range(30):
        client.open(number, f"bmq://fanout{number}/q", WRITE | ACK)
    for number in range(30):
        cluster.domains[f"fanout{number}"] = replace(old, name=f"fanout{number}", app_ids=("foo", "bar"))
    (last_id, *_) = {1, 2} - {leader_of(cluster)}
    cluster.start(last_id, cluster.kill(last_id))
    cluster.run(3000)
    assert caplog.text.count("ALARM [FANOUT_APPIDS_DIFFER] Queues have the apps 'baz'") == 30


def test_a_queue_that_the_ledger_has_in_another_partition_keeps_its_apps(caplog: pytest.LogCaptureFixture) -> None:
    """A ledger of a node with more partitions, or of one that lies."""
    cluster = members()
    client = cluster.connect(0)
    client.open(1, FANOUT, WRITE | ACK)
    post(client, 1)
    process = cluster.leader
    queues = process.member.metadata.state.queues
    queues[FANOUT] = replace(queues[FANOUT], partition_id=7, app_ids=())
    process.member.upkeep.activated(0)
    assert "the ledger has it in partition 7" in caplog.text
    queue = cluster.queue(process.node_id, FANOUT)
    assert queue is not None
    assert sorted(app.app_id for app in queue.apps.values()) == ["bar", "baz", "foo"]


@pytest.mark.parametrize("assigned", ["before activation", "after activation"])
@pytest.mark.parametrize("unassigned", ["before restoration", "before activation"])
def test_a_queue_that_is_not_assigned_when_its_partition_moves_waits_for_the_leader(
    unassigned: str, assigned: str
) -> None:
    cluster = members()
    client = cluster.connect(1)
    client.open(1, QUEUE, WRITE | ACK)
    process = cluster.processes[1]
    queues, ledger = process.member.queues, process.node.ledger
    number, relay, info = ledger.number, process.node.queues[QUEUE], ledger.state.queues[QUEUE]
    asked: list[Callable[[QueueInfo], None]] = []
    state = SimpleNamespace(queues={QUEUE: info})
    places = SimpleNamespace(state=state, assign_queue=lambda name, config, done: asked.append(done))
    queues._places = cast(Any, places)

    def unassign() -> None:
        state.queues.clear()
        ledger.state.queues.clear()
        if QUEUE in process.node.queues:
            queues.unassigned(cast(RelayQueue, relay))

    def assign() -> None:
        state.queues[QUEUE] = ledger.state.queues[QUEUE] = info
        for done in asked:
            done(info)

    if unassigned == "before restoration":
        unassign()
    queues.restored(info.partition_id)
    if unassigned == "before activation":
        unassign()
    if assigned == "before activation":
        assign()
    queues.activated(info.partition_id)
    if assigned == "after activation":
        assert process.node.queues[QUEUE] is relay
        assign()
    assert process.node.queues[QUEUE].is_root
    # Only the leader records assignments.
    assert ledger.number == number
