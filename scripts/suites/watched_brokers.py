"""Brokers of both systems that are used a little, so that they have every metric that dashboards show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final, NamedTuple

import bmqctl.client as blazingmq
import bmqctl.client.rocketmq as rocketmq
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeProcess, RocketProcess

__all__ = ["Watched", "page_of", "use", "watched_brokers"]

QUEUES: Final = ("bmq://bmq.test.mem.priority/watched", "bmq://bmq.test.mem.fanout/watched")
TOPIC, GROUP = "watched", "watchers"
_POSTS: Final = 20


class Watched(NamedTuple):
    """The two brokers, and the ports of their pages."""

    node: NodeProcess
    node_port: int
    broker: RocketProcess
    broker_port: int


@contextmanager
def watched_brokers(folder: Path) -> Iterator[Watched]:
    """Start the brokers."""
    ports = free_port(), free_port()
    options = [("--metrics-port", str(port)) for port in ports]
    with ExitStack() as stack:
        node = stack.enter_context(NodeProcess(folder / "node", options=options[0]))
        broker = stack.enter_context(RocketProcess(folder / "broker", grpc_port=0, options=options[1]))
        yield Watched(node, ports[0], broker, ports[1])


def page_of(port: int, path: str = "/metrics") -> str:
    """Read a page. Raises `OSError`, and `ValueError` for an answer other than 200."""
    connection = HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"{path} is answered with {answer.status}: {text}")
    return text


async def use(watched: Watched) -> None:
    """Post messages to both, and consume some; one goes to the dead letters."""
    async with blazingmq.connect(watched.node.address) as session:
        for uri in QUEUES:
            async with await session.open(uri, write=True) as queue:
                await queue.post_all([b"x" * 100] * _POSTS)
        async with await session.open(QUEUES[0], read=True) as queue:
            for _ in range(_POSTS // 2):
                async with await anext(queue):
                    pass
    async with rocketmq.connect(f"rocketmq://{watched.broker.nameserver}") as session:
        producer = await session.producer(TOPIC)
        await producer.post_all([b"x" * 100] * _POSTS)
        async with await session.consume(TOPIC, GROUP, from_start=True) as consumer:
            (await anext(consumer)).reject(-1)
            for _ in range(_POSTS // 2):
                async with await anext(consumer):
                    pass
