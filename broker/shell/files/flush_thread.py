"""A thread that waits for the disk, and notifies the loop at the end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from broker.shell.host.calls import HOST

__all__ = ["FlushThread"]


class FlushThread:
    """One piece of work at a time: an event source of `broker.shell.loop.server.Server`, readable at the work's end.

    The thread does not delay the end of the process.
    """

    work = "the end of a flush"

    def __init__(self) -> None:
        self._wakener = HOST.wakener()
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._done: Callable[[Exception | None], None] | None = None
        threading.Thread(target=self._run, name="flush", daemon=True).start()

    def begin(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Do `work` in the thread, then call `done` in the loop, with the error or None."""
        assert self._done is None, "the work before is not done"
        self._done = done
        self._work.put(work)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the work, and call `done`; return False after `timeout_s`, or without work."""
        if self._done is None or not self._ended.wait(timeout_s):
            return False
        self._finish()
        return True

    def fileno(self) -> int:
        return self._wakener.fileno()

    def on_readable(self) -> None:
        self._wakener.clear()
        if self._ended.is_set():
            self._finish()

    def _finish(self) -> None:
        self._ended.clear()
        done, self._done = self._done, None
        error, self._error = self._error, None
        if done is not None:
            done(error)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:
                self._error = error
            self._ended.set()
            self._wakener.set()
