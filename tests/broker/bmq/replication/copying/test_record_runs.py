"""A run ends before the first record that does not follow, is damaged, or is no message, confirm or deletion."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.bmq.replication.copying.record_runs import AppendPoint, parse_run
from broker.bmq.replication.replication import pack_records
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.numbers import RecordNumber
from tests.broker.bmq.rig import guid
from tests.broker.bmq.store.writing import KEY, Partition

LIMITS = PartitionLimits(journal=64 << 10, data=1 << 20, qlist=4 << 10)
COUNT = 8


class Sent:
    """Records after those that a replica has already, as an event's body and as stored."""

    def __init__(self) -> None:
        self.partition = Partition(limits=LIMITS).create()
        files = self.partition.files
        position = RecordNumber(self.partition.lease, self.partition.number)
        self.start = AppendPoint(position, files.journal_end, files.data_end, False, 1)
        for number in range(COUNT):
            self.partition.post(number, payload=b"%d" % number * (number + 1))
        self.partition.confirm(1, "foo")
        self.partition.delete(2)

    @property
    def body(self) -> bytearray:
        body = bytearray()
        files = self.partition.files
        pack_records(body, files, 0, self.start.journal_end, files.journal_end, (), 1 << 20)
        return body

    @property
    def records(self) -> bytes:
        files = self.partition.files
        return bytes(files.journal.buffer[self.start.journal_end : files.journal_end])

    @property
    def data(self) -> bytes:
        files = self.partition.files
        return bytes(files.data.buffer[self.start.data_end : files.data_end])


def test_messages_confirms_and_deletions_are_one_run() -> None:
    sent = Sent()
    body = sent.body
    run = parse_run(memoryview(body), 0, len(body), sent.start)
    assert run is not None
    assert run.end == len(body)
    assert run.records == sent.records
    assert b"".join(run.entries) == sent.data
    assert run.data_size == len(sent.data)
    assert run.last == RecordNumber(sent.partition.lease, sent.partition.number)
    assert [(each.guid, each.size) for each in run.changes] == [
        *((guid(number), number + 1) for number in range(COUNT)),
        (guid(2), -1),
    ]
    assert {each.queue_key for each in run.changes} == {KEY}


def test_other_records_end_it() -> None:
    sent = Sent()
    expected = len(sent.body)
    sent.partition.sync_point()
    sent.partition.post(100)
    body = sent.body
    run = parse_run(memoryview(body), 0, len(body), sent.start)
    assert run is not None
    assert run.end == expected < len(body)
    # Nor does one begin with them.
    assert parse_run(memoryview(body), run.end, len(body), sent.start) is None


@pytest.mark.parametrize(
    "start",
    [
        lambda point: point._replace(journal_end=point.journal_end + JOURNAL_RECORD_SIZE),
        lambda point: point._replace(data_end=point.data_end + 8),
        lambda point: point._replace(
            position=point.position._replace(sequence_number=point.position.sequence_number + 1)
        ),
        lambda point: point._replace(position=RecordNumber(2, point.position.sequence_number)),
    ],
    ids=["journal", "data", "number", "lease"],
)
def test_a_replica_that_is_elsewhere_gets_no_run(start: Callable[[AppendPoint], AppendPoint]) -> None:
    sent = Sent()
    assert parse_run(memoryview(sent.body), 0, len(sent.body), start(sent.start)) is None


def test_a_payload_that_is_damaged_ends_it() -> None:
    sent = Sent()
    sound = sent.body
    number = COUNT // 2
    at = sound.index(b"%d" % number * (number + 1))
    for place in range(at, at + number + 1):
        body = bytearray(sound)
        body[place] ^= 1
        run = parse_run(memoryview(body), 0, len(body), sent.start)
        assert run is not None
        assert [each.guid for each in run.changes] == [guid(each) for each in range(number)]


def test_an_event_that_is_cut_anywhere_is_read_to_its_last_whole_record() -> None:
    sent = Sent()
    body = memoryview(sent.body)
    runs = [parse_run(body, 0, end, sent.start) for end in range(len(body) + 1)]
    assert all(run is None or run.end <= end for end, run in enumerate(runs))
    assert len({run.end for run in runs if run is not None}) == COUNT + 2
