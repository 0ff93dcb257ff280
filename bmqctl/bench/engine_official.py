"""The official client (PyPI `blazingmq`) as a worker: its threads call us back, one message at a time."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from bmqctl.bench.plan import CannotStart, Counter, Plan, Seat, monotonic_ns
from bmqctl.bench.schedule import SECOND_NS, Schedule
from bmqctl.bench.stamp import MAGIC, STAMP, filler
from bmqctl.bench.tally import ConsumerTally, ProducerTally

if TYPE_CHECKING:
    import blazingmq

__all__ = ["consume", "installed_version", "produce"]

POLL_S = 0.01
# The client refuses a post while its own write buffer is full.
RETRY_S = 0.001
SHOW_EVERY = 64


def installed_version() -> str | None:
    """The official client's version; None when it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("blazingmq")
    except PackageNotFoundError:
        return None


class _Link:
    """A session, and whether it broke."""

    def __init__(self, plan: Plan, on_message: partial[None] | None = None) -> None:
        import blazingmq

        self.fault: str | None = None
        self.broken = threading.Event()
        # The client warns of shorter times than its own for the requests about queues; the coordinator ends what hangs.
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


class _Poster:
    """Posts and hears the answers, which come on another thread."""

    def __init__(self, plan: Plan, seat: Seat) -> None:
        import blazingmq

        self.success = blazingmq.AckStatus.SUCCESS
        self.error = blazingmq.Error
        self.link = _Link(plan)
        self.queue = plan.queue
        self.seat = seat
        self.tally = ProducerTally(seat.index)
        self.rest = filler(plan.size)
        self.window = plan.window_share()
        self.run = plan.run
        self.room = threading.Event()
        self.answered = 0

    def on_ack(self, sequence: int, due_ns: int, ack: blazingmq.Ack) -> None:
        tally = self.tally
        if ack.status is self.success:
            tally.ack(sequence, due_ns, monotonic_ns())
        else:
            tally.nack(ack.status.name, monotonic_ns())
        self.answered += 1
        if self.answered % SHOW_EVERY == 0:
            self.seat.show(Counter.ANSWERED, self.answered)
        self.room.set()

    def post(self, due_ns: int) -> None:
        sequence = self.tally.posted
        payload = STAMP.words.pack(MAGIC, self.run, self.tally.producer, sequence, due_ns) + self.rest
        self.tally.post(1, monotonic_ns())
        while not self.link.broken.is_set():
            try:
                self.link.session.post(self.queue, payload, on_ack=partial(self.on_ack, sequence, due_ns))
                break
            except self.error:
                time.sleep(RETRY_S)
        if sequence % SHOW_EVERY == 0:
            self.seat.show(Counter.POSTED, sequence + 1)

    def wait_for_room(self) -> None:
        """Hold back a producer that has no schedule until an answer comes."""
        while self.tally.posted - self.answered >= self.window and not self.halted:
            self.room.clear()
            # An answer that came before the clear has already made room.
            if self.tally.posted - self.answered >= self.window:
                self.room.wait(POLL_S)

    @property
    def halted(self) -> bool:
        return self.link.broken.is_set() or self.seat.stopped

    def follow(self, schedule: Schedule) -> None:
        while not schedule.over(self.tally.posted, now := monotonic_ns()) and not self.halted:
            if not schedule.rate:
                if now < schedule.start_ns:
                    time.sleep((schedule.start_ns - now) / SECOND_NS)
                for _ in range(schedule.batch):
                    if schedule.over(self.tally.posted, now):
                        break
                    self.wait_for_room()
                    self.post(monotonic_ns())
                continue
            if self.tally.posted >= schedule.due(now):
                wait_ns = schedule.due_ns(self.tally.posted) - now
                time.sleep(min(max(wait_ns, 0) / SECOND_NS, POLL_S))
                continue
            self.post(schedule.due_ns(self.tally.posted))

    def wait_for_answers(self, quiet_s: float) -> None:
        answered, since = self.answered, monotonic_ns()
        while self.answered < self.tally.posted and not self.halted:
            if self.answered != answered:
                answered, since = self.answered, monotonic_ns()
            elif monotonic_ns() - since > quiet_s * SECOND_NS:
                break
            time.sleep(POLL_S)


def produce(plan: Plan, seat: Seat) -> tuple[ProducerTally, str | None]:
    """Run one producer to its end; `CannotStart` if it never began."""
    poster = _Poster(plan, seat)
    poster.link.open(seat)
    poster.follow(plan.schedule(seat.index, seat.board.start_ns))
    seat.show(Counter.POSTED, poster.tally.posted)
    poster.wait_for_answers(plan.quiet_s)
    seat.show(Counter.ANSWERED, poster.answered)
    poster.link.close()
    return poster.tally, poster.link.fault


def _on_message(tally: ConsumerTally, seat: Seat, message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
    if tally.deliver(message.data, monotonic_ns()):
        handle.confirm()
        tally.confirmed += 1
        if tally.delivered % SHOW_EVERY == 0:
            seat.show(Counter.DELIVERED, tally.delivered)
            seat.show(Counter.CONFIRMED, tally.confirmed)


def consume(plan: Plan, seat: Seat) -> tuple[ConsumerTally, str | None]:
    """Run one consumer until the coordinator stops the run; `CannotStart` if it never began."""
    tally = ConsumerTally(plan.run)
    link = _Link(plan, partial(_on_message, tally, seat))
    link.open(seat)
    while not seat.stopped and not link.broken.wait(POLL_S):
        seat.show(Counter.DELIVERED, tally.delivered)
        seat.show(Counter.CONFIRMED, tally.confirmed)
    link.close()
    return tally, link.fault
