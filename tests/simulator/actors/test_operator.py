"""An operator whose changes fit into the nodes' queue lists."""

from __future__ import annotations

from dataclasses import replace

from tests.broker.bmq.rig import ACK, WRITE, Client, identity
from tests.simulator.actors.operator import EXTRA_APP
from tests.simulator.worlds.features import Feature
from tests.simulator.worlds.world import FANOUT, World


def opened() -> tuple[World, Client]:
    """Make a world of one node, and a client that has a queue open there."""
    world = World(1, features=frozenset({Feature.APPS}))
    (host,) = world.hosts
    host.start()
    assert host.node is not None
    client = Client(host.node)
    client.negotiate(identity())
    client.open(0, FANOUT, WRITE | ACK)
    return world, client


def test_apps_that_come_and_go_leave_room_for_other_queues() -> None:
    world, client = opened()
    for _ in range(100):
        world.operator.change_apps()
    for number in range(4):
        client.open(1 + number, f"bmq://priority/new{number}", WRITE | ACK)


def test_apps_stay_as_they_are_once_the_faults_have_ended() -> None:
    """A change that was planned before would take what is posted at the end from the app."""
    world, _ = opened()
    before = world.domains["fanout"]
    world.is_busy = False
    world.operator.change_apps()
    assert world.domains["fanout"] is before


def test_a_node_takes_the_file_of_a_domain_as_it_is_when_it_gets_to_it() -> None:
    """Changes that are asked for while its process stands still are one change."""
    world, client = opened()
    config = world.domains["fanout"]
    files = {"fanout": replace(config, app_ids=(*(app for app in config.app_ids if app != EXTRA_APP), "other"))}
    world.operator._reconfigure_at(client.node, files, "fanout")
    assert set(client.node.queues[FANOUT].apps) == set(files["fanout"].app_ids)
