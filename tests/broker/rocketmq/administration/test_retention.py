"""Old messages go, by their age and by the disk; the newest stay."""

from __future__ import annotations

import pytest

from broker.rocketmq.administration.metrics import Metrics
from broker.rocketmq.administration.retention import FileRetention, RetentionLimits
from broker.rocketmq.store.message_store import StoreOptions
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.administration.retention_rig import commit, files_of, rig_of
from tests.broker.rocketmq.rig import Rig

HOUR_MS = 3_600_000


class Kept:
    """A broker whose log has files of 4 KiB, an hour of messages in each."""

    def __init__(self, files: int, limits: RetentionLimits) -> None:
        self.rig = Rig(store=StoreOptions(4096, 200, 50, 400))
        self.used = 0.0
        self.retention = FileRetention(self.rig.store, limits, lambda: self.used)
        peer = self.rig.peer()
        while len(self.rig.store.log.files.files) < files:
            peer.send(b"x" * 3_000)
            self.rig.wall_ms += HOUR_MS

    @property
    def files(self) -> int:
        return len(self.rig.store.log.files.files)

    def look(self) -> None:
        self.retention.look(self.rig.wall_ms)


def test_files_go_when_they_are_too_old() -> None:
    kept = Kept(6, RetentionLimits(reserved_ms=3 * HOUR_MS))
    kept.look()
    assert kept.files == 4
    kept.look()
    assert kept.files == 4
    assert [each.queue_offset for each in kept.rig.messages("t")] == [2, 3, 4, 5]
    peer = kept.rig.peer()
    moved = peer.answer(peer.pull(offset=0))
    assert moved is not None
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert (moved.ext_fields or {})["nextBeginOffset"] == "2"
    assert [each.queue_offset for each in peer.pulled(offset=2)] == [2, 3, 4, 5]


@pytest.mark.parametrize(("is_time", "used", "files"), [(True, 0.0, 4), (False, 0.75, 6), (False, 0.76, 4)])
def test_old_files_go_at_the_hour_or_when_the_disk_fills(is_time: bool, used: float, files: int) -> None:
    kept = Kept(6, RetentionLimits(reserved_ms=3 * HOUR_MS, is_time=lambda ms: is_time))
    kept.used = used
    kept.look()
    assert kept.files == files


def test_last_file_stays_however_old_it_is() -> None:
    kept = Kept(3, RetentionLimits(reserved_ms=1))
    kept.rig.wall_ms += 1_000 * HOUR_MS
    for _ in range(5):
        kept.look()
    assert kept.files == 1
    assert kept.rig.peer().send(b"next").code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("used", "files"), [(0.85, 5), (0.86, 4)])
def test_oldest_file_goes_when_the_disk_is_full(used: float, files: int) -> None:
    kept = Kept(5, RetentionLimits())
    kept.used = used
    kept.look()
    assert kept.files == files


def test_store_opens_behind_what_was_removed() -> None:
    kept = Kept(6, RetentionLimits(reserved_ms=3 * HOUR_MS))
    kept.look()
    for restart in (kept.rig.stop, kept.rig.crash):
        restart()
        assert [each.queue_offset for each in kept.rig.messages("t")] == [2, 3, 4, 5]
    peer = kept.rig.peer()
    peer.send(b"next")
    assert [each.queue_offset for each in kept.rig.messages("t")] == [2, 3, 4, 5, 6]


def test_broker_looks_by_itself() -> None:
    rig = Rig(store=StoreOptions(4096, 200, 50, 400))
    peer = rig.peer()
    for _ in range(4):
        peer.send(b"x" * 3_000)
    rig.wall_ms += 73 * HOUR_MS
    rig.pass_time(11_000)
    assert len(rig.store.log.files.files) == 1


def test_broker_with_a_full_disk_keeps_what_a_group_has_not_consumed() -> None:
    rig = rig_of(5)
    commit(rig, 2)
    rig.disk_used = 0.99
    rig.pass_time(120_000)
    assert files_of(rig) == 3
    assert [each.queue_offset for each in rig.messages("t")] == [2, 3, 4]


@pytest.mark.parametrize(
    ("properties", "topic"),
    [({"DELAY": "4"}, "SCHEDULE_TOPIC_XXXX"), ({"TIMER_DELAY_SEC": "20"}, "rmq_sys_wheel_timer")],
)
def test_delayed_messages_count_until_they_are_due(properties: dict[str, str], topic: str) -> None:
    rig = Rig(store=StoreOptions(4096, 200, 50, 400))
    peer = rig.peer()
    for _ in range(4):
        peer.send(b"x" * 3_000, properties=properties)
    rig.disk_used = 0.9
    rig.pass_time(15_000)
    assert rig.broker.retention.alarm == f"messages of topic {topic} that are not due yet"
    assert files_of(rig) == 4
    rig.pass_time(60_000)
    assert rig.broker.retention.alarm == ""
    assert files_of(rig) < 8


def test_administrators_see_the_alarm() -> None:
    rig = rig_of(5)
    commit(rig, 0)
    rig.disk_used = 0.9
    rig.pass_time(60_000)
    assert files_of(rig) == 5
    answer = rig.peer().call(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = fastjson.loads(bytes(answer.body).decode())["table"]
    assert table["unconsumedFileAlarm"] == "messages of topic t that group g has not consumed"
    metrics = Metrics(rig.broker.services, lambda: rig.wall_ms, disk_alarm=lambda: bool(rig.broker.retention.alarm))
    (line,) = [each for each in b"".join(metrics.pieces()).splitlines() if each.startswith(b"rocketmq_storage_unc")]
    assert line.endswith(b" 1")
    assert rig.peer().call(RequestCode.UPDATE_BROKER_CONFIG, b"cleanFileForciblyInterval=5000\n").code == 0
    rig.pass_time(10_000)
    assert files_of(rig) == 4
