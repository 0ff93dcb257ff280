"""The cases of scripts/benchmark-steps with the primary and the replicas of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c

from broker.bmq.core.messages import Content
from broker.bmq.node.node import Node
from broker.bmq.replication.positions import NOWHERE
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import EventType
from formats.bmq.control.messages import NodeStatus
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.wire.event import iter_frames, next_frame
from scripts.bench.step_cases.common import DOMAINS, PAYLOAD, POSTS_A_TICK, QUEUE, Outcome, open_directory
from tests.broker.bmq.member.member_bus import Members, Process
from tests.broker.bmq.rig import ACK, LENGTH_MAX, START_S, WRITE, guid

__all__ = ["CLUSTER_CASES", "ClusterBench"]

# Number of records to be cut from the end of a journal.
RECORDS_CUT = 100


class ClusterBench:
    """Three members of a cluster, whose steps are measured; each has a replica of very many messages in one queue.

    Each event sent to a node is a step, as is each piece of its own work.
    """

    def __init__(self, folder: Path, messages: int) -> None:
        limits = PartitionLimits(journal=messages * 240 + (1 << 20), data=messages * 160 + (1 << 22), qlist=1 << 16)
        self.messages = messages
        domains = {each.name: each for each in DOMAINS}
        self.cluster = Members(
            limits=limits, directory_of=lambda node_id: open_directory(folder / str(node_id)), domains=domains
        )
        self._times: dict[int, list[tuple[float, float]]] = {}
        self._moved = False  # in the last step
        self.resting: set[int] = set()  # nodes that have done nothing yet
        self.kept_back: EventType | None = None  # an event type withheld from replicas
        nodes = self.cluster.processes.values()
        self.until(lambda: all(each.member.status is NodeStatus.AVAILABLE for each in nodes))
        client = self.cluster.connect(self.primary.node_id)
        client.open(1, QUEUE, WRITE | ACK)
        self.primary.node.disconnect(client.session, "gone")

    @property
    def primary(self) -> Process:
        (primary,) = [each for each in self.cluster.processes.values() if each.node.partitions[0].active]
        return primary

    @property
    def replica(self) -> Process:
        return next(each for each in self.cluster.processes.values() if each is not self.primary)

    def fill(self, numbers: range | None = None) -> None:
        content = Content(PAYLOAD, crc32c(PAYLOAD), 0, False, 0)
        queue = self.primary.node.queues[QUEUE]
        for number in numbers or range(self.messages):
            queue.post_one(guid(number), content)
            if number % 1000 == 0:
                self._step()
            if number % POSTS_A_TICK == 0:
                # Followers would abandon a leader that is silent for the whole case.
                self._tick()
        self.until(lambda: not self._step())

    def _timed(self, process: Process, act: Callable[[], object]) -> object:
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = act()
        took = (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000
        self._times.setdefault(process.node_id, []).append(took)
        return outcome

    def _step(self) -> bool:
        """Let every node take a step and receive what was sent; return True if there was anything to do."""
        cluster, moved = self.cluster, False
        cluster.now.ms += 1
        for process in list(cluster.processes.values()):
            process.now.ms = cluster.now.ms
            if process.node_id in self.resting:
                continue
            moved |= bool(self._timed(process, lambda process=process: _end_step(process.node)))  # type: ignore[misc]
        for (source, target), wire in list(cluster.wires.items()):
            if wire.events and _type_of(wire.events[0]) != self.kept_back and target not in self.resting:
                moved = True
                process, data = cluster.processes[target], memoryview(wire.events.popleft())
                self._timed(process, lambda: _receive(process, source, data))  # noqa: B023 - called at once
        self._moved = moved
        return moved

    def _tick(self) -> None:
        self.cluster.now.ms += 100
        for process in self.cluster.processes.values():
            process.now.ms = self.cluster.now.ms
            process.now.wall_s = START_S + (self.cluster.now.ms - 1_000_000) // 1000
            self._timed(process, process.node.tick)

    def until(self, wanted: Callable[[], object]) -> None:
        end = self.cluster.now.ms + 600_000
        while self._step() or not wanted():
            if not self._moved or self.cluster.now.ms % 100 == 0:
                self._tick()
            assert self.cluster.now.ms < end, "that did not happen"

    def measure(
        self, case: str, action: Callable[[], object], wanted: Callable[[], object], at: Process | None = None
    ) -> list[Outcome]:
        """Measure an action at the primary, or `at` another node, and all following steps, by node."""
        primary_id, self._times = self.primary.node_id, {}
        self._timed(at or self.primary, action)
        self.until(wanted)
        found = []
        for node_id, times in sorted(self._times.items()):
            who = f"{case}, node {node_id}{' (primary before)' if node_id == primary_id else ''}"
            walls, cpus = [wall for wall, _ in times], [cpu for _, cpu in times]
            found.append(Outcome(who, times[0][0], max(walls), max(cpus), len(times), sum(walls), 0.0))
        return found

    def close(self) -> None:
        for process in self.cluster.processes.values():
            for partition in process.node.partitions.values():
                partition.close()


def _end_step(node: Node) -> bool:
    more = any(node.end_step())
    node.rest()
    return more


def _type_of(event: bytes) -> int:
    frame = next_frame(memoryview(event), 0, len(event), LENGTH_MAX)
    assert frame is not None
    return frame.type


def _receive(process: Process, source: int, data: memoryview) -> None:
    for frame in iter_frames(data, 0, len(data), LENGTH_MAX):
        process.member.receive(source, data, frame)


def cluster_rollover(bench: ClusterBench) -> list[Outcome]:
    bench.fill()
    files = {each.node_id: each.node.partitions[0].files for each in bench.cluster.processes.values()}
    others = bench.cluster.processes.values()
    return bench.measure(
        "rollover in a cluster",
        bench.primary.node.partitions[0].roll_over,
        lambda: all(each.node.partitions[0].files is not files[each.node_id] for each in others),
    )


def hand_over(bench: ClusterBench) -> list[Outcome]:
    """Measure a primary that becomes a replica."""
    bench.fill()
    old = bench.primary
    return bench.measure("a primary hands over", old.member.retire, lambda: _is_served(bench, old))


def take_over(bench: ClusterBench) -> list[Outcome]:
    bench.fill()
    old = bench.primary
    return bench.measure(
        "a primary is killed", lambda: bench.cluster.without(old.node_id), lambda: _is_served(bench, old)
    )[1:]


def cut(bench: ClusterBench) -> list[Outcome]:
    """Measure a replica that loses its last records and receives them again."""
    return _cut(bench, "a replica is cut", RECORDS_CUT)


def cut_half(bench: ClusterBench) -> list[Outcome]:
    return _cut(bench, "a replica loses half of all", bench.messages // 2)


def _cut(bench: ClusterBench, case: str, records: int) -> list[Outcome]:
    bench.fill()
    primary = bench.primary.member.partitions[0]
    node_id, end = next(each for each in bench.cluster.processes if each != bench.primary.node_id), primary.position

    def drop() -> None:
        assert primary.stream is not None
        primary.stream.forget(node_id)
        primary.drop_behind(node_id, RecordNumber(end.primary_lease_id, end.sequence_number - records))

    replica = bench.cluster.processes[node_id].member.partitions[0]
    slices = bench.cluster.processes[node_id].node.work.slices
    found = bench.measure(
        case,
        drop,
        lambda: replica.is_healed and bench.cluster.processes[node_id].node.work.slices > slices,
    )
    assert replica.position == bench.primary.member.partitions[0].position
    return found


def summary(bench: ClusterBench) -> list[Outcome]:
    """Measure a replica's answer to a request for a storage summary."""
    bench.fill()
    replica = bench.replica
    found: list[object] = []
    asked = bench.measure(
        "STORAGE SUMMARY at a replica",
        lambda: found.append(replica.member.partitions[0].copy.index.places.stored()),
        lambda: found,
        at=replica,
    )
    ((counts,),) = [each.values() for each in found if isinstance(each, dict)]
    assert counts == (bench.messages, bench.messages * len(PAYLOAD)), counts
    return asked


def _roll_over(bench: ClusterBench) -> None:
    """Have the primary roll over to the end; resting nodes do not."""
    partition = bench.primary.node.partitions[0]
    before = partition.files
    partition.roll_over()
    bench.until(lambda: partition.files is not before)


def rollover_again(bench: ClusterBench) -> list[Outcome]:
    """Measure a primary that completes two rollovers before a replica begins the first."""
    bench.fill()
    replica, primary = bench.replica, bench.primary
    bench.resting.add(replica.node_id)
    _roll_over(bench)
    _roll_over(bench)
    files = primary.node.partitions[0].files
    found = bench.measure(
        "the primary has rolled over twice",
        bench.resting.clear,
        lambda: replica.node.partitions[0].files.journal_end == files.journal_end,
    )
    assert replica.member.partitions[0].position == primary.member.partitions[0].position
    return found


def _place(bench: ClusterBench, replica: Process) -> None:
    """Bring a replica to a rollover after which it has yet to find the places of its messages."""
    before = replica.node.partitions[0].files
    bench.primary.node.partitions[0].roll_over()
    while replica.node.partitions[0].files is before:
        bench._step()
    bench.resting.add(replica.node_id)
    bench.fill(range(bench.messages, bench.messages + 2 * RECORDS_CUT))


def drop_placing(case: str, records: int | None) -> Callable[[ClusterBench], list[Outcome]]:
    """Measure the loss of `records` records (None: all) at a replica whose rolled-over messages are not placed yet."""

    def run(bench: ClusterBench) -> list[Outcome]:
        bench.fill()
        replica, primary = bench.replica, bench.primary.member.partitions[0]
        _place(bench, replica)
        end = primary.position
        begin = NOWHERE if records is None else RecordNumber(end.primary_lease_id, end.sequence_number - records)
        old = replica.node.partitions[0].files
        drops = replica.member.partitions[0]

        def drop() -> None:
            assert primary.stream is not None
            primary.stream.forget(replica.node_id)
            primary.drop_behind(replica.node_id, begin)
            bench.resting.clear()

        work, slices = replica.node.work, replica.node.work.slices
        found = bench.measure(
            case,
            drop,
            lambda: (
                drops.is_healed
                and work.slices > slices
                and (records is not None or replica.node.partitions[0].files is not old)
            ),
        )
        assert drops.position == bench.primary.member.partitions[0].position
        return found

    return run


def backlog(bench: ClusterBench) -> list[Outcome]:
    """Measure a primary that sends all its live records before it has healed a replica, as the reference's may."""
    bench.fill(range(100))
    replica, primary = bench.replica, bench.primary.member.partitions[0]
    assert primary.stream is not None
    end = primary.position
    bench.kept_back = EventType.PARTITION_SYNC
    primary.stream.forget(replica.node_id)
    primary.drop_behind(replica.node_id, RecordNumber(end.primary_lease_id, end.sequence_number - 50))
    events: list[bytes] = []
    wire = bench.cluster.wires[bench.primary.node_id, replica.node_id]
    while not (wire.events and _type_of(wire.events[0]) == EventType.PARTITION_SYNC):
        bench._step()
        bench._tick()
    events.append(wire.events.popleft())
    bench.kept_back = None
    bench.fill(range(100, 100 + bench.messages))
    assert not replica.member.partitions[0].is_healed
    return bench.measure(
        "a backlog is written",
        lambda: wire.events.extendleft(events),
        lambda: replica.member.partitions[0].position == bench.primary.member.partitions[0].position,
    )


def _is_served(bench: ClusterBench, old: Process) -> bool:
    """Return True if another primary serves the partition, and all others have it."""
    nodes = bench.cluster.processes.values()
    return any(each.node.partitions[0].active for each in nodes if each is not old) and all(
        each.member.partitions[0].is_healed for each in nodes
    )


CLUSTER_CASES: dict[str, Callable[[ClusterBench], list[Outcome]]] = {
    "backlog": backlog,
    "cluster-rollover": cluster_rollover,
    "cut": cut,
    "cut-half": cut_half,
    "cut-placing": drop_placing("a replica is cut that has just rolled over", RECORDS_CUT),
    "over": drop_placing("a replica that has just rolled over starts over", None),
    "summary": summary,
    "rollover-again": rollover_again,
    "hand-over": hand_over,
    "take-over": take_over,
}
