"""Messages expire when they have lived long enough, not because a clock says so that may be wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.bmq.core.clocks import Clocks, HeardRecord, span
from broker.bmq.queue.expiry_hold import GRACE_MS, Restoring
from broker.common.clock import Now
from formats.bmq.codes import AckStatus
from tests.broker.bmq.rig import ACK, DOMAINS, WRITE, Rig, guid, start

QUEUE = "bmq://priority/q"
TTL_S = 1000
HOUR_S = 3600


def begin(ttl_s: int = TTL_S) -> Rig:
    return start(domains=[replace(DOMAINS["priority"], message_ttl_s=ttl_s)])


def post(rig: Rig, *numbers: int) -> None:
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    for number in numbers:
        assert client.post(1, guid(number), b"%d" % number) is AckStatus.SUCCESS
    client.drop()


def held(rig: Rig) -> list[bytes]:
    return list(rig.node.queues[QUEUE].messages)


def restart(rig: Rig, *, later_s: int) -> Rig:
    """A new process whose clock is ahead of the last one's records."""
    rig.now.wall_s += later_s
    return rig.restart()


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each for each in caplog.messages if each.startswith("ALARM [CLOCK]")]
    caplog.clear()
    return found


def test_a_node_that_starts_with_a_clock_far_ahead_holds_what_it_has(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    post(rig, 1, 2, 3)
    rig = restart(rig, later_s=30 * HOUR_S)
    (line,) = alarms(caplog)
    assert line.startswith(
        "ALARM [CLOCK] Partition [0]: 3 of 3 messages of 'bmq://priority/q' have outlived their time to"
    )
    assert "this node's clock, which is 30 h ahead of the newest record" in line
    assert "they expire in 5 min" in line
    rig.wait(100_000)
    # Somebody sets it right.
    rig.now.wall_s -= 30 * HOUR_S
    rig.wait(1000)
    assert [each.startswith("ALARM [CLOCK] The clock was set back by 30 h") for each in alarms(caplog)] == [True]
    rig.wait(GRACE_MS)
    assert held(rig) == [guid(1), guid(2), guid(3)]
    client = rig.connect()
    client.read(1, QUEUE)
    assert client.payloads() == [b"1", b"2", b"3"]
    # They have their time, and no more; so has what came since.
    post(rig, 4)
    rig.wait((TTL_S - 600) * 1000)
    assert held(rig) == [guid(1), guid(2), guid(3), guid(4)]
    rig.wait(210_000)
    assert held(rig) == [guid(4)]
    rig.wait(500_000)
    assert held(rig) == []


def test_a_backlog_of_a_node_that_was_down_for_long_expires_after_the_alarm(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    post(rig, 1, 2)
    rig = restart(rig, later_s=30 * HOUR_S)
    assert len(alarms(caplog)) == 1
    rig.wait(GRACE_MS - 2000)
    assert len(held(rig)) == 2
    rig.wait(3000)
    assert held(rig) == []
    assert alarms(caplog) == []


def test_message_with_a_short_ttl_is_not_held_for_longer(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin(ttl_s=10)
    post(rig, 1)
    rig = restart(rig, later_s=HOUR_S)
    (line,) = alarms(caplog)
    assert "they expire in 10 s" in line
    rig.wait(8000)
    assert len(held(rig)) == 1
    rig.wait(3000)
    assert held(rig) == []


def test_a_short_break_needs_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin(ttl_s=10)
    post(rig, 1)
    rig = restart(rig, later_s=30)
    rig.wait(1000)
    assert (held(rig), alarms(caplog)) == ([], [])


def test_the_older_part_of_a_backlog_expires_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    post(rig, 1)
    rig.wait(600_000)
    post(rig, 2, 3)
    rig = restart(rig, later_s=600)
    rig.wait(1000)
    assert (held(rig), alarms(caplog)) == ([guid(2), guid(3)], [])


def test_messages_that_were_written_with_a_clock_far_behind_are_held(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    rig.now.wall_s -= HOUR_S
    rig.wait(1000)
    post(rig, 1, 2)
    rig.now.wall_s += HOUR_S
    rig.wait(1000)
    back, forward = alarms(caplog)
    assert back.startswith("ALARM [CLOCK] The clock was set back by")
    assert forward.startswith("ALARM [CLOCK] The clock was set forward by 1 h")
    post(rig, 3)
    rig = restart(rig, later_s=1)
    (line,) = alarms(caplog)
    assert "2 of 3 messages" in line
    assert "by their records' times, although their primary had not expired them" in line
    rig.wait(GRACE_MS - 2000)
    assert len(held(rig)) == 3
    rig.wait(3000)
    assert held(rig) == [guid(3)]


def test_a_clock_far_behind_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    post(rig, 1)
    rig = restart(rig, later_s=-HOUR_S)
    (line,) = alarms(caplog)
    assert "The clock of this node is 1 h behind the newest record" in line
    rig.wait(1000)
    assert len(held(rig)) == 1


def test_a_clock_that_is_set_while_a_node_runs_expires_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig = begin()
    post(rig, 1)
    rig.now.wall_s += 30 * HOUR_S
    rig.wait(2000)
    (line,) = alarms(caplog)
    assert line.startswith("ALARM [CLOCK] The clock was set forward by 30 h")
    assert len(held(rig)) == 1


def test_clocks_agree_with_one_of_the_others() -> None:
    now = Now(1_000_000, 5000)
    clocks = Clocks(now)
    found = [clocks.agrees]
    clocks.told(1, 1_000_100)
    found.append(clocks.agrees)
    clocks.told(2, 999_950)
    found.append(clocks.agrees)
    # Time passes for all alike.
    now.ms, now.wall_s = 905_000, 1_000_900
    found.append(clocks.agrees)
    now.wall_s += 70  # now it is like the other's
    found.append(clocks.agrees)
    now.wall_s += 1000
    found.append(clocks.agrees)
    assert found == [None, False, True, True, True, False]


@pytest.mark.parametrize(("newest_s", "is_measured"), [(10_000, True), (10_900, True), (9000, False), (12_000, False)])
def test_time_is_measured_from_the_primary_that_wrote_last(newest_s: int, is_measured: bool) -> None:
    about = Restoring.of(0, newest_s, HeardRecord(1, 10_000, 5000), Now(77_777, 905_900))
    assert about == Restoring(0, newest_s, 10_900_900 if is_measured else 77_777_000, is_measured)


@pytest.mark.parametrize(
    ("record", "is_better"),
    [
        (HeardRecord(2, 105, 9_000), True),  # it arrived 1 s earlier than expected
        (HeardRecord(2, 105, 10_000), True),
        (HeardRecord(2, 105, 14_000), False),  # it arrived late
        (HeardRecord(2, 110, 15_001), True),  # after that time the primary's clock may run otherwise
        (HeardRecord(2, 99, 6_000), True),  # its clock was set back
        (HeardRecord(3, 105, 14_000), True),  # it has another clock
    ],
)
def test_a_record_that_arrives_late_says_less_of_the_primary_s_clock(record: HeardRecord, is_better: bool) -> None:
    earlier = HeardRecord(2, 100, 5_000)
    assert record.or_earlier(earlier) is (record if is_better else earlier)
    assert record.or_earlier(None) is record


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h"), (90_061, "25 h 1 min")]
)
def test_spans_are_told_for_people(seconds: int, text: str) -> None:
    assert span(seconds) == text


def test_few_messages_that_a_clock_has_made_old_do_not_expire_either(caplog: pytest.LogCaptureFixture) -> None:
    """The clock was set while the node ran: what came before is old by it, what came since is more."""
    rig = begin()
    post(rig, 1, 2)
    rig.now.wall_s += 30 * HOUR_S
    post(rig, 3, 4, 5, 6)
    caplog.clear()
    rig = restart(rig, later_s=1)
    (line,) = alarms(caplog)
    assert "2 of 6 messages of 'bmq://priority/q' have outlived their time to live by their records' times" in line
    rig.wait(GRACE_MS - 10_000)
    assert held(rig) == [guid(number) for number in range(1, 7)]


def test_messages_of_the_future_hide_no_old_ones(caplog: pytest.LogCaptureFixture) -> None:
    """The clock was ahead when the first message came, right for the second, and was set again before the third."""
    rig = begin()
    rig.now.wall_s += 60 * HOUR_S
    post(rig, 1)
    rig.now.wall_s -= 60 * HOUR_S
    post(rig, 2)
    rig.now.wall_s += 30 * HOUR_S
    post(rig, 3)
    caplog.clear()
    rig = restart(rig, later_s=1)
    assert "1 of 3 messages of 'bmq://priority/q' have outlived their time to live" in alarms(caplog)[0]
    client = rig.connect()
    client.read(1, QUEUE)
    client.confirm(1, guid(1))
    client.drop()
    rig.wait(GRACE_MS - 10_000)
    assert held(rig) == [guid(2), guid(3)]


def test_few_messages_that_came_after_a_clock_was_set_back_do_not_expire(caplog: pytest.LogCaptureFixture) -> None:
    """Older messages that seem younger than the newest record, by clocks of which one is wrong."""
    rig = begin()
    post(rig, 1, 2, 3)
    rig.now.wall_s -= HOUR_S
    post(rig, 4)
    caplog.clear()
    rig = restart(rig, later_s=HOUR_S)
    (line,) = alarms(caplog)
    assert "1 of 4 messages of 'bmq://priority/q' have outlived their time to live by this node's clock" in line
    assert "which is 1 h ahead of the newest record" in line
    client = rig.connect()
    client.read(1, QUEUE)
    for number in (1, 2, 3):
        client.confirm(1, guid(number))
    client.drop()
    rig.wait(GRACE_MS - 2000)
    assert held(rig) == [guid(4)]
    rig.wait(3000)
    assert held(rig) == []


@pytest.mark.parametrize("beyond_s", [30, HOUR_S])
def test_a_hold_outlives_its_process(beyond_s: int, caplog: pytest.LogCaptureFixture) -> None:
    """The newest record is then one that was written during the hold, by the clock that is wrong."""
    rig = begin()
    post(rig, 1, 2, 3)
    rig = restart(rig, later_s=TTL_S + beyond_s)
    assert len(alarms(caplog)) == 1
    rig.wait(5_000)
    rig = restart(rig, later_s=0)
    (line,) = alarms(caplog)
    assert "3 of 3 messages of 'bmq://priority/q' have outlived their time to live by their records' times" in line
    rig.wait(GRACE_MS - 2000)
    assert held(rig) == [guid(1), guid(2), guid(3)]
    rig.wait(3000)
    assert held(rig) == []


def test_a_process_that_ends_before_it_has_removed_what_expired_needs_no_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = begin(ttl_s=100)
    post(rig, 1, 2, 3)
    rig.now.ms += 105_000
    rig.now.wall_s += 105
    post(rig, 4)
    assert held(rig) == [guid(1), guid(2), guid(3), guid(4)]
    rig = restart(rig, later_s=0)
    assert alarms(caplog) == []
    rig.wait(1_000)
    assert held(rig) == [guid(4)]
