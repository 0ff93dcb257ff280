"""Messages that a consumer sends back, each until its broker accepts it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import anyio

from bmqctl.client.remoting.faults import FAULTS, words_of

__all__ = ["PAUSE_S", "Returns"]

log = logging.getLogger("bmqctl.client")

# Between two attempts.
PAUSE_S: Final = 0.5

M = TypeVar("M")


class Returns(Generic[M]):
    """The messages to send back, with their delay levels; `send` does so, or raises one of `FAULTS`."""

    def __init__(self, send: Callable[[M, int], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: deque[tuple[M, int]] = deque()
        self._wanted = anyio.Event()

    def add(self, message: M, delay_level: int) -> None:
        self._waiting.append((message, delay_level))
        self._wanted.set()

    async def run(self) -> None:
        while True:
            if not self._waiting:
                self._wanted = anyio.Event()
                await self._wanted.wait()
            if not await self.carry_out():
                await anyio.sleep(PAUSE_S)

    async def carry_out(self) -> bool:
        """Try to send each message back; return False if some must be tried again."""
        for _ in range(len(self._waiting)):
            message, delay_level = self._waiting[0]
            try:
                await self._send(message, delay_level)
            except FAULTS as fault:
                log.warning("%s", words_of(fault))
                self._waiting.rotate(-1)
            else:
                self._waiting.popleft()
        return not self._waiting
