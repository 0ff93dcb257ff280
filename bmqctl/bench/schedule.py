"""When messages are to be sent: decided before the run, whatever the broker does.

An open loop asks the broker for `rate` messages per second and goes on asking when the answers are late, as the
outside world would. A loop that waits for each answer would send less exactly while the broker is slow, and leave
its worst moments unmeasured (coordinated omission).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Schedule"]

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Batches of `batch` messages, spread evenly at `rate` messages/s from `start_ns`; rate 0 is no schedule at all.

    The run ends after `count` messages, or for those due at `start_ns + duration_ns` and later; None is no such limit.
    """

    start_ns: int
    rate: float
    batch: int
    count: int | None
    duration_ns: int | None

    def due_ns(self, index: int) -> int:
        """When message `index` is to be sent: the messages of a batch together."""
        return self.start_ns + int((index - index % self.batch) * SECOND_NS / self.rate)

    def due(self, now_ns: int) -> int:
        """How many messages are to have been sent at `now_ns`; only for a schedule with a rate."""
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
        """How many messages there will be; None when only the clock ends a run without a rate."""
        limits = [] if self.count is None else [self.count]
        if self.duration_ns is not None and self.rate:
            # The first batch due at the end or later is not sent.
            per_batch_ns = self.batch * SECOND_NS / self.rate
            batches = int(-(-self.duration_ns // per_batch_ns))
            limits.append(batches * self.batch)
        return min(limits) if limits else None

    def over(self, sent: int, now_ns: int) -> bool:
        """Whether nothing more is to be sent after `sent` messages."""
        if self.total is not None and sent >= self.total:
            return True
        return not self.rate and self.duration_ns is not None and now_ns >= self.start_ns + self.duration_ns
