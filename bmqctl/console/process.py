"""A console as a separate process beside the node whose command starts it.

The command opens its socket, so that a port in use is reported before the node starts. It starts once the node is
ready, so that the two do not contend for processors; earlier connections wait. It ends when the command does, even by a
signal (`bmqctl.common.children`).
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from bmqctl.common.children import release, start_child

__all__ = ["run_console"]

# Pause before a console that has ended starts again; it doubles up to the second.
_AGAIN_S: Final = 1.0
_AGAIN_MAX_S: Final = 60.0
_END_S: Final = 5.0
# The console starts then even if the node is not ready: a look at it helps.
_PATIENCE_S: Final = 20.0


@contextmanager
def run_console(sock: socket.socket, words: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Run `bmqctl console` with these words on a listening socket, until the block ends.

    The block gets a function to call, from any thread, once its node is ready. The console starts then, or after
    `_PATIENCE_S`.
    """
    console = _ConsoleProcess(sock, words)
    thread = threading.Thread(target=console.run, name="console", daemon=True)
    thread.start()
    try:
        yield console.begin
    finally:
        console.end()
        thread.join(_END_S)


class _ConsoleProcess:
    """The process, restarted if it ends by itself."""

    def __init__(self, sock: socket.socket, words: Sequence[str]) -> None:
        self._sock = sock
        self._words = words
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._may_begin = threading.Event()
        self._is_over = threading.Event()

    def begin(self) -> None:
        self._may_begin.set()

    def run(self) -> None:
        self._may_begin.wait(_PATIENCE_S)
        wait_s = _AGAIN_S
        while not self._is_over.is_set():
            started_s = time.monotonic()
            try:
                process = self._start()
            except OSError as fault:
                # A temporary lack of processes or memory.
                outcome = f"did not start: {fault.strerror or fault}"
            else:
                if process is None:
                    return
                outcome = f"ended with {process.wait()}"
                release(process)
            if self._is_over.is_set():
                return
            if time.monotonic() - started_s > _AGAIN_MAX_S:
                wait_s = _AGAIN_S
            print(f"bmqctl: the console {outcome}; it is started again in {wait_s:g} s", file=sys.stderr)
            self._is_over.wait(wait_s)
            wait_s = min(2 * wait_s, _AGAIN_MAX_S)

    def end(self) -> None:
        with self._lock:
            self._is_over.set()
            self._may_begin.set()
            process = self._process
        if process is not None:
            release(process)
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
            # In a session of its own: a terminal's ^C reaches it through this process.
            self._process = start_child(
                ["console", *self._words, "--listen-fd", str(fd)],
                stdout=subprocess.DEVNULL,
                pass_fds=(fd,),
                start_new_session=True,
            )
            return self._process
