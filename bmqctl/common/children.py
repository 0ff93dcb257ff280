"""Processes of bmqctl that end with the process that started them, even if that is killed.

Their standard input is a pipe, whose other end the system closes with the parent; with `--until-input-ends` a process
ends when its input does. Linux and macOS have no other mechanism in common.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

__all__ = ["COMMAND", "UNTIL_INPUT_ENDS", "end_with_input", "release", "start_child"]

# The program itself if it is a single file, otherwise the bmqctl of this interpreter.
COMMAND: Final = (
    (sys.executable,)
    if getattr(sys, "frozen", False)
    else (sys.executable, "-c", "from bmqctl.app import main; main()")
)
UNTIL_INPUT_ENDS: Final = "--until-input-ends"

# Each signal, with the pause after it. A broker hands over to others at the first SIGTERM, for which no parent waits
# any more, and stops at the second.
_ENDING: Final = ((signal.SIGTERM, 1.0), (signal.SIGTERM, 30.0), (signal.SIGKILL, 0.0))


def start_child(words: Sequence[str], command: Sequence[str] | None = None, **options: Any) -> subprocess.Popen[Any]:
    """Start `bmqctl` with the words; it ends with this process or at `release`.

    `command` replaces the program; `options` are those of `Popen`.
    """
    return subprocess.Popen([*(command or COMMAND), UNTIL_INPUT_ENDS, *words], stdin=subprocess.PIPE, **options)


def release(child: subprocess.Popen[Any]) -> None:
    """Close the pipe to a child, which ends it."""
    if child.stdin is not None:
        child.stdin.close()


def end_with_input() -> None:
    """Send this process SIGTERM when its standard input ends, and SIGKILL if it does not end then."""
    threading.Thread(target=_watch_input, name="end with input", daemon=True).start()


def _watch_input() -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    for number, pause_s in _ENDING:
        os.kill(os.getpid(), number)
        time.sleep(pause_s)
