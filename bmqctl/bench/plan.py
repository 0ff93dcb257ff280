"""The plan of a run, as given to each of its processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from ctypes import Array, c_uint64
from dataclasses import asdict, dataclass
from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Any, Literal

from bmqctl.bench.schedule import SECOND_NS, Schedule
from bmqctl.bench.stamp import Source

if TYPE_CHECKING:
    from bmqctl.bench.tally import ConsumerTally, ProducerTally

__all__ = [
    "Board",
    "CannotStart",
    "Engine",
    "Finished",
    "Phase",
    "Plan",
    "Ready",
    "Role",
    "Seat",
    "Shape",
    "SharedCounter",
    "WorkerFailed",
    "monotonic_ns",
]


class CannotStart(Exception):
    """Failure to open the session or the queue; the text is for the user."""


Role = Literal["producer", "consumer"]
Engine = Literal["own", "official", "relay", "rocketmq"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The arrangement of a run's queues and workers.

    Each of the `queues` has all producers and consumers of the plan. With `apps`, each app of a queue has all consumers
    and gets every message; in a `broadcast` queue each consumer does. The producers share `processes` processes, and so
    do the consumers; None is a process for each.
    """

    queues: int = 1
    apps: tuple[str, ...] = ()
    broadcast: bool = False
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of a run. `count`, `rate` (messages/s, 0 for unlimited) and `window` apply to all producers together.

    Without a rate, `window` limits both unanswered and undelivered messages, since a queue that fills up says nothing
    about speed. `quiet_s` is the time without progress after which missing messages are given up. With the engine
    `rocketmq`, `host` and `port` are a nameserver's, and `queue` is a topic. `producers` and `consumers` are for each
    queue, and each of its apps. With `tls_authority`, a file of certificates, connections use TLS.
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
    shape: Shape = Shape()
    tls_authority: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def all_producers(self) -> int:
        return self.producers * self.shape.queues

    @property
    def all_consumers(self) -> int:
        return self.consumers * self.shape.queues * max(len(self.shape.apps), 1)

    @property
    def copies(self) -> int:
        """The number of deliveries of each message."""
        if not self.consumers:
            return 0
        return self.consumers if self.shape.broadcast else max(len(self.shape.apps), 1)

    def producer_uri(self, index: int) -> str:
        return self._uri(self.producer_queue(index))

    def producer_queue(self, index: int) -> int:
        return index % self.shape.queues

    def consumer_uri(self, index: int) -> str:
        source = self.source(index)
        app = f"?id={self.shape.apps[source.group]}" if self.shape.apps else ""
        return self._uri(source.queue) + app

    def source(self, index: int) -> Source:
        queue, turn = index % self.shape.queues, index // self.shape.queues
        return Source(queue, turn % self.copies if self.copies else 0)

    def _uri(self, queue: int) -> str:
        return self.queue if self.shape.queues == 1 else f"{self.queue}-{queue}"

    def share(self, index: int) -> int | None:
        if self.count is None:
            return None
        return self.count // self.all_producers + (index < self.count % self.all_producers)

    def window_share(self) -> int:
        return max(self.window // self.all_producers, 1)

    def schedule(self, index: int, start_ns: int) -> Schedule:
        """Producer `index`'s schedule. In an open loop the producers take turns."""
        rate = self.rate / self.all_producers
        offset_ns = int(index * self.batch * SECOND_NS / self.rate) if self.rate else 0
        duration_ns = None if self.duration_s is None else int(self.duration_s * SECOND_NS)
        return Schedule(start_ns + offset_ns, rate, self.batch, self.share(index), duration_ns)


class Phase(IntEnum):
    """The phase of the run, which only the coordinator advances."""

    SETUP = 0
    RUN = 1
    ENOUGH = 2  # post nothing more; await messages in flight
    STOP = 3


class SharedCounter(IntEnum):
    """A count that a worker publishes during the run."""

    POSTED = 0
    ANSWERED = 1
    DELIVERED = 2
    CONFIRMED = 3


class Board:
    """Counters in memory shared by all processes: the phase, the start, and one row for each seat.

    Each word has one writer and is read without locks. They serve progress and waiting; the workers' results make the
    account.
    """

    __slots__ = ("words",)

    def __init__(self, words: Array[c_uint64]) -> None:
        self.words = words

    @classmethod
    def make(cls, context: SpawnContext, seats: int) -> Board:
        return cls(context.RawArray(c_uint64, 2 + seats * len(SharedCounter)))

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

    def total(self, counter: SharedCounter) -> int:
        return int(sum(self.words[2 + counter :: len(SharedCounter)]))

    def show(self, row: int, counter: SharedCounter, value: int) -> None:
        self.words[2 + row * len(SharedCounter) + counter] = value


@dataclass(frozen=True, slots=True)
class Ready:
    """Report of a worker that has opened its queues."""

    client: str  # name and version of the library


@dataclass(frozen=True, slots=True)
class Finished:
    """Report of a worker's counts, one for each seat; `fault` is the reason if one ended early."""

    tallies: tuple[ProducerTally | ConsumerTally, ...]
    fault: str | None


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """Report of a worker that could not begin."""

    reason: str


@dataclass(frozen=True, slots=True)
class Seat:
    """A producer's or consumer's place in the run: its index, its row of counters, and its report of readiness."""

    role: Role
    index: int  # among those of its role
    row: int  # among all
    board: Board
    ready: Callable[[str], None]

    def show(self, counter: SharedCounter, value: int) -> None:
        self.board.show(self.row, counter, value)

    def is_behind(self, plan: Plan) -> bool:
        """Return True if consumers have yet to receive a whole window of messages, according to the counters."""
        due = self.board.total(SharedCounter.POSTED) * plan.copies - self.board.total(SharedCounter.DELIVERED)
        return plan.copies > 0 and due >= plan.window * plan.copies

    @property
    def enough(self) -> bool:
        """Return True if producers must post no more."""
        return self.board.phase >= Phase.ENOUGH

    @property
    def stopped(self) -> bool:
        return self.board.phase is Phase.STOP

    @property
    def waiting(self) -> bool:
        return self.board.phase is Phase.SETUP


def monotonic_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
