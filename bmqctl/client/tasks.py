"""Task groups for sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc

__all__ = ["open_task_group"]


@asynccontextmanager
async def open_task_group() -> AsyncIterator[anyio.abc.TaskGroup]:
    """Run a block with a task group, and wait for the tasks.

    An exception of the block is raised as it is: in an exception group no caller would expect it.
    """
    fault: BaseException | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except (Exception, KeyboardInterrupt, SystemExit) as raised:
            fault = raised
    if fault is not None:
        raise fault
