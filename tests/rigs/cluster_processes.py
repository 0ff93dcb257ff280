"""Several real nodes on this host, one cluster: started, killed and started again, within a time limit."""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType

from bmqctl.common.ports import free_ports
from bmqctl.systems.node_process import HOST, NodeProcess
from broker.bmq.config.local_cluster import write_local_cluster
from tests.waiting import WAIT_S, eventually

__all__ = ["ClusterProcesses"]

_LEADER = re.compile(r"node (\d+) is (\w+) \[term: (\d+), leader: (\w+)\]")


class ClusterProcesses:
    """`nodes[id]`; all run inside the `with` block, unless the test stops them.

    With `port`, that of the first node, the directory has their configurations already.
    """

    def __init__(self, directory: Path, count: int = 3, port: int | None = None) -> None:
        port = free_ports(count) if port is None else port
        folders = write_local_cluster(directory, count, HOST, port, strong=False)
        self.nodes = {
            number: NodeProcess(folder / "storage", config_dir=folder, port=port + number - 1)
            for number, folder in enumerate(folders, 1)
        }
        self.running: set[int] = set()

    def __enter__(self) -> ClusterProcesses:
        try:
            for number in self.nodes:
                self.start(number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for number in list(self.running):
            self.running.discard(number)
            self.nodes[number].close()

    def start(self, number: int) -> NodeProcess:
        node = self.nodes[number].start()
        self.running.add(number)
        return node

    def kill(self, number: int) -> None:
        self.running.discard(number)
        self.nodes[number].kill()

    def stop(self, number: int) -> int:
        self.running.discard(number)
        return self.nodes[number].stop()

    def wait_available(self, timeout_s: float = WAIT_S) -> None:
        """Wait until each running node takes part."""
        for number in self.running:
            self.nodes[number].wait_for("is available", timeout_s)

    def role(self, number: int) -> tuple[str, int, str]:
        """A node's last role, its term, and the leader that it saw."""
        found = _LEADER.findall(self.nodes[number].output)
        return (found[-1][1], int(found[-1][2]), found[-1][3]) if found else ("", 0, "")

    def leader(self, timeout_s: float = WAIT_S) -> int:
        """Wait until all running nodes agree on a leader among them."""

        def agreed() -> int | None:
            roles = {number: self.role(number) for number in self.running}
            leaders = {leader for _, _, leader in roles.values()}
            terms = {term for _, term, _ in roles.values()}
            (leader, *more) = leaders
            if more or len(terms) > 1 or not leader.isdigit() or int(leader) not in self.running:
                return None
            return int(leader)

        return eventually(agreed, timeout_s, state=lambda: {number: self.role(number) for number in self.running})
