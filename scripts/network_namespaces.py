"""Nodes in separate network namespaces, so that they can be cut off from each other: Linux, root, `ip` needed.

A bridge joins the namespaces with this host, where the clients are. They reach a node on loopback, through a relay:
the official client cannot use addresses without a name service. To cut a link, a node drops packets to
the other (a blackhole route): connections stay open and nothing arrives, as when a switch fails.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from bmqctl.node_process import HOST, NodeProcess
from tests.integration.cluster_processes import ClusterProcesses

__all__ = ["IsolatedCluster", "why_not"]

_NETWORK = "10.199.77"
_BRIDGE = "bmqctl-soak"
_COMMAND = (sys.executable, "-c", "from bmqctl.app import main; main()")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_not() -> str | None:
    """Return the reason why this machine does not allow it; None if it does."""
    if shutil.which("ip") is None:
        return "there is no `ip` command"
    try:
        _ip("netns", "add", f"{_BRIDGE}-try")
        _ip("netns", "delete", f"{_BRIDGE}-try")
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip()
    return None


class IsolatedCluster(ClusterProcesses):
    """A cluster like `ClusterProcesses` whose links can be cut and mended."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        super().__init__(directory, count)
        ports = {number: node.port for number, node in self.nodes.items()}
        isolated: dict[int, NodeProcess] = {}
        for number, node in self.nodes.items():
            assert node.config_dir is not None
            _move(node.config_dir, ports, number)
            command = ("ip", "netns", "exec", _namespace(number), *_COMMAND)
            isolated[number] = NodeProcess(node.data_dir, config_dir=node.config_dir, port=node.port, command=command)
        self.nodes = isolated
        self.cuts: set[tuple[int, int]] = set()
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
        self._remove()  # what a killed run left
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("address", "add", f"{_NETWORK}.254/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        for number in self.nodes:
            name, link = _namespace(number), f"{_BRIDGE}{number}"
            _ip("netns", "add", name)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", link, "master", _BRIDGE, "up")
            _ip("-n", name, "address", "add", f"{_address(number)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            there = f"{_address(number)}:{self.nodes[number].port}"
            relay = [sys.executable, "-m", "scripts.tcp_relay", "-r", there, "-p", str(self.nodes[number].port)]
            self._relays.append(subprocess.Popen(relay, stdout=subprocess.DEVNULL))

    def _remove(self) -> None:
        for relay in self._relays:
            relay.kill()
            relay.wait()
        self._relays.clear()
        for number in self.nodes:
            subprocess.run(["ip", "netns", "delete", _namespace(number)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", _BRIDGE], check=False, capture_output=True)

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Drop everything from the first of each pair to the second."""
        for sender, receiver in pairs:
            _ip("-n", _namespace(sender), "route", "add", "blackhole", f"{_address(receiver)}/32")
            self.cuts.add((sender, receiver))

    def mend(self) -> None:
        """Restore all links."""
        for sender, receiver in self.cuts:
            _ip("-n", _namespace(sender), "route", "delete", "blackhole", f"{_address(receiver)}/32")
        self.cuts.clear()


def _namespace(number: int) -> str:
    return f"{_BRIDGE}-{number}"


def _address(number: int) -> str:
    return f"{_NETWORK}.{number}"


def _move(folder: Path, ports: dict[int, int], own: int) -> None:
    """Give the nodes of a configuration their addresses."""
    file = folder / "clusters.json"
    text = file.read_text()
    for number, port in ports.items():
        text = text.replace(f"tcp://{HOST}:{port}", f"tcp://{_address(number)}:{port}")
    file.write_text(text)
    file = folder / "bmqbrkrcfg.json"
    file.write_text(file.read_text().replace(f'"address": "{HOST}"', f'"address": "{_address(own)}"'))
