"""The judges of what a master counts of its slaves, and of the logs of a group in the end."""

from __future__ import annotations

import pytest

from formats.rocketmq.files.epochs import EpochEntry, encode_epochs
from tests.simulator.controllers.judge import EPOCHS_FILE
from tests.simulator.controllers.world import ControllerWorld
from tests.simulator.judges.invariants import Violation


def _led(seed: int) -> ControllerWorld:
    """Make a world, and let time pass without faults until slaves have a part of their master's log."""
    world = ControllerWorld(seed)
    for controller in world.controllers.values():
        controller.start()
    for machine in world.machines.values():
        machine.start()
    for _ in range(2_000):
        world.step()
        for machine in world.machines.values():
            if machine.process is not None and any(end > 1_000 for end in machine.process.counted.values()):
                return world
    raise AssertionError("no slave has got anything")


def test_master_that_counts_more_than_a_slave_has() -> None:
    world = _led(1)
    master = next(each for each in world.machines.values() if each.process is not None and each.process.counted)
    judge = world.judge_of(master)
    judge.look(master)
    assert master.process is not None
    assert master.process.group.controlled is not None
    term = master.process.group.controlled._master
    assert term is not None
    slave = next(slave for slave in term.in_sync.slaves.values() if slave.acknowledged > 0)
    slave.acknowledged += 1_000
    with pytest.raises(Violation, match=f"{master.key} counts the log of {master.name}-\\d up to {slave.acknowledged}"):
        judge.look(master)


def test_logs_that_differ_in_the_end() -> None:
    world = _led(1)
    judge = world.clients[0].judge
    judge.machines[0].disk.files[EPOCHS_FILE] = encode_epochs([EpochEntry(1, 0), EpochEntry(2, 500)])
    with pytest.raises(Violation, match="differ from 0 on"):
        judge.check_same()
