"""Posts the messages of a plan: at a pace, over lost connections and full queues."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import trio
from numpy.typing import NDArray

from bmqctl.client.control import Unusable
from bmqctl.client.events import Ack
from bmqctl.client.posting import Posting, PostingOptions
from bmqctl.client.session import Queue, Session, SessionLost, SessionOptions
from bmqctl.replay.messages import MessageSource, StoredMessage
from bmqctl.replay.plan import Plan
from bmqctl.replay.progress import Progress, Step, replay_guid
from formats.bmq.guid import format_guid
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.properties import Property, PropertyType
from formats.errors import FormatError

__all__ = ["GUID_PROPERTY", "TIME_PROPERTY", "Fault", "PostOptions", "Run", "marked", "read_all"]

GUID_PROPERTY: Final = "replay_guid"
TIME_PROPERTY: Final = "replay_time"

_SYNC_INTERVAL_S: Final = 1.0
_READ_STRIDE: Final = 1000

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PostOptions:
    """`speed` is a factor of the original pace, None as fast as possible. A run ends when patience does."""

    host: str
    port: int
    session: SessionOptions
    speed: float | None = None
    posting: PostingOptions = field(default_factory=PostingOptions)


@dataclass(frozen=True, slots=True)
class Fault:
    """A message that could not be read, or not be posted: its journal, place and why."""

    number: int
    journal: str
    place: int
    reason: str


def marked(message: StoredMessage) -> list[Property]:
    """The message's properties, and where it comes from: its GUID, and its time in seconds since 1970.

    A message that has these properties already, as one that was replayed before, keeps its own.
    """
    known = {each.name for each in message.properties}
    marks = (
        Property(GUID_PROPERTY, PropertyType.STRING, format_guid(message.guid)),
        Property(TIME_PROPERTY, PropertyType.INT64, message.timestamp),
    )
    return [*message.properties, *(mark for mark in marks if mark.name not in known)]


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
    on_fault: Callable[[Fault], None] = lambda fault: None
    payload_bytes: NDArray[np.int64] = field(init=False)
    refused: dict[int, AckStatus] = field(default_factory=dict)
    acked: int = 0
    ended_by: str | None = None
    interrupted: bool = False
    deduplication_time_ms: int | None = None

    def __post_init__(self) -> None:
        self.payload_bytes = np.zeros(len(self.plan.queues), np.int64)
        self.order: NDArray[np.int64] = np.flatnonzero(self.progress.steps != Step.POSTED)

    def read(self, number: int) -> StoredMessage | None:
        """The plan's message `number`; None, and a fault told, if it is damaged."""
        entry = self.plan.entries[number]
        source: MessageSource = self.plan.sources[entry["journal"]]
        try:
            return source.read(int(entry["place"]))
        except (FormatError, OSError) as error:
            self.fail(number, Step.UNREADABLE, str(error))
            return None

    def fail(self, number: int, step: Step, reason: str) -> None:
        entry = self.plan.entries[number]
        self.progress.steps[number] = step
        self.on_fault(Fault(number, self.plan.sources[entry["journal"]].path.name, int(entry["place"]), reason))

    async def post(self, options: PostOptions) -> None:
        """Post what is left. OSError, SessionLost or RequestFailed if no message could be posted at all."""
        if len(self.order):
            await _Poster(self, options).run()


def read_all(run: Run) -> Iterator[int]:
    """Read what is left without posting it, as a rehearsal: the numbers of the messages that are fit."""
    total = len(run.order)
    for done, number in enumerate(run.order.tolist()):
        if done % _READ_STRIDE == 0:
            run.on_progress(done, total)
        message = run.read(number)
        if message is not None:
            run.payload_bytes[run.plan.entries["queue"][number]] += len(message.payload)
            yield number


class _Poster:
    def __init__(self, run: Run, options: PostOptions) -> None:
        self._run = run
        self._options = options
        self._queue_numbers = run.plan.entries["queue"]
        self._seed = run.progress.head.seed
        self._sizes: dict[int, int] = {}
        self._queues: dict[str, Queue] = {}
        self._posting = trio.CancelScope()
        self._settling = trio.CancelScope()
        self._closing = False

    async def run(self) -> None:
        options = self._options
        async with Session.connect(options.host, options.port, options.session, self._take_acks) as session:
            self._line = Posting(options.posting, self._post, self._take_answer, session.drain)
            for target in dict.fromkeys(self._run.targets):
                self._queues[target] = await session.open_queue(target, write=True)
            windows = {queue.deduplication_time_ms for queue in self._queues.values()}
            self._run.deduplication_time_ms = min(windows, default=None)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_signals)
                nursery.start_soon(self._end_by, self._line.watch)
                nursery.start_soon(self._end_by, session.lost)
                nursery.start_soon(self._sync)
                with self._posting:
                    try:
                        await self._post_all()
                    except (SessionLost, Unusable) as fault:
                        self._run.ended_by = str(fault)
                if self._run.interrupted:
                    with self._settling:
                        await self._line.settle()
                nursery.cancel_scope.cancel()
            # Answers that the session's end makes up are none.
            self._closing = True

    async def _post_all(self) -> None:
        order = self._run.order
        due_s = None if self._options.speed is None else self._run.plan.due_s(order, self._options.speed)
        started = trio.current_time()
        for at, number in enumerate(order.tolist()):
            if due_s is not None:
                await trio.sleep_until(started + due_s[at])
            await self._line.put(number)
        await self._line.finish()

    def _post(self, number: int, correlation: int) -> int | None:
        run = self._run
        message = run.read(number)
        if message is None:
            return None
        queue = self._queues[run.targets[self._queue_numbers[number]]]
        size = self._sizes[number] = len(message.payload)
        run.progress.steps[number] = Step.SENT
        try:
            queue.post_nowait(
                message.payload,
                marked(message),
                compress=message.compressed,
                correlation=correlation,
                guid=replay_guid(self._seed, number),
            )
        except ValueError as error:
            run.fail(number, Step.UNFIT, str(error))
            return None
        return size

    def _take_acks(self, acks: list[Ack]) -> None:
        if not self._closing:
            self._line.take_acks(acks)
            self._run.on_progress(self._run.acked, len(self._run.order))

    def _take_answer(self, number: int, status: AckStatus) -> None:
        run = self._run
        size = self._sizes.pop(number)
        if status is not AckStatus.SUCCESS:
            run.progress.steps[number] = Step.REFUSED
            run.refused[number] = status
            return
        run.progress.steps[number] = Step.POSTED
        run.refused.pop(number, None)
        run.payload_bytes[self._queue_numbers[number]] += size
        run.acked += 1

    async def _watch_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            async for _ in received:
                # A second one ends the wait for the answers, too.
                if self._run.interrupted:
                    self._settling.cancel()
                self._run.interrupted = True
                self._posting.cancel()

    async def _end_by(self, wait: Callable[[], Awaitable[str]]) -> None:
        self._run.ended_by = await wait()
        self._posting.cancel()
        self._settling.cancel()

    async def _sync(self) -> None:
        while True:
            await trio.sleep(_SYNC_INTERVAL_S)
            await trio.to_thread.run_sync(self._run.progress.sync)
