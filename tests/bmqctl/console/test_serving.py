"""The console's line about connections that it cannot accept."""

from __future__ import annotations

import errno
import logging
import os
from functools import partial
from typing import NoReturn

import pytest
import trio
from trio.testing import MockClock

from bmqctl.common.refusal import say
from bmqctl.console.serving import Unaccepted

LOG = logging.getLogger("trio.serve_listeners")


class NoDescriptor(trio.abc.Listener[trio.SocketStream]):
    """A listener of a process that has no descriptor for a connection."""

    async def accept(self) -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def serve(seconds: float) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        raise AssertionError(stream)

    with trio.move_on_after(seconds):
        await trio.serve_listeners(handle, [NoDescriptor()])


def test_too_few_descriptors_are_one_line_for_many_connections(capsys: pytest.CaptureFixture[str]) -> None:
    unaccepted = Unaccepted(partial(say, "console"))
    LOG.addFilter(unaccepted)
    try:
        trio.run(serve, 30.0, clock=MockClock(autojump_threshold=0))
    finally:
        LOG.removeFilter(unaccepted)
    remedy = "raise the limit of open files (ulimit -n)"
    line = capsys.readouterr().err
    assert line.startswith("bmqctl console: cannot accept a connection: accept returned EMFILE (Too many open files)")
    assert line.endswith(f"; {remedy}\n")
    assert line.count("\n") == 1
