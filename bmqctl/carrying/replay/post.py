"""Posts the messages of a plan to BlazingMQ's queues at a pace, across lost connections and full queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from bmqctl.carrying.bridge.carrying import CannotBegin
from bmqctl.carrying.bridge.ends import BlazingEnd
from bmqctl.carrying.messages.ends import Reach
from bmqctl.carrying.replay.messages import Stored
from bmqctl.carrying.replay.names import check_queue
from bmqctl.carrying.replay.outgoing import Unfit, for_blazingmq
from bmqctl.carrying.replay.progress import ReplayStep, replay_guid
from bmqctl.carrying.replay.run import ReplayOptions, Run, sync, watch_signals
from bmqctl.client.posting import Posting, PostingOptions
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import Ack
from bmqctl.client.session import Queue, RequestFailed, Session, SessionLost, SessionOptions
from formats.bmq.uri import parse_uri
from formats.bmq.wire.ack import AckStatus

__all__ = ["QueueReplay", "ReplayPostOptions", "post"]


@dataclass(frozen=True, slots=True)
class ReplayPostOptions:
    """`speed` is a factor of the original pace, None as fast as possible. A run ends when patience does."""

    host: str
    port: int
    session: SessionOptions
    speed: float | None = None
    posting: PostingOptions = field(default_factory=PostingOptions)


class QueueReplay:
    """A queue, or a broker on which each message keeps its queue. Raises `CannotBegin` for an app of a queue."""

    def __init__(self, end: BlazingEnd, reach: Reach) -> None:
        self.target = end.uri
        self._end = end
        if end.uri and parse_uri(end.uri).app_id:
            raise CannotBegin(f"--to {end}: messages are posted to a queue, not to one of its apps")
        self._session = SessionOptions(
            process_name=reach.name,
            resume=True,
            credentials=Credentials(reach.mechanism, reach.data.encode()) if reach.mechanism else None,
            tls_authority=reach.authority,
        )

    def lasting(self, text: str) -> str:
        return text

    def check_target(self, name: str) -> None:
        check_queue(name)

    def check_delayed(self) -> None:
        raise CannotBegin("--delayed: BlazingMQ has no delays; such messages can go to RocketMQ only, with --to")

    def convert(self, message: Stored) -> object:
        return for_blazingmq(message)

    async def carry_out(self, run: Run, options: ReplayOptions) -> None:
        host, port, _ = self._end
        posting = PostingOptions(options.window, options.patience_s)
        try:
            await post(run, ReplayPostOptions(host, port, self._session, options.speed, posting))
        except OSError as error:
            raise CannotBegin(f"no broker at {host}:{port}: {error.strerror or error}") from None
        except (SessionLost, RequestFailed) as error:
            raise CannotBegin(str(error)) from None

    def about_repeated(self, run: Run, count: int, silent_s: float) -> str | None:
        if run.deduplication_time_ms is None:
            return None
        known_s = run.deduplication_time_ms / 1000
        late = f"; that was {silent_s:.0f} s ago, so some may be duplicated" if silent_s > known_s else ""
        return (
            f"{count} messages were unacknowledged when the last run ended: posted again with the same GUIDs, which "
            f"the broker remembers for {known_s:g} s{late}"
        )


async def post(run: Run, options: ReplayPostOptions) -> None:
    """Post the rest of a plan. Raises OSError, SessionLost or RequestFailed if no message could be posted."""
    if len(run.order):
        await _Poster(run, options).run()


class _Poster:
    def __init__(self, run: Run, options: ReplayPostOptions) -> None:
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
            # Answers that the session's end makes up do not count.
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
            run.progress.steps[number] = ReplayStep.SENT
            queue.post_nowait(
                payload, properties, compress=compress, correlation=correlation, guid=replay_guid(self._seed, number)
            )
        except (Unfit, ValueError) as error:
            run.fail(number, ReplayStep.UNFIT, str(error))
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
