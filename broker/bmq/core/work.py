# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Long tasks, done in slices with other work in between.

A task is a generator: each `next` does a slice of it. Work is counted in units, each about the cost of sending a
message, and subtracted from `left`. A step with more work than its budget adds a task for the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from broker.common.clock import Now

__all__ = ["SLICE", "UNIT_BYTES_BITS", "Task", "Work"]

# The units of a slice. At 5 to 20 us each it takes a few milliseconds.
SLICE: Final = 1000

# A message is a unit of work, plus one for each block of bytes of this size (as a shift).
UNIT_BYTES_BITS: Final = 13

# Waiting messages packed together, and the time that they have waited if an app that wants them has consumers; see
# `broker.bmq.queue.packing`.
PART: Final = 2048
PACKED_AFTER_MS: Final = 1000

Task = Iterator[None]


class Work:
    """The tasks of one node. `left` is the remaining budget of the step or slice; it may end a little below zero.

    `since_ms` is the time at which that step began. `part` and `packed_after_ms` are for packing.
    """

    __slots__ = ("_now", "amount", "left", "packed_after_ms", "part", "since_ms", "slices", "tasks")

    def __init__(self, now: Now, amount: int = SLICE) -> None:
        self.amount = amount
        self.left = amount
        self.part = PART
        self.packed_after_ms = PACKED_AFTER_MS
        self.slices = 0  # for statistics
        self._now = now
        self.since_ms = now.ms
        self.tasks: deque[Task] = deque()

    def add(self, task: Task) -> None:
        """Queue a task, which begins at the end of this step."""
        self.tasks.append(task)

    def start(self, task: Task) -> bool:
        """Do a slice of a task now, and the rest later; return True if there is a rest."""
        for _ in task:
            self.add(task)
            return True
        return False

    def may_go_on(self) -> bool:
        """Return True if this step has budget left.

        The clock stands still within a step: once it has moved, it is another step.
        """
        if self.left <= 0 and self._now.ms != self.since_ms:
            self._begin_step()
        return self.left > 0

    def _begin_step(self) -> None:
        self.left = self.amount
        self.since_ms = self._now.ms

    def end_step(self) -> bool:
        """Do a slice of work between two steps, of one task or of several short ones; return True if any are left."""
        tasks = self.tasks
        if tasks:
            self._begin_step()
            for _ in range(len(tasks)):
                task = tasks.popleft()
                for _ in task:
                    tasks.append(task)
                    break
                self.slices += 1
                if self.left <= 0:
                    break
        self._begin_step()
        return bool(tasks)

    def complete(self, task: Task) -> None:
        """Do the rest of a task now, however long it takes."""
        for _ in task:
            self._begin_step()

    def finish(self) -> None:
        while self.end_step():
            pass
