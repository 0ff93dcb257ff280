"""A plugin of pytest: each `bmqctl` that a test starts is forked from a process that has its modules loaded.

Only `bmqctl.common.children.COMMAND` is forked, and only if the process would inherit the signals and the variables
that the server was started with. Other programs and other calls of `Popen` start as usual, as do all processes with
the option `--fresh-starts`.
"""

from __future__ import annotations

import inspect
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

from bmqctl.common.children import COMMAND
from tests.rigs.fork_server import PROGRAM, REQUEST_BYTES_MAX, Request, open_pidfd

__all__ = ["CAN_FORK", "NEW_INTERPRETER", "forking"]

# A command that is not forked.
NEW_INTERPRETER: Final = ("env", *COMMAND)
ROOT: Final = Path(__file__).resolve().parents[1]
_SERVER: Final = """
from tests.rigs.fork_server import PROGRAM, ended, serve
serve({})
with ended():
    exec(PROGRAM)
"""
# Variables that nothing reads before the command does. Others, an interpreter or a library may read as it starts.
_LATE_VARIABLES: Final = frozenset(
    {
        "BMQCTL_AUTHN_DATA",
        "BMQCTL_CONTEXT",
        "BMQCTL_OUTPUT",
        "BMQCTL_TO_AUTHN_DATA",
        "BMQCTL_USER_PASSWORD",
        "BMQ_PORT",
        "COLUMNS",
        "HOME",
        "JAVA_HOME",
        "ORDERS_SECRET",
        "PATH",
        "PYDANTIC_DISABLE_PLUGINS",
        "PYTEST_ADDOPTS",
        "PYTEST_CURRENT_TEST",
        "PYTEST_DEBUG_TEMPROOT",
        "XDG_CONFIG_HOME",
    }
)
# Variables that Spark sets for its JVM and its workers.
_OF_SPARK: Final = ("SPARK_", "PYSPARK_")
# A process with threads cannot be forked safely: NumPy and PyArrow make some as they are imported.
_WITHOUT_THREADS: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_LIMITS: Final = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
_SIGNALS: Final = tuple(signal.valid_signals())
_START: Final = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_PARAMETERS: Final = inspect.signature(_START)
# The values of the arguments of Popen with which a process can be forked.
_USUAL: Final[dict[str, object]] = {
    "executable": None,
    "preexec_fn": None,
    "close_fds": True,
    "pass_fds": (),
    "startupinfo": None,
    "creationflags": 0,
    "shell": False,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}
_PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


class _Server:
    """The process that forks others; it starts at the first request.

    Only processes that inherit what one made now would inherit are forked.
    """

    def __init__(self) -> None:
        self._inherited = _inherited(dict(os.environ))
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, call: dict[str, Any]) -> tuple[int, int] | None:
        """Return the id of the process and the pipe for its status, or None if it has to start in another way."""
        request = _request(call)
        given = (call["p2cread"], call["c2pwrite"], call["errwrite"])
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(given)]
        message = pickle.dumps(request)
        if len(message) > REQUEST_BYTES_MAX or not Path(request.folder).is_dir() or any(map(os.isatty, streams)):
            return None
        if _inherited(request.environment) != self._inherited:
            return None
        with self._lock:
            if self._socket is None:
                self._socket = self._start(request.environment)
            reading, writing = os.pipe()
            socket.send_fds(self._socket, [message], [*streams, writing])
            os.close(writing)
            answer = self._socket.recv(16)
        assert answer, "the server that forks commands has ended"
        return int(answer), reading

    def _start(self, environment: dict[str, str]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER.format(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                cwd=ROOT,
                env={**environment, **_WITHOUT_THREADS, "PYDANTIC_DISABLE_PLUGINS": "1"},
            )
        return ours

    def close(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.communicate()


class _Forked(subprocess.Popen[Any]):
    """A process whose parent is the server, which tells its end by a pipe."""

    _status: int

    def _internal_poll(self, _deadstate: int | None = None, *_: object) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        os.set_blocking(self._status, not wait_flags & os.WNOHANG)
        try:
            told = os.read(self._status, 16)
        except BlockingIOError:
            return 0, 0
        os.close(self._status)
        # Without a word, the server has been killed, and nobody knows.
        return self.pid, int(told or 0x7F00)


def _request(call: dict[str, Any]) -> Request:
    return Request(
        [str(each) for each in call["args"][len(COMMAND) :]],
        dict(os.environ if call["env"] is None else call["env"]),
        str(Path(call["cwd"] or ".").absolute()),
        bool(call["start_new_session"]),
        {each: resource.getrlimit(each) for each in _LIMITS},
    )


def _inherited(environment: dict[str, str]) -> object:
    """Return what a new process inherits and a forked one cannot be given."""
    return (
        {
            name: value
            for name, value in environment.items()
            if name not in _LATE_VARIABLES and not name.startswith(_OF_SPARK)
        },
        [signal.getsignal(each) is signal.SIG_IGN for each in _SIGNALS],
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:")],
    )


def _adopt(process: Any, call: dict[str, Any], pid: int, status_pipe: int) -> None:
    """Make an object of `Popen` the one of a forked process."""
    process.__class__ = _Forked
    process.pid, process._status = pid, status_pipe
    process._child_created = True
    process._close_pipe_fds(*(call[name] for name in _PIPES))


def _execute_child(self: Any, *given: Any) -> None:
    call = _PARAMETERS.bind(self, *given).arguments
    args = call["args"]
    is_command = isinstance(args, (list, tuple)) and tuple(args[: len(COMMAND)]) == COMMAND
    is_usual = all(call.get(name, usual) == usual for name, usual in _USUAL.items())
    if type(self) is subprocess.Popen and is_command and is_usual:
        sys.audit("subprocess.Popen", args[0], list(args), call["cwd"], call["env"])
        forked = _servers[-1].fork(call)
        if forked is not None:
            _adopt(self, call, *forked)
            return
    _START(self, *given)


def _can_fork() -> bool:
    if open_pidfd is None:
        return False
    try:
        os.close(open_pidfd(os.getpid()))
    except OSError:
        return False
    return True


# The one in use is the last.
_servers: list[_Server] = []


@contextmanager
def forking() -> Iterator[None]:
    """Fork commands in the block, by a server of its own."""
    before = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    _servers.append(_Server())
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
    try:
        yield
    finally:
        subprocess.Popen._execute_child = before  # type: ignore[attr-defined]
        _servers.pop().close()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    assert COMMAND[-1] == PROGRAM
    with nullcontext() if session.config.getoption("--fresh-starts") or not CAN_FORK else forking():
        return (yield)


CAN_FORK: Final = _can_fork()
