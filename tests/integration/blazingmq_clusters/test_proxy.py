"""Proxies as processes, with the official client: what it does through them is what it does at a node."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import blazingmq
import pytest
from blazingmq.session_events import ConnectionLost

from bmqctl.testing import NodeProcess, ProxyProcess, free_port
from tests.rigs.console_pages import Pages
from tests.rigs.official import Client, Connect, confirm, queue_name
from tests.rigs.raw import Raw

SUCCESS = blazingmq.AckStatus.SUCCESS
PRIORITY = "bmq.test.persistent.priority"
FANOUT = "bmq.test.persistent.fanout"
BROADCAST = "bmq.test.mem.broadcast"
APPS = ("foo", "bar", "baz")


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory, node: NodeProcess) -> Iterator[list[ProxyProcess]]:
    """A chain of three: the first is next to the node."""
    folder = tmp_path_factory.mktemp("proxies")
    with ExitStack() as stack:
        chain: list[ProxyProcess] = []
        for number in range(3):
            upstream = chain[-1].address if chain else node.address
            chain.append(stack.enter_context(ProxyProcess(folder / str(number), [upstream])))
            chain[-1].wait_available()
        yield chain


@pytest.fixture(params=[0, 2], ids=["one", "three"])
def proxy(request: pytest.FixtureRequest, proxies: list[ProxyProcess]) -> ProxyProcess:
    """The proxy next to the node, or the last of a chain of three."""
    index: int = request.param
    return proxies[index]


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def all_acked(client: Client, uri: str, payloads: list[bytes]) -> None:
    assert {ack.status for ack in client.post_all(uri, payloads)} == {SUCCESS}


def test_messages_go_through(proxy: ProxyProcess, node: NodeProcess, connect: Connect) -> None:
    for producers, consumers in ((proxy, proxy), (proxy, node), (node, proxy)):
        uri = queue_name(PRIORITY)
        posts, reads = connect(producers), connect(consumers)
        posts.open(uri, write=True)
        reads.open(uri, read=True)
        all_acked(posts, uri, numbered(0, 200))
        confirm(reads.wait_for_messages(200, uri))
        assert reads.payloads(uri) == numbered(0, 200)
        reads.close(uri)
        # Confirmed messages are gone.
        reads.open(uri, read=True)
        all_acked(posts, uri, [b"last"])
        confirm(reads.wait_for_messages(201, uri)[200:])
        assert reads.payloads(uri)[200:] == [b"last"]


def test_properties_and_compression_survive(proxy: ProxyProcess, connect: Connect) -> None:
    uri = queue_name(PRIORITY)
    client = connect(proxy, message_compression_algorithm=blazingmq.CompressionAlgorithmType.ZLIB)
    client.open(uri, read=True, write=True)
    payload = b"much of the same " * 1000
    client.post(uri, payload, properties={"colour": "red", "weight": 7})
    ((message, handle),) = client.wait_for_messages(1, uri)
    assert (message.data, message.properties) == (payload, {"colour": "red", "weight": 7})
    handle.confirm()


def test_each_app_of_a_fanout_queue_gets_all(proxy: ProxyProcess, node: NodeProcess, connect: Connect) -> None:
    uri = queue_name(FANOUT)
    posts = connect(proxy)
    posts.open(uri, write=True)
    readers = {app: connect(node if app == "baz" else proxy) for app in APPS}
    for app, reader in readers.items():
        reader.open(f"{uri}?id={app}", read=True)
    all_acked(posts, uri, numbered(0, 100))
    for app, reader in readers.items():
        confirm(reader.wait_for_messages(100))
        assert reader.payloads() == numbered(0, 100), app


def test_one_client_may_be_several_apps(proxy: ProxyProcess, connect: Connect) -> None:
    uri = queue_name(FANOUT)
    client = connect(proxy)
    client.open(uri, write=True)
    for app in APPS:
        client.open(f"{uri}?id={app}", read=True)
    all_acked(client, uri, numbered(0, 20))
    for app in APPS:
        confirm(client.wait_for_messages(20, f"{uri}?id={app}"))
        assert client.payloads(f"{uri}?id={app}") == numbered(0, 20)
    client.close(f"{uri}?id=bar")
    all_acked(client, uri, numbered(20, 20))
    for app in ("foo", "baz"):
        confirm(client.wait_for_messages(40, f"{uri}?id={app}")[20:])
    client.open(f"{uri}?id=bar", read=True)
    confirm(client.wait_for_messages(40, f"{uri}?id=bar")[20:])
    assert client.payloads(f"{uri}?id=bar") == numbered(0, 40)


def test_a_broadcast_reaches_everyone(proxy: ProxyProcess, node: NodeProcess, connect: Connect) -> None:
    uri = queue_name(BROADCAST)
    readers = [connect(where) for where in (proxy, proxy, node)]
    for reader in readers:
        reader.open(uri, read=True)
    posts = connect(proxy)
    posts.open(uri, write=True)
    all_acked(posts, uri, numbered(0, 50))
    for reader in readers:
        reader.wait_for_messages(50, uri)
        assert reader.payloads(uri) == numbered(0, 50)


def test_the_highest_priority_gets_all_wherever_it_is(proxy: ProxyProcess, node: NodeProcess, connect: Connect) -> None:
    uri = queue_name(PRIORITY)
    low, middle, high, posts = connect(proxy), connect(node), connect(proxy), connect(proxy)
    posts.open(uri, write=True)
    for priority, reader in enumerate((low, middle, high)):
        reader.open(uri, read=True, consumer_priority=priority)
    all_acked(posts, uri, numbered(0, 20))
    confirm(high.wait_for_messages(20, uri))
    high.close(uri)
    all_acked(posts, uri, numbered(20, 20))
    confirm(middle.wait_for_messages(20, uri))
    middle.close(uri)
    all_acked(posts, uri, numbered(40, 20))
    confirm(low.wait_for_messages(20, uri))
    found = [reader.payloads(uri) for reader in (high, middle, low)]
    assert found == [numbered(0, 20), numbered(20, 20), numbered(40, 20)]


def test_consumers_behind_a_proxy_share(proxy: ProxyProcess, connect: Connect) -> None:
    uri = queue_name(PRIORITY)
    readers = [connect(proxy) for _ in range(3)]
    for reader in readers:
        reader.open(uri, read=True)
    posts = connect(proxy)
    posts.open(uri, write=True)
    all_acked(posts, uri, numbered(0, 90))
    for reader in readers:
        confirm(reader.wait_for_messages(30, uri))
    assert sorted(payload for reader in readers for payload in reader.payloads(uri)) == numbered(0, 90)


def test_messages_of_a_lost_consumer_go_to_another(proxy: ProxyProcess, connect: Connect) -> None:
    uri = queue_name(PRIORITY)
    first, second, posts = connect(proxy), connect(proxy), connect(proxy)
    posts.open(uri, write=True)
    first.open(uri, read=True)
    all_acked(posts, uri, numbered(0, 50))
    confirm(first.wait_for_messages(50, uri)[:20])
    second.open(uri, read=True)
    first.stop()
    confirm(second.wait_for_messages(30, uri))
    assert second.payloads(uri) == numbered(20, 30)


def test_a_domain_that_is_unknown_upstream_is_refused_with_its_words(proxy: ProxyProcess, connect: Connect) -> None:
    client = connect(proxy)
    with pytest.raises(blazingmq.Error, match="is not configured"):
        client.open("bmq://no.such.domain/q", write=True)
    client.barrier()


def test_a_stopped_proxy_leaves_nothing_behind(node: NodeProcess, tmp_path: Path, connect: Connect) -> None:
    uri = queue_name(PRIORITY)
    console_port = free_port()
    options = ("--console-port", str(console_port))
    with ProxyProcess(tmp_path / "proxy", [node.address], options=options) as proxy:
        reads = connect(proxy)
        reads.open(uri, read=True)
        posts = connect(proxy)
        posts.open(uri, write=True)
        all_acked(posts, uri, numbered(0, 20))
        confirm(reads.wait_for_messages(20, uri)[:5])
        reads.barrier()
        # Its console shows the cluster upstream.
        pages = Pages(console_port)
        assert pages.begin()["place"] == node.uri
        assert uri in [row[0] for row in pages.look()["rows"]]
        proxy.options = ()
        os.kill(proxy.pid, signal.SIGTERM)
        # It would wait some seconds for the confirms; told once more, it does not.
        proxy.wait_for("unconfirmed message")
        assert proxy.stop() == 0
        assert not proxy.pid_file.exists()
        assert pages.is_over()
        reads.wait_for_event(ConnectionLost)
        # Messages of its consumers go to others at once.
        other = connect(node)
        other.open(uri, read=True)
        confirm(other.wait_for_messages(15, uri))
        assert other.payloads(uri) == numbered(5, 15)
        proxy.start()
        for client in (reads, posts):
            client.wait_for_event(blazingmq.session_events.StateRestored)
        reads.stop()
        all_acked(posts, uri, numbered(20, 20))
        posts.stop()


def test_garbage_ends_the_link_that_it_came_by(proxies: list[ProxyProcess], connect: Connect) -> None:
    proxy = proxies[0]
    client = connect(proxy)
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, bytes(64)):
        with Raw(proxy, identified=False) as raw:
            raw.send(garbage)
            assert raw.rest() == b""
        with Raw(proxy) as raw:
            raw.send(garbage)
            raw.rest()
    client.barrier()
    assert not any(isinstance(event, ConnectionLost) for event in client.events)
