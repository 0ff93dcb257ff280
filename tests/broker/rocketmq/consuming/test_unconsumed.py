"""A full disk takes messages that are still to be consumed only after an alarm has stood."""

from __future__ import annotations

import pytest

from broker.rocketmq.administration.retention import FileRetention, RetentionLimits
from broker.rocketmq.consuming import unconsumed
from tests.broker.rocketmq.administration.retention_rig import commit, files_of, rig_of
from tests.broker.rocketmq.rig import Rig

DELAY_MS = 30 * 60_000
FULL = RetentionLimits(forced_after_ms=DELAY_MS)


def full_broker(files: int = 5) -> tuple[Rig, FileRetention, list[float]]:
    """Return a broker with a full disk, whose files have a message each, and the list with how full the disk is."""
    rig = rig_of(files)
    used = [0.9]
    search = unconsumed.first_unconsumed
    retention = FileRetention(rig.store, FULL, lambda: used[0], lambda end: search(rig.broker.services, (), end))
    return rig, retention, used


def test_full_disk_takes_nothing_that_a_group_has_not_consumed_before_an_alarm_has_stood(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig, retention, _ = full_broker()
    commit(rig, 2)
    now_ms = rig.wall_ms
    for _ in range(3):
        retention.look(now_ms)
    # Messages that the group has consumed are gone.
    assert files_of(rig) == 3
    assert retention.alarm == "messages of topic t that group g has not consumed"
    (record,) = [each for each in caplog.records if "ALARM" in each.message]
    assert "group g" in record.message
    assert "in 1800 s (cleanFileForciblyInterval)" in record.message
    retention.look(now_ms + DELAY_MS - 1)
    assert files_of(rig) == 3
    # It stands: from then on, files go one by one, as the original's do at once.
    retention.look(now_ms + DELAY_MS)
    assert files_of(rig) == 2
    retention.look(now_ms + DELAY_MS + 1)
    assert files_of(rig) == 1


def test_alarm_ends_when_messages_are_consumed(caplog: pytest.LogCaptureFixture) -> None:
    rig, retention, _ = full_broker()
    commit(rig, 0)
    retention.look(rig.wall_ms)
    assert (files_of(rig), bool(retention.alarm)) == (5, True)
    commit(rig, 5)
    retention.look(rig.wall_ms)
    assert (files_of(rig), retention.alarm) == (4, "")
    # The next alarm begins its own time.
    commit(rig, 0)
    retention.look(rig.wall_ms + DELAY_MS)
    assert (files_of(rig), bool(retention.alarm)) == (4, True)


def test_alarm_stands_until_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    rig, retention, used = full_broker()
    commit(rig, 0)
    now_ms = rig.wall_ms
    retention.look(now_ms)
    used[0] = 0.8
    # It goes on, but takes nothing while the disk is below the limit.
    retention.look(now_ms + DELAY_MS)
    assert (files_of(rig), bool(retention.alarm)) == (5, True)
    used[0] = 0.9
    retention.look(now_ms + DELAY_MS + 1)
    assert files_of(rig) == 4
    used[0] = 0.7
    retention.look(now_ms + DELAY_MS + 2)
    assert (files_of(rig), retention.alarm) == (4, "")


def test_groups_that_count_for_retention() -> None:
    rig, retention, _ = full_broker()
    # A queue without an offset of a group that has one in another; a group that was deleted; another topic's.
    rig.broker.services.groups.find("g", rig.wall_ms)
    rig.broker.services.offsets.commit("t", "g", 1, 0)
    retention.look(rig.wall_ms)
    assert (files_of(rig), bool(retention.alarm)) == (5, True)
    rig.broker.services.offsets.forget_group("g")
    rig.broker.services.offsets.commit("t", "deleted", 0, 0)
    commit(rig, 0, topic="other")
    retention.look(rig.wall_ms)
    assert (files_of(rig), retention.alarm) == (4, "")


def test_long_search_goes_on_at_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconsumed, "PIECE", 10)
    rig, retention, _ = full_broker()
    for number in range(35):
        commit(rig, 5, group=f"g{number}")
    retention.look(rig.wall_ms)
    ticks = 0
    while files_of(rig) == 5:
        retention.tick(rig.wall_ms)
        ticks += 1
    assert 3 <= ticks <= 5
