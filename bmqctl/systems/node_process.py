"""A node as a separate process: started on a free port, awaited, stopped or killed, always with a time limit."""

from __future__ import annotations

import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bmqctl.common.children import COMMAND, release, start_child
from bmqctl.common.ports import free_port, free_ports, free_rocketmq_port
from broker.shell.host import calls

__all__ = [
    "ClusterProcess",
    "ControllerProcess",
    "NodeFailed",
    "NodeProcess",
    "ProxyProcess",
    "RocketProcess",
    "RocketProxyProcess",
]

HOST = "127.0.0.1"
LOG_NAME = "bmqbrkr.log"
PID_NAME = "bmqbrkr.pid"
ROCKETMQ_LOG_NAME = "bmqctl.log"

# A limit for a start, an end or a line of the log that never comes: a busy machine is many times slower.
START_S: Final = 120.0


class NodeFailed(Exception):
    """Failure of a node: it ended, or was not ready in time (`exit_code` None); `output` is its stderr."""

    def __init__(self, what: str, exit_code: int | None, output: str) -> None:
        super().__init__(f"{what}\n{output[-4000:]}")
        self.exit_code = exit_code
        self.output = output


class NodeProcess:
    """`bmqctl start node` with its files in `data_dir`, running inside the `with` block.

    It ends with the process that started it, even if that is killed.

    Without `config_dir` it is a single-node cluster with the sample domains. `port` stays over restarts, so that
    clients find the node again. `command` precedes `start node`: the program, if it is not this one. `options` follow
    it; changes take effect at the next start. `ready_s` is the time from the start of the process to the line that
    reports readiness, `ready_line`.
    """

    log_name = LOG_NAME

    def __init__(
        self,
        data_dir: Path,
        *,
        config_dir: Path | None = None,
        port: int | None = None,
        timeout_s: float = START_S,
        command: Sequence[str] = COMMAND,
        options: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.config_dir = config_dir
        self.port = free_port() if port is None else port
        self.timeout_s = timeout_s
        self.ready_line = ""
        self.ready_s = 0.0
        self.command = tuple(command)
        self.options = tuple(options)
        self._process: subprocess.Popen[str] | None = None
        self._console = _Console()

    @property
    def uri(self) -> str:
        """The node's address as a client's broker URI."""
        return f"tcp://{HOST}:{self.port}"

    @property
    def address(self) -> str:
        """The node's address for other brokers, HOST:PORT."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        """Return True if it was started and has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        return self._console.text()

    @property
    def log(self) -> str:
        return (self.data_dir / self.log_name).read_text()

    @property
    def pid_file(self) -> Path:
        return self.data_dir / PID_NAME

    def start(self) -> Self:
        """Start it and wait until it is ready. Raises `NodeFailed` if it ends instead, or takes too long."""
        assert self._process is None, "the node is already running"
        started = time.monotonic()
        process = start_child(
            [*self._words(), *self.options],
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._process = process
        self._console = _Console()
        self._console.follow(process)
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            spoke = bool(selector.select(self.timeout_s))
        # It prints one whole line, or nothing and ends.
        self.ready_line = process.stdout.readline().rstrip("\n") if spoke else ""
        self.ready_s = time.monotonic() - started
        if not self.ready_line:
            if not spoke:
                # Immediately: its later log would read as if it had been ready.
                process.kill()
            code = self._end(signal.SIGTERM)
            what = f"the node ended with {code}" if spoke else f"the node was not ready in {self.timeout_s} s"
            raise NodeFailed(what, code if spoke else None, self.output)
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and wait; return the exit code. It is killed if it does not end in time."""
        self._running.send_signal(how)
        return self._end(signal.SIGKILL)

    def wait(self) -> int:
        """Wait for it to end by itself; return the exit code. It is killed if it does not end in time."""
        return self._end(signal.SIGKILL)

    def close(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self.stop(how)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a crash would."""
        self.stop(signal.SIGKILL)

    def restart(self, how: signal.Signals = signal.SIGTERM) -> Self:
        self.stop(how)
        return self.start()

    def wait_for(self, text: str, timeout_s: float = START_S, skip: int = 0) -> str:
        """Wait for a line with `text` on stderr, which includes the log; return the first such line since the start.

        Ignores the first `skip` lines: with an earlier `log_length`, those before that moment.
        """
        return self._console.wait_for(text, timeout_s, skip)

    @property
    def log_length(self) -> int:
        """The number of lines on stderr so far."""
        return self._console.length()

    def rss_bytes(self) -> int:
        """The anonymous memory of the process, without its mapped files."""
        return calls.HOST.anonymous_memory(self.pid)

    def cpu_s(self) -> float:
        """The user and system time of all its threads so far, in seconds."""
        return calls.HOST.cpu_s(self.pid)

    def open_files(self) -> int:
        return calls.HOST.open_files(self.pid)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _words(self) -> list[str]:
        given = [] if self.config_dir is None else [str(self.config_dir)]
        return ["start", "node", *given, "--port", str(self.port), "--data-dir", str(self.data_dir)]

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the node is not running"
        return self._process

    def _end(self, at_last: signal.Signals) -> int:
        """Wait for the end; send `at_last` if it does not come in time."""
        process = self._running
        try:
            process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            process.send_signal(at_last)
            process.wait(self.timeout_s)
        release(process)
        self._console.close()
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return process.returncode


class ClusterProcess(NodeProcess):
    """`bmqctl start cluster` with `count` nodes in `data_dir`, which listen on `port` and those after it.

    Each node's log is in its own folder. Otherwise like a node.
    """

    def __init__(
        self, data_dir: Path, count: int = 3, *, timeout_s: float = START_S, options: Sequence[str] = ()
    ) -> None:
        super().__init__(data_dir, port=free_ports(count), timeout_s=timeout_s, options=options)
        self.count = count

    @property
    def addresses(self) -> list[str]:
        """The nodes' addresses for other brokers, HOST:PORT."""
        return [f"{HOST}:{self.port + number}" for number in range(self.count)]

    def _words(self) -> list[str]:
        where = ["--dir", str(self.data_dir), "--port", str(self.port)]
        return ["start", "cluster", "--nodes", str(self.count), *where]


class ProxyProcess(NodeProcess):
    """`bmqctl start proxy` for `upstream`, HOST:PORT of each broker; its log is in `data_dir`. Otherwise a node."""

    def __init__(
        self,
        data_dir: Path,
        upstream: Sequence[str],
        *,
        port: int | None = None,
        timeout_s: float = START_S,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, port=port, timeout_s=timeout_s, options=options)
        self.upstream = tuple(upstream)

    def wait_available(self, timeout_s: float = START_S) -> None:
        """Wait until it has a broker upstream."""
        self.wait_for("is available", timeout_s)

    def _words(self) -> list[str]:
        where = ["--port", str(self.port), "--data-dir", str(self.data_dir)]
        return ["start", "proxy", "--upstream", ",".join(self.upstream), *where, "--log-level", "info"]


class RocketProcess(NodeProcess):
    """`bmqctl start rocketmq`: a nameserver on `nameserver_port`, a broker on `port`, gRPC on `grpc_port`.

    `remoting_port` is both nameserver and broker. With 0 for one of the last two, it is not served. Otherwise like a
    node.
    """

    log_name = ROCKETMQ_LOG_NAME

    def __init__(
        self,
        data_dir: Path,
        *,
        config_file: Path | None = None,
        port: int | None = None,
        nameserver_port: int | None = None,
        grpc_port: int | None = None,
        timeout_s: float = START_S,
        command: Sequence[str] = COMMAND,
        options: Sequence[str] = (),
    ) -> None:
        port = free_rocketmq_port() if port is None else port
        super().__init__(data_dir, port=port, timeout_s=timeout_s, command=command, options=options)
        self.config_file = config_file
        self.nameserver_port = free_port() if nameserver_port is None else nameserver_port
        self.grpc_port = free_port() if grpc_port is None else grpc_port
        self.remoting_port = free_port()

    @property
    def nameserver(self) -> str:
        """The nameserver's address for clients, HOST:PORT."""
        return f"{HOST}:{self.nameserver_port}"

    @property
    def endpoint(self) -> str:
        """The address for clients that speak gRPC, HOST:PORT."""
        return f"{HOST}:{self.grpc_port}"

    def _words(self) -> list[str]:
        given = [] if self.config_file is None else ["--config", str(self.config_file)]
        ports = ["--port", str(self.port), "--nameserver-port", str(self.nameserver_port)]
        ports += ["--grpc-port", str(self.grpc_port)] if self.grpc_port else ["--no-grpc"]
        ports += ["--remoting-port", str(self.remoting_port)] if self.remoting_port else ["--no-remoting"]
        return ["start", "rocketmq", *given, *ports, "--store", str(self.data_dir), "--log-level", "info"]


class RocketProxyProcess(NodeProcess):
    """`bmqctl start rocketmq-proxy` with its log in `data_dir`: gRPC on `port`, remoting clients on `remoting_port`.

    Otherwise like a node.
    """

    log_name = ROCKETMQ_LOG_NAME

    def __init__(
        self,
        data_dir: Path,
        nameservers: Sequence[str],
        *,
        port: int | None = None,
        remoting_port: int | None = None,
        timeout_s: float = START_S,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, port=port, timeout_s=timeout_s, options=options)
        self.nameservers = tuple(nameservers)
        self.remoting_port = free_port() if remoting_port is None else remoting_port

    @property
    def nameserver(self) -> str:
        """The nameserver address for clients of the remoting protocol, HOST:PORT."""
        return f"{HOST}:{self.remoting_port}"

    @property
    def endpoint(self) -> str:
        """The address for clients that speak gRPC, HOST:PORT."""
        return self.address

    def _words(self) -> list[str]:
        where = ["--grpc-port", str(self.port), "--remoting-port", str(self.remoting_port)]
        where += ["--data-dir", str(self.data_dir)]
        given = ["--nameserver", ";".join(self.nameservers)]
        return ["start", "rocketmq-proxy", *given, *where, "--log-level", "info"]


class ControllerProcess(NodeProcess):
    """`bmqctl start rocketmq-controller`. `peers` are all controllers in the option's form; None for a single one."""

    log_name = ROCKETMQ_LOG_NAME

    def __init__(
        self,
        data_dir: Path,
        *,
        self_id: str = "n0",
        peers: str | None = None,
        port: int | None = None,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir, port=port, options=options)
        self.self_id = self_id
        self.peers = peers

    def _words(self) -> list[str]:
        group = ["--port", str(self.port)] if self.peers is None else ["--peers", self.peers, "--self-id", self.self_id]
        return ["start", "rocketmq-controller", *group, "--store", str(self.data_dir), "--log-level", "info"]


class _Console:
    """The lines of a process's stderr, as they come."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader: threading.Thread | None = None

    def follow(self, process: subprocess.Popen[str]) -> None:
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.join()

    def text(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def length(self) -> int:
        with self._changed:
            return len(self._lines)

    def wait_for(self, text: str, timeout_s: float, skip: int) -> str:
        deadline = time.monotonic() + timeout_s
        seen = skip
        with self._changed:
            while True:
                for line in self._lines[seen:]:
                    if text in line:
                        return line.rstrip("\n")
                seen = len(self._lines)
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    raise TimeoutError(
                        f"no line with {text!r} in {timeout_s} s; last lines:\n{''.join(self._lines[-30:])}"
                    )
                self._changed.wait(left)
