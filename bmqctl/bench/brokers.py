"""The brokers of a run: those that are given, or nodes, a cluster and a proxy that are started for it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bmqctl.bench.scenarios import Scenario, domain_files
from bmqctl.systems.node_process import HOST, ClusterProcess, NodeFailed, NodeProcess, ProxyProcess, RocketProcess

__all__ = ["Address", "own_node", "scenario_broker", "write_domains"]

CLUSTER_TIMEOUT_S = 60.0
# The cluster that `bmqctl start cluster` makes.
CLUSTER_NAME = "local"


class Address(NamedTuple):
    """The place where a run's clients connect."""

    host: str
    port: int


@contextmanager
def own_node(is_rocketmq: bool) -> Iterator[Address]:
    """Start a node with its store in a temporary folder, and stop it afterwards. Raises `NodeFailed`."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-bench-") as folder:
        node = (RocketProcess if is_rocketmq else NodeProcess)(Path(folder) / "store")
        with node:
            yield Address(HOST, node.nameserver_port if isinstance(node, RocketProcess) else node.port)


@contextmanager
def scenario_broker(scenario: Scenario, given: Address | None, nodes: int) -> Iterator[Address]:
    """Start what a scenario needs, and stop it afterwards: a cluster if none is given, and a proxy if it has one.

    Raises `NodeFailed`.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bmqctl-bench-")))
        upstream = [f"{given.host}:{given.port}"] if given else []
        if given is None:
            cluster = ClusterProcess(folder / "cluster", nodes, timeout_s=CLUSTER_TIMEOUT_S)
            stack.enter_context(cluster)
            for node in (folder / "cluster").glob("node*"):
                write_domains(node / "domains", CLUSTER_NAME)
            upstream, given = cluster.addresses, Address(HOST, cluster.port)
        address = given
        if scenario.route == "proxy":
            proxy = stack.enter_context(ProxyProcess(folder / "proxy", upstream))
            try:
                proxy.wait_available()
            except TimeoutError:
                raise NodeFailed(f"the proxy reached none of {', '.join(upstream)}", None, proxy.output) from None
            address = Address(HOST, proxy.port)
        yield address


def write_domains(folder: Path, cluster: str) -> list[Path]:
    """Write the definitions of all scenarios' domains for the cluster of this name; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, definition in domain_files(cluster).items():
        (folder / name).write_text(json.dumps(definition, indent=2) + "\n")
        files.append(folder / name)
    return files
