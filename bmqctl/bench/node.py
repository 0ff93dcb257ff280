"""A broker node of our own, started to be measured."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

__all__ = ["Node", "NodeFailed", "free_port", "own_command"]

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
_STAT_UTIME, _STAT_STIME = 13, 14


class NodeFailed(Exception):
    """The node did not start; the text is what it said."""


def free_port() -> int:
    """A port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def own_command() -> list[str]:
    """The words that run this program."""
    if getattr(sys, "frozen", False):
        return [sys.executable]
    return [sys.executable, "-c", "from bmqctl.app import main; main()"]


class Node:
    """`bmqctl start node` on a free port, with its store in `data_dir`; ends with the `with` block.

    `ready_s` is the time from the start of the process to its line on standard output.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.ready_s = 0.0
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Node:
        command = [*own_command(), "start", "node", "--port", str(self.port), "--data-dir", str(self.data_dir)]
        self.data_dir.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        said = self.data_dir.with_suffix(".stderr")
        with said.open("w") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ready_s = time.monotonic() - started
        if not line:
            process, self.process = self.process, None
            process.communicate(timeout=STOP_TIMEOUT_S)
            raise NodeFailed(said.read_text()[-2000:] or f"status {process.returncode}, no word")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.end(signal.SIGTERM)

    def end(self, how: signal.Signals) -> None:
        """Send the signal and wait; kill what does not end."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def cpu_s(self) -> float:
        """User and system time of all the node's threads so far, in seconds."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        # The second field is the program's name in parentheses, and may hold anything.
        fields = stat[stat.rindex(")") + 2 :].split()
        ticks = int(fields[_STAT_UTIME - 2]) + int(fields[_STAT_STIME - 2])
        return ticks / os.sysconf("SC_CLK_TCK")
