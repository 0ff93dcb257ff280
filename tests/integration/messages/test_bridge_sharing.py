"""`bmqctl bridge` from a topic: ends that come later, more queues, and other consumers of its group."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import trio

from bmqctl.client.protocol.events import StreamOptions
from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.sending import Sender
from bmqctl.client.session import Session
from bmqctl.testing import NodeProcess, RocketProcess
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.integration.messages.bridge_rig import BridgeProcess, check_account
from tests.rigs.official import queue_name
from tests.waiting import WAIT_S, eventually_in_trio

TOPIC = "orders"
PART = 20

Number = tuple[int, int]  # of the queue, and in it


class Story:
    """Two nodes, what was sent to the topic, and what a consumer finds in the queue."""

    def __init__(self, folder: Path) -> None:
        self.node = NodeProcess(folder / "bmq")
        self.rocket = RocketProcess(folder / "rocketmq", grpc_port=0)
        self.uri = queue_name("bmq.test.persistent.priority")
        self.found: list[Number] = []
        self._sent: dict[int, int] = {}
        self._folder = folder

    def bridge(self, name: str) -> BridgeProcess:
        """A bridge of the group, to be started."""
        folder = self._folder / name
        folder.mkdir()
        topic = f"rocketmq://{self.rocket.nameserver}/{TOPIC}?group=bridge"
        return BridgeProcess(["--json", "-b", self.node.uri, topic, self.uri], folder)

    async def send(self, queues: int) -> None:
        """Send a part to each of the first queues."""
        sender = Sender("test", TOPIC)
        async with Client.connect("127.0.0.1", self.rocket.nameserver_port) as client:
            link = await client.link_to(self.rocket.address)
            for queue_id in range(queues):
                begin = self._sent.get(queue_id, 0)
                bodies = [f"{queue_id} {number}".encode() for number in range(begin, begin + PART)]
                fields, body = sender.batch(queue_id, time.time_ns() // 1_000_000, bodies)
                answer = await link.call(RequestCode.SEND_BATCH_MESSAGE, fields, 10.0, body)
                assert answer.code == ResponseCode.SUCCESS
                self._sent[queue_id] = begin + PART

    async def make_queues(self, count: int) -> None:
        async with Client.connect("127.0.0.1", self.rocket.nameserver_port) as client:
            await client.create_topic(TOPIC, count)

    async def read(self) -> None:
        """Read the queue, confirming nothing, until each message that was sent has come; check the order."""
        wanted = {(queue_id, number) for queue_id, count in self._sent.items() for number in range(count)}
        self.found = []
        options = StreamOptions(max_unconfirmed_messages=100_000, max_unconfirmed_bytes=1 << 30)
        async with Session.connect("127.0.0.1", self.node.port) as session:
            queue = await session.open_queue(self.uri, read=True, options=options)
            with trio.fail_after(WAIT_S):
                while not wanted.issubset(self.found):
                    for message in await queue.receive():
                        queue_id, number = map(int, message.payload.split())
                        self.found.append((queue_id, number))
        for queue_id in self._sent:
            numbers = [number for each, number in self.found if each == queue_id]
            assert list(dict.fromkeys(numbers)) == sorted(set(numbers)), "a first copy out of order"


async def told(bridge: BridgeProcess, text: str, skip: int = 0) -> None:
    await eventually_in_trio(lambda: text in bridge.told[skip:], state=lambda: bridge.told[-2000:])


def test_ends_that_come_later_and_queues_and_consumers_too(tmp_path: Path) -> None:
    trio.run(_ends_that_come_later, Story(tmp_path))


async def _ends_that_come_later(story: Story) -> None:
    first, second = story.bridge("first"), story.bridge("second")
    try:
        first.start()
        await told(first, "; it is awaited\n")
        await trio.to_thread.run_sync(story.node.start)
        nobody = f"all attempts to connect to {story.rocket.nameserver} failed: Connection refused"
        await told(first, f"{TOPIC}: {nobody}; it is awaited\n")
        await trio.to_thread.run_sync(story.rocket.start)
        await told(first, "the nameserver knows no such topic; it is awaited\n")
        await story.make_queues(1)
        await told(first, f"{TOPIC}: connected\n")
        await story.send(1)
        await story.read()
        # More queues.
        await story.make_queues(3)
        await story.send(3)
        await story.read()
        await told(first, "3 of 3 queues are this bridge's\n")
        # Another bridge of the group.
        second.start()
        await told(second, "1 of 3 queues are this bridge's\n")
        await told(first, "2 of 3 queues are this bridge's\n")
        await story.send(3)
        await story.read()
        skip = len(first.told)
        code, output = second.end(signal.SIGTERM)
        account = check_account(code, output)
        assert account["delivered"] >= PART
        await told(first, "3 of 3 queues are this bridge's\n", skip)
        await story.send(3)
        await story.read()
        # Sooner or later as many as were sent: what was repeated, BlazingMQ has left out.
        assert len(story.found) == len(set(story.found)) == 10 * PART
        check_account(*first.end(signal.SIGTERM))
    finally:
        first.close()
        second.close()
        story.node.close()
        story.rocket.close()
