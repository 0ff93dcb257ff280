"""The memory of a proxy: for how long, how much, and what of it is used when it cannot be looked up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.rocketmq.grpc.statuses import CallRejected
from broker.rocketmq.proxy import cache as module
from broker.rocketmq.proxy.cache import Cache
from formats.rocketmq.grpc.codes import Code

GONE = CallRejected(Code.TOPIC_NOT_FOUND, "gone")
FAILED = CallRejected(Code.INTERNAL_SERVER_ERROR, "failed")


class Looked:
    """A cache, its clock, and what is being looked up."""

    def __init__(self, entries_max: int = 100) -> None:
        self.ms = 0
        self.loads: list[tuple[str, Callable[[str | CallRejected], None]]] = []
        self.cache: Cache[str] = Cache(lambda key, done: self.loads.append((key, done)), lambda: self.ms, entries_max)
        self.found: list[str | CallRejected] = []

    def find(self, key: str = "k") -> None:
        self.cache.find(key, self.found.append)

    def answer(self, value: str | CallRejected) -> None:
        """End the lookup that was begun first."""
        _, done = self.loads.pop(0)
        done(value)


@pytest.fixture
def looked() -> Looked:
    return Looked()


def test_unknown_value_is_looked_up_once_for_all_callers(looked: Looked) -> None:
    looked.find()
    looked.find()
    assert (len(looked.loads), looked.found) == (1, [])
    looked.answer("v")
    assert looked.found == ["v", "v"]
    looked.find()
    assert (looked.loads, looked.found) == ([], ["v"] * 3)


def test_value_that_is_not_settled_is_looked_up_again_soon() -> None:
    looked = Looked()
    looked.cache = Cache(
        lambda key, done: looked.loads.append((key, done)), lambda: looked.ms, is_settled=lambda value: value != "early"
    )
    looked.find()
    looked.answer("early")
    looked.ms = 499
    looked.find()
    assert looked.loads == []
    looked.ms = 500
    looked.find()
    looked.answer("late")
    looked.ms = 20_499
    looked.find()
    assert (looked.loads, looked.found) == ([], ["early", "early", "early", "late"])


def test_old_value_is_used_while_it_is_looked_up_again(looked: Looked) -> None:
    looked.find()
    looked.answer("old")
    looked.ms = 19_999
    looked.find()
    assert looked.loads == []
    looked.ms = 20_000
    looked.find()
    looked.find()
    assert (len(looked.loads), looked.found[-1]) == (1, "old")
    looked.answer("new")
    looked.find()
    assert looked.found[-1] == "new"


def test_value_that_cannot_be_looked_up_again_stays(looked: Looked) -> None:
    looked.find()
    looked.answer("old")
    looked.ms = 20_000
    looked.find()
    looked.answer(FAILED)
    looked.find()
    assert (looked.loads, looked.found[-1]) == ([], "old")
    looked.ms = 21_000
    looked.find()
    assert len(looked.loads) == 1


def test_value_that_is_gone_is_forgotten(looked: Looked) -> None:
    looked.find()
    looked.answer("old")
    looked.ms = 20_000
    looked.find()
    looked.answer(GONE)
    looked.find()
    assert (len(looked.loads), len(looked.found)) == (1, 2)
    looked.answer(GONE)
    assert looked.found[-1] is GONE
    assert len(looked.cache) == 0


def test_distrusted_value_is_awaited_but_better_than_none(looked: Looked) -> None:
    looked.find()
    looked.answer("old")
    looked.cache.distrust(lambda value: value == "other")
    looked.find()
    assert looked.found == ["old", "old"]
    looked.cache.distrust(lambda value: value == "old")
    looked.find()
    assert len(looked.found) == 2
    looked.answer(FAILED)
    assert looked.found[2:] == ["old"]
    looked.find()
    looked.answer("new")
    assert looked.found[3:] == ["new"]


def test_value_of_a_lost_broker_is_not_gone_at_once(looked: Looked) -> None:
    looked.find()
    looked.answer("old")
    looked.cache.distrust(lambda value: True)
    looked.ms = 19_999
    looked.find()
    looked.answer(GONE)
    assert looked.found[-1:] == ["old"]
    looked.ms = 20_000
    looked.find()
    looked.answer(GONE)
    assert looked.found[-1] is GONE


def test_unused_value_is_forgotten(looked: Looked) -> None:
    looked.find()
    looked.answer("v")
    looked.ms = 300_001
    looked.find("waits")
    looked.cache.tick()
    assert looked.cache.peek("k") is None
    assert len(looked.cache) == 1


def test_there_is_a_bound_on_what_is_remembered_and_on_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(entries_max=3)
    for number in range(10):
        looked.find(str(number))
        looked.answer("v")
    assert len(looked.cache) == 3
    monkeypatch.setattr(module, "_WAITING_MAX", 2)
    for number in range(3):
        looked.find(f"new {number}")
    last = looked.found[-1]
    assert isinstance(last, CallRejected)
    assert last.code == Code.TOO_MANY_REQUESTS
