"""The cluster-state ledger: what is recorded is read again, across rollovers, crashes and torn records."""

from __future__ import annotations

from itertools import count, pairwise
from pathlib import Path
from random import Random

import pytest

from broker.bmq.core.ledger import ClusterState, Ledger, app_infos
from broker.bmq.queue.queue import Full
from broker.common.clock import Now
from broker.common.faults import Inconsistent
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClusterMessage,
    LeaderMessageSequence,
    PartitionPrimaryInfo,
    QueueAssignmentAdvisory,
    QueueInfo,
    QueueInfoUpdate,
    QueueUnAssignmentAdvisory,
    QueueUpdateAdvisory,
)
from formats.bmq.disk.keys import derive_key
from formats.bmq.disk.ledger import LedgerRecordType, build_ledger_record, parse_ledger_file_name
from formats.bmq.disk.numbers import LedgerNumber
from formats.bmq.stores.recover import iter_ledger
from formats.bmq.stores.validate import FileView, validate_ledger
from formats.errors import FormatError
from tests.broker.bmq.rig import START_S
from tests.broker.fakes import Content, Crash, MemoryDirectory
from tests.golden.archives import map_file, only, unpack_store
from tests.simulator.machines.disk import Disk

SIZE = 2 << 10
PRIMARIES = {0: PartitionPrimaryInfo(partition_id=0, primary_node_id=0, primary_lease_id=1)}


def queue(number: int) -> QueueInfo:
    uri = f"bmq://domain/queue-{number}"
    return QueueInfo(uri=uri, key=derive_key(uri, number, ()), partition_id=0, app_ids=app_infos([("foo", b"foo--")]))


def opened(directory: MemoryDirectory, size: int = SIZE) -> Ledger:
    """A ledger as a starting node has it, before it leads."""
    numbers = iter(range(100))

    def make_timestamp(prefix: str) -> str:
        taken = max((name[len(prefix) :][:15] for name in directory.names()), default="20261121_051100")
        return f"20261121_{int(taken[9:]) + 1 + next(numbers):06}"

    ledger = Ledger(directory, size, Now(START_S), make_timestamp)
    ledger.recover()
    return ledger


def leading(directory: MemoryDirectory, queues: int = 0) -> Ledger:
    ledger = opened(directory)
    ledger.lead(PRIMARIES)
    for number in range(queues):
        ledger.assign(queue(number))
    return ledger


def known(directory: MemoryDirectory) -> list[str]:
    return list(opened(directory.after_crash()).state.queues)


def faults(directory: MemoryDirectory) -> list[str]:
    return [
        fault.code
        for name in directory.names()
        for fault in validate_ledger(FileView(name, directory.files[name].data))
    ]


def uris(count: int) -> list[str]:
    return [queue(number).uri for number in range(count)]


def test_an_empty_folder_has_none() -> None:
    ledger = Ledger(MemoryDirectory(), SIZE, Now(), lambda prefix: "")
    assert not ledger.recover()
    assert ledger.state == ClusterState()


def test_recorded_state_is_read_again() -> None:
    directory = MemoryDirectory()
    ledger = leading(directory, 3)
    again = opened(directory.after_crash())
    assert again.state == ledger.state
    assert list(again.state.queues.values()) == [queue(number) for number in range(3)]
    assert again.state.primaries == PRIMARIES
    assert faults(directory) == []


def test_every_update_is_committed() -> None:
    directory = MemoryDirectory()
    ledger = leading(directory, 2)
    assert ledger.file is not None
    records = list(iter_ledger(ledger.file.buffer))
    kinds = [LedgerRecordType(record.header.record_type) for record in records]
    assert kinds == [
        LedgerRecordType.SNAPSHOT,
        LedgerRecordType.COMMIT,
        *[LedgerRecordType.UPDATE, LedgerRecordType.COMMIT] * 2,
    ]
    assert [record.header.sequence_number for record in records] == [1, 2, 3, 4, 5, 6]


def test_terms_grow_with_every_start() -> None:
    directory = MemoryDirectory()
    for term in range(1, 5):
        ledger = leading(directory)
        assert ledger.state.term == term
        ledger.close()
    assert faults(directory) == []


def test_a_full_file_is_followed_by_another() -> None:
    directory = MemoryDirectory()
    ledger = leading(directory)
    names = set(directory.names())
    for number in range(40):
        ledger.assign(queue(number))
        names |= set(directory.names())
        assert len(directory.names()) == 1
        assert known(directory) == uris(number + 1)
        assert faults(directory) == []
    assert len(names) > 2


def test_a_state_larger_than_the_size_gets_a_larger_file() -> None:
    directory = MemoryDirectory()
    apps = app_infos([(f"app-{number}", b"%05d" % number) for number in range(100)])
    ledger = leading(directory)
    ledger.assign(QueueInfo(uri="bmq://domain/many", key=b"many-", partition_id=0, app_ids=apps))
    ledger.assign(queue(0))
    assert known(directory) == ["bmq://domain/many", queue(0).uri]
    assert faults(directory) == []


def test_a_lead_that_fills_the_file_starts_another() -> None:
    directory = MemoryDirectory()
    for term in range(1, 60):
        ledger = leading(directory, 1) if term == 1 else leading(directory)
        ledger.close()
        assert known(directory) == uris(1)
        assert opened(directory.after_crash()).state.term == term
        assert faults(directory) == []


def test_a_full_disk_leaves_what_was_recorded() -> None:
    directory = MemoryDirectory()
    ledger = leading(directory, 2)
    state = dict(ledger.state.queues)
    directory.free = 0
    for number in range(2, 30):
        with pytest.raises(Full):
            ledger.assign(queue(number))
    assert ledger.state.queues == state
    assert known(directory) == uris(2)
    directory.free = 1 << 20
    ledger.assign(queue(2))
    assert known(directory) == uris(3)
    assert faults(directory) == []


def test_a_disk_that_is_full_when_a_file_is_leaves_that_in_use() -> None:
    directory = MemoryDirectory()
    ledger = leading(directory)
    (name,) = directory.names()
    number = 0
    while ledger.end + 400 < SIZE:
        ledger.assign(queue(number))
        number += 1
    directory.free = 500
    while ledger.end + 250 < SIZE:
        ledger.assign(queue(number))
        number += 1
    with pytest.raises(Full):
        ledger.assign(queue(number))
    assert directory.names() == [name]
    assert known(directory) == uris(number)
    directory.free = 1 << 20
    ledger.assign(queue(number))
    assert directory.names() != [name]
    assert known(directory) == uris(number + 1)


@pytest.mark.slow
def test_a_crash_at_any_point_loses_nothing() -> None:
    points = 0
    for steps in range(200):
        directory = MemoryDirectory()
        ledger = leading(directory)
        directory.steps_left = steps
        recorded = 0
        try:
            for number in range(30):
                ledger.assign(queue(number))
                recorded = number + 1
        except Crash:
            after = directory.after_crash()
            assert known(after) in (uris(recorded), uris(recorded + 1))
            again = leading(after)
            assert len(after.names()) == 1
            assert faults(after) == []
            assert again.state.term == 2
            points += 1
    assert points > 30


def test_a_torn_record_is_cut_off() -> None:
    directory = MemoryDirectory()
    ledger = leading(directory, 3)
    before, name, at = directory.after_crash(), directory.names()[0], ledger.end
    ledger.assign(queue(3))
    end = ledger.end
    for cut in range(at, end):
        torn = directory.after_crash()
        torn.files[name].data[cut:end] = bytes(end - cut)
        try:
            found = known(torn)
        except FormatError:
            # Whole but for zeros at its end that are not its own: taken for damage, not for a torn record.
            assert bytes(directory.files[name].data[cut:end]).strip(b"\0") == b""
            continue
        assert found in (uris(3), uris(4))
        again = leading(torn)
        assert faults(torn) == []
        assert again.state.term == 2
    assert known(before) == uris(3)


def test_damage_amid_the_records_is_an_error() -> None:
    directory = MemoryDirectory()
    leading(directory, 3)
    (name,) = directory.names()
    directory.flip(name, 8 + 40)
    with pytest.raises(FormatError):
        opened(directory)


def test_records_behind_damage_are_not_cut_off() -> None:
    """A length that goes beyond the end makes a record look torn, and zeros in its place make the file look ended."""
    directory = MemoryDirectory()
    leading(directory, 3)
    (name,) = directory.names()
    starts = [record.offset for record in iter_ledger(directory.files[name].data)]
    for start, end in pairwise(starts):
        for damaged in (b"\x7f", bytes(end - start)):
            copy = directory.after_crash()
            content = copy.files[name].data
            at = start + 5 if len(damaged) == 1 else start
            content[at : at + len(damaged)] = damaged
            evidence = bytes(content)
            with pytest.raises(FormatError):
                opened(copy)
            assert bytes(content) == evidence
            assert "ledger-record" in faults(copy)


@pytest.mark.parametrize("written", [b"", b"\x42", bytes.fromhex("42112233")])
def test_a_file_that_was_just_being_made_gives_way_to_the_one_before(written: bytes) -> None:
    directory = MemoryDirectory()
    leading(directory, 2)
    name = "bmq_csl_20261122_000000_1122334455.bmq_csl"
    directory.files[name] = Content(bytearray(written.ljust(SIZE, b"\0")), SIZE)
    assert known(directory) == uris(2)
    opened(directory)
    assert name not in directory.names()


def replicated(directory: MemoryDirectory, advisories: int) -> Ledger:
    """A ledger that outlives power failures, full of advisories of which none is committed."""
    numbers = count(len(directory.names()))

    def make_timestamp(prefix: str) -> str:
        return f"20261121_{next(numbers):06}"

    ledger = Ledger(directory, SIZE, Now(START_S), make_timestamp, outlives_power=True)
    ledger.recover()
    for number in range(1, advisories + 1):
        advise(ledger, number)
    return ledger


def recorded(directory: MemoryDirectory) -> list[str]:
    """The queues that the records in the folder name, committed or not."""
    return list(replicated(directory, 0).state.queues)


def advise(ledger: Ledger, number: int) -> None:
    advised = LeaderMessageSequence(elector_term=1, sequence_number=number)
    advisory = QueueAssignmentAdvisory(sequence_number=advised, queues=(queue(number),))
    body = ber.encode(ClusterMessage(choice=advisory))
    ledger.append(
        LedgerNumber(1, number), advisory, build_ledger_record(LedgerRecordType.UPDATE, 1, number, START_S, body)
    )


@pytest.mark.parametrize("what", ["steps_left", "flushes_left"])
def test_power_that_fails_while_a_full_file_is_followed_by_another_takes_no_advisory(what: str) -> None:
    """The uncommitted advisories are kept too: this node may have acknowledged them."""
    last = 1
    directory = MemoryDirectory()
    ledger = replicated(directory, last)
    first = directory.names()
    while directory.names() == first:
        last += 1
        advise(ledger, last)
    points = 0
    for left in range(20):
        directory = MemoryDirectory()
        ledger = replicated(directory, last - 1)
        ledger.flush()
        directory.flush()
        setattr(directory, what, left)
        try:
            advise(ledger, last)
        except (Crash, Inconsistent):
            points += 1
        for way in range(16):
            disk = Disk(Random(way), directory.after_crash())
            disk.power_lost(in_order=way % 2 == 0, keeps_folders=way % 4 < 2)
            disk.directory.steps_left = 1 << 40
            assert recorded(disk.directory)[: last - 1] == uris(last)[1:], (left, way)
    assert points > 1


def test_the_older_of_two_is_dropped() -> None:
    directory = MemoryDirectory()
    leading(directory, 2)
    (old,) = directory.names()
    data = directory.files[old].data
    leading(directory, 3)
    name = parse_ledger_file_name(old)
    assert name is not None
    later = str(name._replace(timestamp="20271121_000000"))
    directory.files[later] = directory.files.pop(old)
    directory.files[old] = Content(data, len(data))
    opened(directory)
    assert directory.names() == [later]


# -- what its records say


def applied(*choices: object) -> list[QueueInfo]:
    state = ClusterState(queues={queue(0).uri: queue(0), queue(1).uri: queue(1)})
    for choice in choices:
        state.apply(ber.decode(ClusterMessage, ber.encode(ClusterMessage(choice=choice))))  # type: ignore[arg-type]
    return list(state.queues.values())


NUMBER = LeaderMessageSequence(elector_term=1, sequence_number=1)


def test_queues_are_unassigned() -> None:
    assert applied(
        QueueUnAssignmentAdvisory(
            sequence_number=NUMBER, partition_id=0, primary_lease_id=1, primary_node_id=0, queues=(queue(0),)
        )
    ) == [queue(1)]


def test_apps_are_added_and_removed() -> None:
    update = QueueInfoUpdate(
        uri=queue(0).uri,
        key=queue(0).key,
        partition_id=0,
        domain="domain",
        added_app_ids=app_infos([("bar", b"bar--")]),
        removed_app_ids=app_infos([("foo", b"foo--")]),
    )
    changed, other = applied(QueueUpdateAdvisory(sequence_number=NUMBER, queue_updates=(update,)))
    assert changed.app_ids == app_infos([("bar", b"bar--")])
    assert other == queue(1)


@pytest.mark.parametrize(("name", "count"), [("single-crash", 5), ("cluster-node0", 5)])
def test_golden_ledgers_are_read(name: str, count: int, tmp_path: Path) -> None:
    path = only(unpack_store(name, tmp_path), ".bmq_csl")
    data = bytearray(map_file(path)[: 1 << 20])
    directory = MemoryDirectory(files={path.name: Content(data, len(data))})
    ledger = opened(directory)
    assert ledger.state.term
    assert set(ledger.state.primaries) == {0}
    assert len(ledger.state.queues) == count
    ledger.lead(PRIMARIES)
    assert faults(directory) == []


def test_the_log_tells_of_advisories_and_new_files(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "broker.ledger")
    directory = MemoryDirectory()
    ledger = leading(directory)
    names = directory.names()
    number = 0
    while directory.names() == names:
        ledger.assign(queue(number))
        number += 1
    ids = [name.removesuffix(".bmq_csl").rpartition("_")[2] for name in (*names, *directory.names())]
    assert "Rolling over from log with logId [{}] to new log with logId [{}]".format(*ids) in caplog.text
    ledger.unassign(ledger.state.queues[queue(0).uri], ledger.state.primaries[0])
    last = caplog.messages[-1]
    assert last.startswith(
        "Applied advisory: [ choice = [ queueUnAssignmentAdvisory = [ sequenceNumber = [ electorTerm"
    )
    assert f'uri = "{queue(0).uri}"' in last
    assert f"sequenceNumber = {ledger.sequence_number - 1} ]" in last
