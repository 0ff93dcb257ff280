"""Readers of a journal into which a broker is copying records, the beginning of the first one last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from bmqctl.carrying.replay.messages import MessageSource
from bmqctl.pipeline.source.options import FileSets
from bmqctl.pipeline.source.partitions import Journal, find_journals, find_lost_files
from bmqctl.stores.blazingmq.read import scan
from bmqctl.stores.blazingmq.read.losses import record_losses
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from tests.bmqctl.pipeline.written import WrittenStore
from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., Outcome]
QUEUE: Final = b"queue"
COPIED: Final = 5
RECORDS: Final = 22
# The bytes that a processor stores at once, and their part up to the next aligned address.
STORES: Final = (1, 32, 61, 64)


class Broker:
    """A broker that was interrupted while it copied the last records, and goes on when a reader waits."""

    def __init__(self, directory: Path, hidden: int, *, syncs: bool) -> None:
        store = WrittenStore()
        store.queue(QUEUE, "bmq://domain/queue", ("__default", b"0\0\0\0\0"))
        store.sync_point()
        for number in range(RECORDS - 2 - syncs):
            store.message(QUEUE, bytes([number]) * 16)
        if syncs:
            store.sync_point()
        store.save(directory)
        self.path = next(directory.glob("*.bmq_journal"))
        self.content = self.path.read_bytes()
        begin = len(self.content) - COPIED * JOURNAL_RECORD_SIZE
        self.path.write_bytes(self.content[:begin] + bytes(hidden) + self.content[begin + hidden :])

    def settling(self) -> Callable[[], bool]:
        def settle() -> bool:
            assert self.path.read_bytes() != self.content
            self.path.write_bytes(self.content)
            return True

        return settle


def _begin(directory: Path, hidden: int, syncs: bool, monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker(directory, hidden, syncs=syncs)
    monkeypatch.setattr(scan, "settling", broker.settling)
    return broker


def _replayed(store: Path) -> int:
    with MessageSource(next(store.glob("*.bmq_journal"))) as source:
        chunks = list(source.reader.chunks())
        assert not any(chunk.faults for chunk in chunks)
        return sum(map(len, chunks))


def _exported(store: Path) -> int:
    (found,) = find_journals([str(store)], FileSets.ALL)
    assert isinstance(found, Journal)
    return found.record_count


def _accounted(store: Path) -> int:
    account = record_losses(store)
    assert account.is_sound, account.words()
    return account.records


@pytest.mark.parametrize("syncs", [False, True])
@pytest.mark.parametrize("hidden", STORES)
@pytest.mark.parametrize("read", [_replayed, _exported, _accounted])
def test_all_records_are_read_when_the_first_one_is_complete(
    read: Callable[[Path], int], hidden: int, syncs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _begin(tmp_path, hidden, syncs, monkeypatch)
    assert read(tmp_path) == RECORDS


@pytest.mark.parametrize("words", [("dump",), ("summary",), ("queues",), ("dump", "--outstanding")])
def test_no_command_takes_it_for_damage(
    words: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = _begin(tmp_path, 32, True, monkeypatch)
    found = run(*words, tmp_path)
    assert (found.code, found.err) == (0, ""), found
    assert broker.path.read_bytes() == broker.content
    assert run(*words, tmp_path) == found


def test_record_that_stays_half_written_is_damage(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(tmp_path, 32, syncs=False)
    monkeypatch.setattr(scan, "settling", lambda: lambda: False)
    for words in (("dump",), ("summary",), ("queues",)):
        assert run(*words, tmp_path).code == 1, words
    told = f"{COPIED} places with {COPIED * JOURNAL_RECORD_SIZE} bytes are damaged"
    assert told in record_losses(tmp_path).words()
    assert told in find_lost_files([str(tmp_path)], FileSets.ALL).words()
