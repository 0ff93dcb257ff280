"""Workers with bmqctl's own client for RocketMQ's remoting protocol.

A producer and a consumer share one queue of the topic, which no other producer uses if there are enough: a consumer
sees each producer's messages in order. Consumers keep one long poll on each of their queues, and commit with the next
pull.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import NamedTuple

import trio

from bmqctl.bench.pace import POLL_S, Pacer, await_start
from bmqctl.bench.plan import CannotStart, Plan, Seat, SharedCounter, monotonic_ns
from bmqctl.bench.tally import ConsumerTally, ProducerTally
from bmqctl.client.remoting.client import Client, Queue, Security
from bmqctl.client.remoting.consuming import Pulled, QueuePuller
from bmqctl.client.remoting.faults import FAULTS
from bmqctl.client.remoting.link import LinkLost, RemotingLink
from bmqctl.client.remoting.sending import Sender
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["GROUP", "consume", "produce", "queues_of_consumer", "queues_of_producer"]

GROUP = "bmqctl-bench"


def queues_of_consumer(queues: Sequence[Queue], consumers: int, index: int) -> list[Queue]:
    return list(queues[index::consumers])


def queues_of_producer(queues: Sequence[Queue], consumers: int, index: int) -> list[Queue]:
    """The queues to which producer `index` sends in turn: one of each consumer's."""
    each = max(consumers, 1)
    begin = index % (len(queues) // each) * each
    return list(queues[begin : begin + each])


async def _open_topic(client: Client, plan: Plan) -> list[Queue]:
    found = await client.queues(plan.queue)
    if not found:
        found = await client.create_topic(plan.queue, plan.producers * max(plan.consumers, 1))
    if len(found) < plan.consumers:
        raise CannotStart(f"topic {plan.queue} has {len(found)} queues, fewer than the {plan.consumers} consumers")
    return found


class _Target(NamedTuple):
    link: RemotingLink
    queue_id: int


async def _start(
    plan: Plan,
    seat: Seat,
    prepare: Callable[[Client, list[Queue]], Awaitable[None]],
    work: Callable[[], Awaitable[None]],
) -> str | None:
    authority = plan.tls_authority
    security = Security(None if authority is None else ssl.create_default_context(cafile=authority))
    begun = False
    try:
        async with Client.connect(plan.host, plan.port, plan.connect_timeout_s, security) as client:
            await prepare(client, await _open_topic(client, plan))
            client.keep_alive(GROUP, plan.queue, consumer=seat.role == "consumer")
            seat.ready(f"bmqctl {version('bmqctl')}, remoting protocol")
            begun = True
            await await_start(seat)
            await work()
    except FAULTS as fault:
        if not begun:
            raise CannotStart(str(fault)) from None
        return str(fault)
    return None


def status_name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return f"CODE_{code}"


class _Producing:
    """One producer: takes messages one by one, and sends requests of `plan.batch` messages."""

    def __init__(self, plan: Plan, seat: Seat) -> None:
        self.pacer = Pacer(plan, seat, self.post, self.flush)
        self._plan = plan
        self._sender = Sender(GROUP, plan.queue)
        self._targets: list[_Target] = []
        self._turn = 0
        self._held: list[tuple[bytes, int, int]] = []
        self._consumers = max(plan.consumers, 1)
        self._index = seat.index

    async def prepare(self, client: Client, queues: list[Queue]) -> None:
        for queue in queues_of_producer(queues, self._consumers, self._index):
            self._targets.append(_Target(await client.link_to(queue.address), queue.queue_id))

    def post(self, payload: bytes, sequence: int, due_ns: int) -> None:
        self._held.append((payload, sequence, due_ns))
        if len(self._held) >= self._plan.batch:
            self._send()

    async def flush(self) -> None:
        if self._held:
            self._send()
        for link in {target.link for target in self._targets}:
            await link.drain()

    def _send(self) -> None:
        held, self._held = self._held, []
        target = self._targets[self._turn]
        self._turn = (self._turn + 1) % len(self._targets)
        born_ms = time.time_ns() // 1_000_000
        stamps = [(sequence, due_ns) for _, sequence, due_ns in held]

        def on_answer(answer: Frame | str) -> None:
            self._settle(stamps, answer)

        timeout_s = self._plan.connect_timeout_s
        if self._plan.batch == 1:
            fields = self._sender.message(target.queue_id, born_ms)
            target.link.ask(RequestCode.SEND_MESSAGE_V2, fields, on_answer, timeout_s, held[0][0])
        else:
            fields, body = self._sender.batch(target.queue_id, born_ms, [payload for payload, _, _ in held])
            target.link.ask(RequestCode.SEND_BATCH_MESSAGE, fields, on_answer, timeout_s, body)

    def _settle(self, stamps: list[tuple[int, int]], answer: Frame | str) -> None:
        now_ns = monotonic_ns()
        tally = self.pacer.tally
        if isinstance(answer, Frame) and answer.code == ResponseCode.SUCCESS:
            for sequence, due_ns in stamps:
                tally.ack(sequence, due_ns, now_ns)
        elif isinstance(answer, Frame) or answer == "timed out":
            status = status_name(answer.code) if isinstance(answer, Frame) else "TIMEOUT"
            for _ in stamps:
                tally.nack(status, now_ns)
        # A request lost with its connection stays unanswered.
        self.pacer.answered()

    async def run(self) -> None:
        """Send until the schedule is over. Raises `LinkLost`."""
        links = {target.link for target in self._targets}

        async def watch(link: RemotingLink) -> None:
            await link.lost()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for link in links:
                nursery.start_soon(watch, link)
            with suppress(LinkLost):
                await self.pacer.run()
            nursery.cancel_scope.cancel()
        for link in links:
            link.check()


def produce(plan: Plan, seat: Seat) -> tuple[ProducerTally, str | None]:
    """Run one producer to its end. Raises `CannotStart` if it never began."""
    producing = _Producing(plan, seat)
    fault = trio.run(_start, plan, seat, producing.prepare, producing.run)
    return producing.pacer.tally, fault


class _Consuming:
    """One consumer, which pulls from all its queues at the same time."""

    def __init__(self, plan: Plan, seat: Seat) -> None:
        self.tally = ConsumerTally(plan.run, plan.source(seat.index))
        self._plan = plan
        self._seat = seat
        self._pullers: list[QueuePuller] = []

    async def prepare(self, client: Client, queues: list[Queue]) -> None:
        plan = self._plan
        for queue in queues_of_consumer(queues, plan.consumers, self._seat.index):
            link = await client.link_to(queue.address)
            puller = QueuePuller(link, GROUP, plan.queue, queue.queue_id, plan.connect_timeout_s)
            await puller.seek_end()
            self._pullers.append(puller)

    async def run(self) -> None:
        """Pull until the run is stopped. Raises `LinkLost` and the like."""
        fault: Exception | None = None
        async with trio.open_nursery() as nursery:

            async def pull(puller: QueuePuller) -> None:
                nonlocal fault
                try:
                    await self._pull(puller)
                except FAULTS as raised:
                    fault = raised
                    nursery.cancel_scope.cancel()

            for puller in self._pullers:
                nursery.start_soon(pull, puller)
            while not self._seat.stopped:
                await trio.sleep(POLL_S)
            nursery.cancel_scope.cancel()
        if fault is not None:
            raise fault
        for puller in self._pullers:
            await puller.commit()

    async def _pull(self, puller: QueuePuller) -> None:
        messages_max = min(self._plan.max_unconfirmed_messages, PULLED_MAX)
        while True:
            self._take(await puller.pull(messages_max))

    def _take(self, pulled: list[Pulled]) -> None:
        now_ns = monotonic_ns()
        tally, seat = self.tally, self._seat
        for message in pulled:
            if tally.deliver(message.body, now_ns):
                tally.confirmed += 1
        if pulled:
            seat.show(SharedCounter.DELIVERED, tally.delivered)
            seat.show(SharedCounter.CONFIRMED, tally.confirmed)


# Apache's broker returns fewer at a time; the next pull gets the rest.
PULLED_MAX = 1024


def consume(plan: Plan, seat: Seat) -> tuple[ConsumerTally, str | None]:
    """Run one consumer until the coordinator stops the run. Raises `CannotStart` if it never began."""
    consuming = _Consuming(plan, seat)
    fault = trio.run(_start, plan, seat, consuming.prepare, consuming.run)
    return consuming.tally, fault
