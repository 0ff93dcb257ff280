"""A producer under trio, paced by its schedule or by the answers that it receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

import trio

from bmqctl.bench.plan import Plan, Seat, SharedCounter, monotonic_ns
from bmqctl.bench.schedule import SECOND_NS
from bmqctl.bench.stamp import MAGIC, STAMP, filler
from bmqctl.bench.tally import ProducerTally
from broker.shell.host.calls import HOST

__all__ = ["POLL_S", "Pacer", "await_start"]

POLL_S = 0.01
# Consumers publish their progress in shared memory, which wakes no producer.
BACKLOG_POLL_NS = 500_000
# Messages posted together without a schedule; the client decides how many share an event.
BURST = 64


async def await_start(seat: Seat) -> None:
    while seat.waiting:
        await trio.sleep(POLL_S)


class Timer:
    """A timer of one task, to the microsecond, on CLOCK_MONOTONIC.

    On Linux trio's own sleep ends in `epoll_wait`, whose timeout is in whole milliseconds: an open loop of 5,000
    messages/s would send them in clumps of five. An alarm's descriptor becomes readable when it is due. Other systems
    give trio a timeout to the nanosecond.
    """

    def __init__(self) -> None:
        self._alarm = HOST.alarm()

    async def until(self, due_ns: int) -> None:
        """Sleep until `due_ns`; always a checkpoint."""
        left_ns = due_ns - monotonic_ns()
        if left_ns <= 0:
            await trio.lowlevel.checkpoint()
        elif self._alarm is None:
            await trio.sleep(left_ns / SECOND_NS)
        else:
            self._alarm.set(due_ns)
            await trio.lowlevel.wait_readable(self._alarm.fileno())
            self._alarm.clear()

    def __enter__(self) -> Timer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._alarm is not None:
            self._alarm.close()


class Pacer:
    """Drives one producer; the engine calls `answered` after it has put acks into `tally`."""

    def __init__(
        self, plan: Plan, seat: Seat, post: Callable[[bytes, int, int], None], flush: Callable[[], Awaitable[None]]
    ) -> None:
        """`post(payload, sequence, due_ns)` hands one message to the client, and `flush` sends all of them."""
        self.plan = plan
        self.seat = seat
        self.tally = ProducerTally(seat.index, plan.producer_queue(seat.index))
        self._post = post
        self._flush = flush
        self._rest = filler(plan.size)
        self._window = plan.window_share()
        self._answered = trio.Event()

    @property
    def unanswered(self) -> int:
        return self.tally.posted - self.tally.acked - self.tally.nacked

    def answered(self) -> None:
        self.seat.show(SharedCounter.ANSWERED, self.tally.posted - self.unanswered)
        self._answered.set()
        self._answered = trio.Event()

    async def run(self) -> None:
        """Send everything, then wait for the answers; return early when the run is stopped."""
        schedule = self.plan.schedule(self.seat.index, self.seat.board.start_ns)
        tally = self.tally
        with Timer() as timer:
            await timer.until(schedule.start_ns)
            while not schedule.over(tally.posted, now := monotonic_ns()) and not self.seat.enough:
                if schedule.rate:
                    count = schedule.due(now) - tally.posted
                    if count <= 0:
                        await timer.until(min(schedule.due_ns(tally.posted), now + int(POLL_S * SECOND_NS)))
                        continue
                else:
                    count = min(max(schedule.batch, BURST), self._window - self.unanswered)
                    if schedule.total is not None:
                        count = min(count, schedule.total - tally.posted)
                    if count <= 0:
                        await self._wait(POLL_S)
                        continue
                    if self.seat.is_behind(self.plan):
                        await timer.until(now + BACKLOG_POLL_NS)
                        continue
                for _ in range(count):
                    self._send(schedule.due_ns(tally.posted) if schedule.rate else monotonic_ns())
                self.seat.show(SharedCounter.POSTED, tally.posted)
                await self._flush()
        while self.unanswered and not self.seat.stopped and await self._wait(self.plan.quiet_s):
            pass

    def _send(self, due_ns: int) -> None:
        tally = self.tally
        sequence = tally.posted
        tally.post(1, monotonic_ns())
        payload = STAMP.words.pack(MAGIC, self.plan.run, tally.producer, sequence, due_ns) + self._rest
        self._post(payload, sequence, due_ns)

    async def _wait(self, timeout_s: float) -> bool:
        answered = self._answered
        with trio.move_on_after(timeout_s):
            await answered.wait()
        return answered.is_set()
