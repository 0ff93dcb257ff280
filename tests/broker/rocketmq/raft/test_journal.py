"""The journal of a controller: found again after every kind of end."""

from __future__ import annotations

import pytest

from broker.rocketmq.raft.journal import Journal, JournalDamaged, Snapshot
from formats.errors import FormatError
from formats.rocketmq.remoting.raft import Entry, JournalRecord, encode_block
from tests.broker.rocketmq.raft.files import MemoryFile


def check(text: str) -> None:
    if text == "bad":
        raise FormatError("text", 0, "is bad")


def opened(file: MemoryFile) -> Journal:
    return Journal.open(file, check, check)


def content(journal: Journal) -> tuple[int, str, Snapshot, list[Entry]]:
    return journal.term, journal.vote, journal.snapshot, journal.entries


def written() -> Journal:
    journal = opened(MemoryFile())
    journal.keep_vote(1, "n0")
    journal.keep_entries(1, [Entry(1, ""), Entry(1, "a"), Entry(1, "b")])
    journal.keep_vote(3, "")
    journal.keep_entries(3, [Entry(3, "c")])
    return journal


def test_all_is_there_again() -> None:
    journal = written()
    assert content(journal) == (3, "", Snapshot(), [Entry(1, ""), Entry(1, "a"), Entry(3, "c")])
    assert content(opened(journal.file)) == content(journal)  # type: ignore[arg-type]
    assert [journal.term_of(index) for index in range(5)] == [0, 1, 1, 3, None]


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_snapshot_takes_the_place_of_entries(at: int) -> None:
    journal = written()
    term = journal.term_of(at)
    assert term is not None
    journal.keep_snapshot(Snapshot(at, term, "state"))
    again = opened(journal.file)  # type: ignore[arg-type]
    assert again.last == journal.last == 3
    assert (again.last_term, again.term) == (3, 3)
    assert again.slice(at + 1, 9) == [Entry(1, ""), Entry(1, "a"), Entry(3, "c")][at:]
    assert again.snapshot == (Snapshot(at, term, "state") if at else Snapshot())
    again.keep_entries(4, [Entry(3, "d")])
    assert content(opened(journal.file)) == content(again)  # type: ignore[arg-type]


def test_snapshot_that_others_had_replaces_what_does_not_follow_it() -> None:
    journal = written()
    journal.keep_snapshot(Snapshot(2, 2, "state"))
    assert content(journal) == (3, "", Snapshot(2, 2, "state"), [])
    journal.keep_snapshot(Snapshot(9, 3, "state"))
    assert (journal.first, journal.last, journal.last_term) == (10, 9, 3)


def test_block_that_was_cut_off_is_taken_off() -> None:
    whole = written().file.read()
    blocks = [at for at in range(len(whole)) if whole.startswith(b"bmqraft\x01", at)]
    for end in range(blocks[-1] + 1, len(whole)):
        file = MemoryFile(whole[:end])
        assert content(opened(file))[3] == [Entry(1, ""), Entry(1, "a"), Entry(1, "b")]
        assert file.data == whole[: blocks[-1]]


def test_damage_before_the_end_is_told() -> None:
    whole = written().file.read()
    blocks = [at for at in range(len(whole)) if whole.startswith(b"bmqraft\x01", at)]
    for at in range(blocks[-1]):
        data = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        with pytest.raises(JournalDamaged, match="no block at offset"):
            opened(MemoryFile(data))


IMPOSSIBLE: dict[str, list[JournalRecord]] = {
    "a term that goes back": [JournalRecord("vote", 2), JournalRecord("vote", 1)],
    "a gap": [JournalRecord("vote", 2), JournalRecord("entry", 1, 2)],
    "an entry of a later term": [JournalRecord("vote", 1), JournalRecord("entry", 2, 1)],
    "a bad command": [JournalRecord("vote", 1), JournalRecord("entry", 1, 1, "bad")],
    "a bad state": [JournalRecord("vote", 1), JournalRecord("snapshot", 1, 1, "bad")],
    "another kind": [JournalRecord("other", 1)],
}


@pytest.mark.parametrize("records", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_records_are_told(records: list[JournalRecord]) -> None:
    with pytest.raises(JournalDamaged, match="cannot be used"):
        opened(MemoryFile(encode_block(records)))


def test_nothing_changes_when_the_disk_is_full() -> None:
    journal = written()
    before = content(journal)
    assert isinstance(journal.file, MemoryFile)
    journal.file.is_full = True
    with pytest.raises(OSError, match="No space"):
        journal.keep_vote(9, "n2")
    with pytest.raises(OSError, match="No space"):
        journal.keep_entries(2, [Entry(3, "x")])
    with pytest.raises(OSError, match="No space"):
        journal.keep_snapshot(Snapshot(1, 1, "s"))
    assert content(journal) == before
    assert content(opened(journal.file)) == before


def test_all_is_written_anew_after_a_flush_that_failed() -> None:
    journal = written()
    assert isinstance(journal.file, MemoryFile)
    journal.file.fails_to_flush = True
    with pytest.raises(OSError, match="Input/output"):
        journal.keep_vote(9, "n2")
    assert (journal.term, journal.file.is_sound) == (3, False)
    journal.file.fails_to_flush = False
    # The kernel has dropped what it could not write.
    journal.file.data = journal.file.data[:40]
    journal.keep_vote(4, "n1")
    assert content(opened(journal.file)) == content(journal)
    assert (journal.term, journal.vote) == (4, "n1")
