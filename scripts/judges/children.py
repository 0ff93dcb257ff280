"""The child processes of a program, and ending them with it (Linux: read from /proc)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENDS = (signal.SIGINT, signal.SIGTERM)


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process, its children first.

    They are found by their parents: the lists of children that Linux has are those of threads, which end.
    """
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        child = int(folder.name)
        if (state := _state(child)) is not None:
            children.setdefault(int(state[1]), []).append(child)
    found = [pid]
    for each in found:
        found += children.get(each, ())
    return found[1:]


def is_running(pid: int) -> bool:
    """True unless the process has ended, even if its parent has not reaped it."""
    state = _state(pid)
    return state is not None and state[0] != b"Z"


def _state(pid: int) -> list[bytes] | None:
    """The fields after the name in /proc/PID/stat, the state and the parent first; None if there is no process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


@contextmanager
def ending_with_children() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGINT and SIGTERM, and at the end kill all child processes that still run.

    A signal may arrive while a process is being started and nothing can end it yet: cleaning up where processes are
    started does not suffice. SIGINT counts even if the shell made its background programs ignore it.
    """
    for number in ENDS:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)
        found: list[int] = []
        # Stopped ones start no others.
        while more := [pid for pid in descendants(os.getpid()) if pid not in found]:
            _signal_all(more, signal.SIGSTOP)
            found += more
        _signal_all(found, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
