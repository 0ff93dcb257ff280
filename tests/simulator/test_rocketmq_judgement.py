"""The judges of RocketMQ's worlds: what is owed to a group that pops, and what nobody can know."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import cast

import pytest

from broker.rocketmq.node import Node
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.files.record import Magic, Record, body_crc, encode_record
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, encode_frame
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.calls import Calls
from tests.simulator.rocketmq.ordered import OrderedGroup
from tests.simulator.rocketmq.owed import what_is_owed
from tests.simulator.rocketmq.poppers import PopGroup
from tests.simulator.rocketmq.pops import Done, Outcome, Popped, Pops
from tests.simulator.rocketmq.producers import Link, Producer
from tests.simulator.rocketmq.promises import Promises, Sent
from tests.simulator.rocketmq.stores import Kept
from tests.simulator.rocketmq.wire import Connection

BODY = b"m0 and more"
HOST = Host("127.0.0.1", 10911).pack()
RECORD = encode_record(
    Record(Magic.V1, body_crc(BODY), 0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, memoryview(BODY), "t0", b"")
)
FIELDS = {"invisibleTime": "5000", "reviveQid": "0", "restNum": "0", "startOffsetInfo": "0 0 0"}


class _Broker:
    """A session with the given answers."""

    def __init__(self) -> None:
        self.said = bytearray()
        self.answers = 0

    def take_output(self) -> bytearray:
        said, self.said = self.said, bytearray()
        return said

    def answer(
        self, fields: dict[str, str] | None = None, body: bytes = b"", code: ResponseCode = ResponseCode.SUCCESS
    ) -> None:
        """Answer the next request."""
        self.answers += 1
        self.said += encode_frame(Frame(code, self.answers, FrameFlag.RESPONSE, ext_fields=fields or {}, body=body))


class _World:
    """The surroundings of one group, and a broker that has one message for it."""

    def __init__(self) -> None:
        self.random = Random(0)
        self.promises = Promises({"m0": Sent("m0", "t0", "A", 0)})
        self.topics = {"t0": 1}
        self.full_ms = -1
        self.wall_ms = 0
        self.group = PopGroup(self, "g2", "t0")
        self.group.is_careful = True
        self.group.connect()

    def note(self, text: str) -> None:
        """Tell nothing."""

    def was_full_since(self, ms: int) -> bool:
        return self.full_ms >= ms

    def connect(self, name: str, asked: Callable[[Frame], None], encoding: HeaderEncoding | None = None) -> Connection:
        self.broker = _Broker()
        return Connection(cast("Node", None), cast("Session", self.broker), HeaderEncoding.JSON, asked)

    def connect_grpc(self, name: str) -> Calls:
        raise NotImplementedError

    def connect_nameserver(self, name: str) -> Connection:
        raise NotImplementedError

    def disconnect(self, link: Link) -> None:
        raise NotImplementedError

    def pop(self) -> None:
        """Have the group pop the message."""
        self.wall_ms += 1_000
        self.group.act()
        self.broker.answer({**FIELDS, "popTime": str(self.wall_ms)}, RECORD)
        self.group.connection.read()

    def die(self) -> None:
        """Have the broker die, and start again."""
        self.group.connection.lost()
        self.group.connect()

    @property
    def owed(self) -> list[str]:
        return list(what_is_owed([Kept("t0", "m0", 0, 0)], self.promises, [], [self.group]))


OWED = ["g2 could never acknowledge m0 of t0"]


@pytest.fixture
def world() -> _World:
    return _World()


def test_message_is_owed_until_it_is_acknowledged(world: _World) -> None:
    world.pop()
    assert world.owed == OWED
    world.group.act()
    assert world.owed == OWED
    world.broker.answer()
    world.group.connection.read()
    assert world.owed == []


def test_message_that_nobody_has_acknowledged_is_owed_after_a_death(world: _World) -> None:
    world.pop()
    world.die()
    assert world.owed == OWED


def test_acknowledgement_that_the_broker_has_died_of_may_count_unless_the_message_comes_again(world: _World) -> None:
    """An acknowledgement that is in the log keeps the message from coming again."""
    world.pop()
    world.group.act()
    world.die()
    assert world.owed == []
    world.pop()
    assert world.owed == OWED


def test_acknowledgement_of_an_earlier_pop_does_not_count_for_the_last_one(world: _World) -> None:
    world.pop()
    world.wall_ms += 5_000
    world.group.is_careful = False
    world.group._pop()
    world.broker.answer({**FIELDS, "popTime": str(world.wall_ms)}, RECORD)
    world.group.connection.read()
    world.group.is_careful = True
    world.group.act()
    world.die()
    assert world.owed == OWED


def test_message_is_refused_only_where_the_disk_has_been_full_since_it_was_sent(world: _World) -> None:
    producer = Producer(world, "p0")
    producer.connect()
    world.broker.answer()
    for full_ms in (1_000, 999):
        world.wall_ms, world.full_ms = 1_000, full_ms
        producer.send_delayed()
        world.broker.answer(code=ResponseCode.SERVICE_NOT_AVAILABLE)
        if full_ms == world.wall_ms:
            producer.connection.read()
        else:
            with pytest.raises(Violation, match="is answered with"):
                producer.connection.read()


def test_message_sent_after_the_disk_was_full_comes_once(world: _World) -> None:
    sent = world.promises.messages["m0"]
    sent.sent_ms = 1
    world.pop()
    world.group.act()
    world.broker.answer()
    world.group.connection.read()
    world.full_ms = sent.sent_ms
    world.pop()
    world.group.act()
    world.broker.answer()
    world.group.connection.read()
    world.full_ms = sent.sent_ms - 1
    with pytest.raises(Violation, match="has acknowledged m0, and pops it again"):
        world.pop()


def test_dead_letters_are_judged_by_what_was_given_back() -> None:
    """A dead letter is there as often as it was taken, and at most as often as the broker was asked to take it."""
    promises, place = Promises(counted={"%DLQ%g0", "%RETRY%g0"}), ("%DLQ%g0", "m0", 3)
    with pytest.raises(Violation, match="1 times after 3 attempts, for 0"):
        promises.judge_returns([place])
    returned = promises.returning(place)
    promises.judge_returns([])
    promises.judge_returns([place])
    returned.taken += 1
    with pytest.raises(Violation, match="0 times after 3 attempts"):
        promises.judge_returns([])
    promises.died()
    with pytest.raises(Violation, match="2 times after 3 attempts, for 1"):
        promises.judge_returns([place, place])


def test_retried_message_may_come_twice_after_a_death_and_its_attempts_are_counted() -> None:
    promises, place = Promises(counted={"%RETRY%g0"}), ("%RETRY%g0", "m0", 1)
    promises.returning(place)
    with pytest.raises(Violation, match="2 times after 1 attempts, for 1"):
        promises.judge_returns([place, place])
    promises.died()
    promises.judge_returns([place, place])
    with pytest.raises(Violation, match="1 times after 2 attempts, for 0"):
        promises.judge_returns([("%RETRY%g0", "m0", 2)])


class _Luck(Random):
    """Always the same luck."""

    def __init__(self, luck: float) -> None:
        super().__init__(0)
        self._luck = luck

    def random(self) -> float:
        return self._luck


class _Pops:
    """Requests about handles, of which the last waits for its answer."""

    def acknowledge(self, handle: str, done: Done) -> None:
        self.done = done

    def hide(self, handle: str, ms: int, done: Done) -> None:
        self.done = done


@pytest.mark.parametrize("luck", [0.0, 0.7])
def test_answer_about_a_handle_of_an_earlier_ordered_pop_changes_nothing(world: _World, luck: float) -> None:
    """An answer with the next pop, which brings the message again: that is neither acknowledged nor hidden longer."""
    group, pops = OrderedGroup(world, "g4", "t0", Random(0), is_grpc=False), _Pops()
    group.connect()
    group.pops = cast("Pops", pops)
    world.random = _Luck(luck)
    old = "0 0 9000 999 0 broker-s 0 0"
    for attempts, popped_ms in enumerate((0, 2_000, 4_000)):
        handle = f"0 {popped_ms} 1000 999 0 broker-s 0 0"
        world.wall_ms = popped_ms
        group._popped([Popped("m0", handle, 0, 0, 0, attempts)])
        if popped_ms == 2_000:
            pops.done(Outcome(is_done=True, handle=old))
        elif not popped_ms:
            group.act()
    assert group.low == 0


def test_ordered_pops_of_one_message_are_counted(world: _World) -> None:
    group = OrderedGroup(world, "g4", "t0", Random(0), is_grpc=False)
    group.connect()
    pops = [[Popped(f"m{n}", f"0 0 1000 999 0 broker-s 0 {n}", 0, n, 0, attempts)] for n, attempts in ((0, 0), (0, 1))]
    for found in pops:
        group.check_counts(found)
    with pytest.raises(Violation, match="counted 1 times"):
        group.check_counts(pops[1])
    group.broker_died()
    group.check_counts(pops[1])


def test_broker_asks_for_no_outcome_that_it_has_noted() -> None:
    """A process that has ended may not have noted the last commits that it had answered."""
    promises = Promises()
    sent = Sent("m0", "t0", "A", 0, is_half=True, is_told=True, ended_ms=1_000)
    promises.messages["m0"] = sent
    promises.died(1_000)
    with pytest.raises(Violation, match="was answered, and the broker asks"):
        promises.asked(sent)
    promises.died(999)
    promises.asked(sent)
