"""The traffic between a proxy and its upstream: one connection, and each message once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bmqctl.testing import NodeProcess, ProxyProcess
from formats.bmq.control.messages import OpenQueueResponse
from tests.rigs.official import Client, queue_name
from tests.rigs.raw import READ, WRITE, Raw, configure_request, open_request
from tests.waiting import WAIT_S

RELAY = Path(__file__).resolve().parents[3] / "scripts" / "judges" / "tcp_relay.py"
CONSUMERS = 100
CLIENTS = 1000
MESSAGES = 1000
SIZE = 1024


class Carried(NamedTuple):
    """The traffic that a relay has carried in total."""

    connections: int
    bytes_there: int
    bytes_back: int


class Relay:
    """A relay to a broker; `carried` is known once it has ended."""

    def __init__(self, remote: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(RELAY), "-r", remote], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().removeprefix("Listening on ").strip()
        self.carried = Carried(0, 0, 0)

    def end(self) -> None:
        self._process.terminate()
        told, _ = self._process.communicate(timeout=WAIT_S)
        numbers = re.findall(r"\d+", told)
        self.carried = Carried(*map(int, numbers))


@contextmanager
def relayed_proxy(node: NodeProcess, folder: Path) -> Iterator[tuple[ProxyProcess, Relay]]:
    """A proxy that reaches the node by a relay."""
    relay = Relay(node.address)
    try:
        with ProxyProcess(folder, [relay.address]) as proxy:
            proxy.wait_available()
            yield proxy, relay
    finally:
        relay.end()


def broadcast_to(consumers: int, node: NodeProcess, folder: Path) -> Carried:
    """Let `count` consumers at a proxy hear a broadcast."""
    uri = queue_name("bmq.test.mem.broadcast")
    payloads = [b"%06d" % number + bytes(SIZE - 6) for number in range(MESSAGES)]
    with relayed_proxy(node, folder) as (proxy, relay), ExitStack() as stack:
        readers = [stack.enter_context(Client(proxy.uri)) for _ in range(consumers)]
        for reader in readers:
            reader.open(uri, read=True)
        producer = stack.enter_context(Client(node.uri))
        producer.open(uri, write=True)
        producer.post_all(uri, payloads)
        for reader in readers:
            reader.wait_for_messages(MESSAGES, uri)
            assert reader.payloads(uri) == payloads
    return relay.carried


def test_a_broadcast_crosses_the_link_once_whatever_the_number_of_consumers(node: NodeProcess, tmp_path: Path) -> None:
    one = broadcast_to(1, node, tmp_path / "one")
    many = broadcast_to(CONSUMERS, node, tmp_path / "many")
    assert one.bytes_back > MESSAGES * SIZE
    assert many.bytes_back <= 1.1 * one.bytes_back


def test_a_message_for_all_apps_crosses_the_link_once(node: NodeProcess, tmp_path: Path) -> None:
    uri = queue_name("bmq.test.mem.fanout")
    apps = ("foo", "bar", "baz")
    with relayed_proxy(node, tmp_path / "proxy") as (proxy, relay), ExitStack() as stack:
        readers = [stack.enter_context(Client(proxy.uri)) for _ in apps]
        for app, reader in zip(apps, readers, strict=True):
            reader.open(f"{uri}?id={app}", read=True)
        producer = stack.enter_context(Client(node.uri))
        producer.open(uri, write=True)
        producer.post_all(uri, [bytes(SIZE)] * MESSAGES)
        for reader in readers:
            reader.wait_for_messages(MESSAGES)
    assert MESSAGES * SIZE < relay.carried.bytes_back <= 1.25 * MESSAGES * SIZE


def test_a_thousand_clients_need_one_connection(node: NodeProcess, tmp_path: Path) -> None:
    with relayed_proxy(node, tmp_path / "proxy") as (proxy, relay), ExitStack() as stack:
        clients = [stack.enter_context(Raw(proxy)) for _ in range(CLIENTS)]
        queues = [queue_name() for _ in range(50)]
        for number, client in enumerate(clients):
            client.send(open_request(queues[number % len(queues)], 0, READ | WRITE))
            client.send(configure_request(0, 10))
        for client in clients:
            assert isinstance(client.control().choice, OpenQueueResponse)
    assert relay.carried.connections == 1
