"""The choice of the node that a proxy uses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.bmq.proxy.active_node import TRANSITIONS, ActiveNode, ActiveNodeTrigger, ActiveState, UpstreamNode
from formats.bmq.control.messages import NodeStatus

NODES = (
    UpstreamNode(1, "east1", "east"),
    UpstreamNode(2, "east2", "east"),
    UpstreamNode(3, "west1", "west"),
    UpstreamNode(4, "west2", "west"),
)
AVAILABLE = NodeStatus.AVAILABLE


class Choice:
    """`changes` are the nodes that were taken up, None for none; the last of several candidates is picked."""

    def __init__(self, data_center: str = "west", nodes: tuple[UpstreamNode, ...] = NODES) -> None:
        self.changes: list[int | None] = []
        self.active = ActiveNode(nodes, data_center, lambda below: below - 1, self.changes.append)


def reach(state: ActiveState) -> Choice:
    choice = Choice()
    if state is ActiveState.SEEKING:
        choice.active.waited()
    if state is ActiveState.ACTIVE:
        choice.active.status(3, AVAILABLE)
    assert choice.active.state is state
    return choice


ACTIONS: dict[ActiveNodeTrigger, Callable[[ActiveNode], None]] = {
    ActiveNodeTrigger.CHOSEN: lambda active: active.status(4, AVAILABLE),
    ActiveNodeTrigger.LOST: lambda active: active.down(3),
    ActiveNodeTrigger.WAITED: lambda active: active.waited(),
}


@pytest.mark.parametrize(("state", "trigger"), TRANSITIONS, ids=lambda each: each.name)
def test_table(state: ActiveState, trigger: ActiveNodeTrigger) -> None:
    choice = reach(state)
    ACTIONS[trigger](choice.active)
    assert choice.active.state is TRANSITIONS[state, trigger]


def test_one_nearby_is_waited_for() -> None:
    choice = Choice()
    choice.active.status(1, AVAILABLE)
    assert choice.changes == []
    choice.active.status(3, AVAILABLE)
    assert choice.changes == [3]


def test_any_will_do_after_a_while() -> None:
    choice = Choice()
    choice.active.status(1, AVAILABLE)
    choice.active.waited()
    assert choice.changes == [1]
    # It stays, even when there is one nearby.
    choice.active.status(3, AVAILABLE)
    assert choice.changes == [1]
    choice.active.down(1)
    assert choice.changes == [1, 3]


def test_one_nearby_comes_first_later_too() -> None:
    choice = Choice()
    for node_id in (4, 1, 2, 3):
        choice.active.status(node_id, AVAILABLE)
    choice.active.down(4)
    choice.active.down(3)
    assert choice.changes == [4, 3, 2]


@pytest.mark.parametrize("data_center", ["", "UNSPECIFIED", "north"])
def test_all_are_as_good_without_one_nearby(data_center: str) -> None:
    choice = Choice(data_center)
    choice.active.status(2, AVAILABLE)
    assert choice.changes == [2]


@pytest.mark.parametrize(
    "status", [NodeStatus.UNKNOWN, NodeStatus.STARTING, NodeStatus.STOPPING, NodeStatus.UNAVAILABLE]
)
def test_a_node_that_is_not_available(status: NodeStatus) -> None:
    choice = Choice()
    choice.active.status(3, status)
    assert choice.changes == []
    choice.active.status(3, AVAILABLE)
    choice.active.status(3, AVAILABLE)
    choice.active.status(3, status)
    assert choice.changes == [3, None]
    # Another's state changes nothing.
    choice.active.status(4, AVAILABLE)
    choice.active.status(3, status)
    choice.active.down(3)
    assert choice.changes == [3, None, 4]


def test_the_last_goes_and_comes_back() -> None:
    choice = Choice(nodes=NODES[:1], data_center="west")
    choice.active.status(1, AVAILABLE)
    choice.active.down(1)
    choice.active.down(1)
    choice.active.status(1, AVAILABLE)
    assert choice.changes == [1, None, 1]
