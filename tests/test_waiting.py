"""The helper that waits for what others do."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from tests.waiting import WAIT_S, eventually, eventually_in_trio


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


def bounds(text: str) -> Iterator[str]:
    """Yield the bounds on time that a module sets itself, of 5 s and more: shorter ones are to expire."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = [each.value for each in node.keywords if each.arg == "timeout"]
        if name.endswith((".fail_after", ".communicate", ".join", ".settimeout")) or name == "process.wait":
            given += node.args[:1]
        elif name.endswith("create_connection"):
            given += node.args[1:2]
        for value in given:
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and 5 <= value.value < WAIT_S:
                yield f"{node.lineno}: {name} with {value.value} s, where a busy machine needs WAIT_S"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("subprocess.run(words, timeout=60)", 1),
        ("process.communicate(timeout=30)", 1),
        ("with trio.fail_after(10): pass", 1),
        ("socket.create_connection((HOST, port), 10)", 1),
        ("process.wait(20)", 1),
        ("process.wait(WAIT_S)", 0),
        ("with trio.fail_after(1000): pass", 0),
        ("sock.settimeout(1.0)", 0),
    ],
)
def test_bounds_of_a_module_are_found(line: str, count: int) -> None:
    assert len(list(bounds(line))) == count


def test_no_module_has_bounds_that_a_busy_machine_breaks() -> None:
    root = Path(__file__).parent
    paths = [path for path in root.rglob("*.py") if path.relative_to(root).parts[0] != "fuzz"]
    assert len(paths) > 400
    assert [f"{path}:{line}" for path in paths for line in bounds(path.read_text(encoding="utf-8"))] == []
