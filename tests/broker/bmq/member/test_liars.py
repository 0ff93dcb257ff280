"""A member that lies, by seeds: the others lose its link at most, and go on without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.broker.bmq.member.liars import Liars
from tests.broker.bmq.relay.hop_rig import DOMAINS, QUEUE, World
from tests.broker.bmq.rig import ACK, WRITE
from tests.families import sweep

LIES = 15


@pytest.mark.parametrize("seed", sweep(range(100), 5))
def test_lying_member_ends_its_own_link_at_most(seed: int) -> None:
    cluster = Liars(seed)
    cluster.until(lambda: all(each.member.status.name == "AVAILABLE" for each in cluster.processes.values()))
    try:
        cluster.lie(LIES)
        cluster.end()
    except Exception as error:
        error.add_note("\n".join(["the last lies:", *cluster.told]))
        raise


def test_two_queues_that_a_leader_has_given_one_key() -> None:
    """Messages of the two queues look the same, but a node can forget one queue and then the other."""
    world = World(DOMAINS)
    world.make_primary(0)
    client = world.client(1)
    client.open(1, QUEUE, WRITE | ACK)
    other = f"{QUEUE}-other"
    world.places.state.queues[other] = replace(world.places.state.queues[QUEUE], uri=other)
    client.open(2, other, WRITE | ACK)
    client.close(1, QUEUE, WRITE)
    client.close(2, other, WRITE)
    assert not world.nodes[1].rig.node.queues
