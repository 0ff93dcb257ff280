"""Send times of messages, fixed before the run and independent of the broker.

An open loop posts `rate` messages per second even when the answers are late, as the outside world does. A loop that
waits for each answer sends less while the broker is slow, and leaves the worst moments unmeasured (coordinated
omission).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Schedule"]

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Batches of `batch` messages, spread evenly at `rate` messages/s from `start_ns`; rate 0 means no schedule.

    The run ends after `count` messages, or before those due at `start_ns + duration_ns`; None is no limit.
    """

    start_ns: int
    rate: float
    batch: int
    count: int | None
    duration_ns: int | None

    def due_ns(self, index: int) -> int:
        """The send time of message `index`; the messages of a batch share one."""
        return self.start_ns + int((index - index % self.batch) * SECOND_NS / self.rate)

    def due(self, now_ns: int) -> int:
        """The number of messages due by `now_ns`; only for a schedule with a rate."""
        if now_ns < self.start_ns:
            return 0
        batches = int((now_ns - self.start_ns) * self.rate / SECOND_NS) // self.batch + 1
        # Rounding may put a batch's own time just before it.
        if self.due_ns((batches - 1) * self.batch) > now_ns:
            batches -= 1
        elif self.due_ns(batches * self.batch) <= now_ns:
            batches += 1
        return min(batches * self.batch, self.total) if self.total is not None else batches * self.batch

    @property
    def total(self) -> int | None:
        """The total number of messages, or None if only the clock ends a run without a rate."""
        limits = [] if self.count is None else [self.count]
        if self.duration_ns is not None and self.rate:
            # The first batch due at the end or later is not sent.
            per_batch_ns = self.batch * SECOND_NS / self.rate
            batches = int(-(-self.duration_ns // per_batch_ns))
            limits.append(batches * self.batch)
        return min(limits) if limits else None

    def over(self, sent: int, now_ns: int) -> bool:
        if self.total is not None and sent >= self.total:
            return True
        return not self.rate and self.duration_ns is not None and now_ns >= self.start_ns + self.duration_ns
