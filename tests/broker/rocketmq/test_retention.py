"""Old messages go, by their age and by the disk; the newest stay."""

from __future__ import annotations

import pytest

from broker.rocketmq.core.retention import Retention, RetentionLimits
from broker.rocketmq.store.message_store import StoreOptions
from formats.rocketmq.codes import ResponseCode
from tests.broker.rocketmq.rig import Rig

HOUR_MS = 3_600_000


class Kept:
    """A broker whose log has files of 4 KiB, an hour of messages in each."""

    def __init__(self, files: int, limits: RetentionLimits) -> None:
        self.rig = Rig(store=StoreOptions(4096, 200, 50, 400))
        self.used = 0.0
        self.retention = Retention(self.rig.store, limits, lambda: self.used)
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
