"""A thread that waits for the disk."""

from __future__ import annotations

import select
import threading

from broker.shell.files.flush_thread import FlushThread
from tests.waiting import WAIT_S


def readable(thread: FlushThread) -> bool:
    return bool(select.select([thread.fileno()], [], [], WAIT_S)[0])


def test_the_loop_is_told_of_the_end_and_of_errors() -> None:
    thread = FlushThread()
    done: list[Exception | None] = []
    worked = threading.Event()
    thread.begin(worked.set, done.append)
    assert readable(thread)
    assert done == []
    thread.on_readable()
    assert worked.is_set()
    assert done == [None]

    error = OSError(5, "Input/output error")

    def fail() -> None:
        raise error

    thread.begin(fail, done.append)
    assert readable(thread)
    thread.on_readable()
    assert done == [None, error]


def test_waiting_caller_is_called_once() -> None:
    thread = FlushThread()
    go_on = threading.Event()
    done: list[Exception | None] = []
    assert not thread.wait(0)

    def work() -> None:
        go_on.wait(WAIT_S)

    thread.begin(work, done.append)
    assert not thread.wait(0.01)
    assert done == []
    go_on.set()
    assert thread.wait(WAIT_S)
    assert done == [None]
    # The loop hears of the same work afterwards, while the next is under way.
    go_on.clear()
    thread.begin(work, done.append)
    assert readable(thread)
    thread.on_readable()
    assert done == [None]
    go_on.set()
    assert thread.wait(WAIT_S)
    assert done == [None, None]
