"""A process that has all modules of the tools loaded, and forks each `bmqctl` that a test starts.

    python -c "from tests.rigs.fork_server import PROGRAM, ended, serve; serve(3)
    with ended(): exec(PROGRAM)"

An interpreter takes half a second of processor time to import a broker's modules; a fork takes a tenth of that. A
forked process continues with the program's own text in the main module, and handles signals and exceptions as a new
interpreter would.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import pkgutil
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

__all__ = ["PROGRAM", "REQUEST_BYTES_MAX", "Request", "ended", "load", "load_late", "open_pidfd", "serve"]

# None except on Linux.
open_pidfd: Any = getattr(os, "pidfd_open", None)
# The text of `bmqctl.common.children.COMMAND`.
PROGRAM: Final = "from bmqctl.app import main; main()"
REQUEST_BYTES_MAX: Final = 100_000
_NEEDS_SPARK: Final = "bmqctl.pipeline"
# Some are private to a library: other versions may not have them.
_LATE_MODULES: Final = (
    "anyio._backends._trio",
    "cryptography.hazmat.primitives.serialization",
    "cryptography.x509",
    "encodings.ascii",
    "encodings.idna",
    "numpy.ma",
    "rich._emoji_codes",
    "typer._adapters",
    "typer._click._textwrap",
    "typer._click.decorators",
)
# Standard input, output and error, then the pipe for the exit status.
_DESCRIPTORS: Final = 4


class Request(NamedTuple):
    """A process to fork: its settings beside its descriptors."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    starts_session: bool
    limits: dict[int, tuple[int, int]]


def load() -> None:
    import bmqctl

    _load((bmqctl,))


def load_late() -> None:
    """Import the modules that commands and libraries import on first use, and make the commands."""
    from typer.main import get_command

    import broker
    from bmqctl.app import app

    _make(get_command(app))
    _load((broker,), _LATE_MODULES)


def _make(command: Any) -> None:
    for parameter in command.params:
        parameter.get_runtime_param()
    for name in getattr(command, "commands", ()):
        _, found, _ = command.resolve_command(None, [name])
        _make(found)


def _load(packages: tuple[ModuleType, ...], names: tuple[str, ...] = ()) -> None:
    for package in packages:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(_NEEDS_SPARK):
                import_module(module.name)
    for name in names:
        with suppress(ImportError):
            import_module(name)
    # Uncollected objects are not copied for each process.
    gc.collect()
    gc.freeze()


def serve(number: int) -> None:
    """Fork a process for each request at socket `number`; return only in the forked processes.

    The answer to a request is the process's id. At the process's end its status, as `waitpid` returns it, is written to
    the pipe that came with the request. The server ends when the other end of the socket is closed.
    """
    at_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    load()
    load_late()
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a process with threads cannot be forked safely"
    requests = socket.socket(fileno=number)
    poller = select.poll()
    poller.register(number, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in poller.poll():
            if ready != number:
                poller.unregister(ready)
                pid, status_pipe = children.pop(ready)
                _tell_end(pid, status_pipe)
                os.close(ready)
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, _DESCRIPTORS)
            if not message:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                requests.detach()
                signal.signal(signal.SIGINT, at_interrupt)
                _become(pickle.loads(message), descriptors)
                return
            for each in descriptors[:3]:
                os.close(each)
            ended = open_pidfd(pid)
            children[ended] = (pid, descriptors[3])
            poller.register(ended, select.POLLIN)
            requests.send(str(pid).encode())


@contextmanager
def ended() -> Iterator[None]:
    """Run the program in the block, then end the process without clearing the modules, which would copy all of them.

    Exceptions other than SystemExit with a number, and streams that cannot be flushed, are left to the interpreter.
    """
    code = 0
    try:
        yield
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    # As the interpreter does.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code & 0xFF)


def _tell_end(pid: int, status_pipe: int) -> None:
    _, status = os.waitpid(pid, 0)
    # A test that has forgotten the process has closed its end.
    with suppress(BrokenPipeError):
        os.write(status_pipe, str(status).encode())
    os.close(status_pipe)


def _become(request: Request, descriptors: list[int]) -> None:
    """Give this process the settings of a new one."""
    for number, given in enumerate(descriptors[:3]):
        os.dup2(given, number)
    os.closerange(3, max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1)
    if request.starts_session:
        os.setsid()
    for limit, given_limits in request.limits.items():
        if resource.getrlimit(limit) != given_limits:
            resource.setrlimit(limit, given_limits)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv = ["-c", *request.words]
