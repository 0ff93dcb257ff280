"""Disks that become read-only while a node runs on them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from broker.bmq.assembly.app import WATCH_MS, _watch_disk
from broker.bmq.assembly.process import PID_FILE, run_files
from broker.bmq.node.node import Node
from broker.common.clock import Now
from broker.common.faults import Inconsistent
from broker.common.timers import Timers
from broker.shell.files.mapped_files import DataDirectory
from broker.shell.loop.server import Server

READ_ONLY = OSError(errno.EROFS, "Read-only file system")


def fail_with(error: OSError) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_pid_file_that_cannot_be_removed_does_not_replace_the_fault_that_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run() -> None:
        with run_files(tmp_path):
            assert (tmp_path / PID_FILE).exists()
            monkeypatch.setattr(Path, "unlink", fail_with(READ_ONLY))
            raise Inconsistent("a flush", READ_ONLY)

    with pytest.raises(Inconsistent):
        run()
    monkeypatch.undo()
    assert caplog.text.count("Read-only file system") == 2


class Loop:
    """A node's clock, and a server that does the work of threads at once and keeps the error that would end it."""

    def __init__(self) -> None:
        self.now = Now()
        self.timers = Timers()
        self.failure: OSError | None = None

    def in_thread(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            done(work())
        except OSError as error:
            self.failure = error

    def pass_time(self) -> None:
        self.now.ms += WATCH_MS
        self.timers.run(self.now.ms)


@pytest.mark.parametrize(("code", "ends"), [(errno.EROFS, True), (errno.EIO, True), (errno.ENOSPC, False)])
def test_a_node_that_never_flushes_ends_when_its_disk_is_read_only_but_not_when_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, ends: bool
) -> None:
    directory, loop = DataDirectory(tmp_path, tmp_path / "archive", 1), Loop()
    _watch_disk(cast(Node, loop), cast(Server, loop), directory)
    loop.pass_time()
    loop.pass_time()
    monkeypatch.setattr(os, "utime", fail_with(OSError(code, os.strerror(code))))
    loop.pass_time()
    monkeypatch.undo()
    assert (loop.failure is not None) is ends
    directory.close()
