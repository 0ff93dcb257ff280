"""The state of a session of the official client, which reopens a queue that the client itself has given up.

Up to version 1.2.3 the Python client abandons a queue if the connection ends before it has written the request to
reopen it, as when a node stops just after it accepted the connection. (The C++ client's commit 112f9904 corrects that:
the queue waits for the next connection.) An application reopens such a queue, and so do the clients here. A queue that
a broker refuses to reopen is a fault.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import blazingmq
from blazingmq import session_events

__all__ = ["ClientWatch"]

RETRY_S = 0.1
UNSENT = "NOT_CONNECTED"


class ClientWatch:
    """The events of one session with one queue; `reopen` opens that queue, and raises `blazingmq.Error` if it cannot.

    `on_event` is the session's callback. Call `end` before the session is stopped.
    """

    def __init__(self, reopen: Callable[[], None]) -> None:
        self.events: list[str] = []  # their names
        self.refused: list[str] = []  # brokers' answers to requests to reopen the queue
        self._reopen = reopen
        self._is_lost = False
        self._over = threading.Event()
        self._reopening: threading.Thread | None = None

    @property
    def is_cut_off(self) -> bool:
        """Return True if it has no broker, or if its queue is not open again yet."""
        return self._is_lost or (self._reopening is not None and self._reopening.is_alive())

    def on_event(self, event: session_events.SessionEvent) -> None:
        self.events.append(type(event).__name__)
        if isinstance(event, session_events.ConnectionLost):
            self._is_lost = True
        elif isinstance(event, session_events.StateRestored):
            self._is_lost = False
        elif isinstance(event, session_events.QueueReopenFailed):
            if UNSENT not in repr(event):
                self.refused.append(repr(event))
                return
            # The client must not be called from its own callback.
            self._reopening = threading.Thread(target=self._open_again, name="reopening")
            self._reopening.start()

    def end(self) -> None:
        self._over.set()
        if self._reopening is not None:
            self._reopening.join()

    def _open_again(self) -> None:
        while not self._over.is_set():
            try:
                self._reopen()
            except blazingmq.Error:
                self._over.wait(RETRY_S)
            else:
                return
