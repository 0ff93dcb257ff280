"""Nodes in separate network namespaces, so that they can be cut off from each other: Linux, root, `ip` needed.

A bridge joins the namespaces with this host, where the clients are. They reach a node on loopback, through a relay: the
official client cannot use addresses without a name service. To cut a link, a node drops packets to the other (a
blackhole route): connections stay open and nothing arrives, as when a switch fails.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from bmqctl.common.children import COMMAND
from bmqctl.systems.node_process import HOST, NodeProcess
from tests.rigs.cluster_processes import ClusterProcesses

__all__ = ["IsolatedCluster", "Network", "why_not"]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_not() -> str | None:
    """Return the reason why this machine does not allow it, or None."""
    if shutil.which("ip") is None:
        return "there is no `ip` command"
    try:
        _ip("netns", "add", "bmqctl-try")
        _ip("netns", "delete", "bmqctl-try")
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip()
    return None


class Network:
    """A bridge on this host, and the namespace of each numbered node on it. `prefix` has three parts of addresses.

    This host has address 254. `cuts` are the cut links, each with a direction.
    """

    HOST = 254

    def __init__(self, bridge: str, prefix: str, numbers: Iterable[int]) -> None:
        self.cuts: set[tuple[int, int]] = set()
        self._bridge = bridge
        self._prefix = prefix
        self._numbers = tuple(numbers)

    def address(self, number: int) -> str:
        return f"{self._prefix}.{number}"

    def command(self, number: int) -> tuple[str, ...]:
        """The words before a command that is to run in the namespace of a node."""
        return ("ip", "netns", "exec", self._namespace(number))

    def _namespace(self, number: int) -> str:
        return f"{self._bridge}-{number}"

    def build(self) -> None:
        self.remove()  # left by a killed run
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", f"{self.address(self.HOST)}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number in self._numbers:
            name, link = self._namespace(number), f"{self._bridge}{number}"
            _ip("netns", "add", name)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", link, "master", self._bridge, "up")
            _ip("-n", name, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for number in self._numbers:
            subprocess.run(["ip", "netns", "delete", self._namespace(number)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self._bridge], check=False, capture_output=True)
        self.cuts.clear()

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Drop everything from the first of each pair, a node, to the second."""
        for sender, receiver in pairs:
            _ip("-n", self._namespace(sender), "route", "add", "blackhole", f"{self.address(receiver)}/32")
            self.cuts.add((sender, receiver))

    def mend(self) -> None:
        for sender, receiver in self.cuts:
            _ip("-n", self._namespace(sender), "route", "delete", "blackhole", f"{self.address(receiver)}/32")
        self.cuts.clear()


class IsolatedCluster(ClusterProcesses):
    """A `ClusterProcesses` whose links can be cut and mended."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        super().__init__(directory, count)
        self._network = network = Network("bmqctl-soak", "10.199.77", self.nodes)
        addresses = {number: (network.address(number), node.port) for number, node in self.nodes.items()}
        isolated: dict[int, NodeProcess] = {}
        for number, node in self.nodes.items():
            assert node.config_dir is not None
            _move(node.config_dir, addresses, number)
            command = (*network.command(number), *COMMAND)
            isolated[number] = NodeProcess(node.data_dir, config_dir=node.config_dir, port=node.port, command=command)
        self.nodes = isolated
        self._relays: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> IsolatedCluster:
        try:
            self._build()
            super().__enter__()
        except BaseException:
            self._remove()
            raise
        return self

    def close(self) -> None:
        super().close()
        self._remove()

    def _build(self) -> None:
        self._network.build()
        for number, node in self.nodes.items():
            there = f"{self._network.address(number)}:{node.port}"
            relay = [sys.executable, "-m", "scripts.judges.tcp_relay", "-r", there, "-p", str(node.port)]
            self._relays.append(subprocess.Popen(relay, stdout=subprocess.DEVNULL))

    def _remove(self) -> None:
        for relay in self._relays:
            relay.kill()
            relay.wait()
        self._relays.clear()
        self._network.remove()

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Drop everything from the first of each pair to the second."""
        self._network.cut(pairs)

    def mend(self) -> None:
        self._network.mend()


def _move(folder: Path, addresses: Mapping[int, tuple[str, int]], own: int) -> None:
    file = folder / "clusters.json"
    text = file.read_text()
    for address, port in addresses.values():
        text = text.replace(f"tcp://{HOST}:{port}", f"tcp://{address}:{port}")
    file.write_text(text)
    file = folder / "bmqbrkrcfg.json"
    file.write_text(file.read_text().replace(f'"address": "{HOST}"', f'"address": "{addresses[own][0]}"'))
