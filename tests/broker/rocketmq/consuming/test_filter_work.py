"""Filters and waiting requests do a bounded amount of work in each step; everybody else is served in between.

Work is counted, not timed: messages that a filter looked at, and requests that were answered.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from broker.rocketmq.consuming.sql import SqlError, SqlFilter, compile_sql
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from tests.broker.rocketmq.rig import Peer, Rig
from tests.rigs.machine_speed import slowness

# As long as properties may be, and no message matches.
LONG = {"a": "x" * 30_000}
SEARCH = " AND ".join(["a NOT CONTAINS 'xxxxxxxxy'"] * 60) + " AND b IS NOT NULL"
SUSPEND = 2 | 4


class Steps:
    """A broker whose steps are taken one by one."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.looked = 0

    def send(self, peer: Peer, code: RequestCode, opaque: int, **fields: Any) -> None:
        named = {name: str(value) for name, value in fields.items()}
        data = encode_frame(Frame(code, opaque, 0, ext_fields=named, version=493))
        assert peer.session.receive(memoryview(data)) == len(data)

    def pull(self, peer: Peer, opaque: int, **changes: Any) -> None:
        fields = {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": 0,
            "queueOffset": 0,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 15_000,
            "subscription": "*",
            "subVersion": 1,
        }
        self.send(peer, RequestCode.PULL_MESSAGE, opaque, **{**fields, **changes})

    def pop(self, peer: Peer, opaque: int, **changes: Any) -> None:
        fields = {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 10_000,
            "pollTime": 5_000,
            "bornTime": self.rig.wall_ms,
            "initMode": 0,
        }
        self.send(peer, RequestCode.POP_MESSAGE, opaque, **{**fields, **changes})

    def step(self) -> bool:
        return self.rig.broker.end_step()

    def settle(self) -> int:
        """Take steps as long as there is more to do; their number."""
        steps = 1
        while self.step():
            steps += 1
        return steps


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    takes = SqlFilter.takes

    def counted(self: SqlFilter, properties: Any) -> bool:
        made.looked += 1
        return takes(self, properties)

    monkeypatch.setattr(SqlFilter, "takes", counted)
    return made


def answers(peer: Peer) -> list[Frame]:
    view, at, found = memoryview(bytes(peer.session.take_output())), 0, []
    while (next_one := next_frame(view, at, len(view))) is not None:
        frame, at = next_one
        found.append(frame)
    return found


# The messages that a step may look at with the longest properties and nearly the most searches.
LOOKED_MAX = 4
# The waiting requests that a step may look at.
PER_STEP = 600


def test_a_pull_with_an_expensive_filter_goes_on_at_the_client(steps: Steps) -> None:
    peer = steps.rig.peer()
    for _ in range(40):
        peer.send(b"m", LONG)
    offset = pulls = 0
    while offset < 40:
        before = steps.looked
        pulls += 1
        steps.pull(peer, pulls, subscription=SEARCH, expressionType="SQL92", queueOffset=offset)
        assert 1 <= steps.looked - before <= LOOKED_MAX
        (answer,) = answers(peer)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        following = int((answer.ext_fields or {})["nextBeginOffset"])
        assert following > offset
        offset = following
        steps.settle()
    assert pulls > 5


def test_many_expensive_pulls_of_one_step_take_turns(steps: Steps) -> None:
    peer, other = steps.rig.peer(), steps.rig.peer()
    for _ in range(10):
        peer.send(b"m", LONG)
    for number in range(30):
        steps.pull(peer, number, subscription=SEARCH, expressionType="SQL92")
    steps.pull(other, 1, subscription="c IS NULL", expressionType="SQL92")
    assert steps.looked <= LOOKED_MAX
    # One that asks last, but from another connection, does not wait for all of them.
    for _ in range(3):
        steps.step()
    (answer,) = answers(other)
    assert answer.code == ResponseCode.SUCCESS
    rounds = 1
    while True:
        before = steps.looked
        has_more = steps.step()
        assert steps.looked - before <= LOOKED_MAX + 1
        rounds += 1
        if not has_more:
            break
    assert rounds > 5
    assert sorted(answer.opaque for answer in answers(peer)) == list(range(30))


def test_waiting_pulls_look_at_each_message_once(steps: Steps) -> None:
    peer = steps.rig.peer()
    steps.pull(peer, 1, subscription="n = 'last'", expressionType="SQL92", sysFlag=SUSPEND)
    for number in range(50):
        peer.send(b"m", {"n": str(number)})
    assert answers(peer) == []
    peer.send(b"m", {"n": "last"})
    assert steps.looked <= 52


def test_pops_with_expensive_filters_go_on_in_later_steps(steps: Steps) -> None:
    peer, other = steps.rig.peer(), steps.rig.peer()
    for _ in range(30):
        peer.send(b"m", LONG)
    peer.send(b"last", {"a": "z", "b": "1"})
    answers(peer)
    for number in range(10):
        steps.pop(peer, number, exp=SEARCH, expType="SQL92", consumerGroup=f"g{number}")
    assert steps.looked <= LOOKED_MAX
    rounds = 0
    while True:
        before = steps.looked
        has_more = steps.step()
        assert steps.looked - before <= LOOKED_MAX + 1
        rounds += 1
        if not has_more:
            break
    assert rounds > 5
    found = answers(peer)
    assert sorted(answer.opaque for answer in found) == list(range(10))
    assert {answer.code for answer in found} == {ResponseCode.SUCCESS}
    # One whose connection is closed meanwhile takes no messages.
    for number in range(3):
        steps.pop(other, number, exp=SEARCH, expType="SQL92", consumerGroup=f"h{number}")
    other.session.end()
    looked = steps.looked
    steps.settle()
    assert steps.looked <= looked + LOOKED_MAX


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(["a=1"] * 2_000),
        " AND ".join(["a CONTAINS 'xy'"] * 65),
        f"a CONTAINS '{'x' * 2_049}'",
    ],
    ids=["long", "many searches", "long searches"],
)
def test_expressions_have_bounds(steps: Steps, text: str) -> None:
    with pytest.raises(SqlError):
        compile_sql(text)
    peer = steps.rig.peer()
    steps.pull(peer, 1, subscription=text, expressionType="SQL92")
    steps.pop(peer, 2, exp=text, expType="SQL92")
    assert {answer.code for answer in answers(peer)} == {ResponseCode.SUBSCRIPTION_PARSE_FAILED}


def test_tags_have_a_bound(steps: Steps) -> None:
    peer = steps.rig.peer()
    steps.pull(peer, 1, subscription="a||" * 20_000)
    steps.pop(peer, 2, exp="a||" * 20_000)
    assert {answer.code for answer in answers(peer)} == {ResponseCode.SUBSCRIPTION_PARSE_FAILED}


def test_text_is_found_to_be_no_number_in_linear_time() -> None:
    """An expression that goes back for each digit takes seconds."""
    wanted = compile_sql("a > 1.5")
    begin = time.thread_time()
    assert not wanted.takes({"a": "1" * 30_000 + "x"})
    assert time.thread_time() - begin < 0.5 * slowness()
    assert not wanted.takes({"a": "1" * 1_000 + "x"})
    assert wanted.takes({"a": "1" * 300})


MANY = 2_000


def test_waiting_pulls_are_woken_in_slices(steps: Steps) -> None:
    peer, other, sender = steps.rig.peer(), steps.rig.peer(), steps.rig.peer()
    sender.send(b"first")
    for number in range(MANY):
        steps.pull(peer, number, sysFlag=SUSPEND, queueOffset=1)
    assert answers(peer) == []
    fields = {"a": "p", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0}
    steps.send(sender, RequestCode.SEND_MESSAGE_V2, 1, **fields)
    found = []
    while True:
        has_more = steps.step()
        some = answers(peer)
        assert len(some) <= PER_STEP
        found += some
        # Others are served in each of these steps.
        steps.pull(other, 1)
        assert [answer.code for answer in answers(other)] == [ResponseCode.SUCCESS]
        if not has_more:
            break
    assert sorted(answer.opaque for answer in found) == list(range(MANY))


def test_pulls_that_are_over_are_answered_in_slices(steps: Steps) -> None:
    peer = steps.rig.peer()
    for number in range(MANY):
        steps.pull(peer, number, sysFlag=SUSPEND)
    steps.rig.wall_ms += 16_000
    steps.rig.broker.tick()
    found = answers(peer)
    assert found == []
    while True:
        has_more = steps.step()
        some = answers(peer)
        assert len(some) <= PER_STEP
        found += some
        if not has_more:
            break
    assert len(found) == MANY
    assert {answer.code for answer in found} == {ResponseCode.PULL_NOT_FOUND}


@pytest.mark.parametrize("kind", ["pop", "notification"])
def test_pops_and_notifications_that_are_over_are_answered_in_slices(steps: Steps, kind: str) -> None:
    peer = steps.rig.peer()
    for number in range(MANY):
        group = f"g{number // 1_000}"
        if kind == "pop":
            steps.pop(peer, number, consumerGroup=group)
        else:
            fields = {"consumerGroup": group, "topic": "t", "queueId": -1, "pollTime": 5_000}
            steps.send(peer, RequestCode.NOTIFICATION, number, bornTime=steps.rig.wall_ms, **fields)
    steps.settle()
    assert answers(peer) == []
    steps.rig.wall_ms += 5_000
    steps.rig.broker.tick()
    found = []
    while True:
        has_more = steps.step()
        some = answers(peer)
        assert len(some) <= PER_STEP
        found += some
        if not has_more:
            break
    assert len(found) == MANY


def test_a_closed_connection_is_forgotten_in_slices(steps: Steps) -> None:
    peer, other = steps.rig.peer(), steps.rig.peer()
    for number in range(MANY):
        steps.pull(peer, number, sysFlag=SUSPEND)
        steps.pop(peer, number, consumerGroup=f"g{number // 1_000}")
    steps.pull(other, 1, sysFlag=SUSPEND)
    steps.settle()
    peer.session.end()
    # Forgotten later, but it is handed nothing from now on.
    assert steps.settle() > 2 * MANY // PER_STEP - 2
    other.send(b"m")
    assert len(other.rig.messages("t")) == 1
    # The message waits for the next request.
    assert other.popped(group="g0")
