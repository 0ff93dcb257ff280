"""One run over the rest of a plan, to either system, and its results."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np
import trio
from numpy.typing import NDArray

from bmqctl.carrying.replay.messages import Source, Stored
from bmqctl.carrying.replay.outgoing import Unfit, payload_size
from bmqctl.carrying.replay.plan import Plan
from bmqctl.carrying.replay.progress import Progress, ReplayStep
from formats.errors import FormatError

__all__ = ["Replay", "ReplayFault", "ReplayOptions", "Run", "read_all", "sync", "watch_signals"]

_SYNC_INTERVAL_S: Final = 1.0
_READ_STRIDE: Final = 1000

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ReplayFault:
    """A message that could not be read or posted: its number in the plan, its place, and the reason."""

    number: int
    where: str
    reason: str


@dataclass
class Run:
    """One run over the rest of a plan, and its results.

    `payload_bytes` are the posted ones by the plan's queues; `refused` has the broker's last answer to each refused
    message. `ended_by` is the reason for an early end, None at the end of the plan.
    """

    plan: Plan
    progress: Progress
    targets: list[str]
    on_progress: OnProgress = lambda done, total: None
    on_fault: Callable[[ReplayFault], None] = lambda fault: None
    payload_bytes: NDArray[np.int64] = field(init=False)
    refused: dict[int, str] = field(default_factory=dict)
    acked: int = 0
    ended_by: str | None = None
    interrupted: bool = False
    deduplication_time_ms: int | None = None

    def __post_init__(self) -> None:
        self.payload_bytes = np.zeros(len(self.plan.queues), np.int64)
        self.order: NDArray[np.int64] = np.flatnonzero(self.progress.steps != ReplayStep.POSTED)

    def read(self, number: int) -> Stored | None:
        """The plan's message `number`; None, after noting a fault, if it is damaged."""
        entry = self.plan.entries[number]
        source: Source = self.plan.sources[int(entry["journal"])]
        try:
            return source.read(int(entry["place"]))
        except (FormatError, OSError) as error:
            self.fail(number, ReplayStep.UNREADABLE, str(error))
            return None

    def fail(self, number: int, step: ReplayStep, reason: str) -> None:
        entry = self.plan.entries[number]
        self.progress.steps[number] = step
        self.on_fault(ReplayFault(number, self.plan.sources[int(entry["journal"])].where(int(entry["place"])), reason))

    def take_ack(self, number: int, size: int) -> None:
        self.progress.steps[number] = ReplayStep.POSTED
        self.refused.pop(number, None)
        self.payload_bytes[self.plan.entries["queue"][number]] += size
        self.acked += 1

    def take_refusal(self, number: int, reason: str) -> None:
        self.progress.steps[number] = ReplayStep.REFUSED
        self.refused[number] = reason

    def target_of(self, number: int) -> str:
        return self.targets[int(self.plan.entries["queue"][number])]


class ReplayOptions(NamedTuple):
    """`speed` is a factor of the original pace, None as fast as possible; `makes_topics` creates missing topics."""

    speed: float | None
    window: int
    patience_s: float
    makes_topics: bool = False


class Replay(Protocol):
    """A queue or a topic for all messages, or with `target` "" a broker or cluster on which each keeps its own."""

    @property
    def target(self) -> str: ...

    def lasting(self, text: str) -> str:
        """`text`, which names this place, without the parts that may differ in a later run."""
        ...

    def check_target(self, name: str) -> None:
        """Raise `BadRename` unless messages can go to a queue or a topic with this name."""
        ...

    def check_delayed(self) -> None:
        """Raise `CannotBegin` if messages cannot be delayed here."""
        ...

    def convert(self, message: Stored) -> object:
        """Make the outgoing message. Raises `Unfit`."""
        ...

    async def carry_out(self, run: Run, options: ReplayOptions) -> None:
        """Post the rest of the plan. Raises `CannotBegin` if no message can be posted."""
        ...

    def about_repeated(self, run: Run, count: int, silent_s: float) -> str | None:
        """Describe the outcome of messages left without an answer by an earlier run, which ended `silent_s` ago."""
        ...


def read_all(run: Run, convert: Callable[[Stored], object]) -> Iterator[int]:
    """Rehearse: read and convert the rest without posting; yield the numbers of fit messages."""
    total = len(run.order)
    for done, number in enumerate(run.order.tolist()):
        if done % _READ_STRIDE == 0:
            run.on_progress(done, total)
        message = run.read(number)
        if message is None:
            continue
        try:
            convert(message)
        except Unfit as fault:
            run.fail(number, ReplayStep.UNFIT, str(fault))
            continue
        run.payload_bytes[run.plan.entries["queue"][number]] += payload_size(message)
        yield number


async def watch_signals(run: Run, stop: Callable[[], None], give_up: Callable[[], None]) -> None:
    """Call `stop` at the first SIGINT or SIGTERM, and `give_up` at the second."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for _ in received:
            if run.interrupted:
                give_up()
            run.interrupted = True
            stop()


async def sync(run: Run) -> None:
    """Flush the progress to the disk every second."""
    while True:
        await trio.sleep(_SYNC_INTERVAL_S)
        await trio.to_thread.run_sync(run.progress.sync)
