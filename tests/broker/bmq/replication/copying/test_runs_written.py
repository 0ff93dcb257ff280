"""A replica writes the same for runs of any length, whole or damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from broker.bmq.assembly.opening import open_partitions
from broker.bmq.core.messages import Content
from broker.bmq.replication.copying import copy_records
from broker.bmq.replication.copying.copy_records import OutOfStep
from broker.bmq.replication.copying.replica_files import ReplicaFiles
from broker.bmq.replication.positions import JOURNAL_START
from broker.bmq.replication.replication import pack_records
from broker.bmq.store.partition_files import PartitionFiles, PartitionLimits
from broker.common.clock import Now
from formats.bmq.codes import StorageFlag, StorageMessageType
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ANY_RECORD, QueueOpType
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.wire.storage import STORAGE_HEADER, append_storage, iter_storage
from formats.errors import FormatError
from tests.broker.bmq.rig import guid
from tests.broker.bmq.store.writing import KEY, Partition
from tests.broker.fakes import MemoryDirectory
from tests.families import sweep

PADDED = 4
OTHER = b"other"
LIMITS = PartitionLimits(journal=128 << 10, data=2 << 20, qlist=4 << 10)


@pytest.fixture(scope="module")
def history() -> Partition:
    """Messages of all sizes, confirms, deletions, sync points, queues that come and are purged, and a new lease."""
    chance = random.Random(7)
    partition = Partition(limits=LIMITS)
    partition.create().create(OTHER)
    alive: list[tuple[int, bytes]] = []
    for number in range(800):
        key = chance.choice((KEY, KEY, OTHER))
        partition.post(number, key, payload=chance.randbytes(chance.choice((1, 7, 8, 300, 2000))))
        alive.append((number, key))
        if chance.random() < 0.3:
            partition.confirm(number, "foo", key)
        if chance.random() < 0.3:
            gone, key = alive.pop(chance.randrange(len(alive)))
            partition.delete(gone, key)
        if number % 150 == 149:
            partition.sync_point()
        if number == 400:
            partition.operate(QueueOpType.PURGE, OTHER)
            alive = [each for each in alive if each[1] != OTHER]
        if number == 600:
            partition.new_lease()
    return partition


def bodies(files: PartitionFiles, bytes_max: int, awaited: set[int] | None = None) -> Iterator[bytes]:
    at = JOURNAL_START
    while at < files.journal_end:
        body = bytearray()
        at = pack_records(body, files, 0, at, files.journal_end, awaited or (), bytes_max)
        yield bytes(body)


@pytest.mark.parametrize("bytes_max", [1, 5_000, 4 << 20])
def test_only_awaited_messages_request_a_receipt(history: Partition, bytes_max: int) -> None:
    awaited = {number for number in range(2000) if number % 3}
    asking = set()
    for body in bodies(history.files, bytes_max, awaited):
        for message in iter_storage(memoryview(body), 0, len(body)):
            number = ANY_RECORD.unpack(message.record).sequence_number
            if message.flags & StorageFlag.RECEIPT_REQUESTED:
                assert message.message_type == StorageMessageType.DATA
                asking.add(number)
            else:
                assert number not in awaited or message.message_type != StorageMessageType.DATA
    assert asking
    assert asking <= awaited


class Outcome(NamedTuple):
    """The state of a replica after an event, or a part of it."""

    error: str
    asking: RecordNumber | None
    position: RecordNumber
    journal: bytes
    data: bytes
    messages: dict[bytes, Content | None]
    removed: list[tuple[bytes, bytes | None]]


def written(events: list[bytes], *, anew: bool = False, limits: PartitionLimits = LIMITS) -> Outcome:
    """A new copy that takes in events up to the first that does not fit."""
    directory = MemoryDirectory(chunk=1 << 20)
    times = iter(range(10, 20))
    ((stored, recovered),) = open_partitions(
        directory, 1, 0, limits, Now(1, 1), lambda prefix: f"202611{next(times)}_000000"
    )
    copy = ReplicaFiles(stored, recovered)
    if anew:
        copy.start_over()
    removed: list[tuple[bytes, bytes | None]] = []
    copy.removed = lambda key, guid: removed.append((key, guid))
    error, asking = "", None
    try:
        for event in events:
            asking = copy.write_all(memoryview(event), 0, len(event)).asking or asking
    except (OutOfStep, FormatError) as fault:
        error, asking = f"{type(fault).__name__}: {fault}", None
    files = copy.records.files
    messages = {}
    for number in range(800):
        for key in (KEY, OTHER):
            found = copy.index.read(key, guid(number))
            messages[key + guid(number)] = found and found._replace(
                data=bytes(found.data), options=bytes(found.options)
            )
    return Outcome(
        error,
        asking,
        copy.records.position,
        bytes(files.journal.buffer[: files.journal_end]),
        bytes(files.data.buffer[: files.data_end]),
        messages,
        removed,
    )


def one_by_one(
    events: list[bytes], monkeypatch: pytest.MonkeyPatch, *, anew: bool = False, limits: PartitionLimits = LIMITS
) -> Outcome:
    with monkeypatch.context() as patch:
        patch.setattr(copy_records, "RECORDS_MAX", 1)
        return written(events, anew=anew, limits=limits)


@pytest.mark.parametrize("bytes_max", [5_000, 64 << 10, 4 << 20])
@pytest.mark.parametrize("anew", [False, True])
def test_a_run_is_written_as_its_records_are(
    history: Partition, bytes_max: int, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list(bodies(history.files, bytes_max, set(range(0, 2000, 7))))
    outcome = written(events, anew=anew)
    assert outcome.error == ""
    assert outcome.asking is not None
    assert outcome.journal[JOURNAL_START:] == bytes(history.files.journal.buffer[JOURNAL_START : len(outcome.journal)])
    assert outcome.position == RecordNumber(2, history.number)
    assert outcome.data == bytes(history.files.data.buffer[: history.files.data_end])
    assert sum(message is not None for message in outcome.messages.values()) > 100
    assert outcome == one_by_one(events, monkeypatch, anew=anew)


@pytest.mark.parametrize("seed", sweep(range(60), 10))
def test_a_damaged_run_is_refused_as_its_records_are(
    history: Partition, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    events = [bytearray(body) for body in bodies(history.files, 64 << 10)]
    event = chance.choice(events)
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(len(event))
        event[at] ^= 1 << chance.randrange(8)
    if chance.random() < 0.2:
        del event[chance.randrange(len(event)) :]
    damaged = [bytes(each) for each in events]
    anew = chance.random() < 0.5
    assert written(damaged, anew=anew) == one_by_one(damaged, monkeypatch, anew=anew)


def test_gaps_are_taken_only_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers left out by a rollover are missing in the new files."""
    sparse = Partition(limits=LIMITS)
    sparse.number = 1
    for number in range(60):
        sparse.number += 1 + number % 3
        sparse.post(number, payload=b"x" * 100)
    behind = bytearray()
    pack_records(behind, sparse.files, 0, JOURNAL_START, sparse.files.journal_end)
    events = [bytes(behind)]
    anew, live = written(events, anew=True), written(events)
    assert anew.error == ""
    assert anew == one_by_one(events, monkeypatch, anew=True)
    assert live.error.startswith("OutOfStep")
    assert live == one_by_one(events, monkeypatch)


@pytest.mark.parametrize("before", [0, 1, 80])
def test_a_message_that_fills_no_double_words_is_refused(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader of DATA would take it, and no message could follow it."""
    partition = Partition(limits=LIMITS)
    for number in range(before):
        partition.post(number)
    files = partition.files
    sound = bytes(files.data.buffer[: files.data_end])
    partition.post(before, payload=b"four")
    entry = bytearray(files.data.buffer[len(sound) : files.data_end])
    entry[:4] = (int.from_bytes(entry[:4], "big") - 1).to_bytes(4, "big")
    entry[12 + len(b"four") :] = bytes([PADDED]) * PADDED
    body = bytearray()
    last = files.journal_end - JOURNAL_RECORD_SIZE
    pack_records(body, files, 0, JOURNAL_START, last)
    append_storage(body, StorageMessageType.DATA, 0, last // 4, files.journal.buffer[last : files.journal_end], entry)
    outcome = written([bytes(body)])
    assert "20 bytes are not a DATA record" in outcome.error
    assert outcome.data == sound
    assert outcome == one_by_one([bytes(body)], monkeypatch)


@pytest.mark.parametrize(("journal", "data"), [(128 << 10, 40_000), (20_000, 2 << 20)])
def test_a_full_file_takes_the_records_that_fit(
    history: Partition, journal: int, data: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = PartitionLimits(journal, data, 4 << 10)
    events = list(bodies(history.files, 4 << 20))
    outcome = written(events, limits=limits)
    assert outcome.error.startswith("TooSmall: ")
    assert outcome.position.sequence_number > 100
    assert outcome == one_by_one(events, monkeypatch, limits=limits)


def test_a_longer_storage_header_is_taken(history: Partition) -> None:
    """The header says its own size: a later version may add fields."""
    (body,) = bodies(history.files, 4 << 20)
    longer = bytearray()
    for flags, message_type, partition_id, place, record, data in iter_storage(memoryview(body), 0, len(body)):
        at = len(longer)
        append_storage(longer, message_type, partition_id, place, record, data, flags)
        words, form = STORAGE_HEADER.words.unpack_from(longer, at)[:2]
        STORAGE_HEADER.words.pack_into(
            longer, at, words + 1, form + 1, *STORAGE_HEADER.words.unpack_from(longer, at)[2:]
        )
        longer[at + STORAGE_HEADER.size : at + STORAGE_HEADER.size] = bytes(4)
    assert written([bytes(longer)]) == written([body])
