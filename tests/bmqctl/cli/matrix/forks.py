"""Runs of commands under odd conditions, each in a process that is forked from one with all modules loaded.

    python -m tests.bmqctl.cli.matrix.forks < runs.jsonl > outcomes.jsonl

An empty line ends a batch of runs, which then begin; one batch has all that are given few descriptors. A run takes
about 40 ms in this way, and a second if an interpreter starts for each. It is given its standard streams, descriptors
and environment before the command begins, as a shell would give them.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tests.bmqctl.cli.matrix import conditions
from tests.rigs.fork_server import load, load_late

__all__ = ["Outcome", "Run"]

PARALLEL = 2
# Between two looks at whether a run listens.
POLL_S = 0.02
PR_SET_PDEATHSIG = 1


class Run(NamedTuple):
    """A command under a condition.

    One that listens on `port` is sent SIGTERM once it listens there. One that takes longer than `limit_s` hangs.
    """

    name: str
    condition: str
    words: list[str]
    environment: dict[str, str]
    folder: str
    port: int | None
    limit_s: float

    @classmethod
    def from_json(cls, line: str) -> Run:
        return cls(**json.loads(line))

    def to_json(self) -> str:
        return json.dumps(self._asdict())


class Outcome(NamedTuple):
    """The end of a run. `code` is negative after a signal; `hangs` says that it had to be killed."""

    name: str
    condition: str
    code: int
    hangs: bool
    out: str
    errors: str
    seconds: float

    @classmethod
    def from_json(cls, line: str) -> Outcome:
        return cls(**json.loads(line))


class _Child(NamedTuple):
    """A run; `process` is readable when it has ended."""

    pid: int
    # Readable once the process has ended; None where the system has no such descriptors.
    process: int | None
    run: Run
    began_s: float


def main() -> None:
    """Carry out the runs of standard input, some at a time; print each outcome as it comes."""
    load()
    for runs in _batches():
        few = [run for run in runs if run.condition in conditions.FEW_DESCRIPTORS]
        _carry_out(few)
        if few:
            # With few descriptors a command may be unable to import a module.
            load_late()
        _carry_out([run for run in runs if run.condition not in conditions.FEW_DESCRIPTORS])


def _batches() -> Iterator[list[Run]]:
    runs: list[Run] = []
    for line in sys.stdin:
        if line.strip():
            runs.append(Run.from_json(line))
        else:
            yield runs
            runs = []


def _carry_out(left: list[Run]) -> None:
    children: list[_Child] = []
    told: set[int] = set()
    while left or children:
        while left and len(children) < PARALLEL:
            run = left.pop(0)
            pid = _fork(run)
            children.append(_Child(pid, _descriptor_of(pid), run, time.monotonic()))
        select.select([child.process for child in children if child.process is not None], (), (), POLL_S)
        for child in list(children):
            status = _ended(child, told)
            if status is not None:
                children.remove(child)
                if child.process is not None:
                    os.close(child.process)
                print(json.dumps(_outcome(child, *status)._asdict()), flush=True)


def _descriptor_of(pid: int) -> int | None:
    found: int | None = None
    if sys.platform == "linux":
        found = os.pidfd_open(pid)
    return found


def _ended(child: _Child, told: set[int]) -> tuple[int, bool] | None:
    """Return the exit code of a run, and whether it hung; None while it runs. Processes in `told` were stopped."""
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    if pid:
        return os.waitstatus_to_exitcode(status), False
    if time.monotonic() - child.began_s > child.run.limit_s:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        return -signal.SIGKILL, True
    is_ready = child.run.port is not None and _takes_signals(child.pid) and _listens(child.run.port)
    if is_ready and child.pid not in told:
        told.add(child.pid)
        os.kill(child.pid, signal.SIGTERM)
    return None


def _takes_signals(pid: int) -> bool:
    """Return whether a process has a handler of SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def _listens(port: int) -> bool:
    for host in ("127.0.0.1", "::1"):
        with suppress(OSError), socket.create_connection((host, port), 1):
            return True
    return False


def _outcome(child: _Child, code: int, hangs: bool) -> Outcome:
    out, errors = (_text(Path(child.run.folder, name)) for name in ("out", "errors"))
    return Outcome(child.run.name, child.run.condition, code, hangs, out, errors, time.monotonic() - child.began_s)


def _text(path: Path) -> str:
    return path.read_text(errors="backslashreplace")[-4000:] if path.exists() else ""


def _fork(run: Run) -> int:
    pid = os.fork()
    if pid == 0:
        _become(run)
    return pid


def _become(run: Run) -> NoReturn:
    """Run the command in this process, and end as the interpreter does."""
    code = 1
    # It ends with the process that forked it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.chdir(run.folder)
        os.environ.clear()
        os.environ.update(run.environment)
        for number, name, flags in ((0, "/dev/null", os.O_RDONLY), (1, "out", os.O_WRONLY), (2, "errors", os.O_WRONLY)):
            opened = os.open(name, flags | os.O_CREAT, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        os.closerange(3, 1024)
        conditions.CONDITIONS[run.condition].begin()
        _make_streams()
        code = _run(run)
    except BaseException:
        os.write(2, b"of the matrix: " + traceback.format_exc().encode())
    os._exit(code)


def _make_streams() -> None:
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        errors = {"stdin": "strict", "stdout": "strict", "stderr": "backslashreplace"}[name]
        try:
            os.fstat(number)
        except OSError:
            setattr(sys, name, None)
        else:
            setattr(sys, name, open(number, mode, encoding=encoding, errors=errors, closefd=False))  # noqa: SIM115
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(line_buffering=True)


def _run(run: Run) -> int:
    """Run the command; return the exit code with which an interpreter would end."""
    from bmqctl.app import main as bmqctl

    sys.argv = ["bmqctl", *(os.fsdecode(base64.b64decode(word)) for word in run.words)]
    code = 0
    try:
        bmqctl()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    return code if all(_flushed()) else 120


def _flushed() -> Iterator[bool]:
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.write(2, b"Exception ignored in a standard stream\n")
            yield False
        yield True


if __name__ == "__main__":
    main()
