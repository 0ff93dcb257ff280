"""The brokers of a run: given ones, or nodes, a cluster and a proxy started for it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from bmqctl.bench.plan import Engine
from bmqctl.bench.scenarios import Scenario, domain_files
from bmqctl.systems.node_process import HOST, ClusterProcess, NodeFailed, NodeProcess, ProxyProcess, RocketProcess

__all__ = ["TARGETS", "RunAddress", "Target", "own_node", "scenario_broker", "write_domains"]

CLUSTER_TIMEOUT_S = 60.0
# The cluster that `bmqctl start cluster` makes.
CLUSTER_NAME = "local"


class RunAddress(NamedTuple):
    """The place where a run's clients connect."""

    host: str
    port: int


class Target(NamedTuple):
    """A system under test: the peer that its clients dial, its usual port, and the start of a node.

    `options` of the command are for it alone; `word` says whether it is measured with --rocketmq.
    """

    peer: str
    port: int
    node: Callable[[Path], NodeProcess | RocketProcess]
    port_of: Callable[[Any], int]
    options: tuple[str, ...]
    word: str


_OPTIONS: Final = ("--broker", "--queue", "--client", "--scenario", "--versus")
_BROKER: Final = Target("broker", 30114, NodeProcess, attrgetter("port"), _OPTIONS, "without")
TARGETS: Final[Mapping[Engine, Target]] = {
    "own": _BROKER,
    "official": _BROKER,
    "relay": _BROKER,
    "rocketmq": Target(
        "nameserver", 9876, RocketProcess, attrgetter("nameserver_port"), ("--nameserver", "--topic"), "with"
    ),
}


@contextmanager
def own_node(target: Target) -> Iterator[RunAddress]:
    """Run a node with its store in a temporary folder. Raises `NodeFailed`."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-bench-") as folder, target.node(Path(folder) / "store") as node:
        yield RunAddress(HOST, target.port_of(node))


@contextmanager
def scenario_broker(scenario: Scenario, given: RunAddress | None, nodes: int) -> Iterator[RunAddress]:
    """Run a scenario's brokers: a cluster if none is given, and a proxy if it has one. Raises `NodeFailed`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bmqctl-bench-")))
        upstream = [f"{given.host}:{given.port}"] if given else []
        if given is None:
            cluster = ClusterProcess(folder / "cluster", nodes, timeout_s=CLUSTER_TIMEOUT_S)
            stack.enter_context(cluster)
            for node in (folder / "cluster").glob("node*"):
                write_domains(node / "domains", CLUSTER_NAME)
            upstream, given = cluster.addresses, RunAddress(HOST, cluster.port)
        address = given
        if scenario.route == "proxy":
            proxy = stack.enter_context(ProxyProcess(folder / "proxy", upstream))
            try:
                proxy.wait_available()
            except TimeoutError:
                raise NodeFailed(f"the proxy reached none of {', '.join(upstream)}", None, proxy.output) from None
            address = RunAddress(HOST, proxy.port)
        yield address


def write_domains(folder: Path, cluster: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, definition in domain_files(cluster).items():
        (folder / name).write_text(json.dumps(definition, indent=2) + "\n")
        files.append(folder / name)
    return files
