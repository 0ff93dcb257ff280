"""A cluster on this host whose nodes are ours or the reference's; each can take over the other's folder.

The reference's broker is an executable that the caller names; nothing of it is part of this project.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from bmqctl.node_process import HOST, NodeFailed, NodeProcess
from broker.bmq.config.local_cluster import write_local_cluster
from scripts.cluster_load import wait_until
from tests.integration.cluster_processes import free_ports

__all__ = ["MixedCluster", "ReferenceProcess"]

STOP_S = 60.0

_LEADER = re.compile(r"node (\d+) is (\w+) \[term: (\d+), leader: (\w+)\]")
_PARTITION = re.compile(
    r"Partition \[(\d+)\](?:: \w+, \w+ -> (\w+)| on Event '\w+', transition: State '\w+' =>  State '(\w+)')"
)
_HEALED = {"PRIMARY_HEALED", "REPLICA_HEALED"}

# What the reference's parser insists on and our defaults leave out; the values are those of its sample.
_QUEUES = {"queueSize": 500_000, "queueSizeLowWatermark": 100_000, "queueSizeHighWatermark": 200_000}
_LOG = {
    "fileName": "logs/log",
    "fileMaxAgeDays": 10,
    "rotationBytes": 1 << 28,
    "logfileFormat": "%d (%t) %s %F:%l %m\n",
    "consoleFormat": "%d (%t) %s %F:%l %m\n",
    "loggingVerbosity": "INFO",
    "consoleSeverityThreshold": "INFO",
    "categories": ["BMQBRKR:INFO:green", "BMQ*:INFO:green", "MQB*:INFO:green"],
    "syslog": {"enabled": False, "appName": "BMQ", "logFormat": "%d %m", "verbosity": ""},
}
_ELECTOR = {
    "initialWaitTimeoutMs": 3000,
    "maxRandomWaitTimeoutMs": 1000,
    "scoutingResultTimeoutMs": 2000,
    "electionResultTimeoutMs": 2000,
    "heartbeatBroadcastPeriodMs": 1000,
    "heartbeatCheckPeriodMs": 500,
    "heartbeatMissCount": 6,
    "quorum": 0,
    "leaderSyncDelayMs": 80_000,
}


class Running(Protocol):
    """A node's process, whoever wrote the program."""

    port: int
    data_dir: Path

    @property
    def uri(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def is_running(self) -> bool: ...

    @property
    def output(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> int: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class ReferenceProcess:
    """The reference's broker on one node's folder; the interface is that of `bmqctl.node_process.NodeProcess`."""

    def __init__(self, executable: Path, folder: Path, port: int, timeout_s: float) -> None:
        self.data_dir = folder / "storage"
        self.port = port
        self._executable = executable
        self._folder = folder
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._console = folder / "reference.out"
        self._began = 0

    @property
    def uri(self) -> str:
        return f"tcp://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """The output of the process since it was last started."""
        if not self._console.exists():
            return ""
        with self._console.open("rb") as file:
            file.seek(self._began)
            return file.read().decode(errors="replace")

    def start(self) -> ReferenceProcess:
        for needed in (self.data_dir / "archive", self._folder / "logs"):
            needed.mkdir(parents=True, exist_ok=True)
        self._began = self._console.stat().st_size if self._console.exists() else 0
        # What a process that was killed leaves would keep the next from starting.
        for name in ("bmqbrkr.pid", "bmqbrkr.ctl"):
            (self._folder / name).unlink(missing_ok=True)
        with self._console.open("ab") as console:
            self._process = subprocess.Popen(
                [str(self._executable), str(self._folder)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + self._timeout_s
        while "BMQbrkr started successfully" not in self.output:
            if not self.is_running or time.monotonic() > deadline:
                self.kill()
                raise NodeFailed(f"the reference's broker in {self._folder} did not start", None, self.output)
            time.sleep(0.05)
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return code

    def kill(self) -> None:
        if self._process is not None:
            self.stop(signal.SIGKILL)

    def close(self) -> None:
        if self._process is not None:
            self.stop()


class MixedCluster:
    """`nodes[id]`, of which those in `foreign` run the reference's executable. All end with the `with` block."""

    def __init__(
        self,
        directory: Path,
        executable: Path,
        foreign: Sequence[int],
        *,
        count: int = 3,
        sizes: Mapping[str, int],
        partitions: int = 2,
        timeout_s: float = 120.0,
    ) -> None:
        self.executable = executable
        self.timeout_s = timeout_s
        self.first_port = free_ports(count)
        self.folders = dict(enumerate(write_local_cluster(directory, count, HOST, self.first_port), 1))
        self.foreign = set(foreign)
        self.nodes: dict[int, Running] = {}
        self.running: set[int] = set()
        for number, folder in self.folders.items():
            _adapt(folder, f"node{number}", sizes, partitions)
            self._make(number)

    def _make(self, number: int) -> None:
        folder, port = self.folders[number], self.first_port + number - 1
        if number in self.foreign:
            self.nodes[number] = ReferenceProcess(self.executable, folder, port, self.timeout_s)
        else:
            options = ("--log-level", "info")
            self.nodes[number] = NodeProcess(
                folder / "storage", config_dir=folder, port=port, timeout_s=self.timeout_s, options=options
            )

    def __enter__(self) -> MixedCluster:
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
            self.nodes[number].kill()

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
        """A node that does not run is from now on the other program's."""
        assert number not in self.running
        self.foreign ^= {number}
        self._make(number)

    def kill_all(self) -> None:
        """End all at one moment, so that no one's end is heard of."""
        for number in self.running:
            os.kill(self.nodes[number].pid, signal.SIGSTOP)
        for number in list(self.running):
            self.kill(number)

    def leader(self) -> int | None:
        """The leader that our nodes agree on, if they do."""
        found = {self._leader_seen_by(number) for number in self.running - self.foreign}
        return found.pop() if len(found) == 1 else None

    def _leader_seen_by(self, number: int) -> int | None:
        seen = _LEADER.findall(self.nodes[number].output)
        return int(seen[-1][3]) if seen and seen[-1][3].isdigit() else None

    def check_alive(self) -> None:
        """Raise `NodeFailed` if one ended by itself."""
        dead = [number for number in self.running if not self.nodes[number].is_running]
        if dead:
            tails = [self.nodes[number].output[-3000:] for number in dead]
            raise NodeFailed(f"nodes {dead} ended by themselves", None, "\n".join(tails))

    def wait_healed(self) -> None:
        """Wait until each that runs takes part and has its partitions in order, in the words of both programs."""

        def missing() -> dict[int, str]:
            self.check_alive()
            found = {}
            for number in self.running:
                output = self.nodes[number].output
                states = {each: ours or theirs for each, ours, theirs in _PARTITION.findall(output)}
                if "is available" not in output or not states or set(states.values()) - _HEALED:
                    found[number] = str(states)
            return found

        wait_until(lambda: not missing(), self.timeout_s, lambda: f"nodes do not heal: {missing()}")


def _adapt(folder: Path, name: str, sizes: Mapping[str, int], partitions: int) -> None:
    """Make a node's files such as both programs take."""
    file = folder / "bmqbrkrcfg.json"
    broker = json.loads(file.read_text())
    task, app = broker["taskConfig"], broker["appConfig"]
    task.update(allocatorType="COUNTING", allocationLimit=1 << 35, logController=_LOG)
    processors = {"numProcessors": 1, "processorConfig": _QUEUES}
    app.update(hostName=name, brokerVersion=999_999, configVersion=999_999)
    app["dispatcherConfig"] = dict.fromkeys(("sessions", "queues", "clusters"), processors)
    app["stats"]["printer"].update(file="logs/stat", maxAgeDays=1)
    app["networkInterfaces"]["tcpInterface"]["ioThreads"] = 2
    for newer in ("authentication", "authorization"):
        app.pop(newer, None)
    file.write_text(json.dumps(broker, indent=2))
    file = folder / "clusters.json"
    clusters: dict[str, Any] = json.loads(file.read_text())
    (cluster,) = clusters["myClusters"]
    cluster["partitionConfig"].update(sizes, numPartitions=partitions)
    cluster["elector"] = _ELECTOR
    cluster["clusterAttributes"].update(isCSLModeEnabled=True, isFSMWorkflow=True)
    file.write_text(json.dumps(clusters, indent=2))
