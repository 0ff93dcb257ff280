"""The run of `bmqctl post`: messages from a source to a queue or a topic, until all are acknowledged.

It ends at the first line that is not a message, or message that is not acknowledged, and awaits those in flight.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

import trio

from bmqctl.carrying.messages.content import BadInput, Outgoing
from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.carrying.options import PostOptions
from bmqctl.client import ClientError
from bmqctl.common.nurseries import open_nursery

__all__ = ["Account", "Failure", "Run", "Sink", "Source", "opened", "post"]

# Messages between two turns of other tasks.
_TURN: Final = 64

T = TypeVar("T")


class Source(NamedTuple):
    """The messages of a run, each with its number in the input, in units such as lines."""

    unit: str
    messages: Callable[[], AsyncGenerator[tuple[int, Outgoing]]]


class Failure(NamedTuple):
    """An unacknowledged message: its number in the input, from 1, and the reason."""

    unit: str
    number: int
    reason: str
    is_uncertain: bool


@dataclass(slots=True)
class Account:
    """The counts of a run. `ended_by` is the reason if it ended by itself before the end of the input."""

    posted: int = 0
    acknowledged: int = 0
    payload_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    ended_by: str = ""
    is_interrupted: bool = False

    @property
    def unanswered(self) -> int:
        """Messages without an answer, which may or may not be stored."""
        return self.posted - self.acknowledged - sum(not each.is_uncertain for each in self.failures)

    @property
    def refused(self) -> int:
        return sum(not each.is_uncertain for each in self.failures)

    @property
    def is_complete(self) -> bool:
        """True if the input ended, and all of it is acknowledged."""
        return not self.ended_by and not self.is_interrupted and self.acknowledged == self.posted


class Sink(Protocol):
    """A queue or a topic to post to.

    The answer to an unacknowledged message raises `failed`, and its subclass `uncertain` if the message may be stored.
    """

    @property
    def failed(self) -> type[ClientError]: ...
    @property
    def uncertain(self) -> type[ClientError]: ...

    async def send(self, message: Outgoing) -> Awaitable[object]:
        """Hand over a message when there is room; return the awaitable of its acknowledgment.

        Raises `ValueError` if it cannot be a message there.
        """
        ...


@asynccontextmanager
async def opened(opening: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Open a place. Raises `CannotBegin` if it cannot be opened; does not convert later faults."""
    has_begun = False
    try:
        async with opening as place:
            has_begun = True
            yield place
    except (ClientError, ValueError) as fault:
        if has_begun:
            raise
        raise CannotBegin(str(fault)) from None


async def post(
    opening: AbstractAsyncContextManager[Sink],
    options: PostOptions,
    source: Source,
    on_progress: Callable[[int], None],
) -> Account:
    """Post the messages of a source. Raises `CannotBegin`."""
    run = Run(options, on_progress)
    async with open_nursery() as nursery:
        nursery.start_soon(run.watch_signals)
        with run.scope:
            async with opened(opening) as sink:
                await run.carry_out(sink, source)
    if not run.has_begun:
        raise CannotBegin("interrupted before it began")
    return run.account


class Run:
    """A run over a sink."""

    def __init__(self, options: PostOptions, on_progress: Callable[[int], None]) -> None:
        self.account = Account()
        self.scope = trio.CancelScope()
        self.has_begun = False
        self._options = options
        self._on_progress = on_progress
        self._reading = trio.CancelScope()
        # In order.
        self._unanswered: deque[tuple[int, Awaitable[object]]] = deque()
        self._change = trio.Event()
        # The time of the last answer, or of posting the first unanswered message.
        self._last_s = 0.0

    async def watch_signals(self) -> None:
        """End the input at the first signal, and the wait for acknowledgments at the second."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            async for _ in received:
                if self.account.is_interrupted or not self.has_begun:
                    self.scope.cancel()
                self.account.is_interrupted = True
                self._reading.cancel()

    async def carry_out(self, sink: Sink, source: Source) -> None:
        self.has_begun = True
        async with open_nursery() as nursery:
            nursery.start_soon(self._watch_patience)
            nursery.start_soon(self._collect, sink, source.unit)
            with self._reading:
                await self._post_all(sink, source)
            while self._unanswered:
                await self._changed()

    async def _post_all(self, sink: Sink, source: Source) -> None:
        account = self.account
        began_s = trio.current_time()
        try:
            async with aclosing(source.messages()) as messages:
                async for number, message in messages:
                    if self._options.rate is not None:
                        await trio.sleep_until(began_s + account.posted / self._options.rate)
                    elif account.posted % _TURN == 0:
                        await trio.lowlevel.checkpoint()
                    try:
                        sent = await sink.send(message)
                    except (ClientError, ValueError) as fault:
                        self._end(f"{source.unit} {number}: {fault}")
                        return
                    self._note(number, sent, len(message.payload))
        except BadInput as fault:
            self._end(str(fault))
        except OSError as fault:
            self._end(f"cannot read the input: {fault.strerror}")

    def _note(self, number: int, sent: Awaitable[object], size: int) -> None:
        if not self._unanswered:
            self._last_s = trio.current_time()
        self._unanswered.append((number, sent))
        self.account.posted += 1
        self.account.payload_bytes += size
        self._tell_change()

    async def _collect(self, sink: Sink, unit: str) -> None:
        account = self.account
        while True:
            while not self._unanswered:
                await self._changed()
            number, sent = self._unanswered[0]
            try:
                await sent
            except sink.failed as fault:
                account.failures.append(Failure(unit, number, str(fault), isinstance(fault, sink.uncertain)))
                self._end(f"{unit} {number} was not acknowledged")
                self._reading.cancel()
            else:
                account.acknowledged += 1
                if account.acknowledged % _TURN == 0:
                    self._on_progress(account.acknowledged)
                    await trio.lowlevel.checkpoint()
            self._last_s = trio.current_time()
            self._unanswered.popleft()
            if not self._unanswered:
                self._tell_change()

    async def _watch_patience(self) -> None:
        patience_s = self._options.patience_s
        while True:
            while not self._unanswered:
                await self._changed()
            await trio.sleep_until(self._last_s + patience_s)
            if self._unanswered and trio.current_time() - self._last_s >= patience_s:
                self._end(f"no answer within {patience_s:g} s")
                self.scope.cancel()

    def _end(self, reason: str) -> None:
        self.account.ended_by = self.account.ended_by or reason

    async def _changed(self) -> None:
        await self._change.wait()

    def _tell_change(self) -> None:
        self._change.set()
        self._change = trio.Event()
