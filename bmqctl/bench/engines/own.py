"""Workers with bmqctl's own client, which sends and confirms in batches; a process runs any number of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import trio

from bmqctl.bench.pace import Pacer, await_start
from bmqctl.bench.plan import CannotStart, Plan, Seat, SharedCounter, monotonic_ns
from bmqctl.bench.tally import ConsumerTally, ProducerTally
from bmqctl.client.protocol.events import Ack, StreamOptions
from bmqctl.client.session import Queue, RequestFailed, Session, SessionLost, SessionOptions
from bmqctl.common.nurseries import open_nursery
from formats.bmq.wire.ack import AckStatus

__all__ = ["consume", "produce"]

T = TypeVar("T")

STOP_POLL_S = 0.05


async def _start(
    plan: Plan,
    seat: Seat,
    work: Callable[[Session, Queue], Awaitable[None]],
    on_acks: Callable[[list[Ack]], None] | None = None,
) -> str | None:
    authority = None if plan.tls_authority is None else Path(plan.tls_authority)
    options = SessionOptions(timeout_s=plan.connect_timeout_s, put_batch=plan.batch, tls_authority=authority)
    reads = seat.role == "consumer"
    uri = plan.consumer_uri(seat.index) if reads else plan.producer_uri(seat.index)
    begun = False
    try:
        async with Session.connect(plan.host, plan.port, options, on_acks) as session:
            stream = StreamOptions(plan.max_unconfirmed_messages, plan.max_unconfirmed_bytes)
            queue = await session.open_queue(uri, read=reads, write=not reads, options=stream)
            seat.ready(f"bmqctl {version('bmqctl')}")
            begun = True
            await await_start(seat)
            await work(session, queue)
            await queue.close()
    except (OSError, SessionLost, RequestFailed) as fault:
        if not begun:
            raise CannotStart(str(fault)) from None
        return str(fault)
    return None


def _run_all(
    seats: Sequence[Seat], run: Callable[[Seat], Awaitable[tuple[T, str | None]]]
) -> tuple[list[T], str | None]:
    """Run all seats; return their results and the first fault, if any. Raises `CannotStart` if one never began."""
    tallies: list[T] = []
    faults: list[str] = []
    refusals: list[CannotStart] = []

    async def main() -> None:
        async def run_one(seat: Seat) -> None:
            try:
                tally, fault = await run(seat)
            except CannotStart as refusal:
                refusals.append(refusal)
                nursery.cancel_scope.cancel()
                return
            tallies.append(tally)
            if fault is not None:
                faults.append(fault)

        async with trio.open_nursery() as nursery:
            for seat in seats:
                nursery.start_soon(run_one, seat)

    trio.run(main)
    if refusals:
        raise refusals[0]
    return tallies, faults[0] if faults else None


def produce(plan: Plan, seats: Sequence[Seat]) -> tuple[list[ProducerTally], str | None]:
    """Run producers to their end. Raises `CannotStart` if one never began."""
    return _run_all(seats, lambda seat: _produce(plan, seat))


async def _produce(plan: Plan, seat: Seat) -> tuple[ProducerTally, str | None]:
    pacer: Pacer

    def on_acks(acks: list[Ack]) -> None:
        now_ns = monotonic_ns()
        tally = pacer.tally
        for status, _, (sequence, due_ns), _ in acks:
            if status is AckStatus.SUCCESS:
                tally.ack(sequence, due_ns, now_ns)
            else:
                tally.nack(status.name, now_ns)
        pacer.answered()

    async def work(session: Session, queue: Queue) -> None:
        nonlocal pacer

        def post(payload: bytes, sequence: int, due_ns: int) -> None:
            queue.post_nowait(payload, correlation=(sequence, due_ns))

        async def watch() -> None:
            await session.lost()
            nursery.cancel_scope.cancel()

        pacer = Pacer(plan, seat, post, session.drain)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            with suppress(SessionLost):
                await pacer.run()
            nursery.cancel_scope.cancel()
        session.check()

    fault = await _start(plan, seat, work, on_acks)
    return pacer.tally, fault


def consume(plan: Plan, seats: Sequence[Seat]) -> tuple[list[ConsumerTally], str | None]:
    """Run consumers until the coordinator stops the run. Raises `CannotStart` if one never began."""
    return _run_all(seats, lambda seat: _consume(plan, seat))


async def _consume(plan: Plan, seat: Seat) -> tuple[ConsumerTally, str | None]:
    tally = ConsumerTally(plan.run, plan.source(seat.index))

    async def take(queue: Queue) -> None:
        while True:
            messages = await queue.receive()
            now_ns = monotonic_ns()
            for message in messages:
                if tally.deliver(message.payload, now_ns):
                    queue.confirm(message)
                    tally.confirmed += 1
            seat.show(SharedCounter.DELIVERED, tally.delivered)
            seat.show(SharedCounter.CONFIRMED, tally.confirmed)

    async def work(_: Session, queue: Queue) -> None:
        async def watch() -> None:
            while not seat.stopped:
                await trio.sleep(STOP_POLL_S)
            taking.cancel()

        async with open_nursery() as nursery:
            nursery.start_soon(watch)
            with trio.CancelScope() as taking:
                await take(queue)

    return tally, await _start(plan, seat, work)
