"""Random histories of a partition: nodes die and come back, links break, primaries change, files roll over.

Always: what was acknowledged is at the primary, in order, unless it was removed. In the end all nodes hold the same
bytes.
"""

from __future__ import annotations

from random import Random

import pytest

from broker.bmq.replication.partition_table import State
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.wire.event import Frame, next_frame
from formats.errors import FormatError
from tests.broker.bmq.replication.partition_bus import Bus, Node
from tests.broker.bmq.rig import guid
from tests.families import sweep

SMALL = PartitionLimits(journal=10 << 10, data=24 << 10, qlist=2 << 10)
ROOMY = PartitionLimits(journal=64 << 10, data=128 << 10, qlist=2 << 10)


class History:
    """One story; `kept` are the messages that were acknowledged and that nobody has removed since, in order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bus = Bus(self.random.choice((3, 3, 5)), SMALL if self.random.random() < 0.6 else ROOMY)
        self.bus.assign(0)
        self.bus.settle()
        self.next = 0
        self.seen: dict[int, int] = {}  # of each node's acknowledgments: how many were looked at
        self.kept: list[int] = []
        self.removed: set[int] = set()

    def run(self, steps: int) -> None:
        actions = (
            (12, self.post),
            (10, self.remove),
            (12, self.move),
            (1, self.kill),
            (2, self.restart),
            (1, self.part),
            (1, self.join),
            (2, self.change_primary),
            (3, self.wait),
        )
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            (action,) = self.random.choices([action for _, action in actions], weights)
            action()
            self.look()
        self.heal()

    def primary(self) -> Node | None:
        """The node that serves, if there is one; of two, the one under the newer lease."""
        serving = [node for node in self.bus.nodes.values() if node.serving]
        return max(serving, key=lambda node: node.stored.primary_lease_id, default=None)

    def anybody(self) -> Node | None:
        return self.random.choice(list(self.bus.nodes.values())) if self.bus.nodes else None

    # -- what happens

    def post(self) -> None:
        serving = [node for node in self.bus.nodes.values() if node.serving]
        if serving:
            node = self.random.choice(serving)
            count = self.random.randint(1, 6)
            if len(node.store) < 30:
                node.post(*range(self.next, self.next + count))
                self.next += count

    def remove(self) -> None:
        node = self.primary()
        if node is None or node.stored.primary_lease_id != self.bus.lease_id:
            return
        acked = [number for number in self.kept if guid(number) in node.store]
        for number in acked[: self.random.randint(0, 6)]:
            node.remove(number)
            self.removed.add(number)
        self.kept = [number for number in self.kept if number not in self.removed]

    def move(self) -> None:
        for _ in range(self.random.randint(1, 8)):
            self.bus.step()

    def kill(self) -> None:
        if len(self.bus.nodes) > self.bus.quorum:
            node = self.anybody()
            assert node is not None
            self.bus.kill(node.node_id)

    def restart(self) -> None:
        dead = [node_id for node_id in range(self.bus.count) if node_id not in self.bus.nodes]
        if dead:
            self.bus.restart(self.random.choice(dead))

    def part(self) -> None:
        node = self.anybody()
        if node is not None and not self.bus.cut:
            self.bus.part(node.node_id)

    def join(self) -> None:
        self.bus.join()

    def change_primary(self) -> None:
        """Change the primary as the leader of a majority does; some nodes learn of it later."""
        cut = {node_id for pair in self.bus.cut for node_id in pair}
        alone = {node_id for node_id in cut if sum(node_id in pair for pair in self.bus.cut) > 1} if cut else set()
        able = [node_id for node_id in self.bus.nodes if node_id not in alone]
        for node in self.bus.nodes.values():
            if node.partition.primary_lease_id != self.bus.lease_id and node.node_id in able:
                node.partition.primary_changed(self.bus.primary_id, self.bus.lease_id)
        if len(able) >= self.bus.quorum and self.random.random() < 0.5:
            self.bus.assign(self.random.choice(able), among=tuple(able))

    def wait(self) -> None:
        self.bus.run(1000)

    # -- what must hold

    def look(self) -> None:
        for node in self.bus.nodes.values():
            known = self.seen.get(id(node), 0)
            self.kept += [number for number in node.acked[known:] if number not in self.removed]
            self.seen[id(node)] = len(node.acked)
        newest = self.primary()
        if newest is not None and newest.stored.primary_lease_id == self.bus.lease_id:
            missing = [number for number in self.kept if guid(number) not in newest.store]
            assert not missing, f"node {newest.node_id} does not have {missing}"

    def heal(self) -> None:
        self.bus.join()
        for node_id in range(self.bus.count):
            if node_id not in self.bus.nodes:
                self.bus.restart(node_id)
        self.bus.assign(self.random.randrange(self.bus.count))
        self.bus.settle(5000)
        states = self.bus.states()
        assert states.count(State.PRIMARY_HEALED) == 1
        assert states.count(State.REPLICA_HEALED) == self.bus.count - 1
        self.look()
        self.bus.check_equal()


@pytest.mark.parametrize("seed", sweep(range(40), 8))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    History(seed).run(120)


@pytest.mark.slow
def test_garbage_is_refused_and_does_no_harm() -> None:
    """Events of the primary with bytes changed: an error that closes the link, or nothing; never another one."""
    refused = 0
    for seed in range(150):
        random = Random(seed)
        bus = Bus()
        bus.assign(0)
        bus.settle()
        bus.nodes[0].post(*range(5))
        bus.nodes[0].remove(2)
        bus.nodes[0].partition.flush()
        events = list(bus.links[0, 1])
        bus.links[0, 1].clear()
        for event in events:
            changed = bytearray(event)
            for _ in range(random.randint(1, 4)):
                changed[random.randrange(8, len(changed))] ^= 1 << random.randrange(8)
            view = memoryview(bytes(changed))
            frame = next_frame(view, 0, len(view), 1 << 29)
            assert isinstance(frame, Frame)
            try:
                bus.nodes[1].partition.on_storage(0, view, frame)
            except FormatError:
                refused += 1
        bus.part(1)
        bus.join()
        bus.settle(3000)
        assert bus.states()[1] is State.REPLICA_HEALED
    assert refused
