"""`bmqctl journal summary` of the store that a node of ours is using."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from bmqctl.client.session import Session
from bmqctl.stores.blazingmq.summary.summary import QueueSummary, summarize
from bmqctl.systems.node_process import NodeProcess
from tests.waiting import WAIT_S

pytestmark = pytest.mark.trio

FANOUT = "bmq://bmq.test.persistent.fanout/summed"
PRIORITY = "bmq://bmq.test.persistent.priority/summed"


def queues_of(directory: Path) -> dict[str | None, QueueSummary]:
    found = summarize(directory, lambda done, total: None)
    assert not found.faults
    for partition in found.partitions:
        assert not partition.unreadable
        assert not any(partition.misfits.values())
    return {queue.queue_uri: queue for queue in found.queues}


async def test_a_store_in_use(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        async with Session.connect("127.0.0.1", node.port) as session:
            fanout = await session.open_queue(FANOUT, write=True)
            foo = await session.open_queue(f"{FANOUT}?id=foo", read=True)
            priority = await session.open_queue(PRIORITY, read=True, write=True)
            for number in range(30):
                await fanout.post(b"f" * 100)
                if number < 10:
                    await priority.post(b"p" * 50)
            with trio.fail_after(WAIT_S):
                for queue, count in ((foo, 30), (priority, 10)):
                    while count:
                        messages = await queue.receive()
                        count -= len(messages)
                        for message in messages[: len(messages) - (count == 0)]:
                            queue.confirm(message)
            await foo.close()
            await priority.close()
            directory = next((tmp_path / "data").rglob("*.bmq_journal")).parent
            running = queues_of(directory)
        assert node.stop() == 0
    assert (running[FANOUT].messages, running[FANOUT].outstanding, running[FANOUT].payload_bytes) == (30, 30, 3000)
    assert {app.app_id: (app.confirmed, app.outstanding) for app in running[FANOUT].apps}["foo"] == (29, 1)
    assert running[FANOUT].partially_confirmed == 29
    assert (running[PRIORITY].messages, running[PRIORITY].outstanding) == (10, 1)
    assert running[PRIORITY].ended["confirmed"] == 9
    stopped = queues_of(directory)
    for uri, was in running.items():
        assert (stopped[uri].messages, stopped[uri].outstanding) == (was.messages, was.outstanding)
