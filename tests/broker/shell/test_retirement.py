"""The limits of time for a node that is to stop."""

from __future__ import annotations

import pytest
import trio

from broker.shell import server as shell
from tests.broker.bmq.rig import start
from tests.broker.shell.served import Served, serve

RETIRE_S = 0.05


@pytest.mark.parametrize("confirms_s", [0.0, 0.4])
def test_confirms_are_awaited_for_longer_than_those_who_take_over(
    confirms_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "RETIRE_S", RETIRE_S)
    rig = start()
    times: list[float] = []
    left = trio.Event()

    def leave() -> None:
        times.append(trio.current_time())
        left.set()

    async def retire(served: Served) -> None:
        times.append(trio.current_time())
        served.server.retire()
        await left.wait()

    rig.node.retire = lambda: False
    rig.node.awaits_confirms = lambda: trio.current_time() < times[0] + confirms_s
    rig.node.leave = leave
    serve(rig, retire)
    began, ended = times
    assert ended - began >= max(RETIRE_S, confirms_s)
