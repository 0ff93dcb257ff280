"""The judge of groups in which a slave acts as master."""

from __future__ import annotations

import pytest

from tests.simulator.controllers.acting import ActingClient, ActingWorld
from tests.simulator.invariants import Violation


def test_acting_master_whose_offsets_go_back() -> None:
    world = ActingWorld(5)
    world.nameserver.start()
    for machine in world.machines.values():
        machine.start()
    master, slave = world.machines["a-1"], world.machines["a-2"]
    while world.nameserver.acting() != f"{master.address}:10911":
        world.step()
    world.kill(master)
    judge, process = world.judge_of(slave), slave.process
    assert process is not None
    client = world.clients[0]
    assert isinstance(client, ActingClient)
    client._next[1] = 7
    while process.offsets.get("t", "g", 1) != 7 or world.nameserver.acting() != f"{slave.address}:10911":
        world.step()
    judge.look(slave)
    process.offsets.commit("t", "g", 1, 6)
    with pytest.raises(Violation, match="a-2 has offset 6 of queue 1, and has acknowledged 7"):
        judge.look(slave)
