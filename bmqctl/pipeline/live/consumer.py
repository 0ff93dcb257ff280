"""The consumer of a micro-batch stream: a session in its own thread, which keeps uncommitted messages.

The stream's offsets count messages as they arrive, from 0. Messages are kept until confirmed, so that a batch can be
made again. After a lost connection the broker sends unconfirmed messages again; those already kept, or confirmed in
vain, are recognised by their GUIDs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice
from typing import Final, NamedTuple

import trio

from bmqctl.client.protocol.events import StreamOptions, StreamSubscription
from bmqctl.client.protocol.message import Message
from bmqctl.client.session import Queue, RequestFailed, Session, SessionLost
from bmqctl.pipeline.live.queue_options import ConsumeOptions

__all__ = ["Consumer", "ConsumerFailed", "Received"]

_CONFIRMED_MAX: Final = 100_000
_REOPENED_S: Final = 0.05


class ConsumerFailed(RuntimeError):
    """Failure to consume the queue; one line."""


class Received(NamedTuple):
    """A message and its time of arrival, in microseconds since 1970."""

    message: Message
    time_us: int


class Consumer:
    """A consumer: `start` it, `wait` for messages, `take` them, `confirm` processed ones, `stop` it."""

    def __init__(self, options: ConsumeOptions) -> None:
        self._options = options
        self._changed = threading.Condition()
        self._kept: deque[Received] = deque()
        self._first = 0
        self._unconfirmed: set[bytes] = set()
        self._confirmed: dict[bytes, None] = {}
        self._fault: str | None = None
        self._ready = False
        self._thread = threading.Thread(target=self._run, name="bmq consumer", daemon=True)
        self._token: trio.lowlevel.TrioToken
        self._session: Session
        self._queue: Queue
        self._scope = trio.CancelScope()

    @property
    def count(self) -> int:
        return self._first + len(self._kept)

    @property
    def first(self) -> int:
        return self._first

    def start(self) -> None:
        """Open the queue. Raises ConsumerFailed on failure."""
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._fault is not None)
            self._check()

    def wait(self, beyond: int, timeout_s: float) -> int:
        """Wait for messages after the first `beyond`; return the count. Raises ConsumerFailed if no more can come."""
        with self._changed:
            self._changed.wait_for(lambda: self.count > beyond or self._fault is not None, timeout_s)
            self._check()
            return self.count

    def end_of_batch(self, start: int, messages_max: int, bytes_max: int) -> int:
        """The end of a batch from `start` within these limits; a single message may exceed `bytes_max`."""
        with self._changed:
            end = start
            size = 0
            for each in islice(self._kept, start - self._first, start - self._first + messages_max):
                size += each.message.wire_size
                if size > bytes_max and end > start:
                    break
                end += 1
            return end

    def take(self, start: int, end: int) -> list[Received]:
        """Return messages [`start`, `end`), which are kept."""
        with self._changed:
            assert self._first <= start <= end <= self.count, (self._first, start, end, self.count)
            return list(islice(self._kept, start - self._first, end - self._first))

    def confirm(self, end: int) -> None:
        """Confirm all before `end`; the confirms have reached the socket on return."""
        done: list[Message] = []
        with self._changed:
            self._check()
            while self._first < end and self._kept:
                message = self._kept.popleft().message
                self._first += 1
                self._unconfirmed.discard(message.guid)
                self._confirmed[message.guid] = None
                done.append(message)
            while len(self._confirmed) > _CONFIRMED_MAX:
                del self._confirmed[next(iter(self._confirmed))]
        if done:
            try:
                trio.from_thread.run(self._confirm, done, trio_token=self._token)
            except (trio.RunFinishedError, trio.Cancelled, SessionLost):
                self._check()
                raise ConsumerFailed(f"{self._options.queue}: the session has ended") from None

    def stop(self) -> None:
        """End the session; unconfirmed messages go to other consumers, or to the next run."""
        if not self._ready:
            return
        try:
            trio.from_thread.run_sync(self._scope.cancel, trio_token=self._token)
        except trio.RunFinishedError:
            return
        self._thread.join(self._options.broker.session.timeout_s)

    def _check(self) -> None:
        if self._fault is not None:
            raise ConsumerFailed(self._fault)

    # -- in the thread

    def _run(self) -> None:
        fault = "the consumer was stopped"
        try:
            trio.run(self._consume)
        except (SessionLost, RequestFailed) as error:
            fault = str(error)
        except OSError as error:
            broker = self._options.broker
            fault = f"no broker at {broker.host}:{broker.port}: {error.strerror or error}"
        except BaseException as error:
            fault = f"{self._options.queue}: {error!r}"
            raise
        finally:
            with self._changed:
                self._fault = fault
                self._changed.notify_all()

    async def _consume(self) -> None:
        options = self._options
        broker = options.broker
        subscriptions: tuple[StreamSubscription, ...] = ()
        if options.expression is not None:
            subscriptions = (StreamSubscription(options.expression),)
        stream = StreamOptions(options.max_unconfirmed, options.max_unconfirmed_bytes, options.priority, subscriptions)
        async with Session.connect(broker.host, broker.port, broker.session) as session:
            queue = await session.open_queue(options.queue, read=True, options=stream)
            self._token = trio.lowlevel.current_trio_token()
            self._session, self._queue = session, queue
            with self._changed:
                self._ready = True
                self._changed.notify_all()
            with self._scope:
                while messages := await queue.receive():
                    self._keep(messages)
                raise SessionLost(f"{queue} was closed by the broker")

    def _keep(self, messages: list[Message]) -> None:
        now_us = time.time_ns() // 1000
        with self._changed:
            for message in messages:
                if message.guid in self._confirmed:
                    self._queue.confirm(message)
                elif message.guid not in self._unconfirmed:
                    self._unconfirmed.add(message.guid)
                    self._kept.append(Received(message, now_us))
            self._changed.notify_all()

    async def _confirm(self, messages: list[Message]) -> None:
        while not self._queue.is_open:
            # The connection was lost: the next one must repeat the confirms.
            self._session.check()
            await trio.sleep(_REOPENED_S)
        for message in messages:
            self._queue.confirm(message)
        await self._session.sent()
