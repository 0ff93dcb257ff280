"""The files that a node starts from, row by row of the table in `broker.bmq.assembly.opening`, and refusals."""

from __future__ import annotations

import pytest

from broker.bmq.assembly.opening import StoreDamaged
from broker.bmq.store.partition_files import PartitionFiles
from formats.bmq.codes import AckStatus
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, StoreFileName, initial_bytes
from formats.bmq.disk.journal import RecordType
from formats.bmq.stores.faults import Severity
from tests.broker.bmq.assembly.opening_rig import DAMAGE, LIMITS, QUEUE, damaged, filled
from tests.broker.bmq.rig import ACK, READ, WRITE, Rig, guid, start, store_faults
from tests.broker.fakes import Content, Crash, MemoryDirectory

_MESSAGE = int(RecordType.MESSAGE)


def left(rig: Rig) -> list[bytes]:
    client = rig.connect()
    client.read(1, QUEUE)
    return client.payloads()


ALL = [b"message %d" % number for number in range(5)]


def add_set(directory: MemoryDirectory, timestamp: str, *kinds: FileType, blank: bool = False) -> None:
    for kind in kinds:
        head = b"" if blank else initial_bytes(kind, 0)
        name = str(StoreFileName(0, timestamp, kind))
        directory.files[name] = Content(bytearray(head.ljust(1 << 10, b"\0")), 1 << 10)


# -- sets that were never finished


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("kinds", [(FileType.JOURNAL,), (FileType.JOURNAL, FileType.DATA), tuple(FileType)[1:]])
@pytest.mark.parametrize("used", [False, True])
def test_new_files_left_by_a_crash_are_removed(used: bool, kinds: tuple[FileType, ...], blank: bool) -> None:
    directory = filled().directory.after_crash() if used else MemoryDirectory()
    add_set(directory, "20991231_000000", *kinds, blank=blank)
    rig = start(directory, limits=LIMITS)
    if used:
        assert left(rig) == ALL
    assert not any("20991231" in name for name in directory.names())
    assert len([name for name in directory.names() if not name.endswith(("csl", "removed"))]) == 3
    assert not rig.faults()


def roll_over_and_crash(steps: int) -> MemoryDirectory | None:
    """Return the folder after a crash at the given change of a rollover; None if it was over by then."""
    rig = filled()
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    client.open(2, QUEUE, READ)
    number = 100
    partition = rig.node.partitions[0]
    while partition.files.data_end + 1000 < LIMITS.data:
        client.put(1, guid(number), bytes(900))
        client.confirm(2, guid(number))
        number += 1
    rig.directory.steps_left = steps
    try:
        client.put(1, guid(number), bytes(900))
    except Crash:
        return rig.directory.after_crash()
    return None


def test_a_crash_at_any_point_of_a_rollover_loses_nothing() -> None:
    steps = 0
    crashed: set[int] = set()
    while (directory := roll_over_and_crash(steps)) is not None:
        rig = start(directory, limits=LIMITS)
        assert left(rig)[:5] == ALL, steps
        assert not rig.faults(), steps
        names = [name for name in directory.names() if not name.endswith(("csl", "removed"))]
        assert len(names) == 3, steps
        crashed.add(len(directory.archived))
        again = rig.restart()
        assert left(again)[:5] == ALL, steps
        steps += 1
    assert steps > 10
    assert crashed == {0, 3}


def test_a_crash_at_any_point_of_the_first_start_leaves_nothing_in_the_way() -> None:
    for steps in range(1000):
        directory = MemoryDirectory(steps_left=steps)
        try:
            start(directory, limits=LIMITS)
        except Crash:
            rig = start(directory.after_crash(), limits=LIMITS)
            assert not rig.faults(), steps
            assert len(rig.directory.names()) == 4, steps
            continue
        break
    assert steps > 5


@pytest.mark.parametrize("free", [0, 50, 90])
def test_a_crash_while_a_full_disk_ends_the_first_start_leaves_nothing_in_the_way(free: int) -> None:
    for steps in range(1000):
        directory = MemoryDirectory(free=free, steps_left=steps)
        try:
            start(directory, limits=LIMITS)
        except Crash:
            after = directory.after_crash()
            after.free = 1 << 40
            assert not start(after, limits=LIMITS).faults(), steps
            continue
        except OSError:
            break
    assert steps > 3


def test_an_older_set_that_nobody_replaced_is_left_alone() -> None:
    """The older set was put there by hand: the newer one was not rolled over from it."""
    directory = filled().directory.after_crash()
    add_set(directory, "20000101_000000", *tuple(FileType)[1:])
    rig = start(directory, limits=LIMITS)
    assert left(rig) == ALL
    assert sum("20000101" in name for name in directory.names()) == 3


@pytest.mark.parametrize("kinds", [(FileType.QLIST,), (FileType.DATA, FileType.QLIST), (FileType.JOURNAL,)])
def test_the_rest_of_an_older_set_that_was_being_removed_is_archived(kinds: tuple[FileType, ...]) -> None:
    """Power failed, and the folder had lost some of its names only."""
    directory = filled().directory.after_crash()
    add_set(directory, "20000101_000000", *kinds)
    rig = start(directory, limits=LIMITS)
    assert left(rig) == ALL
    assert {name.rsplit("_", 1)[1] for name in directory.archived} == {kind.name.lower() for kind in kinds}
    assert not any("20000101" in name for name in directory.names())


def test_a_first_set_with_an_older_one_beside_it_is_still_the_one_in_use() -> None:
    rig = filled()
    rig.wait(1000)
    directory = rig.directory.after_crash()
    add_set(directory, "20000101_000000", *tuple(FileType)[1:])
    assert left(start(directory, limits=LIMITS)) == ALL


# -- damage


@pytest.mark.parametrize("missing", ["journal", "data", "qlist"])
def test_a_set_in_use_with_a_file_missing_is_refused(missing: str) -> None:
    directory = filled().directory.after_crash()
    del directory.files[directory.find(missing)]
    # Nobody knows what was in QLIST, either.
    del directory.files[directory.find("csl")]
    error = damaged(directory)
    assert [fault.code for fault in error.faults] == ["set-incomplete"]
    assert missing.upper() in str(error)


def test_an_app_that_came_back_has_another_key_in_the_ledger() -> None:
    """Unlike a key of which a bit has rotted."""
    rig = start(limits=LIMITS)
    rig.connect().open(1, "bmq://fanout/q", WRITE | ACK)
    key = rig.node.queues["bmq://fanout/q"].apps["foo"].key
    directory = rig.directory.after_crash()
    qlist = directory.find("qlist")
    at = directory.files[qlist].data.index(key)
    rotten = directory.after_crash()
    rotten.flip(qlist, at, 0b11)
    assert [fault.code for fault in damaged(rotten).faults] == ["qlist-mismatch"]
    for place in range(at, at + len(key)):
        directory.flip(qlist, place, 0b0110_1001)
    assert start(directory, limits=LIMITS).node.queues["bmq://fanout/q"].apps["foo"].key != key


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_store_is_refused_with_its_faults(name: str) -> None:
    suffix, offset, code = DAMAGE[name]
    rig = filled()
    rig.wait(1000)
    directory = rig.directory.after_crash()
    file = directory.find(suffix)
    directory.flip(file, offset)
    error = damaged(directory)
    assert (error.faults[0].code, error.faults[0].file) == (code, file)
    assert error.faults[0].severity is Severity.ERROR
    text = str(error)
    assert "/memory: the store is damaged" in text
    assert f"{file} at offset {error.faults[0].offset}" in text
    assert "bmqctl journal validate /memory" in text


def test_only_the_first_faults_are_told() -> None:
    rig = filled(30)
    directory = rig.directory.after_crash()
    name = directory.find("data")
    data = directory.files[name].data
    at = data.find(b"message")
    while at >= 0:
        data[at] ^= 1
        at = data.find(b"message", at)
    error = damaged(directory)
    assert len(error.faults) == 10
    assert "and more" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["journal", "data", "qlist", "csl"])
def test_any_rotten_bit_is_refused_or_harmless(suffix: str) -> None:
    """The node starts with what it should have, or says that the store is damaged; nothing else happens."""
    rig = filled(3)
    rig.wait(1000)
    original = rig.directory
    name = original.find(suffix)
    written = len(bytes(original.files[name].data).rstrip(b"\0"))
    refused = 0
    for offset in range(written):
        for mask in (1, 0x80):
            directory = original.after_crash()
            directory.flip(name, offset, mask)
            try:
                again = start(directory, limits=LIMITS)
            except StoreDamaged:
                refused += 1
                continue
            assert left(again) == ALL[:3], (offset, mask)
            assert not store_faults(directory)
    assert refused > written // 2


@pytest.mark.parametrize("algorithm", range(2, 8))
def test_a_message_that_no_algorithm_decompresses_is_refused(algorithm: int) -> None:
    rig = filled(3)
    end = rig.node.partitions[0].files.journal_end
    directory = rig.directory.after_crash()
    data = directory.files[directory.find("journal")].data
    at = next(at for at in range(end - JOURNAL_RECORD_SIZE, 0, -JOURNAL_RECORD_SIZE) if data[at] >> 4 == _MESSAGE)
    assert data[at + 21] & 7 == 0
    data[at + 21] |= algorithm
    error = damaged(directory)
    assert [each.code for each in error.faults] == ["field-invalid"]
    assert f"compression is {algorithm}" in str(error)


def test_a_torn_journal_is_cut_and_goes_on() -> None:
    rig = filled()
    directory = rig.directory.after_crash()
    partition = rig.node.partitions[0]
    name = directory.find("journal")
    end = partition.files.journal_end
    directory.files[name].data[end - 30 : end] = bytes(30)
    again = start(directory, limits=LIMITS)
    assert left(again) == ALL[:4]
    producer = again.connect()
    producer.open(1, QUEUE, WRITE | ACK)
    assert producer.post(1, guid(9), b"goes on") is AckStatus.SUCCESS
    assert not again.faults()
    assert left(again.restart()) == [*ALL[:4], b"goes on"]


def test_making_files_on_a_full_disk_leaves_none() -> None:
    sizes = [len(initial_bytes(kind, 0)) for kind in (FileType.JOURNAL, FileType.DATA, FileType.QLIST)]
    for free in range(0, sum(sizes), 7):
        directory = MemoryDirectory(free=free)
        assert PartitionFiles.create(directory, 0, "20261121_051104", LIMITS) is None
        assert directory.names() == []
        assert directory.free == free
        with pytest.raises(OSError, match="No space left"):
            start(directory, limits=LIMITS)


def test_a_clean_stop_cuts_the_files_to_what_is_written() -> None:
    rig = filled()
    files = rig.node.partitions[0].files
    ends = {"journal": files.journal_end, "data": files.data_end, "qlist": files.qlist_end, "csl": rig.node.ledger.end}
    rig.stop()
    assert {name: len(rig.directory.files[rig.directory.find(name)].data) for name in ends} == ends
    assert not rig.faults()
    again = start(rig.directory, limits=LIMITS)
    assert left(again) == ALL
