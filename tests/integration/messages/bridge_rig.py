"""A bridge in a process, and a check of its account."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import WAIT_S

COMMAND = (sys.executable, "-c", "from bmqctl.app import main; main()", "bridge")


class BridgeProcess:
    """The command, which can be killed and started again."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self._words = words
        self._errors = folder / "bridge.err"
        self._process: subprocess.Popen[str] | None = None

    @property
    def told(self) -> str:
        """All that it has said on standard error."""
        return self._errors.read_text()

    def start(self) -> None:
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [*COMMAND, *self._words], stdout=subprocess.PIPE, stderr=errors, text=True, stdin=subprocess.DEVNULL
            )

    def end(self, how: signal.Signals) -> tuple[int, str]:
        """Send a signal; return the exit code and what it printed."""
        assert self._process is not None
        self._process.send_signal(how)
        output, _ = self._process.communicate(timeout=WAIT_S)
        return self._process.returncode, output

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.end(signal.SIGKILL)
        self.start()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGKILL)


def check_account(code: int, output: str) -> dict[str, Any]:
    assert code == 0
    (account,) = json.loads(output)["bridges"]
    assert account["in_flight"] == account["refused"] == 0
    assert account["taken"] == account["delivered"] + account["returned"]
    found: dict[str, Any] = account
    return found
