"""A user who types commands and reads what is printed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trio

from bmqctl.cli.tool.file_log import FileLog
from bmqctl.cli.tool.interactive import Interactive
from bmqctl.cli.tool.log import Log
from bmqctl.cli.tool.poster import Latency
from bmqctl.cli.tool.receiver import Receiver
from bmqctl.cli.tool.session import ToolSession, parse_endpoint
from tests.bmqctl.client.serving import Server
from tests.waiting import WAIT_S

__all__ = ["Output", "User", "interact"]


class Output(io.StringIO):
    """The printed output; `until` waits for a text after the last one that it found."""

    def __init__(self) -> None:
        super().__init__()
        self._written = trio.Event()
        self._seen = 0

    def write(self, text: str) -> int:
        self._written.set()
        return super().write(text)

    async def until(self, text: str) -> None:
        with trio.fail_after(WAIT_S):
            while (at := self.getvalue().find(text, self._seen)) < 0:
                self._written = trio.Event()
                await self._written.wait()
        self._seen = at + len(text)


@dataclass
class User:
    """Types `script`, a line at a time; a line that starts with `?` waits for the text after it.

    `!` cuts the connection, `~` makes the broker silent.
    """

    script: Sequence[str]
    output: Output
    server: Server
    left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = list(self.script)

    async def next_line(self) -> str | None:
        while self.left:
            line = self.left.pop(0)
            if line.startswith("?"):
                await self.output.until(line[1:])
            elif line == "!":
                await self.server.cut()
            elif line == "~":
                self.server.reading = trio.Event()
            else:
                return line
        return None


async def interact(
    server: Server,
    script: Sequence[str],
    *,
    dump: bool = True,
    confirm: bool = False,
    quiet: bool = False,
    timeout_s: float = 5,
    path: Path | None = None,
    clock: Latency | None = None,
) -> str:
    """Return the tool's output while `script` is typed."""
    output = Output()
    log = Log(r"%s %m\n", out=output)
    with FileLog(path) as file_log, trio.fail_after(WAIT_S):
        async with trio.open_nursery() as nursery:
            receiver = Receiver(log, file_log, quiet, dump=dump, confirm=confirm, clock=clock)
            endpoint = parse_endpoint(f"tcp://127.0.0.1:{server.port}")
            session = ToolSession(nursery, endpoint, receiver, timeout_s)
            receiver.session = session
            interactive = Interactive(session, log, quiet=quiet)
            receiver.keep = interactive.keep
            await interactive.run(User(script, output, server))
            nursery.cancel_scope.cancel()
    return output.getvalue()
