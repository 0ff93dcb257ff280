"""A node whose last records are cut finds its messages again in slices, and what may happen between two of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.bmq.replication.copying import replica_files
from formats.errors import FormatError
from tests.broker.bmq.replication.partition_bus import Bus, Node
from tests.broker.bmq.replication.slices.test_sliced_take_over import LIVE, check_served, full
from tests.broker.bmq.rig import guid
from tests.families import mostly_slow

LOST = range(700, 710)
STEPS_MAX = 500


def until(bus: Bus, wanted: Callable[[], bool]) -> None:
    for _ in range(STEPS_MAX):
        if wanted():
            return
        if not bus.step():
            bus.settle(100)
    raise AssertionError("that did not come about")


def cut_off_from_others(bus: Bus) -> Node:
    """A primary writes what nobody else gets; another follows it."""
    bus.part(0)
    old = bus.nodes[0]
    old.post(*LOST)
    bus.assign(1, among=(1, 2))
    bus.settle(1000)
    return old


def cut_replica() -> tuple[Bus, Node]:
    """A replica that has just been cut."""
    bus = full()
    old = cut_off_from_others(bus)
    old.partition.primary_changed(1, bus.lease_id)
    while old.partition.copy.rollovers.is_busy:
        old.flush()
    before = old.stored.files.journal_end
    bus.join()
    until(bus, lambda: old.stored.files.journal_end < before)
    return bus, old


def slices() -> int:
    _, node = cut_replica()
    count = 0
    while node.partition.copy.rollovers.is_busy:
        node.flush()
        count += 1
    return count


def test_it_takes_many_slices_and_all_is_there() -> None:
    assert slices() > len(LIVE) // 4
    bus, node = cut_replica()
    check_served(bus)
    assert node.partition.is_healed
    assert not node.directory.archived, "it is cut back, not received anew"
    served = next(each for each in bus.nodes.values() if each.serving)
    assert not set(served.store) & {guid(number) for number in LOST}


def test_much_is_received_anew_rather_than_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_files, "CUT_BYTES_MAX", 500)
    bus = full()
    old = cut_off_from_others(bus)
    before = old.stored.files
    bus.join()
    old.partition.primary_changed(1, bus.lease_id)
    until(bus, lambda: old.stored.files is not before)
    check_served(bus)
    assert old.partition.is_healed


@pytest.mark.parametrize(
    "how", mostly_slow(["killed", "stopped", "link lost", "primary", "again primary", "no primary"], 1)
)
def test_an_end_between_any_two_slices_loses_nothing(how: str) -> None:
    for end in range(0, slices() + 4, 12):
        bus, node = cut_replica()
        for _ in range(end):
            bus.step()
        if how == "killed":
            bus.kill(0)
            bus.assign(1)
            bus.settle(1000)
            bus.restart(0)
        elif how == "stopped":
            node.partition.stop()
            bus.kill(0)
            bus.assign(1)
            bus.restart(0)
        elif how == "link lost":
            bus.part(0)
            bus.step()
            bus.join()
        elif how == "primary":
            bus.assign(0)
        elif how == "again primary":
            bus.assign(1)
        else:
            for each in bus.nodes.values():
                each.partition.primary_changed(None, 0)
            bus.step()
            bus.assign(2)
        check_served(bus)
        assert all(each.partition.is_healed for each in bus.nodes.values())


def test_records_that_rotted_meanwhile_are_received_again() -> None:
    bus, node = cut_replica()
    assert node.partition.copy.rollovers.is_busy
    node.partition.copy.index.note_rot(FormatError("QLIST", 0, "rotten"))
    check_served(bus)
    assert bus.disks[0].damaged
    assert not node.partition.copy.index.is_rotten
