"""Senders that wait for copies: each row of the table that was observed with the original, and the bounds."""

from __future__ import annotations

import pytest

from broker.rocketmq.replication import waiting as module
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.streams.connection import ReplicationSession
from formats.rocketmq.remoting.replication import REPORT, Report
from tests.broker.rocketmq.replication.streams.ends import Clock, Master


class Group:
    """A master, slaves that report what the test says, and one sender."""

    def __init__(self, slaves: int, role: Role = Role.SYNC_MASTER, replicas: int = 2) -> None:
        self.clock = Clock()
        self.options = ReplicationOptions(role, replicas)
        self.master = Master(self.clock, self.options)
        self.slaves: list[ReplicationSession] = []
        for number in range(slaves):
            session, _ = self.master.accept(number)
            self.slaves.append(session)
            self.report(number, 0)
        self.outcomes: list[bool] = []

    def report(self, number: int, offset: int) -> None:
        self.slaves[number].take_output()
        self.slaves[number].receive(memoryview(REPORT.pack(Report(offset))))

    def send(self) -> int:
        """Send a message, and wait as the broker does; the end of the log."""
        end = self.master.put()
        if self.master.waiting.is_wanted:
            self.master.waiting.wait(end, self, self.outcomes.append)
        else:
            self.outcomes.append(True)
        return end

    def pass_time(self, ms: int) -> None:
        self.clock.ms += ms
        self.master.waiting.tick()


@pytest.mark.parametrize(
    ("role", "replicas", "slaves"),
    [
        (Role.SYNC_MASTER, 1, 0),  # the role alone waits for nobody
        (Role.SYNC_MASTER, 1, 1),
        (Role.ASYNC_MASTER, 2, 0),
        (Role.ASYNC_MASTER, 2, 1),
    ],
)
def test_answer_without_required_copies_does_not_wait(role: Role, replicas: int, slaves: int) -> None:
    group = Group(slaves, role, replicas)
    group.send()
    assert group.outcomes == [True]


@pytest.mark.parametrize(("replicas", "slaves"), [(2, 0), (3, 1), (3, 0)])
def test_copies_that_cannot_be_made_are_waited_for_in_vain(replicas: int, slaves: int) -> None:
    group = Group(slaves, replicas=replicas)
    end = group.send()
    for number in range(slaves):
        group.report(number, end)
    group.pass_time(2_999)
    assert group.outcomes == []
    group.pass_time(1)
    assert group.outcomes == [False]
    assert len(group.master.waiting) == 0


def test_slave_that_has_the_message_releases_its_sender() -> None:
    group = Group(1)
    first, second = group.send(), group.send()
    group.report(0, first - 1)
    assert group.outcomes == []
    group.report(0, first)
    assert group.outcomes == [True]
    group.report(0, second)
    assert group.outcomes == [True, True]
    group.pass_time(10_000)
    assert group.outcomes == [True, True]


def test_slave_that_stands_still_is_waited_for_until_it_goes_on() -> None:
    group = Group(1)
    first = group.send()
    group.pass_time(3_000)
    second = group.send()
    group.report(0, first)
    assert group.outcomes == [False]
    group.report(0, second)
    assert group.outcomes == [False, True]


def test_so_many_slaves_are_waited_for_as_are_wanted() -> None:
    group = Group(3, replicas=3)
    end = group.send()
    group.report(1, end)
    assert group.outcomes == []
    assert group.master.copies.replicas_with(end) == 2
    group.report(2, end)
    assert group.outcomes == [True]


def test_slave_that_is_gone_does_not_count() -> None:
    group = Group(2, replicas=3)
    end = group.send()
    group.report(0, end)
    group.slaves[0].end()
    group.report(1, end)
    assert group.outcomes == []
    group.pass_time(3_000)
    assert group.outcomes == [False]


def test_message_that_is_copied_already_does_not_wait() -> None:
    group = Group(1)
    end = group.send()
    group.report(0, end)
    group.master.waiting.wait(end, group, group.outcomes.append)
    assert group.outcomes == [True, True]


def test_options_that_change_hold_for_those_who_come_then() -> None:
    group = Group(1)
    group.send()
    group.options.in_sync_replicas = 3
    group.options.slave_timeout_ms = 100
    end = group.send()
    group.report(0, end)
    assert group.outcomes == [True]
    group.pass_time(100)
    assert group.outcomes == [True, False]


def test_closed_connections_are_forgotten() -> None:
    group = Group(1)
    end = group.send()
    other: list[bool] = []
    group.master.waiting.wait(end, other, other.append)
    group.master.waiting.forget(group)
    assert len(group.master.waiting) == 1
    group.report(0, end)
    assert (group.outcomes, other) == ([], [True])


def test_too_many_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    group = Group(1)
    for _ in range(3):
        group.send()
    assert group.outcomes == [False]
    assert len(group.master.waiting) == 2


def test_released_waiter_may_wait_again() -> None:
    group = Group(1)
    end = group.send()

    def again(is_copied: bool) -> None:
        group.outcomes.append(is_copied)
        group.master.waiting.wait(end + 1_000, group, group.outcomes.append)

    group.master.waiting.wait(end, group, again)
    group.report(0, end)
    assert group.outcomes == [True, True]
    assert len(group.master.waiting) == 1
