"""A pytest fixture with a real node, for test suites of programs that use BlazingMQ.

    from blazingmq import Session

    def test_my_program(bmq_node):
        session = Session(print, broker=bmq_node.uri)

The node listens on a free loopback port, has the sample domains (`bmq.test.mem.priority` and so on), keeps its files in
the test's temporary directory, and ends with the test. `bmq_proxy` is a proxy to it. `rocketmq_node` is a RocketMQ
nameserver and broker; its clients use `rocketmq_node.nameserver`, gRPC clients `rocketmq_node.endpoint`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import NodeFailed, NodeProcess, ProxyProcess, RocketProcess, RocketProxyProcess

__all__ = [
    "NodeFailed",
    "NodeProcess",
    "ProxyProcess",
    "RocketProcess",
    "RocketProxyProcess",
    "bmq_node",
    "bmq_proxy",
    "free_port",
    "rocketmq_node",
]


@pytest.fixture
def bmq_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A running node."""
    with NodeProcess(tmp_path / "bmq-data") as node:
        yield node


@pytest.fixture
def bmq_proxy(bmq_node: NodeProcess, tmp_path: Path) -> Iterator[ProxyProcess]:
    """A proxy to the node of `bmq_node`, which can be stopped and started while the proxy runs."""
    with ProxyProcess(tmp_path / "bmq-proxy", [bmq_node.address]) as proxy:
        proxy.wait_available()
        yield proxy


@pytest.fixture
def rocketmq_node(tmp_path: Path) -> Iterator[RocketProcess]:
    """A running RocketMQ nameserver and broker."""
    with RocketProcess(tmp_path / "rocketmq-data") as node:
        yield node
