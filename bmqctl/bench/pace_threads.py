"""A producer whose answers come on another thread, paced by its schedule or by the free room in its window."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bmqctl.bench.plan import Plan, Seat, SharedCounter, monotonic_ns
from bmqctl.bench.schedule import SECOND_NS, Schedule
from bmqctl.bench.stamp import MAGIC, STAMP, filler
from bmqctl.bench.tally import ProducerTally

__all__ = ["POLL_S", "SHOW_EVERY", "ThreadPacer"]

POLL_S = 0.01
SHOW_EVERY = 64
BURST = 64
BACKLOG_POLL_S = 0.0005


class ThreadPacer:
    """Drives one producer. The engine puts answers into `tally`, calls `answered`, and sets `broken` at the end."""

    def __init__(
        self, plan: Plan, seat: Seat, post: Callable[[bytes, int, int], None], flush: Callable[[], None]
    ) -> None:
        """`post(payload, sequence, due_ns)` hands one message to the client, and `flush` sends all of them."""
        self.plan = plan
        self.seat = seat
        self.tally = ProducerTally(seat.index, plan.producer_queue(seat.index))
        self.broken = threading.Event()
        self._post = post
        self._flush = flush
        self._rest = filler(plan.size)
        self._window = plan.window_share()
        self._room = threading.Event()
        self._answers = 0

    def answered(self, count: int) -> None:
        """Report `count` more answers in the tally, on the thread that receives them."""
        before = self._answers
        self._answers = before + count
        if before // SHOW_EVERY != self._answers // SHOW_EVERY:
            self.seat.show(SharedCounter.ANSWERED, self._answers)
        self._room.set()

    def run(self) -> None:
        """Send everything, then wait for the answers; return early when the run is stopped or the connection breaks."""
        self._follow(self.plan.schedule(self.seat.index, self.seat.board.start_ns))
        self.seat.show(SharedCounter.POSTED, self.tally.posted)
        self._await_answers()
        self.seat.show(SharedCounter.ANSWERED, self._answers)

    def _follow(self, schedule: Schedule) -> None:
        tally = self.tally
        time.sleep(max(schedule.start_ns - monotonic_ns(), 0) / SECOND_NS)
        while not schedule.over(tally.posted, now := monotonic_ns()) and not (self.broken.is_set() or self.seat.enough):
            count = schedule.due(now) - tally.posted if schedule.rate else self._room_for(schedule)
            if count <= 0:
                if schedule.rate:
                    time.sleep(min((schedule.due_ns(tally.posted) - now) / SECOND_NS, POLL_S))
                continue
            for _ in range(count):
                self._send(schedule.due_ns(tally.posted) if schedule.rate else monotonic_ns())
            self._flush()

    def _send(self, due_ns: int) -> None:
        tally = self.tally
        sequence = tally.posted
        tally.post(1, monotonic_ns())
        payload = STAMP.words.pack(MAGIC, self.plan.run, tally.producer, sequence, due_ns) + self._rest
        self._post(payload, sequence, due_ns)
        if tally.posted % SHOW_EVERY == 0:
            self.seat.show(SharedCounter.POSTED, tally.posted)

    def _room_for(self, schedule: Schedule) -> int:
        """The number of messages that may be sent now; wait briefly if there is no room."""
        if self.seat.is_behind(self.plan):
            time.sleep(BACKLOG_POLL_S)
            return 0
        self._room.clear()
        room = self._window - self.tally.posted + self._answers
        if room <= 0:
            self._room.wait(POLL_S)
            return 0
        count = min(room, max(schedule.batch, BURST))
        return count if schedule.total is None else min(count, schedule.total - self.tally.posted)

    def _await_answers(self) -> None:
        answers, since = self._answers, monotonic_ns()
        while self._answers < self.tally.posted and not (self.broken.is_set() or self.seat.stopped):
            if self._answers != answers:
                answers, since = self._answers, monotonic_ns()
            elif monotonic_ns() - since > self.plan.quiet_s * SECOND_NS:
                break
            time.sleep(POLL_S)
