"""Alarms about a cluster that is not well for longer than configured."""

from __future__ import annotations

import logging

import pytest

from broker.bmq.core.state_monitor import CHECK_MS, Limits, MonitorLimits, Observed, StateMonitor
from broker.common.clock import Now
from broker.common.timers import Timers

LIMITS = MonitorLimits(
    leader=Limits(30_000, 60_000),
    partition=Limits(60_000, 120_000),
    node=Limits(60_000, 120_000),
    failover=Limits(40_000, 80_000),
)
WELL = Observed(True, {0: True, 1: True}, {1: True, 2: True}, 0, ())


class Watched:
    """A cluster whose state is set, and its monitor on a clock of its own."""

    def __init__(self, limits: MonitorLimits = LIMITS, *, is_proxy: bool = False) -> None:
        self.state: Observed | None = WELL
        self._now, self._timers = Now(ms=1_000_000), Timers()
        monitor = StateMonitor("mine", limits, self._now, self._timers, lambda: self.state, is_proxy=is_proxy)
        monitor.start()

    def after(self, seconds: int) -> None:
        until_ms = self._now.ms + seconds * 1000
        while (next_ms := self._timers.next_ms) is not None and next_ms <= until_ms:
            self._now.ms = next_ms
            self._timers.run(next_ms)
        self._now.ms = until_ms

    @property
    def is_over(self) -> bool:
        return self._timers.next_ms is None


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "broker")


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    caplog.clear()
    return found


def test_a_cluster_that_is_well_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.after(3600)
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    ("state", "at_s", "bad", "still"),
    [
        (
            WELL._replace(has_leader=False),
            60,
            "State of the leader goes to alarming state",
            "Cluster leader is not active",
        ),
        (
            WELL._replace(partitions={0: True, 1: False}),
            120,
            "Partition [1] goes to alarming state",
            "Partition [1] is orphaned",
        ),
        (
            WELL._replace(nodes={1: True, 2: False}),
            120,
            "Node [2] goes to alarming state",
            "Node [2] is unavailable",
        ),
    ],
    ids=["leader", "partition", "node"],
)
def test_each_subject_has_its_time(
    caplog: pytest.LogCaptureFixture, state: Observed, at_s: int, bad: str, still: str
) -> None:
    watched = Watched()
    watched.state = state._replace(problems=("node 2 is not well",))
    watched.after(at_s - 1)
    assert alarms(caplog) == []
    watched.after(1)
    assert alarms(caplog) == [f"PANIC [CLUSTER_STATE_MONITOR] 'mine' is in a bad state.\n{bad}\nnode 2 is not well"]
    watched.after(at_s - 1)
    assert alarms(caplog) == []
    for _ in range(2):
        watched.after(at_s)
        again = f"PANIC [CLUSTER_STATE_MONITOR] 'mine' is still in a bad state.\n{still}\nnode 2 is not well"
        assert alarms(caplog) == [again]


def test_recovery_in_time_raises_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for _ in range(10):
        watched.state = WELL._replace(has_leader=False)
        watched.after(50)
        watched.state = WELL
        watched.after(10)
    assert alarms(caplog) == []


def test_the_threshold_and_the_recovery_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.state = WELL._replace(has_leader=False, problems=("there is no leader",))
    watched.after(30)
    texts = [record.getMessage() for record in caplog.records]
    text = "'mine' has been in invalid state above the threshold amount of time.\nthere is no leader"
    assert texts == [text]
    caplog.clear()
    watched.after(30)
    assert len(alarms(caplog)) == 1
    watched.state = WELL
    watched.after(10)
    assert [record.getMessage() for record in caplog.records] == ["'mine' is back to healthy state."]


def test_one_alarm_stands_for_all_until_the_cluster_is_well(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.state = Observed(False, {0: False, 1: False}, {1: False, 2: False}, 0, ())
    watched.after(119)
    assert [each.splitlines()[0] for each in alarms(caplog)] == [
        "PANIC [CLUSTER_STATE_MONITOR] 'mine' is in a bad state."
    ]
    watched.after(1)
    (again,) = alarms(caplog)
    assert again.splitlines() == [
        "PANIC [CLUSTER_STATE_MONITOR] 'mine' is still in a bad state.",
        "Cluster leader is not active",
    ]
    watched.state = WELL
    watched.after(10)
    watched.state = WELL._replace(has_leader=False)
    watched.after(60)
    assert len(alarms(caplog)) == 1


@pytest.mark.parametrize(("is_proxy", "category"), [(False, "CLUSTER"), (True, "CLUSTERPROXY")])
def test_a_failover_has_an_alarm_at_each_threshold(
    caplog: pytest.LogCaptureFixture, is_proxy: bool, category: str
) -> None:
    watched = Watched(is_proxy=is_proxy)
    watched.state = WELL._replace(reopening=3)
    watched.after(39)
    assert alarms(caplog) == []
    watched.after(1)
    (first,) = alarms(caplog)
    assert first == (
        f"PANIC [{category}] 'mine' has not completed the failover process above the threshold amount of 40 s. "
        "There are 3 pending reopen-queue requests."
    )
    watched.after(40)
    bad, again = alarms(caplog)
    assert bad.splitlines()[1] == "State of failover process goes to alarming state"
    assert again.startswith(f"PANIC [{category}] ")


def test_times_of_zero_alarm_at_every_look(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(MonitorLimits(*[Limits(0, 0)] * 4))
    watched.state = WELL._replace(has_leader=False)
    watched.after(3 * CHECK_MS // 1000)
    assert len(alarms(caplog)) == 3


def test_a_node_that_no_longer_takes_part_ends_the_monitor(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.state = None
    watched.after(3600)
    assert watched.is_over
    assert alarms(caplog) == []
