"""Commands for messages as processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import WAIT_S

__all__ = ["COMMAND", "run", "started"]

COMMAND = (sys.executable, "-c", "from bmqctl.app import main; main()")


def run(*words: object, stdin: bytes = b"", code: int = 0) -> tuple[str, str]:
    """Run a command to its end; return its standard output and standard error."""
    done = subprocess.run([*COMMAND, *map(str, words)], input=stdin, capture_output=True, timeout=WAIT_S, check=False)
    output, errors = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, (done.returncode, output, errors)
    assert "Traceback" not in errors
    return output, errors


@contextmanager
def started(*words: object) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, *map(str, words)], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()
