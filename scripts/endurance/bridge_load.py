"""The producers of scripts/soak-bridge, the messages that arrived, and the checks of both."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import trio

from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import Ack, StreamOptions
from bmqctl.client.remoting.client import Client, RequestRefused
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.link import LinkLost, NoAnswer
from bmqctl.client.remoting.sending import Sender
from bmqctl.client.session import RequestFailed, Session, SessionLost, SessionOptions
from bmqctl.systems.node_process import HOST
from formats.bmq.wire.ack import AckStatus
from formats.errors import FormatError
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode

__all__ = ["FAULTS", "Number", "Producing", "faults_of", "post", "read_queue", "read_topic", "send"]

FAULTS: Final = (OSError, LinkLost, NoAnswer, RequestRefused, SessionLost, RequestFailed, Unusable, FormatError)
PIECE: Final = 20
UNANSWERED_MAX: Final = 400
TIMEOUT_S: Final = 10.0
PAUSE_S: Final = 0.1
PULLED: Final = 32
# A consumer is done when nothing has arrived for this time.
QUIET_S: Final = 5.0
_FILLING: Final = b"x" * 400
_SHOWN: Final = 3


class Number(NamedTuple):
    """A message: its lane, and its number there."""

    lane: int
    number: int


class Producing:
    """The acknowledged messages of one direction, and the end of producing."""

    def __init__(self, rate: float) -> None:
        self.acked: set[Number] = set()
        self.refused = 0
        self.enough = trio.Event()
        self._rate = rate

    async def pause(self, count: int) -> None:
        await trio.sleep(count / self._rate)


async def post(port: int, uri: str, producing: Producing) -> None:
    """Post to a queue of BlazingMQ until producing ends and all posts are answered."""
    unanswered: set[int] = set()
    heard = trio.Event()

    def take(acks: list[Ack]) -> None:
        nonlocal heard
        for ack in acks:
            if ack.status is AckStatus.SUCCESS:
                producing.acked.add(Number(0, ack.correlation))
            else:
                producing.refused += 1
            unanswered.discard(ack.correlation)
        heard.set()
        heard = trio.Event()

    number = 0
    async with Session.connect(HOST, port, SessionOptions(resume=True), take) as session:
        queue = await session.open_queue(uri, write=True)
        while not producing.enough.is_set():
            for _ in range(PIECE):
                unanswered.add(number)
                queue.post_nowait(b"0 %d %s" % (number, _FILLING), {"n": number}, correlation=number)
                number += 1
            await producing.pause(PIECE)
            while len(unanswered) > UNANSWERED_MAX:
                await heard.wait()
        while unanswered:
            await heard.wait()


async def send(port: int, topic: str, queues: int, producing: Producing) -> None:
    """Send to the queues of a RocketMQ topic until producing ends; unanswered messages are sent again."""
    sender = Sender("soak", topic)
    begin = 0
    left: list[int] = []
    while not producing.enough.is_set():
        try:
            async with Client.connect(HOST, port, TIMEOUT_S) as client:
                found = await client.queues(topic)
                if not found:
                    raise LinkLost("the nameserver knows no such topic")
                link = await client.link_to(found[0].address)
                while left or not producing.enough.is_set():
                    left = left or list(range(queues))
                    numbers = range(begin, begin + PIECE)
                    bodies = [b"%d %d %s" % (left[0], number, _FILLING) for number in numbers]
                    fields, body = sender.batch(left[0], time.time_ns() // 1_000_000, bodies)
                    answer = await link.call(RequestCode.SEND_BATCH_MESSAGE, fields, TIMEOUT_S, body)
                    if answer.code != ResponseCode.SUCCESS:
                        raise RequestRefused("not sent", answer)
                    producing.acked |= {Number(left[0], number) for number in numbers}
                    left.pop(0)
                    if not left:
                        begin += PIECE
                    await producing.pause(PIECE)
        except FAULTS:
            await trio.sleep(PAUSE_S)


async def read_queue(port: int, uri: str) -> list[Number]:
    """Read all messages of a queue of BlazingMQ in order, without confirming them."""
    options = StreamOptions(max_unconfirmed_messages=1 << 24, max_unconfirmed_bytes=1 << 34)
    found: list[Number] = []
    async with Session.connect(HOST, port) as session:
        queue = await session.open_queue(uri, read=True, options=options)
        is_more = True
        while is_more:
            is_more = False
            with trio.move_on_after(QUIET_S):
                found += [_number_of(message.payload) for message in await queue.receive()]
                is_more = True
    return found


async def read_topic(port: int, topic: str) -> list[Number]:
    found: list[Number] = []
    async with Client.connect(HOST, port, TIMEOUT_S) as client:
        (queue, *_) = await client.queues(topic)
        puller = QueuePuller(await client.link_to(queue.address), "soak-check", topic, 0, TIMEOUT_S)
        await puller.seek_end()
        end = puller.offset
        await puller.seek_begin()
        while puller.offset < end:
            found += [_number_of(bytes(message.body)) for message in await puller.pull_records(PULLED)]
    return found


def _number_of(payload: bytes) -> Number:
    lane, number, filling = payload.split(b" ")
    if filling != _FILLING:
        raise ValueError(f"a message is not what was sent: {payload[:60]!r}")
    return Number(int(lane), int(number))


def faults_of(acked: Iterable[Number], found: list[Number]) -> list[str]:
    """List the losses among the messages that arrived, and the copies out of order."""
    faults = []
    lost = sorted(set(acked).difference(found))
    if lost:
        faults.append(f"{len(lost)} acknowledged messages are lost: {lost[:_SHOWN]}")
    for lane in sorted({each.lane for each in found}):
        numbers = [each.number for each in found if each.lane == lane]
        for what, order in (("first", numbers), ("last", [-number for number in reversed(numbers)])):
            once = list(dict.fromkeys(order))
            wrong = [(a, b) for a, b in pairwise(once) if a > b]
            if wrong:
                faults.append(f"lane {lane}: {len(wrong)} {what} copies out of order: {wrong[:_SHOWN]}")
    return faults


def account_faults(account: Mapping[str, object]) -> list[str]:
    """List the totals of a stopped bridge that do not add up."""
    taken, delivered, returned = (int(str(account[name])) for name in ("taken", "delivered", "returned"))
    refused, in_flight = (int(str(account[name])) for name in ("refused", "in_flight"))
    if refused or in_flight or taken != delivered + returned:
        return [f"the account does not add up: {dict(account)}"]
    return []
