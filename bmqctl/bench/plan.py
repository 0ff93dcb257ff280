"""What a run is to do, as every process of it is told."""

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
    """No session or no queue; the text is for a person."""


Role = Literal["producer", "consumer"]
Engine = Literal["own", "official", "relay"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. `count`, `rate` (messages/s, 0 for as fast as possible) and `window` hold for all producers together.

    `window` bounds, when there is no rate, the messages that are posted and not yet answered, and those that are
    posted and have not yet come to a consumer: a queue that fills up says nothing of speed. With a rate nothing bounds
    them. `quiet_s` is how long to wait, without any progress, for what is still missing at the end.
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
        """How many of `count` messages fall to producer `index`."""
        if self.count is None:
            return None
        return self.count // self.producers + (index < self.count % self.producers)

    def window_share(self) -> int:
        return max(self.window // self.producers, 1)

    def schedule(self, index: int, start_ns: int) -> Schedule:
        """Producer `index`'s part; the producers of an open loop take turns instead of sending at the same time."""
        rate = self.rate / self.producers
        offset_ns = int(index * self.batch * SECOND_NS / self.rate) if self.rate else 0
        duration_ns = None if self.duration_s is None else int(self.duration_s * SECOND_NS)
        return Schedule(start_ns + offset_ns, rate, self.batch, self.share(index), duration_ns)


class Phase(IntEnum):
    """Where the run is; only the coordinator moves it on."""

    SETUP = 0
    RUN = 1
    ENOUGH = 2  # no more is posted; what is on its way is waited for
    STOP = 3


class Counter(IntEnum):
    """What a worker tells while it runs."""

    POSTED = 0
    ANSWERED = 1
    DELIVERED = 2
    CONFIRMED = 3


class Board:
    """Counters in memory that all processes share: the phase, the start, and one row per worker.

    Each word has one writer and is read as it happens to be: these are for progress and for waiting, not for the
    account, which is made of the workers' results.
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
        """CLOCK_MONOTONIC at which the first message is due; set before the phase becomes RUN."""
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
    """The worker has opened its queue."""

    client: str  # name and version of the library


@dataclass(frozen=True, slots=True)
class Finished:
    """The worker's counts; `fault` says what cut it short."""

    tally: ProducerTally | ConsumerTally
    fault: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker could not begin."""

    reason: str


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker's place in the run: which one it is, where it shows its counts, how it says that it is ready."""

    role: Role
    index: int  # among the workers of its role
    worker: int  # among all workers
    board: Board
    ready: Callable[[str], None]

    def show(self, counter: Counter, value: int) -> None:
        self.board.show(self.worker, counter, value)

    def backlog(self) -> int:
        """Messages of all producers that have not come to a consumer, as far as has been told."""
        return self.board.total(Counter.POSTED) - self.board.total(Counter.DELIVERED)

    @property
    def enough(self) -> bool:
        """Whether a producer is to post no more."""
        return self.board.phase >= Phase.ENOUGH

    @property
    def stopped(self) -> bool:
        return self.board.phase is Phase.STOP

    @property
    def waiting(self) -> bool:
        """Whether the start is still to be announced."""
        return self.board.phase is Phase.SETUP


def monotonic_ns() -> int:
    """The clock that all processes of one machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
