"""Task groups for sessions, and the wait of a task for an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

__all__ = ["Waiter", "open_task_group"]


@asynccontextmanager
async def open_task_group() -> AsyncIterator[anyio.abc.TaskGroup]:
    """Run a block with a task group, and wait for the tasks.

    An exception of the block is raised as it is: callers would not expect an exception group.
    """
    fault: BaseException | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except (Exception, KeyboardInterrupt, SystemExit) as raised:
            fault = raised
    if fault is not None:
        raise fault


class Waiter:
    """One task that waits for the answer to one request."""

    __slots__ = ("_event", "value")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self.value: Any = None

    def answer(self, value: Any) -> None:
        self.value = value
        self._event.set()

    async def wait(self) -> Any:
        await self._event.wait()
        if isinstance(self.value, Exception):
            raise self.value
        return self.value
