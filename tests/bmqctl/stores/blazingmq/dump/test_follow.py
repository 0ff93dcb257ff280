"""Records as they are written, over rollovers, restarts and stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from bmqctl.stores.blazingmq.dump.dump import open_journal
from bmqctl.stores.blazingmq.dump.follow import Follower
from bmqctl.stores.blazingmq.read.columns import journal_columns, rows_of
from bmqctl.stores.blazingmq.read.filters import Filters
from formats.bmq.disk import journal_packing
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.numbers import RecordNumber
from formats.bmq.disk.qlist import build_queue_record
from tests.waiting import WAIT_S

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]

GUID = bytes(15) + b"1"
PREALLOCATED = 1 << 16


class Broker:
    """Writes a partition's files as a broker does: preallocated, at their ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.number = 0
        self.generation = 0
        self.roll_over()

    def path(self, kind: FileType) -> Path:
        return self.directory / f"bmq_0.20261121_05110{self.generation}{kind.extension}"

    @property
    def journal(self) -> Path:
        return self.path(FileType.JOURNAL)

    def roll_over(self, alive: tuple[int, ...] = ()) -> None:
        """Roll over to the next files, which begin with the records of `alive`."""
        self.generation += 1
        for kind in (FileType.DATA, FileType.QLIST, FileType.JOURNAL):
            self.path(kind).write_bytes(initial_bytes(kind, 0))
            os.truncate(self.path(kind), PREALLOCATED)
        self.ends = {kind: len(initial_bytes(kind, 0)) for kind in (FileType.QLIST, FileType.JOURNAL)}
        for number in alive:
            self._put(self._deletion(number))

    def _write(self, kind: FileType, content: bytes) -> None:
        with self.path(kind).open("r+b") as file:
            file.seek(self.ends[kind])
            file.write(content)
        self.ends[kind] += len(content)

    def _put(self, record: bytes) -> None:
        self._write(FileType.JOURNAL, record)

    def _deletion(self, number: int) -> bytes:
        record = bytearray(JOURNAL_RECORD_SIZE)
        journal_packing.pack_deletion(record, 0, 1, number, 1_795_237_864, 0, b"queue", GUID)
        return bytes(record)

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self.number += 1
            self._put(self._deletion(self.number))

    def create_queue(self, uri: str) -> None:
        offset = self.ends[FileType.QLIST]
        self._write(FileType.QLIST, build_queue_record(uri, b"queue", []))
        record = bytearray(JOURNAL_RECORD_SIZE)
        self.number += 1
        journal_packing.pack_queue_op(
            record, 0, 1, self.number, 1, 2, b"queue", queue_uri_record_offset_words=offset // 4
        )
        self._put(bytes(record))

    def tear(self) -> None:
        """The first half of the next record."""
        with self.journal.open("r+b") as file:
            file.seek(self.ends[FileType.JOURNAL])
            file.write(self._deletion(self.number + 1)[:30])

    def stop(self) -> None:
        """Cut the files to what is written."""
        for kind, end in self.ends.items():
            os.truncate(self.path(kind), end)

    def start(self) -> None:
        for kind in self.ends:
            os.truncate(self.path(kind), PREALLOCATED)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


@contextmanager
def following(broker: Broker, filters: Filters | None = None) -> Iterator[Follower]:
    def opened(path: Path, stack: ExitStack) -> Any:
        return open_journal(path, None, None, stack)

    with Follower(broker.journal, filters or Filters(), opened) as follower:
        yield follower


def told(follower: Follower) -> list[Any]:
    """Sequence numbers of what has come, or the faults."""
    rows = [row for journal, chunk in follower.poll() for row in rows_of(chunk, journal_columns(journal.names))]
    return [row.get("fault") or row["sequence_number"] for row in rows]


def test_new_records_come_once(broker: Broker) -> None:
    broker.write(3)
    with following(broker) as follower:
        assert told(follower) == []
        broker.write(2)
        assert told(follower) == [4, 5]
        assert told(follower) == []
        broker.write(500)
        assert told(follower) == list(range(6, 506))


def test_where_to_begin(broker: Broker) -> None:
    broker.write(5)
    for filters, expected in (
        (Filters(seqnum_gt=RecordNumber(1, 3)), [4, 5, 6]),
        (Filters(offset_gt=0), [1, 2, 3, 4, 5, 6]),
        (Filters(since=0), [1, 2, 3, 4, 5, 6]),
        (Filters(), [6]),
    ):
        with following(broker, filters) as follower:
            first = told(follower)
            broker.write()
            assert first + told(follower) == expected
        broker.number -= 1
        broker.ends[FileType.JOURNAL] -= JOURNAL_RECORD_SIZE
        with broker.journal.open("r+b") as file:
            file.seek(broker.ends[FileType.JOURNAL])
            file.write(bytes(JOURNAL_RECORD_SIZE))


def test_a_record_that_is_being_written(broker: Broker) -> None:
    broker.write()
    with following(broker) as follower:
        broker.tear()
        assert told(follower) == []
        broker.write(2)
        assert told(follower) == [2, 3]


def test_a_damaged_record_is_told_when_another_follows(broker: Broker) -> None:
    with following(broker) as follower:
        broker.write()
        broker.tear()
        broker.ends[FileType.JOURNAL] += JOURNAL_RECORD_SIZE
        assert told(follower) == [1]
        broker.write()
        # It may only have been read before it was written.
        assert told(follower) == []
        (fault, number) = told(follower)
        assert (fault, number) == ("DeletionRecord.magic: 0x00000000 is not '*rEc'", 2)


def test_a_record_that_was_read_too_early(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look may see a record, and not the one before, which was written between the reads of two pages."""
    broker.write(2)
    with following(broker) as follower:
        broker.write(5)
        pread = os.pread
        early = 44 + 3 * JOURNAL_RECORD_SIZE

        def racing(descriptor: int, size: int, offset: int) -> bytes:
            block = bytearray(pread(descriptor, size, offset))
            if offset <= early < offset + size:
                block[early - offset : early - offset + JOURNAL_RECORD_SIZE] = bytes(JOURNAL_RECORD_SIZE)
            return bytes(block)

        monkeypatch.setattr(os, "pread", racing)
        assert told(follower) == [3]
        monkeypatch.setattr(os, "pread", pread)
        assert told(follower) == [4, 5, 6, 7]


def test_rollovers(broker: Broker) -> None:
    """Records in both journals come once, and those written just before the rollover are not lost."""
    broker.write(4)
    with following(broker) as follower:
        broker.write(2)
        assert told(follower) == [5, 6]
        broker.write(2)
        first = broker.journal
        broker.roll_over(alive=(2, 5, 8))
        broker.write()
        assert told(follower) == [7, 8, 9]
        first.unlink()
        broker.write()
        assert told(follower) == [10]
        # Two rollovers between two looks.
        broker.write()
        broker.roll_over(alive=(11,))
        broker.write()
        broker.roll_over(alive=(11, 12))
        broker.write()
        assert told(follower) == [11, 12, 13]
    with following(broker) as follower:
        broker.roll_over(alive=(12, 13))
        broker.write()
        assert told(follower) == [14]


def test_a_rollover_after_damages(broker: Broker) -> None:
    with following(broker) as follower:
        for _ in range(3):
            broker.write()
            broker.ends[FileType.JOURNAL] += JOURNAL_RECORD_SIZE
        broker.write()
        broker.roll_over(alive=(2,))
        broker.write()
        gap = "zeros in place of 1 records"
        assert told(follower) == [1, gap, 2, gap, 3, gap, 4, 5]


def test_a_rollover_that_is_not_there_yet(broker: Broker) -> None:
    broker.write()
    with following(broker) as follower:
        coming = broker.directory / "bmq_0.20261121_051102.bmq_journal"
        coming.write_bytes(bytes(1000))
        assert told(follower) == []
        broker.roll_over(alive=(1,))
        broker.write()
        assert told(follower) == [2]


def test_stop_and_start(broker: Broker) -> None:
    broker.write()
    with following(broker) as follower:
        broker.write()
        broker.stop()
        assert told(follower) == [2]
        assert told(follower) == []
        broker.start()
        broker.write()
        assert told(follower) == [3]


def test_a_queue_that_comes_meanwhile(broker: Broker) -> None:
    with following(broker) as follower:
        broker.create_queue("bmq://a.b/new")
        broker.write()
        rows = [row for journal, chunk in follower.poll() for row in rows_of(chunk, journal_columns(journal.names))]
        assert [row["queue_uri"] for row in rows] == ["bmq://a.b/new"] * 2


def test_a_file_under_another_name(broker: Broker, tmp_path: Path) -> None:
    broker.write()
    renamed = broker.journal.rename(tmp_path / "renamed")

    def opened(path: Path, stack: ExitStack) -> Any:
        return open_journal(path, None, None, stack)

    with Follower(renamed, Filters(offset_gt=0), opened) as follower:
        assert told(follower) == [1]
        assert told(follower) == []


@contextmanager
def command(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-c", "from bmqctl.app import main; main()", "journal", "dump", *map(str, arguments)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_lines(stream: IO[str] | None, count: int) -> list[Any]:
    assert stream is not None
    return [json.loads(stream.readline()) for _ in range(count)]


@pytest.mark.process
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_until_a_signal(broker: Broker, tmp_path: Path, how: signal.Signals) -> None:
    broker.write(2)
    arguments = ("--follow", "--offset-gt", 0, "--type", "deletion", tmp_path)
    with command(*arguments) as process:
        assert [row["sequence_number"] for row in read_lines(process.stdout, 2)] == [1, 2]
        broker.write()
        broker.roll_over(alive=(1, 3))
        broker.write()
        found = read_lines(process.stdout, 2)
        assert [(row["partition_id"], row["sequence_number"]) for row in found] == [(0, 3), (0, 4)]
        process.send_signal(how)
        out, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.process
def test_the_command_until_its_limit(broker: Broker) -> None:
    broker.write(3)
    for output, expected in (("csv", 3), ("table", 3), ("json-line", 2)):
        arguments = ("--follow", "--offset-gt", 0, "--limit", 2, "--output", output, broker.journal)
        with command(*arguments) as process:
            out, err = process.communicate(timeout=WAIT_S)
            assert (process.returncode, len(out.splitlines()), err) == (0, expected, "")


@pytest.mark.process
def test_the_command_until_its_reader_leaves(broker: Broker) -> None:
    broker.write()
    with command("--follow", "--offset-gt", 0, broker.journal) as process:
        assert len(read_lines(process.stdout, 1)) == 1
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(WAIT_S) == 141
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--until", "5"], "an upper bound"),
        (["--seqnum", "1-1"], "single records"),
        (["--output", "json-pretty"], "needs an end"),
        (["--output", "arrow"], "needs an end"),
    ],
)
def test_dump_follow_refuses_a_source_that_cannot_grow(
    run: Run, broker: Broker, arguments: list[str], reason: str
) -> None:
    outcome = run("dump", "--follow", *arguments, broker.directory)
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert reason in line
