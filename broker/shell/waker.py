"""A way to have the loop take another step."""

from __future__ import annotations

import os

__all__ = ["Waker"]


class Waker:
    """A source that becomes readable when woken, so that another step is taken."""

    work = "waking the loop"

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def wake(self) -> None:
        os.eventfd_write(self._fd, 1)

    def on_readable(self) -> None:
        os.eventfd_read(self._fd)

    def close(self) -> None:
        os.close(self._fd)
