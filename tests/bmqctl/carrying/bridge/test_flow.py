"""The flow of one bridge, driven by hand and by random schedules."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence

import pytest

from bmqctl.carrying.bridge.flow import (
    AGAIN,
    PAUSE_MIN_S,
    TAKEN,
    Action,
    Answer,
    AnswerKind,
    CarriedMessage,
    Flow,
    FlowOptions,
    Send,
    Settle,
)
from bmqctl.carrying.bridge.lifecycle import LANE_TABLE, ImpossibleForBridge, Lane, LaneInput, step

REFUSED = Answer(AnswerKind.REFUSED, "no")


def items(*numbers: int, unfit: str = "") -> list[CarriedMessage]:
    return [CarriedMessage(number, number, 10, unfit) for number in numbers]


def sent(actions: Sequence[Action]) -> list[list[int]]:
    return [[item.token for item in action.items] for action in actions if isinstance(action, Send)]


def settled(actions: Sequence[Action]) -> list[int]:
    return [item.token for action in actions if isinstance(action, Settle) for item in action.items]


def batch_of(actions: Sequence[Action]) -> int:
    (found,) = (action.batch for action in actions if isinstance(action, Send))
    return found


def up(lanes: int = 1, **options: int) -> Flow:
    flow = Flow(FlowOptions(**options), lanes)  # type: ignore[arg-type]
    assert flow.destination_up() == []
    return flow


def test_one_batch_at_a_time_and_the_rest_together() -> None:
    flow = up()
    first = flow.take(0, items(1))
    assert sent(first) == [[1]]
    assert flow.take(0, items(2)) == flow.take(0, items(3)) == []
    then = flow.answered(0, batch_of(first), [TAKEN], 0.0)
    assert (settled(then), sent(then)) == ([1], [[2, 3]])
    assert (flow.account.taken, flow.account.delivered, flow.account.in_flight, flow.held) == (3, 1, 2, 2)


def test_bounds_of_a_batch() -> None:
    flow = Flow(FlowOptions(batch_messages=3, batch_bytes=25), 1)
    flow.take(0, [CarriedMessage(1, 1, 100), *items(2, 3, 4)])
    actions = flow.destination_up()
    assert sent(actions) == [[1]]
    actions = flow.answered(0, batch_of(actions), [TAKEN], 0.0)
    assert sent(actions) == [[2, 3]]
    assert flow.room(0) == 4096 - 3


def test_a_message_that_is_alone_is_a_batch() -> None:
    flow = Flow(FlowOptions(), 1)
    waiting = items(1, 2, 3, 4, 5)
    waiting[2].is_alone = True
    flow.take(0, waiting)
    actions = flow.destination_up()
    for batch in ([1, 2], [3], [4, 5]):
        assert sent(actions) == [batch]
        actions = flow.answered(0, batch_of(actions), [TAKEN] * len(batch), 0.0)
        assert settled(actions) == batch


def test_bounds_of_a_lane() -> None:
    flow = Flow(FlowOptions(window=5, window_bytes=35), 2)
    assert (flow.room(0), flow.room(1)) == (5, 5)
    flow.take(0, items(1, 2, 3))
    assert (flow.room(0), flow.room(1)) == (2, 5)
    flow.take(0, items(4))
    assert (flow.room(0), flow.room(1)) == (0, 5)
    actions = flow.destination_up()
    assert flow.room(0) == 0
    flow.answered(0, batch_of(actions), [TAKEN, TAKEN, AGAIN, AGAIN], 0.0)
    assert flow.room(0) == 3
    flow.source_lost()
    assert flow.room(0) == 5


def test_nothing_is_sent_while_the_destination_is_away() -> None:
    flow = Flow(FlowOptions(), 1)
    assert flow.take(0, items(1)) == []
    actions = flow.destination_up()
    assert sent(actions) == [[1]]
    assert flow.destination_down(5.0) == []
    assert flow.due_s == 5.0 + PAUSE_MIN_S
    assert flow.tick(6.0) == []
    assert sent(flow.destination_up()) == [[1]]
    assert flow.account.repeated == 1


def test_answers_to_an_earlier_batch_are_passed_over() -> None:
    flow = up()
    first = flow.take(0, items(1))
    flow.destination_down(0.0)
    flow.tick(1.0)
    again = flow.destination_up()
    assert flow.answered(0, batch_of(first), [TAKEN], 1.0) == []
    assert settled(flow.answered(0, batch_of(again), [TAKEN], 1.0)) == [1]


def test_messages_taken_after_a_refusal_are_sent_once_more() -> None:
    flow = Flow(FlowOptions(), 1)
    flow.take(0, items(1, 2, 3))
    actions = flow.destination_up()
    actions = flow.answered(0, batch_of(actions), [TAKEN, AGAIN, TAKEN], 0.0)
    assert (settled(actions), sent(actions)) == ([1], [])
    (again,) = flow.tick(PAUSE_MIN_S)
    assert isinstance(again, Send)
    assert [(item.token, item.renewals) for item in again.items] == [(2, 0), (3, 1)]


def test_pauses_become_longer_until_something_is_taken() -> None:
    flow = up()
    actions = flow.take(0, items(1, 2))
    pauses = []
    for _ in range(8):
        flow.answered(0, batch_of(actions), [AGAIN, AGAIN], 0.0)
        assert flow.due_s is not None
        pauses.append(flow.due_s)
        actions = flow.tick(flow.due_s)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    flow.answered(0, batch_of(actions), [TAKEN, AGAIN], 0.0)
    assert flow.due_s == PAUSE_MIN_S


def test_a_batch_that_is_refused_as_a_whole_goes_one_by_one() -> None:
    flow = up(skip_refused=True)
    flow.take(0, items(0))
    flow.take(0, items(1, 2, 3, 4))
    actions = flow.answered(0, 1, [TAKEN], 0.0)
    assert sent(actions) == [[1, 2, 3, 4]]
    flow.take(0, items(5, 6))
    actions = flow.answered(0, batch_of(actions), [AGAIN] * 4, 0.0, one_by_one=True)
    for number, word in ((1, TAKEN), (2, REFUSED), (3, TAKEN), (4, TAKEN)):
        assert sent(actions) == [[number]]
        actions = flow.answered(0, batch_of(actions), [word], 0.0)
        assert settled(actions) == [number]
        (settle,) = (action for action in actions if isinstance(action, Settle))
        assert settle.items[0].unfit == ("no" if word is REFUSED else "")
    assert sent(actions) == [[5, 6]]
    assert flow.account.refused == {"no": 1}


@pytest.mark.parametrize("skip", [False, True])
def test_a_message_that_cannot_be_carried(skip: bool) -> None:
    flow = up(skip_refused=skip)
    first = flow.take(0, items(1))
    flow.take(0, [*items(2, unfit="too odd"), *items(3)])
    actions = flow.answered(0, batch_of(first), [TAKEN], 0.0)
    account = flow.account
    assert account.refused == {"too odd": 1}
    if skip:
        assert (settled(actions), sent(actions), flow.is_ended) == ([1, 2], [[3]], False)
    else:
        assert (settled(actions), sent(actions), flow.is_ended) == ([1], [], True)
        assert flow.ended_by == "a message cannot be carried: too odd"
        assert (account.taken, account.delivered, account.returned, account.in_flight) == (3, 1, 1, 0)


def test_reasons_that_are_counted_one_by_one_are_bounded() -> None:
    flow = up(skip_refused=True)
    for number in range(1000):
        flow.take(0, items(number, unfit=f"property {number}"))
    refused = flow.account.refused
    assert (refused.total(), refused["property 3"], refused["other reasons"], len(refused)) == (1000, 1, 900, 101)


def test_a_refusal_ends_the_bridge_and_leaves_the_rest_with_the_source() -> None:
    flow = Flow(FlowOptions(), 2)
    flow.take(0, items(1, 2, 3))
    flow.take(1, items(7))
    actions = flow.destination_up()
    flow.take(0, items(4))
    actions = flow.answered(0, 1, [TAKEN, REFUSED, TAKEN], 0.0)
    assert (settled(actions), sent(actions), flow.is_ended) == ([1], [], False)
    assert settled(flow.answered(1, 2, [TAKEN], 0.0)) == [7]
    assert flow.is_ended
    assert flow.account.as_json() == {
        "taken": 5,
        "delivered": 3,
        "refused": 1,
        "returned": 1,
        "in_flight": 0,
        "repeated": 0,
        "bytes": 30,
        "refused_by_reason": {"no": 1},
    }


def test_a_lost_source_delivers_again() -> None:
    flow = up()
    first = flow.take(0, items(1, 2))
    flow.take(0, items(3))
    flow.source_lost()
    assert (flow.account.returned, flow.held) == (1, 2)
    flow.take(0, items(1, 2, 3))
    actions = flow.answered(0, batch_of(first), [TAKEN, AGAIN], 0.0)
    # The source has forgotten that it delivered these, and knows nothing that could be settled.
    assert (settled(actions), sent(actions)) == ([], [])
    assert sent(flow.tick(1.0)) == [[1, 2, 3]]
    assert (flow.account.taken, flow.account.delivered, flow.account.returned) == (6, 1, 2)


def test_a_lane_that_is_released_settles_what_is_sent_and_returns_the_rest() -> None:
    flow = up(lanes=2)
    other = flow.take(1, items(7))
    first = flow.take(0, items(1))
    flow.take(0, items(2, 3))
    assert not flow.is_free(0)
    flow.release(0)
    assert (flow.account.returned, flow.held, flow.is_free(0)) == (2, 2, False)
    assert settled(flow.answered(0, batch_of(first), [TAKEN], 0.0)) == [1]
    assert flow.is_free(0)
    assert settled(flow.answered(1, batch_of(other), [TAKEN], 0.0)) == [7]
    # It may be the bridge's again.
    assert sent(flow.take(0, items(2))) == [[2]]


def test_a_lane_that_is_released_while_it_pauses_is_free() -> None:
    flow = up()
    flow.answered(0, batch_of(flow.take(0, items(1, 2))), [AGAIN, AGAIN], 0.0)
    flow.release(0)
    assert (flow.is_free(0), flow.account.returned, flow.due_s) == (True, 2, None)


def test_lanes_may_be_added() -> None:
    flow = up(lanes=0)
    lane = flow.add_lane()
    assert sent(flow.take(lane, items(1))) == [[1]]
    flow.stop()
    assert (flow.add_lane(), flow.is_ended) == (1, False)
    flow.give_up()
    assert flow.is_ended


def test_stopping_waits_for_what_is_sent_and_settles_it() -> None:
    flow = up(lanes=2)
    first = flow.take(0, items(1))
    flow.take(0, items(2))
    flow.stop()
    assert flow.take(1, items(3)) == []
    assert not flow.is_ended
    actions = flow.answered(0, batch_of(first), [TAKEN], 0.0)
    assert (settled(actions), sent(actions), flow.is_ended) == ([1], [], True)
    assert (flow.account.returned, flow.account.in_flight) == (2, 0)
    flow.stop()


def test_giving_up_waits_for_nothing() -> None:
    flow = up()
    first = flow.take(0, items(1))
    flow.give_up()
    assert flow.is_ended
    assert flow.answered(0, batch_of(first), [TAKEN], 0.0) == []
    assert (flow.account.returned, flow.account.in_flight) == (1, 0)


def test_the_table_has_no_way_back_from_the_end() -> None:
    for (state, happened), after in LANE_TABLE.items():
        assert state is not Lane.ENDED or after is Lane.ENDED
        assert happened is not LaneInput.SENT or state is Lane.READY
    assert {state for state, _ in LANE_TABLE} == set(Lane)
    with pytest.raises(ImpossibleForBridge, match="lane EMPTY on SENT"):
        step(Lane.EMPTY, LaneInput.SENT)


class World:
    """A source that delivers again what was not settled, and a destination that refuses, loses and forgets to answer.

    `there` is what the destination has in each lane, in the order of arrival.
    """

    def __init__(self, seed: int, flow: Flow, lanes: int, is_whole: bool) -> None:
        self.random = random.Random(seed)
        self.flow = flow
        self.is_whole = is_whole  # the destination takes a batch or leaves it
        self.now_s = 0.0
        self.there: list[list[int]] = [[] for _ in range(lanes)]
        self.kept: list[deque[int]] = [deque(range(40)) for _ in range(lanes)]  # by the source
        self.given = [0] * lanes  # messages of `kept` that are delivered and not settled
        self.odd = {(self.random.randrange(lanes), self.random.randrange(40)) for _ in range(3)}
        self.refused: set[tuple[int, int]] = set()
        self.open: list[Send] = []

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.random.choice([self.deliver, self.answer, self.answer, self.pass_time, self.trouble])()
            self.check()

    def calm_down(self) -> None:
        """Let all that is left be carried."""
        self.do(self.flow.destination_up())
        while any(self.kept) or self.flow.held:
            self.deliver()
            self.pass_time()
            while self.open:
                self.answer(trouble=False)
            self.check()

    def check(self) -> None:
        account = self.flow.account
        assert account.in_flight == self.flow.held
        for lane, line in enumerate(self.flow._lines):
            assert self.flow.room(lane) >= 0
            assert line.size == sum(item.size for item in (*line.waiting, *line.sent))

    def do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                assert all(send.lane != action.lane for send in self.open), "two batches of a lane"
                self.open.append(action)
                continue
            for item in action.items:
                number = self.kept[action.lane].popleft()
                assert number == item.token, "settled out of turn"
                self.given[action.lane] -= 1
                is_there = number in self.there[action.lane]
                assert is_there or (action.lane, number) in self.odd, "settled before it was there"

    def deliver(self) -> None:
        lane = self.random.randrange(len(self.kept))
        begin = self.given[lane]
        kept = list(self.kept[lane])[begin : begin + min(self.random.randrange(6), self.flow.room(lane))]
        self.given[lane] += len(kept)
        self.do(self.flow.take(lane, [CarriedMessage(n, n, 1, "odd" if (lane, n) in self.odd else "") for n in kept]))

    def answer(self, trouble: bool = True) -> None:
        if not self.open:
            return
        send = self.open.pop(self.random.randrange(len(self.open)))
        words = [TAKEN] * len(send.items)
        if trouble and self.random.random() < 0.4:
            words = [self.random.choice([TAKEN, AGAIN]) for _ in send.items]
            if self.is_whole:
                words = [words[0]] * len(words)
        # A message to send again may be there already: the answer was lost.
        is_lost = self.is_whole and self.random.random() < 0.3
        for item, word in zip(send.items, words, strict=True):
            if word is TAKEN or is_lost:
                self.there[send.lane].append(item.token)
        self.do(self.flow.answered(send.lane, send.batch, words, self.now_s))

    def pass_time(self) -> None:
        self.now_s += self.random.choice([0.05, 1.0, 10.0])
        self.do(self.flow.tick(self.now_s))

    def trouble(self) -> None:
        if self.random.random() < 0.5:
            for send in self.open:
                # The batch, or the beginning of it, may have arrived.
                count = self.random.choice([0, len(send.items)]) if self.is_whole else len(send.items) // 2
                self.there[send.lane] += [item.token for item in send.items[:count]]
            self.open.clear()
            self.do(self.flow.destination_down(self.now_s))
        elif self.random.random() < 0.3:
            self.flow.source_lost()
            self.given = [0] * len(self.given)
        else:
            self.do(self.flow.destination_up())

    def judge(self) -> None:
        """Check that nothing is lost, and that the order is kept."""
        for lane, there in enumerate(self.there):
            wanted = [n for n in range(40) if (lane, n) not in self.odd]
            assert sorted(set(there)) == wanted, "lost"
            last = sorted(wanted, key=lambda n: len(there) - there[::-1].index(n))
            assert last == wanted, "a message's last copy is behind one that came after it"
            if self.is_whole:
                assert list(dict.fromkeys(there)) == wanted, "a message's first copy is behind one that came after it"
        account = self.flow.account
        assert account.in_flight == 0
        assert account.taken == account.delivered + account.returned + account.refused["odd"]
        assert account.refused["odd"] >= len(self.odd)


def world(seed: int, kind: type[Flow] = Flow) -> World:
    chooser = random.Random(f"options {seed}")
    lanes = chooser.randint(1, 3)
    options = FlowOptions(
        chooser.randint(2, 30),
        chooser.randint(2, 60),
        chooser.randint(1, 8),
        chooser.randint(1, 10),
        skip_refused=True,
    )
    return World(seed, kind(options, lanes), lanes, chooser.random() < 0.5)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_random_schedules_lose_nothing_and_keep_the_order(first: int) -> None:
    for seed in range(first, first + 50):
        made = world(seed)
        made.run(150)
        made.calm_down()
        made.judge()


class _Hasty(Flow):
    """A flow with a fault: messages to send again go after the waiting ones."""

    def _put_back(self, line: object, items: Sequence[CarriedMessage], answers: Sequence[Answer]) -> None:
        line.waiting.extend(items)  # type: ignore[attr-defined]


class _Careless(Flow):
    """A flow with a fault: what is not answered when the destination is lost counts as taken."""

    def destination_down(self, now_s: float, known: Mapping[int, Sequence[Answer]] | None = None) -> list[Action]:
        self.is_up = False
        return [
            action
            for lane, line in enumerate(self._lines)
            for action in self.answered(lane, line.batch, [TAKEN] * len(line.sent), now_s)
        ]


class _Forgetful(Flow):
    """A flow with a fault: what a source takes back is kept, and counted once."""

    def source_lost(self) -> None:
        for line in self._lines:
            line.waiting.clear()


@pytest.mark.parametrize("kind", [_Hasty, _Careless, _Forgetful])
def test_planted_faults_are_seen(kind: type[Flow]) -> None:
    seen = 0
    for seed in range(50):
        made = world(seed, kind)
        try:
            made.run(150)
            made.calm_down()
            made.judge()
        except (AssertionError, IndexError, ImpossibleForBridge):
            seen += 1
    assert seen >= 10
