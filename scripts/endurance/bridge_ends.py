"""The nodes at the ends of scripts/soak-bridge, ours or the originals, and the relays before them."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, RocketProcess
from scripts.judges.rocketmq_reference import ReferenceProcess
from scripts.mixtures.cluster import MixedCluster
from scripts.mixtures.config import EVENTUAL

__all__ = ["DOMAIN", "Broken", "End", "Relay", "make_blazingmq", "make_rocketmq"]

DOMAIN: Final = EVENTUAL
# A busy machine starts nodes slowly.
START_S: Final = 600.0
# The address that a RocketMQ node advertises, where its relay listens.
OUTSIDE: Final = "127.0.0.2"
_MIB: Final = 1 << 20
_SIZES: Final = {"maxDataFileSize": 512 * _MIB, "maxJournalFileSize": 256 * _MIB, "maxQlistFileSize": 32 * _MIB}
_HEAP: Final = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Broken(Exception):
    """A run that cannot continue; the text is one line."""


class Relay:
    """A process that carries the connections to one port, so that they can be cut or made silent."""

    def __init__(self, remote_port: int, address: str = HOST, port: int | None = None) -> None:
        self.port = free_port() if port is None else port
        self._words = ["-r", f"{HOST}:{remote_port}", "-a", address, "-p", str(self.port)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> list[int]:
        return [] if self._process is None else [self._process.pid]

    def start(self) -> None:
        command = [sys.executable, "-m", "scripts.judges.tcp_relay", *self._words]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._process = process
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(START_S) or not process.stdout.readline():
                raise Broken(f"the relay on port {self.port} does not listen")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class End(NamedTuple):
    """A node, the ways to start and end it, and the relays through which a bridge reaches it."""

    start: Callable[[], object]
    stop: Callable[[], object]
    kill: Callable[[], object]
    pids: Callable[[], Sequence[int]]
    relays: list[Relay]
    # The node's own port, and for RocketMQ that of its nameserver.
    port: int

    def send(self, what: signal.Signals) -> None:
        for pid in self.pids():
            os.kill(pid, what)


def make_blazingmq(folder: Path, reference: Path | None) -> End:
    """Make a BlazingMQ node, the reference's if its folder is given, without starting it."""
    executable = (reference / "bmqbrkr.tsk").absolute() if reference else Path()
    if reference is not None and not executable.exists():
        raise Broken(f"{executable} is not there")
    cluster = MixedCluster(folder, executable, (1,) if reference else (), count=1, sizes=_SIZES, timeout_s=START_S)
    node = cluster.nodes[1]
    return End(
        lambda: cluster.start(1),
        lambda: cluster.stop(1),
        lambda: cluster.kill(1),
        lambda: [node.pid] if node.is_running else [],
        [Relay(node.port)],
        node.port,
    )


def make_rocketmq(folder: Path, class_path: str | None) -> End:
    """Make a RocketMQ node, Apache's if its class path is given, without starting it."""
    told = f"brokerIP1={OUTSIDE}\nbindAddress={HOST}\n"
    if class_path is not None:
        theirs = ReferenceProcess(class_path, folder, told, _HEAP)
        port = int(theirs.nameserver.rpartition(":")[2])
        relays = [Relay(port), Relay(theirs.port, OUTSIDE, theirs.port)]
        return End(theirs.start, theirs.close, theirs.kill, lambda: theirs.pids, relays, port)
    folder.mkdir(parents=True)
    config = folder / "broker.conf"
    config.write_text(told)
    ours = RocketProcess(folder / "store", config_file=config, grpc_port=0, timeout_s=START_S)
    ours.remoting_port = 0
    relays = [Relay(ours.nameserver_port), Relay(ours.port, OUTSIDE, ours.port)]
    return End(
        ours.start,
        ours.stop,
        ours.kill,
        lambda: [ours.pid] if ours.is_running else [],
        relays,
        ours.nameserver_port,
    )
