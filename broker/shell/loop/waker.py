"""A way to have the loop take another step."""

from __future__ import annotations

from broker.shell.host.calls import HOST

__all__ = ["Waker"]


class Waker:
    """A source that becomes readable when woken, so that another step is taken."""

    work = "waking the loop"

    def __init__(self) -> None:
        self._wakener = HOST.wakener()

    def fileno(self) -> int:
        return self._wakener.fileno()

    def wake(self) -> None:
        self._wakener.set()

    def on_readable(self) -> None:
        self._wakener.clear()

    def close(self) -> None:
        self._wakener.close()
