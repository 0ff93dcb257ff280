"""The plan of a run, as given to each of its processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from ctypes import Array, c_uint64
from dataclasses import asdict, dataclass
from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import Any, Literal

from bmqctl.bench.schedule import SECOND_NS, Schedule
from bmqctl.bench.tally import ConsumerTally, ProducerTally

__all__ = [
    "Board",
    "CannotStart",
    "Counter",
    "Engine",
    "Failed",
    "Finished",
    "Phase",
    "Plan",
    "Ready",
    "Role",
    "Seat",
    "monotonic_ns",
]


class CannotStart(Exception):
    """Failure to open the session or the queue; the text is for the user."""


Role = Literal["producer", "consumer"]
Engine = Literal["own", "official", "relay", "rocketmq"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of a run. `count`, `rate` (messages/s, 0 for unlimited) and `window` hold for all producers together.

    Without a rate, `window` limits both the messages posted but not answered, and those posted but not yet
    delivered to a consumer, since a queue that fills up says nothing about speed. With a rate there is no
    limit. `quiet_s` is the time without progress after which messages missing at the end are given up.
    With the engine `rocketmq`, `host` and `port` are a nameserver's, and `queue` is a topic.
    """

    run: int
    host: str
    port: int
    queue: str
    client: Engine
    producers: int
    consumers: int
    size: int
    batch: int
    count: int | None
    duration_s: float | None
    rate: float
    window: int
    max_unconfirmed_messages: int
    max_unconfirmed_bytes: int
    connect_timeout_s: float
    quiet_s: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def share(self, index: int) -> int | None:
        """Return producer `index`'s share of `count` messages."""
        if self.count is None:
            return None
        return self.count // self.producers + (index < self.count % self.producers)

    def window_share(self) -> int:
        return max(self.window // self.producers, 1)

    def schedule(self, index: int, start_ns: int) -> Schedule:
        """Return producer `index`'s schedule. In an open loop the producers take turns."""
        rate = self.rate / self.producers
        offset_ns = int(index * self.batch * SECOND_NS / self.rate) if self.rate else 0
        duration_ns = None if self.duration_s is None else int(self.duration_s * SECOND_NS)
        return Schedule(start_ns + offset_ns, rate, self.batch, self.share(index), duration_ns)


class Phase(IntEnum):
    """The phase of the run, which only the coordinator advances."""

    SETUP = 0
    RUN = 1
    ENOUGH = 2  # nothing more is posted; messages in flight are awaited
    STOP = 3


class Counter(IntEnum):
    """A count that a worker publishes during the run."""

    POSTED = 0
    ANSWERED = 1
    DELIVERED = 2
    CONFIRMED = 3


class Board:
    """Counters in memory shared by all processes: the phase, the start, and one row for each worker.

    Each word has one writer and is read without locks. They serve for progress and for waiting; the account is made
    from the workers' results.
    """

    __slots__ = ("words",)

    def __init__(self, words: Array[c_uint64]) -> None:
        self.words = words

    @classmethod
    def make(cls, context: SpawnContext, workers: int) -> Board:
        return cls(context.RawArray(c_uint64, 2 + workers * len(Counter)))

    @property
    def phase(self) -> Phase:
        return Phase(self.words[0])

    @property
    def start_ns(self) -> int:
        """CLOCK_MONOTONIC time at which the first message is due; set before the phase becomes RUN."""
        return self.words[1]

    def run(self, start_ns: int) -> None:
        self.words[1] = start_ns
        self.words[0] = Phase.RUN

    def enough(self) -> None:
        self.words[0] = Phase.ENOUGH

    def stop(self) -> None:
        self.words[0] = Phase.STOP

    def total(self, counter: Counter) -> int:
        """The sum of one counter over all workers."""
        return int(sum(self.words[2 + counter :: len(Counter)]))

    def show(self, worker: int, counter: Counter, value: int) -> None:
        self.words[2 + worker * len(Counter) + counter] = value


@dataclass(frozen=True, slots=True)
class Ready:
    """Report of a worker that has opened its queue."""

    client: str  # name and version of the library


@dataclass(frozen=True, slots=True)
class Finished:
    """Report of a worker's counts; `fault` is the reason if it ended early."""

    tally: ProducerTally | ConsumerTally
    fault: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """Report of a worker that could not begin."""

    reason: str


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker's place in the run: its index, its row of counters, and its channel to the coordinator."""

    role: Role
    index: int  # among the workers of its role
    worker: int  # among all workers
    board: Board
    ready: Callable[[str], None]

    def show(self, counter: Counter, value: int) -> None:
        self.board.show(self.worker, counter, value)

    def backlog(self) -> int:
        """Return the number of messages that no consumer has received yet, according to the counters."""
        return self.board.total(Counter.POSTED) - self.board.total(Counter.DELIVERED)

    @property
    def enough(self) -> bool:
        """Return True if producers must post no more."""
        return self.board.phase >= Phase.ENOUGH

    @property
    def stopped(self) -> bool:
        return self.board.phase is Phase.STOP

    @property
    def waiting(self) -> bool:
        """Return True if the start is yet to be announced."""
        return self.board.phase is Phase.SETUP


def monotonic_ns() -> int:
    """Read the clock that all processes of one machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
