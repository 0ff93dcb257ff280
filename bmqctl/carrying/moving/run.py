"""The run of `bmqctl copy` and `bmqctl move`: a finite bridge between any two queues and topics."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

import trio

from bmqctl.carrying.bridge.account import Account
from bmqctl.carrying.bridge.carrying import Bridge, CannotBegin, Tell
from bmqctl.carrying.bridge.flow import FlowOptions
from bmqctl.carrying.bridge.making import BridgeEnd, Means, make
from bmqctl.carrying.bridge.patience import Patience
from bmqctl.carrying.messages.ends import Reach
from bmqctl.carrying.options import CarryOptions
from bmqctl.common.nurseries import open_nursery

__all__ = [
    "At",
    "Carried",
    "CarryEnd",
    "SourceContents",
    "carry",
    "check",
    "ended",
    "rehearse",
    "waiting",
]

_REPORT_S: Final = 0.2


class CarryEnd(BridgeEnd, Protocol):
    """A place from and to which messages are copied or moved."""

    @property
    def place(self) -> tuple[object, ...]:
        """The queue or topic, equal for two ends that are the same."""
        ...

    def check_source(self, options: CarryOptions) -> None:
        """Raise `CannotBegin` if messages cannot be carried from here with these options."""
        ...

    def check_destination(self, has_queues: bool) -> None:
        """Raise `CannotBegin` if messages cannot be carried here; `has_queues` is that of their source."""
        ...

    def is_consumed(self, options: CarryOptions) -> bool:
        """Return True if the source has no known end."""
        ...

    def means(self, reach: Reach) -> Means:
        """Make the access to the brokers. Raises `CannotBegin`."""
        ...

    async def waiting(self, means: Means, options: CarryOptions) -> int | None:
        """The most messages that will be carried; None if the broker does not say."""
        ...

    async def contents(self, to: BridgeEnd, means: Means, options: CarryOptions) -> SourceContents:
        """Examine the messages to carry, and change nothing. Raises `CannotBegin`."""
        ...


class At(NamedTuple):
    """A queue or a topic, and the options for reaching its brokers."""

    end: CarryEnd
    reach: Reach


@dataclass(slots=True)
class Carried:
    """The result of a run. `ended_by` is the reason for an early end without a signal."""

    account: Account = field(default_factory=Account)
    ended_by: str = ""
    is_interrupted: bool = False


class SourceContents(NamedTuple):
    """The messages at a source. `unfit` counts, by reason, the ones that the destination cannot have, if known."""

    messages: int
    size_bytes: int
    oldest_at: str | None
    unfit: dict[str, int]


def check(source: At, destination: At, options: CarryOptions) -> None:
    """Raise `CannotBegin` for incompatible ends and options."""
    source.end.check_source(options)
    destination.end.check_destination(source.end.has_queues)
    if source.end.place == destination.end.place:
        raise CannotBegin(f"{source.end} is both: messages would go round without end")


async def carry(
    source: At, destination: At, options: CarryOptions, tell: Tell, on_progress: Callable[[int], None]
) -> Carried:
    """Carry messages until there are no more, or options or a signal end the run. Raises `CannotBegin`.

    `tell` reports events of connections, `on_progress` gets the number of messages so far.
    """
    check(source, destination, options)
    found = Carried()
    patience = Patience(options.patience_s)

    def hear(text: str) -> None:
        patience.tell(text)
        tell(text)

    async with open_nursery() as nursery:
        making = trio.CancelScope()
        bridge: Bridge | None = None

        def stop() -> None:
            making.cancel()
            if bridge is not None:
                (bridge.give_up if found.is_interrupted else bridge.stop)()
            found.is_interrupted = True

        nursery.start_soon(_watch_signals, stop)
        with making:
            bridge = await _make(source, destination, options, hear)
        if bridge is None:
            raise CannotBegin("interrupted before it began")
        found.account = bridge.account
        nursery.start_soon(patience.watch, bridge, partial(ended, bridge.account))
        nursery.start_soon(_report, bridge, on_progress)
        await bridge.run(options.idle_s if source.end.is_consumed(options) else None, options.patience_s)
    found.ended_by = patience.ended_by or bridge.flow.ended_by
    return found


def ended(account: Account) -> int:
    return account.delivered + account.refused.total()


async def _watch_signals(stop: Callable[[], None]) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for _ in received:
            stop()


async def _report(bridge: Bridge, on_progress: Callable[[int], None]) -> None:
    while True:
        await trio.sleep(_REPORT_S)
        on_progress(ended(bridge.account))


async def _make(source: At, destination: At, options: CarryOptions, tell: Tell) -> Bridge:
    """Make the bridge. Raises `CannotBegin`."""
    flow = FlowOptions(
        window=options.window,
        batch_messages=options.batch,
        skip_refused=options.skip_refused and not options.moves,
    )
    begin = source.end, source.end.means(source.reach)
    end = destination.end, destination.end.means(destination.reach)
    return await make(begin, end, options, flow, tell)


async def waiting(source: At, options: CarryOptions) -> int | None:
    """The most messages that a run would carry; None if the broker does not say."""
    return await source.end.waiting(source.end.means(source.reach), options)


async def rehearse(source: At, destination: At, options: CarryOptions) -> SourceContents:
    """Examine the messages to carry, and change nothing. Raises `CannotBegin`.

    A BlazingMQ broker lists messages without their properties, so the result ignores any expression. A topic's
    messages are read.
    """
    check(source, destination, options)
    return await source.end.contents(destination.end, source.end.means(source.reach), options)
