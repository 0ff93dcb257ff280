"""The nodes of a local cluster as processes of their own, started, watched and stopped together."""

from __future__ import annotations

import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO

__all__ = ["run_cluster"]

EXIT_FAILED = 1
AVAILABLE = b"bmqctl: cluster available"
READ_BYTES = 4096


def run_cluster(folders: Sequence[Path], where: Sequence[str], log_level: str, fsync: str) -> int:
    """Run a node in each folder until SIGINT, SIGTERM, or the end of all of them; return the exit code.

    Prints when all are available, and when a node ends by itself; the others go on. `where` are the nodes' addresses.
    """
    nodes = [_start(folder, log_level, fsync) for folder in folders]

    def stop(number: int, frame: FrameType | None) -> None:
        for node in nodes:
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _follow(nodes, folders, where)
        return EXIT_FAILED if any(node.wait() for node in nodes) else 0
    finally:
        stop(signal.SIGTERM, None)
        for node in nodes:
            node.wait()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def command_of(folder: Path, log_level: str, fsync: str) -> list[str]:
    """Return the command that starts a folder's node; its files, log and control pipe are in the folder."""
    program = [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-c", _MAIN]
    options = ["--data-dir", str(folder / "storage"), "--log-level", log_level, "--fsync", fsync]
    return [*program, "start", "node", str(folder), *options]


_MAIN = "from bmqctl.app import main; main()"


def _start(folder: Path, log_level: str, fsync: str) -> subprocess.Popen[bytes]:
    # Started in a new session: a terminal's ^C must reach the nodes once, through this process.
    return subprocess.Popen(
        command_of(folder, log_level, fsync),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )


def _follow(nodes: list[subprocess.Popen[bytes]], folders: Sequence[Path], where: Sequence[str]) -> None:
    """Read the nodes' output until all have ended."""
    available: set[int] = set()
    said = [b""] * len(nodes)
    with selectors.DefaultSelector() as selector:
        for index, node in enumerate(nodes):
            assert node.stdout is not None
            selector.register(node.stdout, selectors.EVENT_READ, index)
        while selector.get_map():
            for key, _ in selector.select():
                index = key.data
                pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
                data = pipe.read(READ_BYTES)
                said[index] += data
                if not data:
                    selector.unregister(pipe)
                    pipe.close()
                    _say_ended(nodes[index].wait(), folders[index])
                elif AVAILABLE in said[index] and index not in available:
                    available.add(index)
                    if len(available) == len(nodes):
                        print(f"bmqctl: cluster of {len(nodes)} ready on {', '.join(where)}", flush=True)


def _say_ended(code: int, folder: Path) -> None:
    if code:
        again = f"bmqctl start node {folder} --data-dir {folder / 'storage'}"
        what = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        print(f"bmqctl: {folder.name} {what}; to start it again: {again}", file=sys.stderr, flush=True)
