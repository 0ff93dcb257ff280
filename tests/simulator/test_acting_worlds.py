"""The judge of groups in which a slave acts as master."""

from __future__ import annotations

import pytest

from tests.simulator.controllers.acting import ActingJudge, ActingWorld
from tests.simulator.judges.invariants import Violation


def test_acting_master_whose_offsets_go_back() -> None:
    world = ActingWorld(5)
    world.nameserver.start()
    for machine in world.machines.values():
        machine.start()
    for _ in range(400):
        world.step()
    world.kill(world.machines["a-1"])
    for _ in range(400):
        world.step()
    slave = world.machines["a-2"]
    judge, process = world.judge_of(slave), slave.process
    assert isinstance(judge, ActingJudge)
    assert process is not None
    judge.look(slave)
    queue_id, (offset, _) = max(judge._commits[slave.life].items(), key=lambda each: each[1])
    process.offsets.commit("t", "g", queue_id, offset - 1)
    with pytest.raises(
        Violation, match=f"a-2 has offset {offset - 1} of queue {queue_id}, and has acknowledged {offset}"
    ):
        judge.look(slave)
