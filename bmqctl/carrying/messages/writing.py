"""The standard output, written by a thread so that a slow reader does not delay a session's heartbeats."""

from __future__ import annotations

import os
import select
from typing import Final

import trio

__all__ = ["Writer"]

_LOOK_S: Final = 0.2


class Writer:
    """A descriptor to write to, perhaps a pipe whose reader may leave."""

    def __init__(self, descriptor: int, name: str = "standard output") -> None:
        self._descriptor = descriptor
        self._name = name

    async def write(self, data: bytes) -> None:
        """Write all bytes. Raises `BrokenPipeError` if the reader has gone, `OSError` with the output's name."""
        await trio.to_thread.run_sync(self._write, data, abandon_on_cancel=True)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BrokenPipeError:
                raise
            except OSError as fault:
                raise OSError(fault.errno, fault.strerror, self._name) from None

    async def until_left(self) -> None:
        """Wait until the pipe's reader has gone, though nothing is written."""
        poll = select.poll()
        poll.register(self._descriptor, 0)
        while not any(event & select.POLLERR for _, event in poll.poll(0)):
            await trio.sleep(_LOOK_S)
