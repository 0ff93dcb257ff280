"""Nurseries that end with their block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["open_nursery"]


@asynccontextmanager
async def open_nursery() -> AsyncIterator[trio.Nursery]:
    """Run a block with a nursery, whose tasks are cancelled at the end of the block.

    An exception of the block is raised as it is: callers would not expect an exception group.
    """
    fault: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as raised:
            fault = raised
        nursery.cancel_scope.cancel()
    if fault is not None:
        raise fault
