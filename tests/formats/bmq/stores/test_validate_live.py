"""A check of a journal that a broker is writing: whatever is written between two reads, there is no error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.stores.faults import Severity
from formats.bmq.stores.validate import FileView, check_file_set
from tests.formats.bmq.stores.validate_rig import JOURNAL_NAME, Writer, healthy

_NEW_RECORDS = 9
_HEAD_BYTES = 32
_END = len(healthy().journal)


class Live:
    """A preallocated journal that grows: its content, which is `after` in the end, and its other files."""

    def __init__(self) -> None:
        self.writer: Writer = healthy()
        before = bytes(self.writer.journal)
        for number in range(4, 4 + _NEW_RECORDS):
            self.writer.post(number)
        self.after = bytes(self.writer.journal) + bytes(10 * JOURNAL_RECORD_SIZE)
        self.buffer = bytearray(before.ljust(len(self.after), b"\0"))

    def write(self, end: int | None = None) -> None:
        """Write what is new up to an offset, or all of it."""
        self.buffer[:end] = self.after[:end]

    def write_all_but_the_head(self) -> None:
        """Write what a copy of several records has written when it is interrupted: it may write the beginning last."""
        self.buffer[_END + _HEAD_BYTES :] = self.after[_END + _HEAD_BYTES :]


@dataclass
class LiveSource:
    """The journal as a check reads it; `before_read` is called with the number of each read, from 0 on."""

    live: Live
    before_read: Callable[[int], None] = lambda number: None
    reads: int = 0
    name: str = JOURNAL_NAME

    @property
    def size(self) -> int:
        return len(self.live.buffer)

    def read(self, offset: int, size: int) -> memoryview:
        self.before_read(self.reads)
        self.reads += 1
        return memoryview(bytes(self.live.buffer[offset : offset + size]))


def errors(live: Live, source: LiveSource | FileView, settle: Callable[[], bool] = lambda: False) -> list[str]:
    """Return the codes of the errors that a check finds."""
    _, data, qlist = live.writer.views()
    found = check_file_set(source, data, qlist, settle=settle)
    return [one.code for one in found if one.severity is Severity.ERROR]


def count_reads() -> int:
    live = Live()
    source = LiveSource(live)
    assert errors(live, source) == []
    return source.reads


def test_records_that_are_written_between_any_two_reads() -> None:
    for at in range(count_reads() + 1):
        live = Live()

        def before_read(number: int, live: Live = live, at: int = at) -> None:
            if number == at:
                live.write()

        assert errors(live, LiveSource(live, before_read)) == [], f"written in front of read {at}"


@pytest.mark.parametrize("step", [1, 7, 56, 60])
def test_records_that_are_written_a_few_bytes_before_each_read(step: int) -> None:
    for at in range(count_reads() + 1):
        live = Live()

        def before_read(number: int, live: Live = live, at: int = at) -> None:
            if number >= at:
                live.write(_END + (number - at + 1) * step)

        assert errors(live, LiveSource(live, before_read)) == [], f"written from read {at} on"


def test_a_copy_of_several_records_that_is_interrupted() -> None:
    """The broker is interrupted in the middle of a copy, and goes on while the check waits."""
    for at in range(count_reads() + 1):
        live = Live()
        waits: list[int] = []

        def before_read(number: int, live: Live = live, at: int = at) -> None:
            if number == at:
                live.write_all_but_the_head()

        def settle(live: Live = live, waits: list[int] = waits) -> bool:
            waits.append(1)
            if len(waits) == 3:
                live.write()
            return True

        assert errors(live, LiveSource(live, before_read), settle) == [], f"written in front of read {at}"


def test_a_copy_that_is_never_completed_is_an_error() -> None:
    live = Live()
    live.write_all_but_the_head()
    waits: Iterator[bool] = iter([True, True, False])
    assert "records-after-end" in errors(live, LiveSource(live), lambda: next(waits))
    assert next(waits, None) is None


def test_a_store_in_memory_is_not_waited_for() -> None:
    live = Live()
    live.write_all_but_the_head()
    assert "records-after-end" in errors(live, FileView(JOURNAL_NAME, live.buffer))
