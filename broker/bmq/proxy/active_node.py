# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The choice of the node that a proxy uses: an available one, at first only in its own data centre.

A node is eligible when its link is up and it reports that it is available. After a while any node is used if none is
available nearby. The node in use is kept while it is eligible. Source: mqbnet::ClusterActiveNodeManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from formats.bmq.control.messages import NodeStatus

__all__ = ["TRANSITIONS", "ActiveNode", "ActiveNodeTrigger", "ActiveState", "UpstreamNode"]

# Data centres of a proxy for which all nodes are near.
ANYWHERE: Final = ("", "UNSPECIFIED")


class UpstreamNode(NamedTuple):
    """A node of the cluster as the configuration has it."""

    id: int
    name: str
    data_center: str = ""


class ActiveState(Enum):
    SEEKING_NEAR = "seeking one nearby"
    SEEKING = "seeking one anywhere"
    ACTIVE = "using one"


class ActiveNodeTrigger(Enum):
    CHOSEN = "chosen"
    LOST = "lost"
    WAITED = "waited"


TRANSITIONS: dict[tuple[ActiveState, ActiveNodeTrigger], ActiveState] = {
    (ActiveState.SEEKING_NEAR, ActiveNodeTrigger.CHOSEN): ActiveState.ACTIVE,
    (ActiveState.SEEKING_NEAR, ActiveNodeTrigger.WAITED): ActiveState.SEEKING,
    (ActiveState.SEEKING, ActiveNodeTrigger.CHOSEN): ActiveState.ACTIVE,
    (ActiveState.SEEKING, ActiveNodeTrigger.WAITED): ActiveState.SEEKING,
    (ActiveState.ACTIVE, ActiveNodeTrigger.WAITED): ActiveState.ACTIVE,
    (ActiveState.ACTIVE, ActiveNodeTrigger.LOST): ActiveState.SEEKING,
}


class ActiveNode:
    """The node of one cluster in use. `changed` is called with the new one, or None; `random_below` picks one.

    `statuses` has the nodes whose links are up.
    """

    def __init__(
        self,
        nodes: Sequence[UpstreamNode],
        data_center: str,
        random_below: Callable[[int], int],
        changed: Callable[[int | None], None],
    ) -> None:
        self.nodes = {node.id: node for node in nodes}
        near = {node.id for node in nodes if node.data_center == data_center}
        # Without nodes in its own data centre, or if that is unknown, all nodes are equal.
        self.near = near if near and data_center not in ANYWHERE else set(self.nodes)
        self.state = ActiveState.SEEKING_NEAR
        self.node_id: int | None = None
        self.statuses: dict[int, NodeStatus] = {}
        self._random_below = random_below
        self._changed = changed

    def waited(self) -> None:
        self.state = TRANSITIONS[self.state, ActiveNodeTrigger.WAITED]
        self._choose()

    def status(self, node_id: int, status: NodeStatus) -> None:
        self.statuses[node_id] = status
        if status is not NodeStatus.AVAILABLE and node_id == self.node_id:
            self._lose()
        else:
            self._choose()

    def down(self, node_id: int) -> None:
        self.statuses.pop(node_id, None)
        if node_id == self.node_id:
            self._lose()

    def _lose(self) -> None:
        self.state = TRANSITIONS[self.state, ActiveNodeTrigger.LOST]
        self.node_id = None
        if not self._choose():
            self._changed(None)

    def _choose(self) -> bool:
        if self.state is ActiveState.ACTIVE:
            return False
        available = [each for each in self.nodes if self.statuses.get(each) is NodeStatus.AVAILABLE]
        found = [each for each in available if each in self.near]
        if not found and self.state is ActiveState.SEEKING:
            found = available
        if not found:
            return False
        self.node_id = found[self._random_below(len(found))]
        self.state = TRANSITIONS[self.state, ActiveNodeTrigger.CHOSEN]
        self._changed(self.node_id)
        return True
