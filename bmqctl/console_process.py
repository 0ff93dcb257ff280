"""A console as a process of its own, beside the node whose command starts it.

It listens on a socket that the command has opened, so that a port in use is told of before the node starts. It ends
when the command does, however that ends: its standard input is a pipe from it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from bmqctl.node_process import COMMAND

__all__ = ["run_console"]

# Time until a console that has ended is started again, which doubles up to the second.
_AGAIN_S: Final = 1.0
_AGAIN_MAX_S: Final = 60.0
_END_S: Final = 5.0


@contextmanager
def run_console(sock: socket.socket, words: Sequence[str]) -> Iterator[None]:
    """Run `bmqctl console` with these words on a listening socket, for as long as the block runs."""
    console = _Console(sock, words)
    thread = threading.Thread(target=console.run, name="console", daemon=True)
    thread.start()
    try:
        yield
    finally:
        console.end()
        thread.join(_END_S)


class _Console:
    """The process, which is started again if it ends by itself."""

    def __init__(self, sock: socket.socket, words: Sequence[str]) -> None:
        self._sock = sock
        self._words = words
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = threading.Event()

    def run(self) -> None:
        """Start it, and again whenever it has ended, until `end`."""
        wait_s = _AGAIN_S
        while not self._is_over.is_set():
            started_s = time.monotonic()
            process = self._start()
            if process is None:
                return
            code = process.wait()
            if self._is_over.is_set():
                return
            if time.monotonic() - started_s > _AGAIN_MAX_S:
                wait_s = _AGAIN_S
            print(f"bmqctl: the console ended with {code}; it is started again in {wait_s:g} s", file=sys.stderr)
            self._is_over.wait(wait_s)
            wait_s = min(2 * wait_s, _AGAIN_MAX_S)

    def end(self) -> None:
        """End the process, and start none again."""
        with self._lock:
            self._is_over.set()
            process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._sock.close()

    def _start(self) -> subprocess.Popen[bytes] | None:
        fd = self._sock.fileno()
        with self._lock:
            if self._is_over.is_set():
                return None
            # In a session of its own: a terminal's ^C ends it through this process.
            self._process = subprocess.Popen(
                [*COMMAND, "console", *self._words, "--listen-fd", str(fd), "--until-input-ends"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(fd,),
                start_new_session=True,
            )
            return self._process
