"""Topics of a RocketMQ node, written and read for tests."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import trio

from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.systems.node_process import RocketProcess
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.waiting import WAIT_S

__all__ = ["committed", "make_topic", "messages_of", "send"]


def make_topic(node: RocketProcess, topic: str, queues: int) -> None:
    async def main() -> None:
        async with Client.connect("127.0.0.1", node.nameserver_port) as client:
            await client.create_topic(topic, queues)

    trio.run(main)


def send(node: RocketProcess, topic: str, numbers: Sequence[int], queues: int = 2) -> None:
    """Send messages to the queues by turns; every third is compressed."""

    async def main() -> None:
        async with Client.connect("127.0.0.1", node.nameserver_port) as client:
            (place, *_) = await client.queues(topic)
            link = await client.link_to(place.address)
            for number in numbers:
                is_packed = number % 3 == 0
                body = b"message %d" % number
                properties = {"UNIQ_KEY": f"{number:032X}", "TAGS": "t", "KEYS": f"k{number} all", "n": str(number)}
                fields = {
                    "a": "test",
                    "b": topic,
                    "c": "TBW102",
                    "d": "4",
                    "e": str(number % queues),
                    "f": str(int(is_packed)),
                    "g": "1795400000000",
                    "h": "7",
                    "j": "0",
                    "k": "false",
                    "m": "false",
                    "i": encode_properties(properties).decode(),
                }
                answer = await link.call(
                    RequestCode.SEND_MESSAGE_V2, fields, WAIT_S, zlib.compress(body) if is_packed else body
                )
                assert answer.code == ResponseCode.SUCCESS

    trio.run(main)


def messages_of(node: RocketProcess, topic: str) -> dict[int, list[Record]]:
    """All messages of a topic, by queue."""

    async def main() -> dict[int, list[Record]]:
        found: dict[int, list[Record]] = {}
        async with Client.connect("127.0.0.1", node.nameserver_port) as client:
            for queue in await client.queues(topic):
                puller = QueuePuller(await client.link_to(queue.address), "reader", topic, queue.queue_id, WAIT_S)
                await puller.seek_end()
                end = puller.offset
                await puller.seek_begin()
                found[queue.queue_id] = []
                while puller.offset < end:
                    found[queue.queue_id] += await puller.pull_records(1024)
        return found

    return trio.run(main)


def committed(node: RocketProcess, topic: str, group: str) -> dict[int, int]:
    """The offsets that a group has committed, by queue."""

    async def main() -> dict[int, int]:
        found = {}
        async with Client.connect("127.0.0.1", node.nameserver_port) as client:
            for queue in await client.queues(topic):
                puller = QueuePuller(await client.link_to(queue.address), group, topic, queue.queue_id, WAIT_S)
                if await puller.seek_committed():
                    found[queue.queue_id] = puller.offset
        return found

    return trio.run(main)
