"""One bridge at work between ends that the tests hold in their hands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from bmqctl.carrying.bridge.carrying import BACKOFF_MIN_S, Bridge, CannotBegin, TryAgain
from bmqctl.carrying.bridge.flow import TAKEN, Answer, AnswerKind, CarriedMessage, FlowOptions, Send
from bmqctl.carrying.bridge.patience import Patience


class FakeSource:
    lanes = 1

    def __init__(self) -> None:
        self.settled: list[Any] = []
        self.left_after = -1

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await bridge.ended.wait()
        self.left_after = len(self.settled)

    def settle(self, lane: int, items: list[CarriedMessage]) -> None:
        self.settled += [item.token for item in items]


class FakeDestination:
    def __init__(self) -> None:
        self.sends: list[Send] = []

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        bridge.destination_up()
        await trio.sleep_forever()

    def send(self, send: Send) -> None:
        self.sends.append(send)


class Refusing(FakeDestination):
    """A destination that answers before `send` returns."""

    def __init__(self, kind: AnswerKind) -> None:
        super().__init__()
        self.bridge: Bridge | None = None
        self._answer = Answer(kind, "no")

    def send(self, send: Send) -> None:
        super().send(send)
        assert self.bridge is not None
        self.bridge.answered(send.lane, send.batch, [self._answer] * len(send.items))


def items(*numbers: int) -> list[CarriedMessage]:
    return [CarriedMessage(number, number, 1) for number in numbers]


def run_bridge(
    destination: FakeDestination, story: Callable[[Bridge, FakeSource], Awaitable[None]], **options: Any
) -> tuple[Bridge, FakeSource]:
    """Run a bridge with a story beside it, by a clock that runs ahead while all wait."""
    source = FakeSource()

    async def run() -> Bridge:
        bridge = Bridge(source, destination, FlowOptions(), lambda text: None, options.get("count_max"))
        if isinstance(destination, Refusing):
            destination.bridge = bridge
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run, options.get("idle_s"), options.get("patience_s", 10.0))
            await trio.testing.wait_all_tasks_blocked()
            await story(bridge, source)
        return bridge

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0)), source


def test_stop_awaits_what_is_sent() -> None:
    destination = FakeDestination()

    async def story(bridge: Bridge, source: FakeSource) -> None:
        bridge.take(0, items(1))
        bridge.take(0, items(2))
        bridge.stop()
        await trio.sleep(5)
        assert not bridge.ended.is_set()
        bridge.answered(0, destination.sends[0].batch, [TAKEN])

    bridge, source = run_bridge(destination, story)
    assert (source.settled, source.left_after) == ([1], 1)
    account = bridge.account
    assert (account.taken, account.delivered, account.returned, account.in_flight) == (2, 1, 1, 0)


def test_patience_ends() -> None:
    async def story(bridge: Bridge, source: FakeSource) -> None:
        bridge.take(0, items(1))
        bridge.stop()
        began = trio.current_time()
        await bridge.ended.wait()
        assert trio.current_time() - began == pytest.approx(3.0)

    bridge, source = run_bridge(FakeDestination(), story, patience_s=3.0)
    assert source.settled == []
    assert (bridge.account.returned, bridge.account.in_flight) == (1, 0)


def test_an_idle_bridge_ends_when_nothing_is_in_flight() -> None:
    destination = FakeDestination()

    async def story(bridge: Bridge, source: FakeSource) -> None:
        await trio.sleep(1.5)
        bridge.take(0, items(1))
        await trio.sleep(10)
        assert not bridge.stopped.is_set()
        bridge.answered(0, destination.sends[0].batch, [TAKEN])
        await bridge.ended.wait()

    bridge, source = run_bridge(destination, story, idle_s=2.0)
    assert source.settled == [1]
    assert bridge.flow.ended_by == ""


def test_a_bridge_whose_source_is_away_is_not_idle() -> None:
    async def story(bridge: Bridge, source: FakeSource) -> None:
        bridge.is_source_away = True
        await trio.sleep(10)
        assert not bridge.stopped.is_set()
        bridge.is_source_away = False
        await bridge.ended.wait()

    run_bridge(FakeDestination(), story, idle_s=2.0)


def test_patience_has_an_end_with_a_source_that_is_away() -> None:
    patience = Patience(3.0)

    async def story(bridge: Bridge, source: FakeSource) -> None:
        patience.tell("the source is gone")
        bridge.is_source_away = True
        await patience.watch(bridge, lambda: 0)

    run_bridge(FakeDestination(), story, idle_s=2.0)
    assert patience.ended_by == "the source is gone, for 3 s"


def test_a_bridge_ends_after_so_many_messages_and_leaves_the_rest() -> None:
    destination = FakeDestination()

    async def story(bridge: Bridge, source: FakeSource) -> None:
        bridge.take(0, items(1, 2))
        bridge.take(0, items(3, 4))
        # Nothing after a message that was left out may be settled.
        bridge.take(0, items(5))
        bridge.answered(0, destination.sends[0].batch, [TAKEN, TAKEN])
        assert not bridge.stopped.is_set()
        bridge.answered(0, destination.sends[1].batch, [TAKEN])
        await bridge.ended.wait()

    bridge, source = run_bridge(destination, story, count_max=3)
    assert (source.settled, bridge.account.delivered, bridge.flow.ended_by) == ([1, 2, 3], 3, "")


def test_redelivery_after_a_lost_source_counts_once() -> None:
    destination = FakeDestination()

    async def story(bridge: Bridge, source: FakeSource) -> None:
        bridge.take(0, items(1))
        bridge.take(0, items(2, 3))
        bridge.answered(0, destination.sends[0].batch, [TAKEN])
        bridge.source_lost()
        bridge.answered(0, destination.sends[1].batch, [Answer(AnswerKind.AGAIN)])
        bridge.take(0, items(2, 3))
        await trio.sleep(1)
        bridge.answered(0, destination.sends[2].batch, [TAKEN])
        await bridge.ended.wait()

    bridge, source = run_bridge(destination, story, count_max=2)
    assert (source.settled, bridge.account.delivered) == ([1, 2], 2)


def test_time_in_which_the_process_does_not_run_is_not_idle() -> None:
    clock = trio.testing.MockClock()

    async def run() -> None:
        bridge = Bridge(FakeSource(), FakeDestination(), FlowOptions(), lambda text: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run, 2.0, 1.0)
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(5.0)
            await trio.testing.wait_all_tasks_blocked()
            assert not bridge.stopped.is_set()
            clock.autojump_threshold = 0
            await bridge.ended.wait()

    trio.run(run, clock=clock)


def test_answers_within_a_send_follow_in_their_turn() -> None:
    destination = Refusing(AnswerKind.TAKEN)

    async def story(bridge: Bridge, source: FakeSource) -> None:
        for number in range(5000):
            bridge.take(0, items(number))
        bridge.stop()

    _, source = run_bridge(destination, story)
    assert source.settled == list(range(5000))


def test_a_refusal_ends_the_bridge() -> None:
    async def story(bridge: Bridge, source: FakeSource) -> None:
        bridge.take(0, items(1))
        await bridge.ended.wait()

    bridge, source = run_bridge(Refusing(AnswerKind.REFUSED), story)
    assert bridge.flow.ended_by == "a message cannot be carried: no"
    assert (source.settled, bridge.account.refused) == ([], {"no": 1})


def test_pauses_are_over_in_time() -> None:
    destination = FakeDestination()

    async def story(bridge: Bridge, source: FakeSource) -> None:
        bridge.take(0, items(1))
        bridge.answered(0, destination.sends[0].batch, [Answer(AnswerKind.AGAIN)])
        while len(destination.sends) < 2:
            await bridge.await_change()
        bridge.answered(0, destination.sends[1].batch, [TAKEN])
        bridge.stop()

    _, source = run_bridge(destination, story)
    assert source.settled == [1]


class Unreachable(FakeDestination):
    """A destination that cannot be reached for some attempts."""

    def __init__(self, told: list[str], wait_s: float | None, attempts: int, *, is_final: bool = False) -> None:
        super().__init__()
        self._told = told
        self._wait_s = wait_s
        self._attempts = attempts
        self._is_final = is_final

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        trying = TryAgain("there", self._told.append, self._wait_s)
        for _ in range(self._attempts):
            await trying.failed("nobody listens", is_final=self._is_final)
        trying.connected(task_status)
        bridge.destination_up()
        await trio.sleep_forever()


def run_unreachable(destination: Unreachable, *, stop_after_s: float) -> float:
    """Run a bridge to it; the time that it took, by a clock that runs ahead."""

    async def run() -> float:
        bridge = Bridge(FakeSource(), destination, FlowOptions(), lambda text: None)
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await trio.sleep(stop_after_s)
                bridge.stop()

            nursery.start_soon(stop)
            began = trio.current_time()
            fault: CannotBegin | None = None
            try:
                await bridge.run(None, 1.0)
            except CannotBegin as raised:
                fault = raised
            nursery.cancel_scope.cancel()
        if fault is not None:
            raise fault
        return trio.current_time() - began

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    ("wait_s", "is_final", "lines"), [(0.0, False, 0), (None, True, 0), (60.0, True, 0), (60.0, False, 1)]
)
def test_a_bridge_without_its_first_connection_does_not_begin(wait_s: float | None, is_final: bool, lines: int) -> None:
    told: list[str] = []
    destination = Unreachable(told, wait_s, 1000, is_final=is_final)
    with pytest.raises(CannotBegin, match=r"^there: nobody listens$"):
        run_unreachable(destination, stop_after_s=100)
    assert told == ["there: nobody listens; it is awaited"] * lines


def test_an_end_that_is_away_is_awaited() -> None:
    told: list[str] = []
    took_s = run_unreachable(Unreachable(told, None, 10), stop_after_s=100)
    assert took_s == pytest.approx(100)
    assert told == ["there: nobody listens; it is awaited", "there: connected"]


def test_a_bridge_can_be_stopped_while_it_waits() -> None:
    assert run_unreachable(Unreachable([], None, 1000), stop_after_s=7) == pytest.approx(7)


def test_a_later_failure_is_told_once_and_tried_again_with_growing_pauses() -> None:
    told: list[str] = []
    pauses: list[float] = []

    async def run() -> None:
        trying = TryAgain("there", told.append)
        trying.connected(trio.TASK_STATUS_IGNORED)
        for _ in range(7):
            began = trio.current_time()
            await trying.failed("lost")
            pauses.append(round(trio.current_time() - began, 3))
        trying.connected(trio.TASK_STATUS_IGNORED)
        await trying.failed("lost")

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert pauses[0] == BACKOFF_MIN_S
    assert told == ["there: lost", "there: connected again", "there: lost"]
