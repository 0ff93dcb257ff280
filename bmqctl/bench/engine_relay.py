"""Workers that speak to the relay: the same messages, schedule and account as with a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from bmqctl.bench.pace import POLL_S, Pacer, await_start
from bmqctl.bench.plan import CannotStart, Counter, Plan, Seat, monotonic_ns
from bmqctl.bench.relay import CONFIRM_EVENT_SIZE, CONSUMER, PRODUCER, frame_size, take_acks
from bmqctl.bench.tally import ConsumerTally, ProducerTally

__all__ = ["consume", "produce"]

READ_SIZE = 65536
LOST = "the relay's connection ended"


async def _connect(plan: Plan, seat: Seat, role: bytes) -> trio.SocketStream:
    try:
        stream = await trio.open_tcp_stream(plan.host, plan.port)
        await stream.send_all(role)
    except OSError as fault:
        raise CannotStart(f"no relay at {plan.host}:{plan.port}: {fault}") from None
    seat.ready("bare relay")
    await await_start(seat)
    return stream


async def _together(read: Callable[[], Awaitable[None]], work: Callable[[], Awaitable[None]]) -> str | None:
    """Run both until `work` ends; `LOST` if `read` came to the connection's end before."""
    fault = None

    async def reading() -> None:
        nonlocal fault
        with suppress(trio.BrokenResourceError):
            await read()
        fault = LOST
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading)
        with suppress(trio.BrokenResourceError):
            await work()
            nursery.cancel_scope.cancel()
    return fault


async def _produce(plan: Plan, seat: Seat) -> tuple[ProducerTally, str | None]:
    stream = await _connect(plan, seat, PRODUCER)
    frame = frame_size(plan.size)
    tail = bytes(frame - plan.size)
    out = bytearray()
    sent: deque[tuple[int, int]] = deque()

    def post(payload: bytes, sequence: int, due_ns: int) -> None:
        nonlocal out
        out += payload
        out += tail
        sent.append((sequence, due_ns))

    async def flush() -> None:
        nonlocal out
        data, out = out, bytearray()
        await stream.send_all(data)

    pacer = Pacer(plan, seat, post, flush)

    async def read_acks() -> None:
        owed = bytearray()
        while data := await stream.receive_some(READ_SIZE):
            owed += data
            messages = take_acks(owed)
            now = monotonic_ns()
            for _ in range(messages):
                pacer.tally.ack(*sent.popleft(), now)
            pacer.answered()

    fault = await _together(read_acks, pacer.run)
    await stream.aclose()
    return pacer.tally, fault


async def _consume(plan: Plan, seat: Seat) -> tuple[ConsumerTally, str | None]:
    stream = await _connect(plan, seat, CONSUMER)
    frame = frame_size(plan.size)
    tally = ConsumerTally(plan.run)
    held = bytearray()

    async def read() -> None:
        nonlocal held
        while data := await stream.receive_some(READ_SIZE):
            held += data
            now = monotonic_ns()
            messages = len(held) // frame
            for at in range(0, messages * frame, frame):
                tally.deliver(held[at : at + frame], now)
            del held[: messages * frame]
            if messages:
                await stream.send_all(bytes(CONFIRM_EVENT_SIZE * messages))
            tally.confirmed = tally.delivered
            seat.show(Counter.DELIVERED, tally.delivered)
            seat.show(Counter.CONFIRMED, tally.confirmed)

    async def until_stopped() -> None:
        while not seat.stopped:
            await trio.sleep(POLL_S)

    fault = await _together(read, until_stopped)
    await stream.aclose()
    return tally, fault


def produce(plan: Plan, seat: Seat) -> tuple[ProducerTally, str | None]:
    """Run one producer to its end; `CannotStart` if it never began."""
    return trio.run(_produce, plan, seat)


def consume(plan: Plan, seat: Seat) -> tuple[ConsumerTally, str | None]:
    """Run one consumer until the coordinator stops the run; `CannotStart` if it never began."""
    return trio.run(_consume, plan, seat)
