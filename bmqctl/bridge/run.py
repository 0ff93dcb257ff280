"""Several bridges in one process, from their beginning to their account."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from bmqctl.bridge.account import Account
from bmqctl.bridge.blazingmq_ends import BlazingDestination, BlazingSource
from bmqctl.bridge.carrying import Bridge, CannotBegin, Tell
from bmqctl.bridge.ends import BlazingEnd, BridgeOptions, RocketEnd
from bmqctl.bridge.rocketmq_ends import RocketDestination, RocketSource, find_places

__all__ = ["CannotBegin", "Outcome", "Running", "run_bridges"]


@dataclass(slots=True)
class Outcome:
    """One bridge's account. `ended_by` says why it ended by itself; it is empty if it was told to end."""

    options: BridgeOptions
    account: Account = field(default_factory=Account)
    ended_by: str = ""


@dataclass(slots=True)
class Running:
    """The bridges of a process; `is_interrupted` after a signal."""

    outcomes: list[Outcome]
    is_interrupted: bool = False


async def run_bridges(
    bridges: Sequence[BridgeOptions],
    tell: Callable[[str, str], None],
    report_s: float | None = None,
    on_report: Callable[[Running], None] = lambda running: None,
) -> Running:
    """Run bridges until all have ended, or a signal comes. Raises `CannotBegin` if one cannot begin.

    `tell` is given a bridge's name and what happened to it, `on_report` the state every `report_s` seconds.
    """
    running = Running([Outcome(each) for each in bridges])
    made: list[Bridge] = []
    fault: CannotBegin | None = None
    async with trio.open_nursery() as watching:
        watching.start_soon(_watch_signals, made, running)
        if report_s is not None:
            watching.start_soon(_report, report_s, running, on_report)
        try:
            made.extend([await _make(outcome, tell) for outcome in running.outcomes])
            async with trio.open_nursery() as nursery:

                async def run(bridge: Bridge, outcome: Outcome) -> None:
                    nonlocal fault
                    try:
                        await bridge.run(outcome.options.idle_s, outcome.options.patience_s)
                    except CannotBegin as raised:
                        fault = raised
                        nursery.cancel_scope.cancel()
                    outcome.ended_by = bridge.flow.ended_by

                for bridge, outcome in zip(made, running.outcomes, strict=True):
                    nursery.start_soon(run, bridge, outcome)
                if running.is_interrupted:
                    _stop(made)
        except CannotBegin as raised:
            # Raised inside the nursery it would be wrapped in an exception group.
            fault = raised
        watching.cancel_scope.cancel()
    if fault is not None:
        raise fault
    return running


async def _make(outcome: Outcome, tell: Callable[[str, str], None]) -> Bridge:
    """Make one bridge; `CannotBegin` if RocketMQ has no such topic."""
    options = outcome.options

    def tell_it(text: str) -> None:
        tell(options.name, text)

    match options.source, options.destination:
        case BlazingEnd() as source, RocketEnd() as destination:
            made = await _to_rocketmq(options, source, destination, tell_it)
        case RocketEnd() as source, BlazingEnd() as destination:
            made = await _to_blazingmq(options, source, destination, tell_it)
        case _:
            raise CannotBegin("a bridge leads from one system to the other")
    outcome.account = made.account
    return made


async def _to_rocketmq(options: BridgeOptions, source: BlazingEnd, destination: RocketEnd, tell: Tell) -> Bridge:
    places = await find_places(destination, options.timeout_s, make=True)
    return Bridge(
        BlazingSource(source, options.session, options.flow.window, len(places), destination.key, tell),
        RocketDestination(destination, places, options.timeout_s, tell),
        options.flow,
        tell,
    )


async def _to_blazingmq(options: BridgeOptions, source: RocketEnd, destination: BlazingEnd, tell: Tell) -> Bridge:
    places = await find_places(source, options.timeout_s, make=False)
    return Bridge(
        RocketSource(source, places, options.timeout_s, tell),
        BlazingDestination(destination, options.session, tell),
        options.flow,
        tell,
    )


async def _watch_signals(made: list[Bridge], running: Running) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for _ in received:
            # A second one ends the wait for the answers, too.
            if running.is_interrupted:
                for bridge in made:
                    bridge.give_up()
            running.is_interrupted = True
            _stop(made)


def _stop(made: list[Bridge]) -> None:
    for bridge in made:
        bridge.stop()


async def _report(interval_s: float, running: Running, on_report: Callable[[Running], None]) -> None:
    while True:
        await trio.sleep(interval_s)
        on_report(running)
