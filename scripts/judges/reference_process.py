"""The reference's broker as a separate process, and the interface that it shares with ours."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Protocol

from bmqctl.systems.node_process import HOST, NodeFailed

__all__ = ["ReferenceProcess", "Running"]

STOP_S = 60.0


class Running(Protocol):
    """A node's process, of either program."""

    port: int
    data_dir: Path

    @property
    def uri(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def is_running(self) -> bool: ...

    def cpu_s(self) -> float: ...

    @property
    def output(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> int: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class ReferenceProcess:
    """The reference's broker on one node's folder; it has the interface of `bmqctl.systems.node_process`."""

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

    def cpu_s(self) -> float:
        """The user and system time of all its threads, in seconds."""
        # The program's name, in parentheses, precedes the columns counted here.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """The output of the process since its last start."""
        if not self._console.exists():
            return ""
        with self._console.open("rb") as file:
            file.seek(self._began)
            return file.read().decode(errors="replace")

    def start(self) -> ReferenceProcess:
        for needed in (self.data_dir / "archive", self._folder / "logs"):
            needed.mkdir(parents=True, exist_ok=True)
        self._began = self._console.stat().st_size if self._console.exists() else 0
        # Files of a killed process would keep the next one from starting.
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
