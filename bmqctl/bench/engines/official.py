"""The official client (PyPI `blazingmq`) as a worker; its threads call back, one message at a time."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from bmqctl.bench.pace_threads import POLL_S, SHOW_EVERY, ThreadPacer
from bmqctl.bench.plan import CannotStart, Plan, Seat, SharedCounter, monotonic_ns
from bmqctl.bench.tally import ConsumerTally, ProducerTally

if TYPE_CHECKING:
    import blazingmq

__all__ = ["consume", "installed_version", "produce"]

# The client refuses a post while its own write buffer is full.
RETRY_S = 0.001


def installed_version() -> str | None:
    """The official client's version; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        # The single binary has the package's metadata, but not the package.
        return version("blazingmq") if find_spec("blazingmq") else None
    except PackageNotFoundError:
        return None


class _Link:
    def __init__(self, plan: Plan, broken: threading.Event, on_message: partial[None] | None = None) -> None:
        import blazingmq

        self.fault: str | None = None
        self.broken = broken
        # The client warns of timeouts shorter than its own; the coordinator ends a hanging run.
        timeouts = blazingmq.Timeouts(
            connect_timeout=plan.connect_timeout_s,
            disconnect_timeout=plan.connect_timeout_s,
        )
        self.plan = plan
        try:
            self.session = blazingmq.Session(
                self._on_event,
                on_message=on_message,
                broker=f"tcp://{plan.host}:{plan.port}",
                timeout=timeouts,
                host_health_monitor=None,
            )
        except blazingmq.Error as fault:
            raise CannotStart(f"no session with {plan.host}:{plan.port}: {fault}") from None

    def _on_event(self, event: blazingmq.session_events.SessionEvent) -> None:
        from blazingmq import session_events

        if isinstance(event, (session_events.ConnectionLost, session_events.Error)):
            self.fault = f"the broker's connection ended: {event!r}"
            self.broken.set()

    def open(self, seat: Seat) -> None:
        import blazingmq

        options = blazingmq.QueueOptions(
            max_unconfirmed_messages=self.plan.max_unconfirmed_messages,
            max_unconfirmed_bytes=self.plan.max_unconfirmed_bytes,
        )
        try:
            self.session.open_queue(
                self.plan.queue, read=seat.role == "consumer", write=seat.role == "producer", options=options
            )
        except blazingmq.Error as fault:
            self.session.stop()
            raise CannotStart(f"cannot open {self.plan.queue}: {fault}") from None
        seat.ready(f"blazingmq {installed_version()}")
        while seat.waiting:
            time.sleep(POLL_S)

    def close(self) -> None:
        import blazingmq

        if not self.broken.is_set():
            try:
                self.session.close_queue(self.plan.queue)
            except blazingmq.Error as fault:
                self.fault = self.fault or f"cannot close {self.plan.queue}: {fault}"
        self.session.stop()


class _Producer:
    def __init__(self, plan: Plan, seat: Seat) -> None:
        import blazingmq

        self.success = blazingmq.AckStatus.SUCCESS
        self.error = blazingmq.Error
        self.queue = plan.queue
        self.seat = seat
        self.pacer = ThreadPacer(plan, seat, self.post, lambda: None)
        self.link = _Link(plan, self.pacer.broken)

    def on_ack(self, sequence: int, due_ns: int, ack: blazingmq.Ack) -> None:
        if ack.status is self.success:
            self.pacer.tally.ack(sequence, due_ns, monotonic_ns())
        else:
            self.pacer.tally.nack(ack.status.name, monotonic_ns())
        self.pacer.answered(1)

    def post(self, payload: bytes, sequence: int, due_ns: int) -> None:
        while not self.link.broken.is_set() and not self.seat.stopped:
            try:
                self.link.session.post(self.queue, payload, on_ack=partial(self.on_ack, sequence, due_ns))
                break
            except self.error:
                time.sleep(RETRY_S)


def produce(plan: Plan, seat: Seat) -> tuple[ProducerTally, str | None]:
    """Run one producer to its end. Raises `CannotStart` if it never began."""
    producer = _Producer(plan, seat)
    producer.link.open(seat)
    producer.pacer.run()
    producer.link.close()
    return producer.pacer.tally, producer.link.fault


def _on_message(tally: ConsumerTally, seat: Seat, message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
    if tally.deliver(message.data, monotonic_ns()):
        handle.confirm()
        tally.confirmed += 1
        if tally.delivered % SHOW_EVERY == 0:
            seat.show(SharedCounter.DELIVERED, tally.delivered)
            seat.show(SharedCounter.CONFIRMED, tally.confirmed)


def consume(plan: Plan, seat: Seat) -> tuple[ConsumerTally, str | None]:
    """Run one consumer until the coordinator stops the run. Raises `CannotStart` if it never began."""
    tally = ConsumerTally(plan.run, plan.source(seat.index))
    link = _Link(plan, threading.Event(), partial(_on_message, tally, seat))
    link.open(seat)
    while not seat.stopped and not link.broken.wait(POLL_S):
        seat.show(SharedCounter.DELIVERED, tally.delivered)
        seat.show(SharedCounter.CONFIRMED, tally.confirmed)
    link.close()
    return tally, link.fault
