"""The limits of time for a node that is to stop."""

from __future__ import annotations

import pytest
import trio

from broker.bmq.node.node import Node
from broker.bmq.node.role import ClosedDoor
from broker.bmq.node.single import SingleNode
from broker.shell.loop import server as shell
from tests.broker.bmq.rig import start
from tests.broker.shell.loop.served import Served, serve

RETIRE_S = 0.05


@pytest.mark.parametrize("confirms_s", [0.0, 0.4])
def test_confirms_are_awaited_for_longer_than_those_who_take_over(
    confirms_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "RETIRE_S", RETIRE_S)
    times: list[float] = []
    left = trio.Event()

    class Staying(SingleNode):
        """Never hands over, and has confirms to wait for."""

        def __init__(self, node: Node) -> None:
            super().__init__(node, ClosedDoor())
            self.retire = lambda: False

        def awaits_confirms(self) -> bool:
            return trio.current_time() < times[0] + confirms_s

        def leave(self) -> None:
            times.append(trio.current_time())
            left.set()

    async def retire(served: Served) -> None:
        times.append(trio.current_time())
        served.server.retire()
        await left.wait()

    serve(start(make_role=Staying), retire)
    began, ended = times
    assert ended - began >= max(RETIRE_S, confirms_s)
