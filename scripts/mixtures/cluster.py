"""A cluster on this host whose nodes, and proxies to it, are ours or the reference's.

A node of either kind can continue with a folder of the other. The caller names the reference's executable; nothing of
it is part of this project.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.common.ports import free_port, free_ports
from bmqctl.systems.node_process import HOST, NodeFailed, NodeProcess
from broker.bmq.config.local_cluster import write_local_cluster
from scripts.judges.cluster_load import wait_until
from scripts.judges.reference_process import ReferenceProcess, Running
from scripts.mixtures.config import adapt, write_proxy

__all__ = ["MixedCluster"]

NO_QUOTA = 1 << 50

_LEADER = re.compile(r"node \d+ is \w+ \[term: \d+, leader: (\w+)\]|new leaderNodeId: (-?\d+), new term")
_PARTITION = re.compile(
    r"Partition \[(\d+)\](?:: \w+, \w+ -> (\w+)| on Event '\w+', transition: State '\w+' =>  State '(\w+)')"
)
_HEALED = {"PRIMARY_HEALED", "REPLICA_HEALED"}


class MixedCluster:
    """`nodes[id]`, of which those in `foreign` run the reference's executable. All end with the `with` block.

    `sizes` are those of the partitions' files, `other_sizes` those of some nodes. A proxy in `proxies` is True if it is
    the reference's. With `quotas` the disks of our nodes can be made full: see `fill_disk`.
    """

    def __init__(
        self,
        directory: Path,
        executable: Path,
        foreign: Sequence[int],
        *,
        count: int = 3,
        sizes: Mapping[str, int],
        other_sizes: Mapping[int, Mapping[str, int]] | None = None,
        partitions: int = 2,
        proxies: Sequence[bool] = (),
        quotas: bool = False,
        timeout_s: float = 120.0,
    ) -> None:
        self.executable = executable
        self.sizes = dict(sizes)
        self.timeout_s = timeout_s
        self.first_port = free_ports(count)
        self.folders = dict(enumerate(write_local_cluster(directory, count, HOST, self.first_port), 1))
        self.foreign = set(foreign)
        self.nodes: dict[int, Running] = {}
        self.proxies: list[Running] = []
        self.proxy_folders: list[Path] = []
        self.running: set[int] = set()
        self._has_quotas = quotas
        for number, folder in self.folders.items():
            adapt(folder, f"node{number}", {**sizes, **(other_sizes or {}).get(number, {})}, partitions)
            self._make(number)
        for number, theirs in enumerate(proxies, 1):
            folder, port = directory / f"proxy{number}", free_port()
            write_proxy(folder, port, [self.first_port + each for each in range(count)])
            self.proxy_folders.append(folder)
            self.proxies.append(self._process(folder, port, theirs))

    def _make(self, number: int) -> None:
        folder, port = self.folders[number], self.first_port + number - 1
        self.nodes[number] = self._process(folder, port, number in self.foreign)

    def _process(self, folder: Path, port: int, theirs: bool) -> Running:
        if theirs:
            return ReferenceProcess(self.executable, folder, port, self.timeout_s)
        options = ("--log-level", "info")
        command: tuple[str, ...] = (sys.executable, "-c", "from bmqctl.app import main; main()")
        if self._has_quotas:
            quota = _quota(folder)
            quota.write_text(str(NO_QUOTA))
            command = (sys.executable, "-m", "tests.rigs.limited_disk", str(quota), str(folder / "storage"))
        return NodeProcess(
            folder / "storage",
            config_dir=folder,
            port=port,
            timeout_s=self.timeout_s,
            command=command,
            options=options,
        )

    def __enter__(self) -> MixedCluster:
        try:
            for number in self.nodes:
                self.start(number)
            for proxy in self.proxies:
                proxy.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for proxy in self.proxies:
            if proxy.is_running:
                proxy.kill()
        for number in list(self.running):
            self.running.discard(number)
            self.nodes[number].kill()

    @property
    def brokers(self) -> list[Running]:
        return [*self.nodes.values(), *self.proxies]

    def start(self, number: int) -> None:
        self.nodes[number].start()
        self.running.add(number)

    def kill(self, number: int) -> None:
        self.running.discard(number)
        self.nodes[number].kill()

    def stop(self, number: int) -> int:
        self.running.discard(number)
        return self.nodes[number].stop()

    def replace(self, number: int) -> None:
        assert number not in self.running
        self.foreign ^= {number}
        self._make(number)

    def kill_all(self) -> None:
        """Kill all at one moment: no node notices another's end."""
        for number in self.running:
            os.kill(self.nodes[number].pid, signal.SIGSTOP)
        for number in list(self.running):
            self.kill(number)

    def fill_disk(self, number: int) -> None:
        """Fill the disk of one of our nodes: its quota becomes the size of its files."""
        files = [path for path in (self.folders[number] / "storage").iterdir() if path.is_file()]
        _quota(self.folders[number]).write_text(str(sum(path.stat().st_blocks * 512 for path in files)))

    def empty_disk(self, number: int) -> None:
        _quota(self.folders[number]).write_text(str(NO_QUOTA))

    def leader(self) -> int | None:
        """The leader that all nodes agree on, if any."""
        found = {self._leader_seen_by(number) for number in self.running}
        return found.pop() if len(found) == 1 else None

    def _leader_seen_by(self, number: int) -> int | None:
        seen = _LEADER.findall(self.nodes[number].output)
        name = seen[-1][0] or seen[-1][1] if seen else ""
        return int(name) if name.isdigit() else None

    def wait_leader(self) -> int:
        wait_until(lambda: self.leader() in self.running, self.timeout_s, lambda: "the nodes do not agree on a leader")
        found = self.leader()
        assert found is not None
        return found

    def command(self, number: int, words: str) -> str:
        # A node that was just started may not listen yet.
        wait_until(lambda: self._listens(number), self.timeout_s, lambda: f"node {number} does not listen")
        with AdminClient(HOST, self.nodes[number].port, self.timeout_s) as client:
            return client.send(words)

    def _listens(self, number: int) -> bool:
        self.check_alive()
        try:
            AdminClient(HOST, self.nodes[number].port, self.timeout_s).close()
        except AdminLost:
            return False
        return True

    def check_alive(self) -> None:
        """Raise `NodeFailed` if one ended by itself."""
        dead = [self.nodes[number] for number in self.running if not self.nodes[number].is_running]
        dead += [proxy for proxy in self.proxies if not proxy.is_running]
        if dead:
            names = ", ".join(each.data_dir.parent.name for each in dead)
            tails = [each.output[-3000:] for each in dead]
            raise NodeFailed(f"{names} ended unexpectedly", None, "\n".join(tails))

    def unhealed(self) -> dict[int, str]:
        """The running nodes that do not take part or have partitions that are not in order, with their reports."""
        self.check_alive()
        found = {}
        for number in self.running:
            output = self.nodes[number].output
            states = {each: ours or theirs for each, ours, theirs in _PARTITION.findall(output)}
            # Our node alone reports no states.
            is_healed = bool(states) or len(self.nodes) == 1
            if "is available" not in output or not is_healed or set(states.values()) - _HEALED:
                found[number] = str(states)
        return found

    def wait_healed(self) -> None:
        """Wait until each running node takes part and has its partitions in order."""
        wait_until(lambda: not self.unhealed(), self.timeout_s, lambda: f"nodes do not heal: {self.unhealed()}")

    def wait_proxies(self) -> None:
        """Wait until each of our proxies has a node. The reference's look for one only when a client comes."""
        for proxy in self.proxies:
            if isinstance(proxy, NodeProcess):
                proxy.wait_for("is available", self.timeout_s)


def _quota(folder: Path) -> Path:
    return folder / "quota"
