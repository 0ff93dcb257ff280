"""Apache RocketMQ's controller and a nameserver, and queries to them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST
from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS, Replicas
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.replicating import ElectMasterRequest
from tests.rigs.remoting import Remote

__all__ = ["CLUSTER", "NAME", "ControllerProcess", "Group"]

CLUSTER: Final = "DefaultCluster"
NAME: Final = "broker-a"
READY_S: Final = 120.0
_HEAP: Final = ("-Xms128m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Group(NamedTuple):
    """The brokers of one name, as the controller has them. `members` are in sync."""

    master: int | None
    address: str | None
    epoch: int
    members: frozenset[int]
    alive: frozenset[int]


class ControllerProcess:
    """A controller and a nameserver in two processes."""

    def __init__(self, class_path: str, folder: Path) -> None:
        self._class_path = class_path
        self._folder = folder
        self.port, self._nameserver_port = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def nameserver(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self._nameserver_port}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start both, and wait until they are ready."""
        self._folder.mkdir(parents=True, exist_ok=True)
        namesrv, controller = self._folder / "namesrv.conf", self._folder / "controller.conf"
        namesrv.write_text(f"listenPort={self._nameserver_port}\nbindAddress={HOST}\n")
        controller.write_text(
            f"controllerDLegerGroup=group1\ncontrollerDLegerPeers=n0-{self.address}\ncontrollerDLegerSelfId=n0\n"
            f"controllerStorePath={self._folder / 'store'}\nnotifyBrokerRoleChanged=true\n"
        )
        begin = time.monotonic()
        self._run("org.apache.rocketmq.namesrv.NamesrvStartup", namesrv)
        self._run("org.apache.rocketmq.controller.ControllerStartup", controller)
        for config in (namesrv, controller):
            out = self._folder / f"{config.stem}.out"
            while b"boot success" not in out.read_bytes():
                if time.monotonic() > begin + READY_S or any(each.poll() is not None for each in self._processes):
                    text = out.read_text()[-2000:]
                    self.close()
                    raise SystemExit(f"the controller does not start: {text}")
                time.sleep(0.05)

    def _run(self, main: str, config: Path) -> None:
        settings = (f"-Duser.home={self._folder}", f"-Drocketmq.home.dir={self._folder}")
        self._processes.append(
            subprocess.Popen(
                ["java", *_HEAP, *settings, "-cp", self._class_path, main, "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=(self._folder / f"{config.stem}.out").open("wb"),
                stderr=subprocess.STDOUT,
            )
        )

    def pause(self) -> None:
        os.kill(self._processes[-1].pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._processes[-1].pid, signal.SIGCONT)

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()

    def group(self) -> Group:
        with Remote(self.port) as remote:
            answer = remote.call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, b'["%s"]' % NAME.encode())
        if answer.code != ResponseCode.SUCCESS:
            return Group(None, None, 0, frozenset(), frozenset())
        found = BROKER_REPLICAS.read(answer.body).replicas_info_table.get(NAME, Replicas())
        everyone = (*found.in_sync_replicas, *found.not_in_sync_replicas)
        return Group(
            found.master_broker_id,
            found.master_address,
            found.master_epoch,
            frozenset(each.broker_id for each in found.in_sync_replicas),
            frozenset(each.broker_id for each in everyone if each.alive),
        )

    def elect(self, broker_id: int) -> int:
        """Elect a broker as `mqadmin electMaster` does; return the code of the answer."""
        header = ElectMasterRequest(CLUSTER, NAME, broker_id, True, time.time_ns() // 1_000_000)
        fields: dict[str, Any] = {**write_header(header)}
        with Remote(self.port) as remote:
            return remote.call(RequestCode.CONTROLLER_ELECT_MASTER, **fields).code
