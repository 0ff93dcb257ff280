"""Workers with bmqctl's own client, which sends and confirms in batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.metadata import version

import trio

from bmqctl.bench.pace import POLL_S, Pacer, await_start
from bmqctl.bench.plan import CannotStart, Counter, Plan, Seat, monotonic_ns
from bmqctl.bench.tally import ConsumerTally, ProducerTally
from bmqctl.client.events import Ack, StreamOptions
from bmqctl.client.message import Message
from bmqctl.client.session import Queue, RequestFailed, Session, SessionLost, SessionOptions
from formats.bmq.wire.ack import AckStatus

__all__ = ["consume", "produce"]


async def _start(
    plan: Plan,
    seat: Seat,
    work: Callable[[Session, Queue], Awaitable[None]],
    on_acks: Callable[[list[Ack]], None] | None = None,
) -> str | None:
    """Open the queue and `work` on it; what broke, if anything did."""
    options = SessionOptions(timeout_s=plan.connect_timeout_s, put_batch=plan.batch)
    begun = False
    try:
        async with Session.connect(plan.host, plan.port, options, on_acks) as session:
            stream = StreamOptions(plan.max_unconfirmed_messages, plan.max_unconfirmed_bytes)
            queue = await session.open_queue(
                plan.queue, read=seat.role == "consumer", write=seat.role == "producer", options=stream
            )
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


def produce(plan: Plan, seat: Seat) -> tuple[ProducerTally, str | None]:
    """Run one producer to its end; `CannotStart` if it never began."""

    async def main() -> tuple[ProducerTally, str | None]:
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

    return trio.run(main)


def consume(plan: Plan, seat: Seat) -> tuple[ConsumerTally, str | None]:
    """Run one consumer until the coordinator stops the run; `CannotStart` if it never began."""
    tally = ConsumerTally(plan.run)

    async def work(_: Session, queue: Queue) -> None:
        while not seat.stopped:
            messages: list[Message] = []
            with trio.move_on_after(POLL_S):
                messages = await queue.receive()
            now_ns = monotonic_ns()
            for message in messages:
                if tally.deliver(message.payload, now_ns):
                    queue.confirm(message)
                    tally.confirmed += 1
            if messages:
                seat.show(Counter.DELIVERED, tally.delivered)
                seat.show(Counter.CONFIRMED, tally.confirmed)

    async def main() -> str | None:
        return await _start(plan, seat, work)

    fault = trio.run(main)
    return tally, fault
