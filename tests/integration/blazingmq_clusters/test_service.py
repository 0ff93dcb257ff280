"""Three real nodes with the official client: strong messages survive whatever a minority goes through."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import blazingmq
import pytest

from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.official import Client, confirm, queue_name

STRONG = "bmq.test.persistent.priority.sc"
FANOUT = "bmq.test.persistent.fanout.sc"
SUCCESS = blazingmq.AckStatus.SUCCESS


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path) as processes:
        processes.wait_available()
        yield processes


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def all_acked(client: Client, uri: str, payloads: list[bytes]) -> None:
    assert {ack.status for ack in client.post_all(uri, payloads)} == {SUCCESS}


def others_of(cluster: ClusterProcesses, number: int) -> list[int]:
    return [other for other in cluster.nodes if other != number]


def test_a_client_may_connect_to_any_node(cluster: ClusterProcesses) -> None:
    for producer in cluster.nodes:
        for consumer in cluster.nodes:
            uri = queue_name(STRONG)
            with Client(cluster.nodes[producer].uri) as posts, Client(cluster.nodes[consumer].uri) as reads:
                posts.open(uri, write=True)
                reads.open(uri, read=True)
                all_acked(posts, uri, numbered(0, 50))
                confirm(reads.wait_for_messages(50, uri))
                assert reads.payloads(uri) == numbered(0, 50)


def test_apps_of_a_fanout_queue_consume_at_different_nodes(cluster: ClusterProcesses) -> None:
    uri = queue_name(FANOUT)
    apps = dict(zip(("foo", "bar", "baz"), cluster.nodes, strict=True))
    readers = {app: Client(cluster.nodes[number].uri) for app, number in apps.items()}
    try:
        with Client(cluster.nodes[1].uri) as posts:
            posts.open(uri, write=True)
            for app, reader in readers.items():
                reader.open(f"{uri}?id={app}", read=True)
            all_acked(posts, uri, numbered(0, 100))
        for app, reader in readers.items():
            confirm(reader.wait_for_messages(100))
            assert reader.payloads() == numbered(0, 100), app
    finally:
        for reader in readers.values():
            reader.stop()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_acked_messages_are_delivered_though_the_primary_goes(cluster: ClusterProcesses, how: str) -> None:
    leader = cluster.leader()
    here, there = others_of(cluster, leader)
    uri = queue_name(STRONG)
    with Client(cluster.nodes[here].uri) as posts, Client(cluster.nodes[there].uri) as reads:
        posts.open(uri, write=True)
        reads.open(uri, read=True)
        all_acked(posts, uri, numbered(0, 200))
        for number, payload in enumerate(numbered(200, 200)):
            posts.post(uri, payload, tag=number)
        end: Callable[[int], object] = {"kill": cluster.kill, "stop": cluster.stop}[how]
        end(leader)
        for number, payload in enumerate(numbered(400, 200), 200):
            posts.post(uri, payload, tag=number)
        posts.wait(lambda: len(posts.acks) == 600)
        assert {ack.status for _, ack in posts.acks} == {SUCCESS}
        reads.wait(lambda: set(reads.payloads(uri)) >= set(numbered(0, 600)))
        first_times = list(dict.fromkeys(reads.payloads(uri)))
        assert first_times == numbered(0, 600)
        # Neither client has noticed.
        assert not any(isinstance(event, blazingmq.session_events.ConnectionLost) for event in posts.events)


def test_a_node_whose_disk_was_wiped_gets_everything_again(cluster: ClusterProcesses) -> None:
    leader = cluster.leader()
    wiped, other = others_of(cluster, leader)
    uri = queue_name(STRONG)
    with Client(cluster.nodes[leader].uri) as posts:
        posts.open(uri, write=True)
        all_acked(posts, uri, numbered(0, 300))
    cluster.kill(wiped)
    shutil.rmtree(cluster.nodes[wiped].data_dir)
    cluster.start(wiped)
    cluster.nodes[wiped].wait_for("is available")
    # Now the copy of the wiped node has to do, with that of the leader.
    cluster.kill(other)
    with Client(cluster.nodes[leader].uri) as posts:
        posts.open(uri, write=True)
        all_acked(posts, uri, numbered(300, 100))
    cluster.kill(leader)
    cluster.start(other)
    with Client(cluster.nodes[other].uri) as reads:
        reads.open(uri, read=True)
        reads.wait_for_messages(400, uri)
        assert reads.payloads(uri) == numbered(0, 400)


def test_nothing_is_lost_when_all_nodes_are_killed(cluster: ClusterProcesses) -> None:
    uri = queue_name(STRONG)
    with Client(cluster.nodes[2].uri) as posts:
        posts.open(uri, write=True)
        all_acked(posts, uri, numbered(0, 300))
    for number in cluster.nodes:
        cluster.kill(number)
    for number in cluster.nodes:
        cluster.start(number)
    cluster.wait_available()
    with Client(cluster.nodes[3].uri) as reads:
        reads.open(uri, read=True)
        reads.wait_for_messages(300, uri)
        assert reads.payloads(uri) == numbered(0, 300)


@pytest.mark.parametrize("domain", [STRONG, "bmq.test.persistent.priority"])
def test_a_minority_acks_nothing_and_a_majority_makes_up_for_it(cluster: ClusterProcesses, domain: str) -> None:
    leader = cluster.leader()
    others = others_of(cluster, leader)
    uri = queue_name(domain)
    with Client(cluster.nodes[leader].uri) as posts:
        posts.open(uri, write=True)
        all_acked(posts, uri, numbered(0, 10))
        for number in others:
            cluster.kill(number)
            cluster.nodes[leader].wait_for(f"node {number} has disconnected")
        posts.post(uri, b"000010", tag="late")
        with pytest.raises(TimeoutError):
            posts.wait(lambda: len(posts.acks) > 10, 2)
        cluster.start(others[0])
        posts.wait(lambda: len(posts.acks) > 10)
        assert posts.acks[-1][1].status is SUCCESS


def test_a_rolling_restart_loses_nothing(cluster: ClusterProcesses) -> None:
    uri = queue_name(STRONG)
    done = 0
    for number in cluster.nodes:
        other = others_of(cluster, number)[0]
        with Client(cluster.nodes[other].uri) as posts:
            posts.open(uri, write=True)
            for payload in numbered(done, 100):
                posts.post(uri, payload)
            assert cluster.stop(number) == 0
            cluster.start(number)
            cluster.nodes[number].wait_for("is available")
            posts.wait(lambda: len(posts.acks) == 100)
            assert {ack.status for _, ack in posts.acks} == {SUCCESS}
            done += 100
    with Client(cluster.nodes[1].uri) as reads:
        reads.open(uri, read=True)
        reads.wait_for_messages(done, uri)
        assert reads.payloads(uri) == numbered(0, done)


def test_a_paused_primary_costs_nothing(cluster: ClusterProcesses) -> None:
    leader = cluster.leader()
    here = others_of(cluster, leader)[0]
    uri = queue_name(STRONG)
    with Client(cluster.nodes[here].uri) as posts:
        posts.open(uri, write=True)
        all_acked(posts, uri, numbered(0, 50))
        os.kill(cluster.nodes[leader].pid, signal.SIGSTOP)
        for payload in numbered(50, 50):
            posts.post(uri, payload, tag=payload)
        os.kill(cluster.nodes[leader].pid, signal.SIGCONT)
        posts.wait(lambda: len(posts.acks) == 100)
        assert {ack.status for _, ack in posts.acks} == {SUCCESS}
