"""One running bridge: carries out its flow's decisions with a source and a destination."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import trio

from bmqctl.carrying.bridge.account import Account
from bmqctl.carrying.bridge.ends import CannotBegin
from bmqctl.carrying.bridge.flow import Action, Answer, CarriedMessage, Flow, FlowOptions, Send
from bmqctl.common.nurseries import open_nursery

__all__ = ["Bridge", "CannotBegin", "Destination", "Source", "Tell", "TryAgain", "run_to_end"]

TICK_S: Final = 0.05
BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 2.0

Tell = Callable[[str], None]


class Source(Protocol):
    """The end from which messages come. `lanes` are its first lanes."""

    lanes: int

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        """Take messages until the bridge has ended, across lost connections. Raises `CannotBegin` without the first."""

    def settle(self, lane: int, items: list[CarriedMessage]) -> None:
        """Let the source forget messages."""


class Destination(Protocol):
    """The end to which messages go."""

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        """Keep a connection until cancelled. Raises `CannotBegin` without a first one."""

    def send(self, send: Send) -> None:
        """Send a batch; pass the answers to the bridge."""


class Bridge:
    """One running bridge, called by its ends. Every event sets `changed`, and replaces it.

    With `count_max` the bridge ends after this number of messages.
    """

    def __init__(
        self,
        source: Source,
        destination: Destination,
        options: FlowOptions,
        tell: Tell,
        count_max: int | None = None,
    ) -> None:
        self.tell = tell
        self.flow = Flow(options, source.lanes)
        self.changed = trio.Event()
        self.stopped = trio.Event()
        self.ended = trio.Event()
        self.last_taken_s = trio.current_time()
        # True while the source is not connected: silence means nothing then.
        self.is_source_away = False
        self._source = source
        self._destination = destination
        self._count_max = count_max
        # True once messages were left out: later ones must be, too.
        self._is_cut = False
        self._actions: deque[Action] = deque()
        self._is_acting = False
        self._beginning = trio.CancelScope()

    @property
    def account(self) -> Account:
        return self.flow.account

    # Input from the ends

    def take(self, lane: int, items: Sequence[CarriedMessage]) -> None:
        self.last_taken_s = trio.current_time()
        self._do(self.flow.take(lane, self._portion(items)))

    def add_lane(self) -> int:
        return self.flow.add_lane()

    def release(self, lane: int) -> None:
        """Leave a lane's unsent messages to the source."""
        self.flow.release(lane)
        self._do([])

    def source_lost(self) -> None:
        """Expect the source to deliver unsettled messages again."""
        self.flow.source_lost()
        self._is_cut = False
        self._do([])

    def destination_up(self) -> None:
        self._do(self.flow.destination_up())

    def destination_down(self, known: Mapping[int, Sequence[Answer]] | None = None) -> None:
        """Stop sending; `known` has the answers to partly answered batches."""
        self._do(self.flow.destination_down(trio.current_time(), known))

    def answered(self, lane: int, batch: int, answers: Sequence[Answer], *, one_by_one: bool = False) -> None:
        self._do(self.flow.answered(lane, batch, answers, trio.current_time(), one_by_one=one_by_one))

    # The life of the bridge

    async def run(self, idle_s: float | None, patience_s: float) -> None:
        """Carry messages until `stop`, a refusal, or `idle_s` seconds without a message. Raises `CannotBegin`."""
        async with open_nursery() as nursery:
            working = trio.Event()
            with self._beginning:
                await nursery.start(self._destination.run, self)
                await nursery.start(self._run_source, working)
            if not self._beginning.cancelled_caught:
                await self._carry(nursery, working, idle_s, patience_s)

    async def _carry(self, nursery: trio.Nursery, working: trio.Event, idle_s: float | None, patience_s: float) -> None:
        nursery.start_soon(self._tick)
        if idle_s is not None:
            self.last_taken_s = trio.current_time()
            nursery.start_soon(self._watch_idleness, idle_s)
        await self.stopped.wait()
        with trio.move_on_after(patience_s):
            await self.ended.wait()
        self.give_up()
        with trio.move_on_after(patience_s):
            await working.wait()

    def stop(self, reason: str = "") -> None:
        """Take and send nothing more; cancel the wait for an end that is not connected yet."""
        self._beginning.cancel()
        self.flow.stop(reason)
        self._do([])

    def give_up(self) -> None:
        """Stop, without waiting for answers."""
        self.flow.give_up()
        self._do([])

    async def await_change(self) -> None:
        await self.changed.wait()

    async def _run_source(self, done: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        await self._source.run(self, task_status)
        done.set()

    async def _tick(self) -> None:
        while True:
            await trio.sleep(TICK_S)
            now_s = trio.current_time()
            if self.flow.due_s is not None and self.flow.due_s <= now_s:
                self._do(self.flow.tick(now_s))

    async def _watch_idleness(self, idle_s: float) -> None:
        """Stop after `idle_s` without a message. Time in which the process did not run counts little."""
        quiet_s = 0.0
        while quiet_s < idle_s:
            before_s = self.last_taken_s
            step_s = min(TICK_S, idle_s)
            await trio.sleep(step_s)
            is_busy = self.flow.held or self.is_source_away or self.last_taken_s != before_s
            quiet_s = 0.0 if is_busy else quiet_s + step_s
        self.stop()

    def _portion(self, items: Sequence[CarriedMessage]) -> Sequence[CarriedMessage]:
        if self._count_max is None:
            return items
        left = 0 if self._is_cut else max(0, self._count_max - self._ended - self.flow.held)
        self._is_cut = self._is_cut or len(items) > left
        return items[:left]

    @property
    def _ended(self) -> int:
        return self.account.delivered + self.account.refused.total()

    def _is_enough(self) -> bool:
        if self._count_max is None or self.flow.held:
            return False
        return self._is_cut or self._ended >= self._count_max

    def _do(self, actions: Sequence[Action]) -> None:
        self._actions.extend(actions)
        if self._is_acting:
            return
        self._is_acting = True
        try:
            while self._actions:
                action = self._actions.popleft()
                if isinstance(action, Send):
                    self._destination.send(action)
                else:
                    self._source.settle(action.lane, action.items)
        finally:
            self._is_acting = False
        if self._is_enough():
            self.flow.stop()
        self.changed.set()
        self.changed = trio.Event()
        if self.flow.is_stopped:
            self.stopped.set()
        if self.flow.is_ended:
            self.ended.set()


async def run_to_end(
    bridge: Bridge, task_status: trio.TaskStatus[None], hand_out: Callable[[Bridge], Awaitable[None]]
) -> None:
    """Run a finite source: stop the bridge once `hand_out` has returned and all messages are answered.

    If the bridge stops before that, `hand_out` is cancelled.
    """
    task_status.started()
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await bridge.stopped.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        await hand_out(bridge)
        while bridge.flow.held:
            await bridge.await_change()
        bridge.stop()
    await bridge.ended.wait()


class TryAgain:
    """Retries a connection, with a pause that grows while it fails immediately.

    `tell` reports each failure that differs from the previous one. The first connection may take `wait_s` seconds;
    None: any time.
    """

    def __init__(self, end: str, tell: Tell, wait_s: float | None = None) -> None:
        self._end = end
        self._tell = tell
        self._wait_s = wait_s
        self._began_s = trio.current_time()
        self._told = ""
        self._pause_s = BACKOFF_MIN_S
        self._was_connected = False

    def connected(self, status: trio.TaskStatus[Any]) -> None:
        if not self._was_connected:
            self._was_connected = True
            status.started()
            if self._told:
                self._tell(f"{self._end}: connected")
        elif self._told:
            self._tell(f"{self._end}: connected again")
        self._told = ""
        self._pause_s = BACKOFF_MIN_S

    async def failed(self, reason: str, *, is_final: bool = False) -> None:
        """Wait before the next attempt.

        Raises `CannotBegin` if there never was a connection, and the reason is final or the time is over.
        """
        left_s = None if self._was_connected else self._left_s(is_final)
        if left_s is not None and left_s <= 0:
            raise CannotBegin(f"{self._end}: {reason}")
        if reason != self._told:
            self._tell(f"{self._end}: {reason}{'' if self._was_connected else '; it is awaited'}")
        self._told = reason
        await trio.sleep(self._pause_s if left_s is None else min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, BACKOFF_MAX_S)

    def _left_s(self, is_final: bool) -> float | None:
        if is_final or self._wait_s is None:
            return 0.0 if is_final else None
        return self._began_s + self._wait_s - trio.current_time()
