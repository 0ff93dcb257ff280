"""Posts the messages of a plan to queues of BlazingMQ: at a pace, over lost connections and full queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from bmqctl.carrying.replay.outgoing import Unfit, for_blazingmq
from bmqctl.carrying.replay.progress import Step, replay_guid
from bmqctl.carrying.replay.run import Run, sync, watch_signals
from bmqctl.client.posting import Posting, PostingOptions
from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import Ack
from bmqctl.client.session import Queue, Session, SessionLost, SessionOptions
from formats.bmq.wire.ack import AckStatus

__all__ = ["PostOptions", "post"]


@dataclass(frozen=True, slots=True)
class PostOptions:
    """`speed` is a factor of the original pace, None as fast as possible. A run ends when patience does."""

    host: str
    port: int
    session: SessionOptions
    speed: float | None = None
    posting: PostingOptions = field(default_factory=PostingOptions)


async def post(run: Run, options: PostOptions) -> None:
    """Post what is left. OSError, SessionLost or RequestFailed if no message could be posted at all."""
    if len(run.order):
        await _Poster(run, options).run()


class _Poster:
    def __init__(self, run: Run, options: PostOptions) -> None:
        self._run = run
        self._options = options
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
                nursery.start_soon(watch_signals, self._run, self._posting.cancel, self._settling.cancel)
                nursery.start_soon(self._end_by, self._line.watch)
                nursery.start_soon(self._end_by, session.lost)
                nursery.start_soon(sync, self._run)
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
        queue = self._queues[run.target_of(number)]
        try:
            payload, properties, compress = for_blazingmq(message)
            size = self._sizes[number] = len(payload)
            run.progress.steps[number] = Step.SENT
            queue.post_nowait(
                payload, properties, compress=compress, correlation=correlation, guid=replay_guid(self._seed, number)
            )
        except (Unfit, ValueError) as error:
            run.fail(number, Step.UNFIT, str(error))
            return None
        return size

    def _take_acks(self, acks: list[Ack]) -> None:
        if not self._closing:
            self._line.take_acks(acks)
            self._run.on_progress(self._run.acked, len(self._run.order))

    def _take_answer(self, number: int, status: AckStatus) -> None:
        size = self._sizes.pop(number)
        if status is AckStatus.SUCCESS:
            self._run.take_ack(number, size)
        else:
            self._run.take_refusal(number, status.name)

    async def _end_by(self, wait: Callable[[], Awaitable[str]]) -> None:
        self._run.ended_by = await wait()
        self._posting.cancel()
        self._settling.cancel()
