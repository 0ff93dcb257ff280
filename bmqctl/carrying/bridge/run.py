"""Several bridges in one process, from start to account."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from bmqctl.carrying.bridge.account import Account
from bmqctl.carrying.bridge.carrying import Bridge, CannotBegin
from bmqctl.carrying.bridge.making import BridgeOptions, make
from bmqctl.carrying.options import CarryOptions

__all__ = ["CannotBegin", "Outcome", "Running", "run_bridges"]


@dataclass(slots=True)
class Outcome:
    """One bridge's account. `ended_by` is the reason if it ended by itself, empty if it was stopped."""

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

    `tell` gets a bridge's name and news, `on_report` the state every `report_s` seconds.
    """
    running = Running([Outcome(each) for each in bridges])
    lives = [_BridgeLife(outcome, tell) for outcome in running.outcomes]
    fault: CannotBegin | None = None
    async with trio.open_nursery() as watching:
        watching.start_soon(_watch_signals, lives, running)
        if report_s is not None:
            watching.start_soon(_report, report_s, running, on_report)
        async with trio.open_nursery() as nursery:

            async def run(life: _BridgeLife) -> None:
                nonlocal fault
                try:
                    await life.run()
                except CannotBegin as raised:
                    # An exception raised inside the nursery would be wrapped in a group.
                    fault = raised
                    nursery.cancel_scope.cancel()

            for life in lives:
                nursery.start_soon(run, life)
        watching.cancel_scope.cancel()
    if fault is not None:
        raise fault
    return running


class _BridgeLife:
    """One bridge, including its wait for its topic."""

    def __init__(self, outcome: Outcome, tell: Callable[[str, str], None]) -> None:
        self._outcome = outcome
        self._options = outcome.options
        self._tell_named = tell
        self._bridge: Bridge | None = None
        self._making = trio.CancelScope()

    async def run(self) -> None:
        """Carry messages. Raises `CannotBegin`."""
        with self._making:
            self._bridge = await self._make()
        if self._bridge is None:
            return
        self._outcome.account = self._bridge.account
        await self._bridge.run(self._options.idle_s, self._options.patience_s)
        self._outcome.ended_by = self._bridge.flow.ended_by

    def stop(self) -> None:
        """End once messages in flight are acknowledged; immediately if it has not begun."""
        self._making.cancel()
        if self._bridge is not None:
            self._bridge.stop()

    def give_up(self) -> None:
        if self._bridge is not None:
            self._bridge.give_up()

    async def _make(self) -> Bridge:
        options = self._options
        ends = (options.source, options.means), (options.destination, options.means)
        return await make(*ends, CarryOptions(moves=True), options.flow, self._tell)

    def _tell(self, text: str) -> None:
        self._tell_named(self._options.name, text)


async def _watch_signals(lives: list[_BridgeLife], running: Running) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for _ in received:
            # A second signal also ends the wait for the answers.
            if running.is_interrupted:
                for life in lives:
                    life.give_up()
            running.is_interrupted = True
            for life in lives:
                life.stop()


async def _report(interval_s: float, running: Running, on_report: Callable[[Running], None]) -> None:
    while True:
        await trio.sleep(interval_s)
        on_report(running)
