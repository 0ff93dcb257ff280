"""A change of primary expires nothing because of the new one's clock."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from broker.bmq.node.changes import reconfigure
from broker.bmq.queue.expiry_hold import GRACE_MS
from formats.bmq.codes import AckStatus
from tests.broker.bmq.member.member_bus import Members, members
from tests.broker.bmq.rig import ACK, WRITE, guid

QUEUE = "bmq://priority/q"
DAY_S = 86_400
TTL_S = 1000


def cluster_with(*numbers: int, behind_s: int = 0) -> Members:
    """A cluster whose primary received messages while its clock was slow by a given time."""
    cluster = members()
    cluster.off_s = {cluster.leader.node_id: -behind_s}
    cluster.run(1000)
    cluster.domains["priority"] = replace(cluster.domains["priority"], message_ttl_s=TTL_S)
    client = cluster.connect(2)
    client.open(1, QUEUE, WRITE | ACK)
    for number in numbers:
        client.put(1, guid(number), b"%d" % number)
    cluster.run()
    assert [AckStatus(ack.status) for ack in client.acks()] == [AckStatus.SUCCESS] * len(numbers)
    cluster.run(5000)
    return cluster


def fail_over(cluster: Members) -> None:
    cluster.kill(cluster.leader.node_id)
    cluster.until(lambda: any(each.member.metadata.is_active_leader for each in cluster.processes.values()))
    cluster.run(5000)


def held(cluster: Members) -> list[bytes]:
    (root,) = (queue for each in cluster.processes if (queue := cluster.queue(each, QUEUE)) and queue.is_root)
    return list(root.messages)


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each for each in caplog.messages if each.startswith("ALARM [CLOCK] Partition")]
    caplog.clear()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("off_s", [30 * DAY_S, -30 * DAY_S])
def test_a_new_primary_goes_by_the_time_that_has_passed(off_s: int, caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_with(1, 2, 3)
    cluster.off_s = {1: off_s, 2: off_s}
    cluster.run(1000)
    alarms(caplog)
    fail_over(cluster)
    assert len(held(cluster)) == 3
    (line,) = alarms(caplog)
    told = "720 h( 1 s)? ahead of" if off_s > 0 else "(720 h|719 h 59 min) behind"
    assert re.search(f"The clock of this node is {told} the former primary's", line)
    cluster.run((TTL_S - 100) * 1000)
    assert len(held(cluster)) == 3
    cluster.run(100_000)
    assert held(cluster) == []


@pytest.mark.slow
def test_a_backlog_that_is_old_expires_at_a_fail_over_without_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_with(1)
    for process in cluster.processes.values():
        process.node.queues.clear()  # nobody looks after them
    cluster.run(TTL_S * 1000)
    fail_over(cluster)
    assert held(cluster) == []
    assert alarms(caplog) == []


def start_all(cluster: Members, *, later_s: int) -> None:
    """All nodes were down for that time."""
    disks = {node_id: cluster.kill(node_id) for node_id in cluster.ids}
    cluster.off_s = {node_id: later_s + cluster.off_s.get(node_id, 0) for node_id in cluster.ids}
    for node_id, disk in disks.items():
        cluster.start(node_id, disk)
    cluster.run(10_000)


def test_a_cluster_that_was_off_for_long_says_so_before_it_expires_what_is_old(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = cluster_with(1, 2)
    start_all(cluster, later_s=DAY_S)
    (line,) = alarms(caplog)
    assert "2 of 2 messages" in line
    assert "like another node's. If the former primary's was behind, give them longer to live" in line
    assert "they expire in 5 min" in line
    cluster.run(GRACE_MS - 15_000)
    assert len(held(cluster)) == 2
    cluster.run(15_000)
    assert held(cluster) == []


@pytest.mark.slow
def test_messages_of_a_primary_with_a_slow_clock_are_held_though_all_clocks_are_right_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A cluster whose nodes all restarted, so that none has seen time pass since the last record."""
    cluster = cluster_with(1, 2, behind_s=DAY_S)
    cluster.off_s = {}
    start_all(cluster, later_s=0)
    (line,) = alarms(caplog)
    assert re.search("which is 24 h( [0-9]+ s)? ahead of the newest record, and like another node's", line)
    cluster.run(GRACE_MS - 15_000)
    assert len(held(cluster)) == 2
    # Somebody gives them longer to live than they seem to have lived.
    for process in cluster.processes.values():
        for domain in process.node.domains.values():
            reconfigure(process.node, domain, replace(domain.config, message_ttl_s=2 * DAY_S))
    cluster.run(2 * GRACE_MS)
    assert len(held(cluster)) == 2


@pytest.mark.slow
def test_a_primary_whose_clock_nobody_shares_expires_nothing(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_with(1, 2)
    cluster.off_s = {0: DAY_S, 1: DAY_S // 2, 2: DAY_S // 4}
    start_all(cluster, later_s=0)
    (line,) = alarms(caplog)
    assert "unlike all other nodes' clocks. They do not expire until it is corrected" in line
    cluster.run(400_000)
    assert len(held(cluster)) == 2
    # Operators set all of them.
    cluster.off_s = {}
    cluster.run(10_000)
    assert len(held(cluster)) == 2
    cluster.run(TTL_S * 1000)
    assert held(cluster) == []
