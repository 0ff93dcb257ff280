"""Commands for messages as processes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests.waiting import WAIT_S

__all__ = ["COMMAND", "run", "start"]

COMMAND = (sys.executable, "-c", "from bmqctl.app import main; main()")


def run(*words: object, stdin: bytes = b"", code: int = 0) -> tuple[str, str]:
    """Run a command to its end; return what it printed, to standard output and to standard error."""
    done = subprocess.run([*COMMAND, *map(str, words)], input=stdin, capture_output=True, timeout=WAIT_S, check=False)
    output, errors = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, (done.returncode, output, errors)
    assert "Traceback" not in errors
    return output, errors


def start(*words: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command, with pipes to all its streams."""
    return subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
