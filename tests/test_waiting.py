"""The helper that waits for what others do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from tests.waiting import eventually, eventually_in_trio


def test_it_returns_what_was_found() -> None:
    found = iter([None, False, None, 0])
    assert eventually(lambda: next(found), step_s=0) == 0


def test_it_waits_for_another_thread() -> None:
    event = threading.Event()
    thread = threading.Timer(0.05, event.set)
    thread.start()
    eventually(event.is_set)
    thread.join()


def test_it_tells_the_state_when_the_time_is_over() -> None:
    with pytest.raises(TimeoutError, match=r"^not so after 0.01 s: 3 of 4$"):
        eventually(lambda: False, timeout_s=0.01, step_s=0.001, state=lambda: "3 of 4")


def test_it_looks_once_more_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was not run for a while finds that all has happened meanwhile."""
    now_s: Iterator[float] = iter([0.0, 0.0, 100.0])
    monkeypatch.setattr("tests.waiting.time", SimpleNamespace(monotonic=lambda: next(now_s), sleep=lambda _: None))
    found = iter([False, True])
    assert eventually(lambda: next(found), timeout_s=1, step_s=0)


@pytest.mark.trio
async def test_other_tasks_run_meanwhile(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    found: list[str] = []

    async def find() -> None:
        await trio.sleep(50)
        found.append("it")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(find)
        assert await eventually_in_trio(lambda: found or None) == ["it"]
    assert 50 <= trio.current_time() < 51
    with pytest.raises(TimeoutError, match="not so after"):
        await eventually_in_trio(lambda: None)
