"""A group of RocketMQ nodes in processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.common.ports import free_ports
from bmqctl.systems.node_process import HOST
from formats.rocketmq.remoting.codes import ResponseCode
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S, eventually

MAIN = "from bmqctl.app import main; main()"
NODES = 3
OFFSETS = {"--nameserver-port": 0, "--controller-port": 1, "--port": 4, "--grpc-port": 6, "--remoting-port": 7}
PORTS_OF_GROUP = 1 + max(OFFSETS.values()) + 10 * (NODES - 1)


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, arguments)
    return found.exit_code, found.output


class Group:
    """A group that one command has started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options: list[str] = []
        self.first = free_ports(PORTS_OF_GROUP)
        self.process: subprocess.Popen[str] | None = None

    @property
    def command(self) -> list[str]:
        ports = [word for option, at in OFFSETS.items() for word in (option, str(self.first + at))]
        command = [sys.executable, "-c", MAIN, "start", "rocketmq", "-n", str(NODES), "--store", str(self.folder)]
        return [*command, *ports, *self.options]

    @property
    def nameservers(self) -> str:
        return ";".join(f"{HOST}:{self.first + 10 * number}" for number in range(NODES))

    def port(self, number: int) -> int:
        """The port of the broker of a node, from 1 on."""
        return self.first + 4 + 10 * (number - 1)

    def start(self) -> list[str]:
        """Start it, and return what it prints once it is ready."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().rstrip("\n") for _ in range(6)]
        assert lines[0], self.process.stderr.read() if self.process.stderr is not None else ""
        return lines

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(WAIT_S)
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()

    def pid(self, number: int) -> int:
        """The process of a node."""
        assert self.process is not None
        config = str(self.folder / f"node{number}")
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            if any(word.startswith(config) for word in Path(f"/proc/{pid}/cmdline").read_text().split("\0")):
                return int(pid)
        raise AssertionError(f"node{number} does not run")

    def view(self) -> dict[str, Any]:
        code, text = run("cluster", "status", "--nameserver", self.nameservers, "--json")
        assert code in (0, 1), text
        found: dict[str, Any] = json.loads(text)
        return found

    def send(self, port: int, body: bytes) -> int:
        try:
            with Remote(port) as remote:
                return remote.send_message("topic", body).code
        except (OSError, EOFError):
            return -1

    def send_soon(self, body: bytes) -> None:
        """Send to the broker that accepts the message."""
        ports = [self.port(number) for number in range(1, NODES + 1)]
        eventually(lambda: ResponseCode.SUCCESS in [self.send(port, body) for port in ports])
