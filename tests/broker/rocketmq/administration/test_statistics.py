"""Counters for administrators."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from broker.rocketmq.tables.statistics import Counter, Morning, Statistics
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.consuming.test_held_up import check
from tests.broker.rocketmq.rig import Peer, Rig


def view(peer: Peer, name: str, key: str) -> Any:
    answer = peer.call(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return fastjson.loads(bytes(answer.body).decode())


def test_messages_of_topics_and_groups_are_counted() -> None:
    rig = Rig()
    peer = rig.peer()
    for _ in range(30):
        peer.send(b"x" * 100)
        rig.pass_time(1_000)
    assert len(peer.pulled(maxMsgNums=7)) == 7
    put = view(peer, "TOPIC_PUT_NUMS", "t")
    assert [put[span]["sum"] for span in ("statsMinute", "statsHour", "statsDay")] == [30, 30, 30]
    assert put["statsMinute"]["tps"] == pytest.approx(1, abs=0.3)
    assert put["statsMinute"]["avgpt"] == 1
    assert view(peer, "TOPIC_PUT_SIZE", "t")["statsDay"]["sum"] == rig.store.log.end
    assert view(peer, "BROKER_PUT_NUMS", "GoldenCluster")["statsDay"]["sum"] == 30
    assert view(peer, "GROUP_GET_NUMS", "t@g")["statsDay"] == {"sum": 7, "tps": pytest.approx(0.7, 0.1), "avgpt": 7.0}
    assert view(peer, "GROUP_GET_SIZE", "t@g")["statsDay"]["sum"] > 700
    absent = peer.call(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="none")
    assert (absent.code, absent.remark) == (ResponseCode.SYSTEM_ERROR, "The stats <TOPIC_PUT_NUMS> <none> not exist")


def test_popped_messages_are_counted() -> None:
    rig = Rig()
    peer = rig.peer()
    for _ in range(3):
        peer.send(b"x")
    assert len(peer.popped()) == 1
    assert view(peer, "GROUP_GET_NUMS", "t@g")["statsDay"]["sum"] == 3


def test_counters_of_what_is_deleted_go() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"x")
    peer.pulled()
    view(peer, "GROUP_GET_NUMS", "t@g")
    peer.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g")
    gone = peer.call(RequestCode.VIEW_BROKER_STATS_DATA, statsName="GROUP_GET_NUMS", statsKey="t@g")
    assert gone.code == ResponseCode.SYSTEM_ERROR
    view(peer, "TOPIC_PUT_NUMS", "t")
    peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="t")
    gone = peer.call(RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="t")
    assert gone.code == ResponseCode.SYSTEM_ERROR


def test_spans_are_of_their_time() -> None:
    counter = Counter(0)
    for number in range(1, 3 * 360 + 1):
        counter.add(10)
        counter.sample(number * 10_000, number)
    minute, hour, day = counter.spans(3 * 3_600_000)
    assert (minute.total, minute.per_second) == (50, 1)
    assert (hour.total, hour.per_second) == (3000, 1)
    assert (day.total, round(day.per_second, 2)) == (10_800, 1)


def test_sums_are_noted_at_midnight() -> None:
    noon = int(datetime(2026, 11, 22, 12).timestamp() * 1000)
    statistics = Statistics("c", noon)
    statistics.tick(noon)
    statistics.stored("t", 5, 100)
    statistics.sent("t", "g", 3, 60)
    statistics.tick(noon + 1000)
    assert statistics.put_morning == Morning(0, 0)
    statistics.tick(noon + 86_400_000)
    statistics.stored("t", 2, 40)
    statistics.tick(noon + 2 * 86_400_000)
    assert (statistics.put_morning, statistics.found_morning) == (Morning(5, 7), Morning(3, 3))


def test_counters_have_a_bound_and_are_sampled_in_slices() -> None:
    """Anybody makes a counter with a pull, for each topic and group."""
    statistics = Statistics("c", 0)
    for number in range(60_000):
        statistics.sent(f"t{number % 300}", f"g{number // 300}", 1, 10)
    statistics.given_up("x" * 30_000, "g")
    assert len(statistics.totals("GROUP_GET_NUMS")) <= 25_000
    assert not statistics.totals("DEAD_LETTERS")
    assert statistics.found.total == 60_000

    begins = iter((0, 100_000, 200_000))

    def steps() -> list[Callable[[], object]]:
        begin = next(begins)
        return [lambda ms=begin + 1_000 * second: statistics.tick(ms) for second in range(1, 40)]  # type: ignore[misc]

    check("samples", steps)
    for second in range(301, 400):
        statistics.tick(second * 1_000)
    statistics.sent("t1", "g0", 600, 10)
    assert statistics.rate("GROUP_GET_NUMS", "t1@g0", 400_000) > 5
