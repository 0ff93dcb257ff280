"""A store that others can heal: what is damaged is set aside, and the node starts without it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from broker.bmq.assembly.opening import StoreDamaged, open_ledger, open_partitions
from broker.bmq.core.ledger import Ledger
from broker.bmq.core.messages import Full
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.store.damage import LEDGER_NOTE, Damage, partition_note
from broker.bmq.store.names import next_timestamp
from broker.bmq.store.recovery import Recovered
from broker.common.clock import Now
from formats.bmq.disk.files import parse_file_name
from tests.broker.bmq.assembly.opening_rig import DAMAGE, LIMITS, damaged, filled
from tests.broker.bmq.rig import START_S, start
from tests.broker.fakes import Crash, MemoryDirectory

NOTE = partition_note(0)


def open_all(directory: MemoryDirectory, *, heals: bool = True) -> tuple[StoredPartition, Recovered, Ledger]:
    now = Now(START_S, 1_000_000)

    def make_timestamp(prefix: str) -> str:
        return next_timestamp(prefix, directory.names(), datetime.fromtimestamp(START_S, UTC))

    opened = open_partitions(directory, 1, 0, LIMITS, now, make_timestamp, heals=heals)
    ledger = open_ledger(directory, 1 << 16, now, make_timestamp, opened, heals=heals)
    return *opened[0], ledger


def rotten(name: str) -> MemoryDirectory:
    rig = filled()
    rig.wait(1000)
    directory = rig.directory.after_crash()
    suffix, offset, _ = DAMAGE[name]
    directory.flip(directory.find(suffix), offset)
    return directory


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_set_aside_unchanged(name: str) -> None:
    directory = rotten(name)
    before = {name: bytes(content.data) for name, content in directory.files.items()}
    partition, recovered, ledger = open_all(directory)
    aside = dict(directory.damaged)
    assert all(before[name] == content for name, content in aside.items())
    if name == "ledger":
        assert [name for name in aside if not name.endswith("csl")] == []
        assert directory.names() == sorted([*(name for name in before if parse_file_name(name)), LEDGER_NOTE])
        assert (ledger.damage.is_there, partition.damage.is_there) == (True, False)
        assert ledger.state.queues == {}
        assert len(recovered.messages) == 5
    else:
        assert len(aside) == 3
        assert (ledger.damage.is_there, partition.damage.is_there) == (False, True)
        assert recovered.messages == []
        assert len(ledger.state.queues) == 1
        assert b"is damaged" in directory.files[NOTE].data


def test_a_missing_file_of_a_set_is_damage() -> None:
    for missing in ("journal", "data", "qlist"):
        directory = filled().directory.after_crash()
        del directory.files[directory.find(missing)]
        del directory.files[directory.find("csl")]
        partition, recovered, _ = open_all(directory)
        assert partition.damage.is_there
        assert recovered.records == 0
        assert len(directory.damaged) == 2


@pytest.mark.parametrize("name", DAMAGE)
def test_a_crash_at_any_point_leaves_it_noted(name: str) -> None:
    points = 0
    for steps in range(100):
        directory = rotten(name)
        evidence = {name: bytes(content.data) for name, content in directory.files.items()}
        directory.steps_left = steps
        try:
            open_all(directory)
        except Crash:
            after = directory.after_crash()
            partition, recovered, ledger = open_all(after)
            assert ledger.damage.is_there if name == "ledger" else partition.damage.is_there
            assert not (ledger.state.queues if name == "ledger" else recovered.messages)
            kept = {name: content for name, content in after.damaged if name in evidence and any(content)}
            assert all(evidence[name] == content for name, content in kept.items())
            points += 1
        else:
            break
    assert points > 5


def test_a_full_disk_is_told_and_nothing_is_set_aside() -> None:
    directory = rotten("payload")
    directory.free = 0
    with pytest.raises(Full, match="no disk space to record that"):
        open_all(directory)
    assert directory.damaged == []
    assert NOTE not in directory.names()


def test_a_node_alone_does_not_go_on_where_others_were_to_heal_it() -> None:
    directory = rotten("payload")
    open_all(directory)
    error = damaged(directory.after_crash())
    assert f"remove {NOTE}" in str(error)
    directory = rotten("ledger")
    open_all(directory)
    # Half-received events of a dead process do not count, either.
    name = next(name for name, _ in directory.damaged)
    directory.files[name] = filled().directory.files[filled().directory.find("csl")]
    with pytest.raises(StoreDamaged, match=LEDGER_NOTE):
        open_all(directory.after_crash(), heals=False)


def test_sound_files_under_a_note_are_set_aside_too() -> None:
    """A note of which nobody can tell which process left it."""
    directory = filled().directory.after_crash()
    directory.open(NOTE, 10).close()
    partition, recovered, ledger = open_all(directory)
    assert partition.damage.is_there
    assert recovered.messages == []
    assert len(directory.damaged) == 3
    assert len(ledger.state.queues) == 1


def test_rot_in_the_length_of_a_ledgers_last_record_is_no_torn_record() -> None:
    """A record that, if it were cut off as torn, the node would have lost without notice."""
    rig = filled()
    ledger = rig.node.ledger
    directory = rig.directory.after_crash()
    name = directory.find("csl")
    content = directory.files[name].data
    records = [at for at in range(8, ledger.end, 4) if content[at] >> 4 == 8 and content[at] & 15 in (1, 2, 3)]
    for bit in (1, 2, 4, 8):
        copy = directory.after_crash()
        copy.flip(name, records[-1] + 4, bit)
        with pytest.raises(StoreDamaged):
            start(copy, limits=LIMITS)


@pytest.mark.parametrize("synced", [False, True])
def test_a_note_that_is_gone_does_not_come_back_after_a_power_failure(synced: bool) -> None:
    directory = MemoryDirectory()
    damage = Damage(directory, partition_note(0))
    assert damage.note("rotten")
    damage.heal(synced=synced)
    # Changes to the folder since its last flush may be undone.
    assert [name for name, _ in directory.unflushed] == ([] if synced else [partition_note(0)])
