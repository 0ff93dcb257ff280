"""Lines on standard output that other programs wait for, such as the one that reports readiness."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import Any

__all__ = ["announce", "silence"]

log = logging.getLogger("broker")


def announce(line: str) -> None:
    """Print a line at once.

    If standard output is closed, full or a pipe without a reader, log a warning instead: the broker goes on serving.
    """
    try:
        print(line, flush=True)
    except OSError as fault:
        silence(sys.stdout)
        log.warning("standard output: %s; it lacks the line: %s", fault.strerror or fault, line)


def silence(stream: Any) -> None:
    """Discard the pending output of a standard stream and all that follows.

    Otherwise the interpreter would fail to write the rest at its end, and change the exit code.
    """
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()
