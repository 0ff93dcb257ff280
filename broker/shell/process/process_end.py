"""The end of a process: its exit code, and its last line on stderr."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.common.faults import Inconsistent
from broker.shell.process.os_errors import os_error_line, with_remedy

__all__ = ["EXIT_CONFIG", "EXIT_FAILED", "EXIT_INCONSISTENT", "EXIT_OK", "Ends", "run_to_end"]

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_INCONSISTENT = 3

# The disk has to be replaced or freed; the process's configuration is not at fault.
_OF_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Ends(NamedTuple):
    """The faults that end a process: those of its input, which has to be changed, and those of its store.

    `name` is for its last line. `terminates` logs a deliberate end, with the alarm by which the log is watched.
    """

    given: tuple[type[Exception], ...]
    stored: tuple[type[Exception], ...]
    log: logging.Logger
    name: str
    terminates: Callable[[Inconsistent], None]
    stopped: str


def run_to_end(run: Callable[[], None], ends: Ends) -> int:
    """Run a process; return its exit code. Faults are one line on stderr."""
    try:
        run()
    except ends.given as fault:
        print(f"bmqctl: {with_remedy(str(fault))}", file=sys.stderr)
        return EXIT_CONFIG
    except ends.stored as fault:
        print(f"bmqctl: {with_remedy(str(fault))}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"bmqctl: {os_error_line(error)}", file=sys.stderr)
        return EXIT_FAILED if error.errno in _OF_DISK else EXIT_CONFIG
    except Inconsistent as failure:
        ends.terminates(failure)
        print(f"bmqctl: the {ends.name} terminated deliberately: {failure}; start it again", file=sys.stderr)
        return EXIT_INCONSISTENT
    ends.log.info("%s", ends.stopped)
    return EXIT_OK
