"""Worlds in which runs of several messages are taken at once go as if each message were taken by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.bmq.core.messages import Message
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.queue import Queue, Stream
from broker.bmq.queue.root_queue import RootQueue
from tests.simulator import run
from tests.simulator.faults.faults import Faults
from tests.simulator.faults.harsh import HarshFaults
from tests.simulator.machines import disk


@pytest.mark.parametrize(("nodes", "least"), [(1, 100), (3, 20)])
def test_runs_change_no_world(
    nodes: int, least: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(disk, "DISK_CHUNK", 1 << 12)
    # A run takes fewer calls to the disk than its messages one by one: a death after some calls would come later.
    monkeypatch.setattr(Faults, "kill_in_call", lambda self: self._random.randrange(40))
    monkeypatch.setattr(HarshFaults, "roll_over_and_die", lambda self: self._random.randrange(24))
    arguments = ["--seeds", "0..5", "--nodes", str(nodes), "--jobs", "1"]
    append, confirm, sizes = StoredPartition.append, Queue.confirm, []

    def count(self: StoredPartition, key: bytes, run: Sequence[Message], *rest: Any) -> bool:
        sizes.append(len(run))
        return append(self, key, run, *rest)

    def confirm_each(self: Queue, stream: Stream, guids: Sequence[bytes]) -> int:
        return sum([confirm(self, stream, (guid,)) for guid in guids])

    monkeypatch.setattr(StoredPartition, "append", count)
    assert run.main(arguments) == 0
    whole = capsys.readouterr().out
    assert sum([size > 1 for size in sizes]) >= least
    sizes.clear()
    monkeypatch.setattr(RootQueue, "_takes_together", lambda self, run, size: False)
    monkeypatch.setattr(Queue, "confirm", confirm_each)
    assert run.main(arguments) == 0
    assert set(sizes) == {1}
    assert whole.rpartition("digest ")[2] == capsys.readouterr().out.rpartition("digest ")[2]
