"""Workers that talk to the relay, with the same messages, schedule and account as with a broker.

They use plain sockets and one thread for the answers, so that they measure the relay.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from contextlib import suppress

from bmqctl.bench.pace_threads import POLL_S, ThreadPacer
from bmqctl.bench.plan import CannotStart, Plan, Seat, SharedCounter, monotonic_ns
from bmqctl.bench.relay import CONFIRM_EVENT_SIZE, CONSUMER, PRODUCER, frame_size, take_acks
from bmqctl.bench.tally import ConsumerTally, ProducerTally

__all__ = ["consume", "produce"]

READ_SIZE = 65536
LOST = "the relay's connection ended"


def _connect(plan: Plan, seat: Seat, role: bytes) -> socket.socket:
    try:
        link = socket.create_connection((plan.host, plan.port), timeout=plan.connect_timeout_s)
        link.settimeout(None)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(role)
    except OSError as fault:
        raise CannotStart(f"no relay at {plan.host}:{plan.port}: {fault}") from None
    seat.ready("bare relay")
    while seat.waiting:
        time.sleep(POLL_S)
    return link


def produce(plan: Plan, seat: Seat) -> tuple[ProducerTally, str | None]:
    """Run one producer to its end. Raises `CannotStart` if it never began."""
    link = _connect(plan, seat, PRODUCER)
    tail = bytes(frame_size(plan.size) - plan.size)
    out = bytearray()
    sent: deque[tuple[int, int]] = deque()

    def post(payload: bytes, sequence: int, due_ns: int) -> None:
        nonlocal out
        out += payload
        out += tail
        sent.append((sequence, due_ns))

    def flush() -> None:
        nonlocal out
        data, out = out, bytearray()
        try:
            link.sendall(data)
        except OSError:
            pacer.broken.set()

    pacer = ThreadPacer(plan, seat, post, flush)

    def read_acks() -> None:
        owed = bytearray()
        while data := _read(link):
            owed += data
            messages = take_acks(owed)
            now_ns = monotonic_ns()
            for _ in range(messages):
                pacer.tally.ack(*sent.popleft(), now_ns)
            pacer.answered(messages)
        pacer.broken.set()

    threading.Thread(target=read_acks, daemon=True).start()
    pacer.run()
    fault = LOST if pacer.broken.is_set() else None
    _close(link)
    return pacer.tally, fault


def consume(plan: Plan, seat: Seat) -> tuple[ConsumerTally, str | None]:
    """Run one consumer until the coordinator stops the run. Raises `CannotStart` if it never began."""
    link = _connect(plan, seat, CONSUMER)
    frame = frame_size(plan.size)
    tally = ConsumerTally(plan.run, plan.source(seat.index))
    ended = threading.Event()

    def read() -> None:
        held = bytearray()
        while data := _read(link):
            held += data
            now_ns = monotonic_ns()
            messages = len(held) // frame
            for at in range(0, messages * frame, frame):
                tally.deliver(held[at : at + frame], now_ns)
            del held[: messages * frame]
            if messages and not _send(link, bytes(CONFIRM_EVENT_SIZE * messages)):
                break
            tally.confirmed = tally.delivered
            seat.show(SharedCounter.DELIVERED, tally.delivered)
            seat.show(SharedCounter.CONFIRMED, tally.confirmed)
        ended.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    while not seat.stopped and not ended.wait(POLL_S):
        pass
    fault = LOST if ended.is_set() else None
    _close(link)
    reader.join()
    return tally, fault


def _read(link: socket.socket) -> bytes:
    """Read available bytes; empty at the end of the connection, including after an error."""
    try:
        return link.recv(READ_SIZE)
    except OSError:
        return b""


def _send(link: socket.socket, data: bytes) -> bool:
    try:
        link.sendall(data)
    except OSError:
        return False
    return True


def _close(link: socket.socket) -> None:
    # Wake the reading thread, which closing alone would leave blocked.
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()
