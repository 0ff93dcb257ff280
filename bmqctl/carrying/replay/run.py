"""One run over what is left of a plan, to either system, and its results."""

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
    """A message that could not be read, or not be posted: its number in the plan, where it is and why."""

    number: int
    where: str
    reason: str


@dataclass
class Run:
    """One run over what is left of a plan, and what came of it.

    `payload_bytes` are by the plan's queues, of what was posted; `refused` has the broker's last word on each message
    that it did not take. `ended_by` says why the run ended before its time, None if it came to the end of the plan.
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
        """The plan's message `number`; None, and a fault told, if it is damaged."""
        entry = self.plan.entries[number]
        source: Source = self.plan.sources[int(entry["journal"])]
        try:
            return source.read(int(entry["place"]))
        except (FormatError, OSError) as error:
            self.fail(number, ReplayStep.UNREADABLE, str(error))
            return None

    def fail(self, number: int, step: ReplayStep, reason: str) -> None:
        """Give a message up."""
        entry = self.plan.entries[number]
        self.progress.steps[number] = step
        self.on_fault(ReplayFault(number, self.plan.sources[int(entry["journal"])].where(int(entry["place"])), reason))

    def take_ack(self, number: int, size: int) -> None:
        """Count a message that the broker has taken."""
        self.progress.steps[number] = ReplayStep.POSTED
        self.refused.pop(number, None)
        self.payload_bytes[self.plan.entries["queue"][number]] += size
        self.acked += 1

    def take_refusal(self, number: int, reason: str) -> None:
        """Note that the broker did not take a message."""
        self.progress.steps[number] = ReplayStep.REFUSED
        self.refused[number] = reason

    def target_of(self, number: int) -> str:
        """The queue or topic that a message goes to."""
        return self.targets[int(self.plan.entries["queue"][number])]


class ReplayOptions(NamedTuple):
    """`speed` is a factor of the original pace, None as fast as possible; `makes_topics` makes topics that lack."""

    speed: float | None
    window: int
    patience_s: float
    makes_topics: bool = False


class Replay(Protocol):
    """A queue or a topic for all messages, or with `target` "" a broker or cluster at which each keeps its own."""

    @property
    def target(self) -> str: ...

    def lasting(self, text: str) -> str:
        """Return `text`, which names this place, without what may differ in a later run."""
        ...

    def check_target(self, name: str) -> None:
        """Raise `BadRename` unless messages can go to a queue or a topic with this name."""
        ...

    def check_delayed(self) -> None:
        """Raise `CannotBegin` if messages cannot be delayed here."""
        ...

    def convert(self, message: Stored) -> object:
        """Make the message that would go out. Raises `Unfit`."""
        ...

    async def carry_out(self, run: Run, options: ReplayOptions) -> None:
        """Post what is left. Raises `CannotBegin` if no message can be posted at all."""
        ...

    def about_repeated(self, run: Run, count: int, silent_s: float) -> str | None:
        """Say what became of messages that an earlier run, which ended `silent_s` ago, left without an answer."""
        ...


def read_all(run: Run, convert: Callable[[Stored], object]) -> Iterator[int]:
    """Read and convert what is left without posting it, as a rehearsal: the numbers of the messages that are fit."""
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
