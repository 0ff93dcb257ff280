"""Bridges from real nodes on which somebody has put messages that are made to do harm."""

from __future__ import annotations

import time
import zlib
from pathlib import Path

import trio

from bmqctl.carrying.bridge.blazingmq_ends import BlazingSource, Confirming, for_topic
from bmqctl.carrying.bridge.carrying import Bridge, Source, TryAgain
from bmqctl.carrying.bridge.ends import BlazingEnd, RocketEnd
from bmqctl.carrying.bridge.flow import TAKEN, FlowOptions, Send
from bmqctl.carrying.bridge.rocketmq_source import RocketSource
from bmqctl.client.protocol.events import StreamOptions
from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.sending import Sender
from bmqctl.client.session import Session, SessionOptions
from bmqctl.testing import NodeProcess, RocketProcess
from formats.bmq.wire.ack import AckStatus
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.rigs.official import queue_name
from tests.waiting import WAIT_S

HOST = "127.0.0.1"
TOPIC = "orders"
# A body of 8 KiB that becomes one of 8 MiB.
BODY_BYTES = 8 << 20
BOMBS = 24
WINDOW_BYTES = 16 << 20


class Slow:
    """A destination that answers a batch only when it is let to; `most` is the size of what the bridge held."""

    def __init__(self) -> None:
        self.most = 0
        self.taken = 0
        self._sends: list[Send] = []
        self._bridge: Bridge | None = None

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        self._bridge = bridge
        task_status.started()
        bridge.destination_up()
        while True:
            await trio.sleep(0.02)
            self.most = max(self.most, bridge.flow.held * BODY_BYTES)
            for send in [self._sends.pop(0)] if self._sends else []:
                self.taken += len(send.items)
                bridge.answered(send.lane, send.batch, [TAKEN] * len(send.items))

    def send(self, send: Send) -> None:
        self._sends.append(send)


async def carry_all(source: Source, slow: Slow) -> None:
    """Carry the bombs, and check that no more of them are held than the window allows, and a portion."""
    bridge = Bridge(source, slow, FlowOptions(window_bytes=WINDOW_BYTES), lambda text: None, BOMBS)
    with trio.fail_after(WAIT_S):
        await bridge.run(None, WAIT_S)
    assert slow.taken == BOMBS
    assert slow.most <= WINDOW_BYTES + BODY_BYTES


async def send_bombs(rocket: RocketProcess) -> None:
    bomb = zlib.compress(bytes(BODY_BYTES), 9)
    sender = Sender("p", TOPIC)
    async with Client.connect(HOST, rocket.nameserver_port) as client:
        await client.create_topic(TOPIC, 1)
        link = await client.link_to(rocket.address)
        for _ in range(BOMBS):
            fields = {**sender.message(0, time.time_ns() // 1_000_000), "f": str(int(SystemFlag.COMPRESSED))}
            answer = await link.call(RequestCode.SEND_MESSAGE_V2, fields, WAIT_S, bomb)
            assert answer.code == ResponseCode.SUCCESS


def test_bodies_of_a_topic_are_decompressed_as_there_is_room(tmp_path: Path) -> None:
    async def run(rocket: RocketProcess) -> None:
        await send_bombs(rocket)
        trying = TryAgain("topic", lambda text: None)
        end = RocketEnd(HOST, rocket.nameserver_port, TOPIC)
        await carry_all(RocketSource(end, WAIT_S, trying, lambda text: None), Slow())

    with RocketProcess(tmp_path, grpc_port=0) as rocket:
        trio.run(run, rocket)


def test_payloads_of_a_queue_are_decompressed_as_there_is_room(tmp_path: Path) -> None:
    async def run(node: NodeProcess) -> None:
        uri = queue_name("bmq.test.persistent.priority")
        async with Session.connect(HOST, node.port, SessionOptions()) as session:
            queue = await session.open_queue(uri, write=True)
            for _ in range(BOMBS):
                assert (await queue.post(bytes(BODY_BYTES), compress=True)).status is AckStatus.SUCCESS
        trying = TryAgain("queue", lambda text: None)
        keeping = Confirming(StreamOptions())
        source = BlazingSource(BlazingEnd(HOST, node.port, uri), SessionOptions(), keeping, for_topic(), 1, "", trying)
        await carry_all(source, Slow())

    with NodeProcess(tmp_path) as node:
        trio.run(run, node)
