"""The screen of `bmqctl top`, played by textual's pilot: sorting, filtering, going in and out, purging."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from bmqctl.client.admin import AdminLost
from bmqctl.systems.watching.model import Counted, NodeState, Sample, Selection
from bmqctl.systems.watching.screen import Confirmation, Top
from bmqctl.systems.watching.watcher import Watcher

A, B = "bmq://d/a", "bmq://d/b"


class Cluster:
    """A cluster of two queues, each of which has three more messages in each second."""

    def __init__(self) -> None:
        self.seconds = 0
        self.fault = ""
        self.purged: list[tuple[str, str]] = []
        self.was_purged = threading.Event()

    def take(self) -> Sample:
        if self.fault:
            raise AdminLost(self.fault)
        self.seconds += 1
        put = 3 * self.seconds
        counted = (
            Counted(A, "", "node 1", put, 0, 5, 1.0, 1, 0),
            Counted(A, "x", "node 1", put, 0, 5),
            Counted(A, "y", "node 1", put, 0, 0),
            Counted(B, "", "node 2", put, 0, 50, 1.0, 1, 0),
        )
        nodes = (NodeState("node 1", "h:1", "leader", "E_AVAILABLE", 0), NodeState("node 2", "h:2", "", "UNREACHABLE"))
        return Sample(float(self.seconds), "BlazingMQ", counted, nodes, ("node 3: [bold]no broker\x1b[2J",))

    def purge(self, name: str, part: str) -> str:
        self.purged.append((name, part))
        self.was_purged.set()
        return "5 messages removed"


def play(script: Callable[[Top, Pilot[None], Cluster], Awaitable[None]], *, can_purge: bool = True) -> None:
    """Run the screen; samples are taken when the script says so, apart from the first."""
    cluster = Cluster()
    watcher = Watcher(cluster.take, (AdminLost,), cluster.purge if can_purge else None)
    top = Top(watcher, 3600, "tcp://h:1", Selection())

    async def run() -> None:
        async with top.run_test(size=(120, 30)) as pilot:
            await settled(top, pilot)
            await script(top, pilot, cluster)

    asyncio.run(run())


async def settled(top: Top, pilot: Pilot[None]) -> None:
    await top.workers.wait_for_complete()
    await pilot.pause()


def lines(top: Top) -> list[list[str]]:
    table = top.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(number)] for number in range(table.row_count)]


def names(top: Top) -> list[str]:
    return [line[0] for line in lines(top)]


def text(top: Top, name: str) -> str:
    return str(top.query_one(name, Static).render())


def test_rows_with_rates_and_faults() -> None:
    async def script(top: Top, pilot: Pilot[None], cluster: Cluster) -> None:
        assert lines(top)[0] == [B, "node 2", "-", "-", "50", "1.0 s", "1", "0"]
        top.take()
        await settled(top, pilot)
        assert lines(top)[0][2:4] == ["3.0", "0.0"]
        assert text(top, "#faults") == "node 3: [bold]no broker\\x1b[2J"
        cluster.fault = "no broker at h:1"
        top.take()
        await settled(top, pilot)
        # The last rows stay, and the fault is shown.
        assert len(lines(top)) == 2
        assert text(top, "#faults").startswith("no broker at h:1\n")

    play(script)


def test_sorting_filtering_and_going_in() -> None:
    async def script(top: Top, pilot: Pilot[None], cluster: Cluster) -> None:
        assert names(top) == [B, A]
        await pilot.press("r")
        assert names(top) == [A, B]
        await pilot.press("s")
        assert top.selection.sort == "oldest_s"
        await pilot.press("slash", *"D/B")
        assert names(top) == [B]
        await pilot.press("enter")
        assert not top.query_one("#filter", Input).has_class("open")
        await pilot.press("escape")
        assert len(names(top)) == 2
        # The cursor has stayed on its row.
        await pilot.press("up", "enter")
        assert top.selection.within == A
        assert [line[1] for line in lines(top)] == ["x", "y"]
        await pilot.press("escape")
        await pilot.press("n")
        assert lines(top)[1] == ["node 2", "h:2", "", "UNREACHABLE", "-"]
        await pilot.press("down", "enter")
        assert names(top) == [B]
        await pilot.press("escape")
        assert len(names(top)) == 2

    play(script)


def test_a_purge_is_confirmed() -> None:
    async def script(top: Top, pilot: Pilot[None], cluster: Cluster) -> None:
        for refusal in ("n", "escape", "enter"):
            await pilot.press("p")
            assert isinstance(top.screen, Confirmation)
            assert top.screen.text.startswith(f"Purge {B}: all messages, now 50, are removed")
            # Enter presses the button that has the focus, which is to cancel.
            await pilot.press(refusal)
            await settled(top, pilot)
            assert not isinstance(top.screen, Confirmation)
        assert cluster.purged == []
        await pilot.press("p", "y")
        assert await asyncio.to_thread(cluster.was_purged.wait, 10)
        await settled(top, pilot)
        assert cluster.purged == [(B, "")]
        assert text(top, "#faults").startswith("5 messages removed\n")

    play(script)


def test_impossible_purge_is_refused() -> None:
    async def script(top: Top, pilot: Pilot[None], cluster: Cluster) -> None:
        await pilot.press("p")
        assert not isinstance(top.screen, Confirmation)
        assert "RocketMQ removes messages by their age only" in text(top, "#faults")
        await pilot.press("space")
        taken = cluster.seconds
        top.take()
        await settled(top, pilot)
        assert cluster.seconds == taken
        assert "paused" in text(top, "#status")

    play(script, can_purge=False)


@pytest.mark.parametrize("key", ["q"])
def test_the_end(key: str) -> None:
    async def script(top: Top, pilot: Pilot[None], cluster: Cluster) -> None:
        await pilot.press(key)
        await pilot.pause()
        assert not top.is_running

    play(script)
