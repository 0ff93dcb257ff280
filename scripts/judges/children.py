"""The processes that a program has started, and ending them with it (Linux: read from /proc)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENDS = (signal.SIGINT, signal.SIGTERM)


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and all their descendants."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found.append(int(child))
            # A child may end between the two readings.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += descendants(int(child))
    return found


def is_running(pid: int) -> bool:
    """True unless the process has ended, even if its parent has not reaped it."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def ending_with_children() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGINT and SIGTERM, and at the end kill all child processes that still run.

    A signal may arrive while a process is being started and nothing can end it yet, so cleaning up where processes are
    started does not suffice. SIGINT counts even if the shell made its background programs ignore it.
    """
    for number in ENDS:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
