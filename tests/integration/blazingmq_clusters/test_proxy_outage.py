"""A proxy bridges outages: while all brokers upstream are away its clients stay connected, and nothing gets lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import blazingmq
import pytest
from blazingmq.session_events import ConnectionLost, SessionEvent

from bmqctl.testing import NodeProcess, ProxyProcess
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.official import Client, Connect, Delivered, confirm, queue_name
from tests.waiting import eventually

SUCCESS = blazingmq.AckStatus.SUCCESS
STRONG = "bmq.test.persistent.priority.sc"
EVENTUAL = "bmq.test.persistent.priority"
GAP_S = 0.002


class Traffic:
    """A producer and a consumer that never stop: posts by the clock, confirms of all that comes."""

    def __init__(self, producer: Client, consumer: Client, uri: str) -> None:
        self.uri = uri
        self.posted = 0
        self._producer, self._consumer = producer, consumer
        self._confirmed = 0
        self._enough = threading.Event()
        producer.open(uri, write=True)
        consumer.open(uri, read=True)
        self._threads = [threading.Thread(target=each) for each in (self._post, self._confirm)]

    def _post(self) -> None:
        while not self._enough.wait(GAP_S):
            self._producer.post(self.uri, str(self.posted).encode())
            self.posted += 1

    def _confirm(self) -> None:
        while not self._enough.wait(GAP_S):
            self._confirm_fresh()

    def _confirm_fresh(self) -> None:
        fresh: list[Delivered] = self._consumer.delivered[self._confirmed :]
        confirm(fresh)
        self._confirmed += len(fresh)

    def goes_on(self, count: int = 50) -> None:
        """Check that further posts are acknowledged and delivered."""
        goal = self.posted + count
        self._consumer.wait(lambda: len(self._consumer.delivered) >= goal, 30)

    def post_while_nobody_answers(self, count: int = 200) -> None:
        goal = self.posted + count
        eventually(lambda: self.posted >= goal)

    def finish(self) -> None:
        """Check that every message was acknowledged and delivered once, and that no client lost its connection."""
        self._enough.set()
        for thread in self._threads:
            thread.join()
        self._producer.wait(lambda: len(self._producer.acks) >= self.posted, 30)
        self._consumer.wait(lambda: len(self._consumer.delivered) >= self.posted, 30)
        self._confirm_fresh()
        assert {ack.status for _, ack in self._producer.acks} == {SUCCESS}
        # Messages in flight when a broker went may come after newer ones: the broker's consumers held them.
        assert sorted(map(int, self._consumer.payloads(self.uri))) == list(range(self.posted))
        for client in (self._producer, self._consumer):
            assert not lost(client.events)

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *fault: object) -> None:
        if kind is None:
            self.finish()
        self._enough.set()


def lost(events: list[SessionEvent]) -> list[SessionEvent]:
    return [event for event in events if isinstance(event, ConnectionLost)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path / "cluster") as processes:
        processes.wait_available()
        yield processes


def addresses(cluster: ClusterProcesses) -> list[str]:
    return [node.address for node in cluster.nodes.values()]


def test_the_whole_cluster_is_killed_and_comes_back(
    cluster: ClusterProcesses, tmp_path: Path, connect: Connect
) -> None:
    with (
        ProxyProcess(tmp_path / "near", addresses(cluster)) as near,
        ProxyProcess(tmp_path / "far", [near.address]) as far,
    ):
        near.wait_available()
        far.wait_available()
        with Traffic(connect(far), connect(near), queue_name(STRONG)) as traffic:
            traffic.goes_on()
            for number in cluster.nodes:
                cluster.kill(number)
            traffic.post_while_nobody_answers()
            for number in cluster.nodes:
                cluster.start(number)
            traffic.goes_on()
            # One that takes part is enough, and another must do when it goes.
            used = near.output.rpartition("new leader: [")[2].partition("]")[0]
            cluster.stop(1 + int(used.rpartition(" ")[2]))
            traffic.goes_on()


def test_a_proxy_may_be_there_first(tmp_path: Path, connect: Connect) -> None:
    node = NodeProcess(tmp_path / "node")
    with ProxyProcess(tmp_path / "proxy", [node.address]) as proxy:
        client = connect(proxy)
        uri = queue_name(EVENTUAL)
        opened = threading.Thread(target=client.open, args=(uri,), kwargs={"read": True, "write": True})
        opened.start()
        with node:
            opened.join()
            client.post_all(uri, [b"one"])
            confirm(client.wait_for_messages(1, uri))


def test_messages_beyond_the_buffer_are_refused_and_the_rest_is_kept(tmp_path: Path, connect: Connect) -> None:
    with (
        NodeProcess(tmp_path / "node") as node,
        ProxyProcess(tmp_path / "proxy", [node.address], options=["--buffer-messages", "100"]) as proxy,
    ):
        client = connect(proxy)
        uri = queue_name(EVENTUAL)
        client.open(uri, read=True, write=True)
        node.kill()
        proxy.wait_for("has disconnected")
        for number in range(150):
            client.post(uri, b"%d" % number, tag=number)
        client.wait(lambda: len(client.acks) == 50)
        refused = {tag: ack.status for tag, ack in client.acks}
        assert sorted(refused) == list(range(100, 150))  # type: ignore[type-var]
        assert set(refused.values()) == {blazingmq.AckStatus.LIMIT_MESSAGES}
        node.start()
        confirm(client.wait_for_messages(100, uri))
        client.wait(lambda: len(client.acks) == 150)
        assert client.payloads(uri) == [b"%d" % number for number in range(100)]
        assert not lost(client.events)


def test_a_proxy_that_is_killed_costs_nothing(tmp_path: Path, connect: Connect) -> None:
    with (
        NodeProcess(tmp_path / "node") as node,
        ProxyProcess(tmp_path / "proxy", [node.address]) as proxy,
    ):
        uri = queue_name(EVENTUAL)
        posts, reads = connect(proxy), connect(node)
        posts.open(uri, write=True)
        reads.open(uri, read=True)
        for number in range(100):
            posts.post(uri, b"%d" % number, tag=number)
        proxy.kill()
        for number in range(100, 200):
            posts.post(uri, b"%d" % number, tag=number)
        proxy.start()
        # The client posts again what was not answered; the node knows what it has.
        posts.wait(lambda: len(posts.acks) == 200)
        reads.wait_for_messages(200, uri)
        assert reads.payloads(uri) == [b"%d" % number for number in range(200)]
