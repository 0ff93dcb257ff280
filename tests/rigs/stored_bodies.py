"""Messages of RocketMQ with bodies compressed as by other clients, sent and read as stored."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import trio

from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.moving.stored import find_parts
from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.faults import NotWritable, check_answer
from bmqctl.client.remoting.sending import Sender
from bmqctl.client.rocketmq import connect
from bmqctl.testing import RocketProcess
from formats.rocketmq.flags import COMPRESSION_FLAGS
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.batch import CompressedMessage
from formats.rocketmq.remoting.bodies.routes import Permission
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers.administration import CreateTopicRequest
from formats.rocketmq.remoting.headers.codec import write_header
from tests.waiting import WAIT_S

__all__ = ["BODIES", "PLAIN", "assert_read_only", "give_up", "make_read_only", "store_bodies", "stored_bodies"]

PLAIN: Final = b"many bytes " * 100
_TIMEOUT_S: Final = 10.0
BODIES: Final = (
    (PLAIN, 0),
    (zlib.compress(PLAIN), 1 | 3 << 8),
    (pa.compress(PLAIN, "lz4", asbytes=True), 1 | 1 << 8),
    (pa.compress(PLAIN, "zstd", asbytes=True), 1 | 2 << 8),
    (b"\x04\x22\x4d\x18" + b"x" * 20, 1 | 1 << 8),
)
"""Bodies with their system flags; the last one is not LZ4's."""


def _place(rocket: RocketProcess) -> tuple[str, int]:
    host, _, port = rocket.nameserver.rpartition(":")
    return host, int(port)


async def store_bodies(rocket: RocketProcess, topic: str, bodies: Sequence[tuple[bytes, int]] = BODIES) -> None:
    async with Client.connect(*_place(rocket), _TIMEOUT_S) as client:
        queue, *_ = await client.queues(topic, Permission.WRITE) or await client.create_topic(topic, 1)
        link, sender = await client.link_to(queue.address), Sender("others", topic)
        for number, (body, flags) in enumerate(bodies):
            message = CompressedMessage(0, body, encode_properties({"UNIQ_KEY": f"{number:032X}"}), flags)
            fields, data = sender.encoded(queue.queue_id, time.time_ns() // 1_000_000, message)
            check_answer(topic, await link.call(RequestCode.SEND_MESSAGE_V2, fields, _TIMEOUT_S, data))


async def stored_bodies(rocket: RocketProcess, topic: str) -> list[tuple[bytes, int]]:
    """Return the bodies of a topic with the flags of their compression, in no order."""
    host, port = _place(rocket)
    found = []
    async with Client.connect(host, port, _TIMEOUT_S) as client:
        addresses = {(each.broker_name, each.queue_id): each.address for each in await client.queues(topic)}
        for part in await find_parts(client, RocketEnd(host, port, topic), _TIMEOUT_S):
            _, broker_name, queue_id = part.place
            link = await client.link_to(addresses[broker_name, queue_id])
            puller = QueuePuller(link, "reader", topic, queue_id, _TIMEOUT_S)
            puller.offset = part.offset
            while puller.offset < part.end:
                records = await puller.pull_records(100)
                found += [(bytes(each.body), each.system_flags & COMPRESSION_FLAGS) for each in records]
    return found


async def make_read_only(rocket: RocketProcess, topic: str) -> None:
    """Take the write permission from a topic, and wait until the nameserver reports it."""
    header = CreateTopicRequest(topic, "TBW102", 4, 4, Permission.READ, "SINGLE_TAG", False, 0)
    async with Client.connect(*_place(rocket), _TIMEOUT_S) as client:
        for address in await client.masters():
            link = await client.link_to(address)
            answer = await link.call(RequestCode.UPDATE_AND_CREATE_TOPIC, write_header(header), _TIMEOUT_S)
            check_answer(topic, answer)
        with trio.fail_after(WAIT_S):
            while not await _is_read_only(client, topic):
                await trio.sleep(0.05)


async def assert_read_only(rocket: RocketProcess, topic: str) -> None:
    async with Client.connect(*_place(rocket), _TIMEOUT_S) as client:
        assert await _is_read_only(client, topic)


async def _is_read_only(client: Client, topic: str) -> bool:
    try:
        return not await client.queues(topic, Permission.WRITE)
    except NotWritable:
        return True


async def give_up(rocket: RocketProcess, topic: str, group: str, count: int) -> None:
    """Have a group give up messages, whose payloads it does not read."""
    async with connect(f"rocketmq://{rocket.nameserver}") as session:
        consumer = await session.consume(topic, group, from_start=True)
        with trio.fail_after(WAIT_S):
            for _ in range(count):
                (await anext(consumer)).reject(delay_level=-1)
        await consumer.close()
