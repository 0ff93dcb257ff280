"""The judges of what changes in worlds of RocketMQ, and of groups in order: each contradiction is noticed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.changes import Changing, Form
from tests.simulator.rocketmq.ordered import OrderedGroup
from tests.simulator.rocketmq.pops import Outcome, Popped
from tests.simulator.rocketmq.producers import Surroundings
from tests.simulator.rocketmq.promises import Promises

Answered = Callable[[Any], None]


class Link:
    """A connection that keeps what is asked over it."""

    def __init__(self) -> None:
        self.asked: list[tuple[RequestCode, dict[str, Any], Answered]] = []
        self.waiting = 0
        self.user: tuple[str, str] | None = None

    def ask(self, code: RequestCode, fields: dict[str, Any], answered: Answered, body: bytes = b"") -> None:
        self.asked.append((code, fields, answered))

    def answer(self, code: ResponseCode, **fields: str) -> None:
        """Answer the oldest request."""
        self.asked.pop(0)[2](Frame(code, 0, ext_fields=fields))


def surroundings() -> Surroundings:
    world = SimpleNamespace(
        random=Random(1),
        wall_ms=1_000_000,
        was_full_since=lambda ms: False,
        promises=Promises(),
        connect=lambda *_: Link(),
    )
    return cast(Surroundings, world)


def changing(*, is_guarded: bool) -> tuple[Changing, Link, Link, Link]:
    """A client that changes things, and its connections, over which nothing is asked yet."""
    made = Changing(surroundings(), Random(1), Form(), is_guarded=is_guarded, has_grpc=False)
    made.connect()
    links = tuple(cast(Link, each) for each in (made.admin, made.producer, made.consumer))
    links[2].asked.clear()
    return made, links[0], links[1], links[2]


def change(made: Changing, **changes: Any) -> None:
    made._ask(made.history.last._replace(**changes), RequestCode.UPDATE_AND_CREATE_TOPIC, {})


def test_message_meets_the_form_before_a_change_or_after_it() -> None:
    made, admin, producer, _ = changing(is_guarded=False)
    made._send("A")
    change(made, perm=4)
    made._send("A")
    producer.answer(ResponseCode.NO_PERMISSION)
    producer.answer(ResponseCode.NO_PERMISSION)
    made._send("A")
    admin.answer(ResponseCode.SUCCESS)
    producer.answer(ResponseCode.NO_PERMISSION)


def test_message_that_is_taken_after_the_answer_to_a_change_is_noticed() -> None:
    made, admin, producer, _ = changing(is_guarded=False)
    change(made, perm=4)
    admin.answer(ResponseCode.SUCCESS)
    made._send("A")
    with pytest.raises(Violation, match="is answered with 0"):
        producer.answer(ResponseCode.SUCCESS, queueOffset="0")


def test_deletion_that_was_not_answered_may_have_emptied_the_queues() -> None:
    """World 2001536: power failed when the queues were removed, and the topic was still there."""
    made, _, producer, _ = changing(is_guarded=False)
    made._places = {(0, queue_id, 0): "c.0" for queue_id in range(4)}
    change(made, exists=False, offsets=1)
    made._send("A")
    producer.answer(ResponseCode.SUCCESS, queueOffset="0")
    assert not made._acked


def test_offset_that_another_message_has_is_noticed() -> None:
    made, _, producer, _ = changing(is_guarded=False)
    made._places = {(0, queue_id, 0): "c.0" for queue_id in range(4)}
    made._send("A")
    with pytest.raises(Violation, match=r"has c\.1, and had c\.0"):
        producer.answer(ResponseCode.SUCCESS, queueOffset="0")


def test_right_that_is_taken_away_ends_at_once() -> None:
    made, admin, producer, _ = changing(is_guarded=True)
    change(made, rights=("Sub",))
    admin.answer(ResponseCode.SUCCESS)
    made._send("A")
    with pytest.raises(Violation, match="is answered with 0"):
        producer.answer(ResponseCode.SUCCESS, queueOffset="0")


def test_request_that_the_user_had_a_right_to_is_not_refused() -> None:
    made, _, producer, consumer = changing(is_guarded=True)
    made._send("A")
    with pytest.raises(Violation, match=f"is answered with {ResponseCode.NO_PERMISSION:d}"):
        producer.answer(ResponseCode.NO_PERMISSION)
    made._consume()
    with pytest.raises(Violation, match="asks for its offset"):
        consumer.answer(ResponseCode.NO_PERMISSION)


def test_offset_of_a_topic_that_was_deleted_is_noticed() -> None:
    made, admin, _, consumer = changing(is_guarded=False)
    change(made, exists=False, offsets=1)
    admin.answer(ResponseCode.SUCCESS)
    made._consume()
    with pytest.raises(Violation, match="has offset 3"):
        consumer.answer(ResponseCode.SUCCESS, offset="3")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ResponseCode.SUCCESS),
        ({"exists": False}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queues": 1}, ResponseCode.INVALID_PARAMETER),
        ({"perm": 4}, ResponseCode.NO_PERMISSION),
        ({"rights": ("Sub",)}, ResponseCode.NO_PERMISSION),
        ({"rights": (), "is_super": True}, ResponseCode.SUCCESS),
        ({"enabled": False, "is_super": True}, ResponseCode.NO_PERMISSION),
        ({"password": "second"}, ResponseCode.NO_PERMISSION),
    ],
)
def test_form_says_the_answer_to_a_message(changes: dict[str, Any], code: ResponseCode) -> None:
    assert Form()._replace(**changes).sent(1, "first") == code


class Pops:
    """Requests of a group in order, which a test answers."""

    def pop(self, most: int, hidden_ms: int, poll_ms: int, taken: Answered, *, init_mode: int = 0) -> None:
        self.taken = taken

    def acknowledge(self, handle: str, done: Answered) -> None:
        self.done = done

    def hide(self, handle: str, ms: int, done: Answered) -> None:
        self.done = done


def popped(*offsets: int) -> list[Popped]:
    return [
        Popped(f"m{offset}", f"{offsets[0]} 1000000 5000 999 0 b 0 {offset}", 0, offset, 1, 0) for offset in offsets
    ]


@pytest.mark.parametrize(("ms", "offsets", "says"), [(0, (0,), "is working for"), (9_000, (1,), "at most 0")])
def test_message_out_of_order_is_noticed(ms: int, offsets: tuple[int, ...], says: str) -> None:
    world = surroundings()
    group = OrderedGroup(world, "g4", "%DLQ%x", Random(0), is_grpc=False)
    group.pops = Pops()
    world.promises.messages.update({f"m{n}": cast(Any, SimpleNamespace(is_recalled=False)) for n in range(3)})
    group._popped(popped(0, 1))
    cast(Any, world).wall_ms += ms
    with pytest.raises(Violation, match=says):
        group._popped(popped(*offsets))


def test_acknowledgment_of_what_was_popped_before_counts_for_nothing() -> None:
    group = OrderedGroup(surroundings(), "g4", "%DLQ%x", Random(0), is_grpc=False)
    group.pops = Pops()
    group.world.promises.messages["m0"] = cast(Any, SimpleNamespace(is_recalled=False))
    group._popped(popped(0))
    group._done(0, 999_000, Outcome(is_done=True))
    assert group.low == 0
    assert list(group.what_is_owed(1))


def test_queue_is_free_once_all_is_acknowledged() -> None:
    world = surroundings()
    group = OrderedGroup(world, "g4", "%DLQ%x", Random(0), is_grpc=False)
    world.promises.messages.update({f"m{n}": cast(Any, SimpleNamespace(is_recalled=False)) for n in range(4)})
    group._popped(popped(0, 1))
    for offset in (1, 0):
        group._maybe.add(offset)
        group._done(offset, group._popped_ms, Outcome(is_done=True))
    group._popped(popped(2))
    assert group.low == 2
    assert list(group.what_is_owed(2)) == []
    assert list(group.what_is_owed(3))
