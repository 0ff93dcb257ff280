"""Messages of controllers to each other, and the blocks of their journals."""

from __future__ import annotations

import struct
import zlib

import pytest

from formats.errors import FormatError
from formats.rocketmq.remoting.raft import (
    ENTRIES_MAX,
    Append,
    Appended,
    Ballot,
    Entry,
    Install,
    JournalRecord,
    Message,
    Solicit,
    encode_block,
    encode_message,
    find_block,
    read_block,
    read_message,
)

MESSAGES: list[Message] = [
    Solicit(3, 7, 2, True),
    Ballot(3, granted=False),
    Append(3, 7, 2, 6, 123, [Entry(2, "a"), Entry(3, "")]),
    Install(3, 7, 2, 123, '{"x":"\\""}'),
    Appended(3, True, 9, 123),
]
RECORDS = [JournalRecord("vote", 3, 0, "n1"), JournalRecord("entry", 3, 8, "text"), JournalRecord("snapshot", 2, 7, "")]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_is_read_as_it_was_written(message: Message) -> None:
    kind, body = encode_message(message)
    assert read_message(kind, body) == message


UNFIT: dict[str, tuple[str, bytes]] = {
    "another kind": ("other", b"{}"),
    "a missing field": ("solicit", b'{"term":1,"lastIndex":2}'),
    "a negative number": ("solicit", b'{"term":-1,"lastIndex":2,"lastTerm":1}'),
    "a number beyond all": ("solicit", b'{"term":4611686018427387904,"lastIndex":2,"lastTerm":1}'),
    "entries that go back": encode_message(Append(3, 7, 2, 6, 1, [Entry(3, ""), Entry(2, "")])),
    "entries of a later term": encode_message(Append(3, 7, 2, 6, 1, [Entry(4, "")])),
    "entries before the one that they follow": encode_message(Append(3, 7, 2, 6, 1, [Entry(1, "")])),
    "too many entries": encode_message(Append(3, 7, 2, 6, 1, [Entry(3, "")] * (ENTRIES_MAX + 1))),
    "an entry of no term": ("append", b'{"term":1,"previousIndex":0,"previousTerm":0,"commit":0,"entries":[{}]}'),
    "no JSON": ("ballot", b"\xff"),
}


@pytest.mark.parametrize(("kind", "body"), UNFIT.values(), ids=UNFIT)
def test_unfit_message_is_refused(kind: str, body: bytes) -> None:
    with pytest.raises(FormatError):
        read_message(kind, body)


def test_blocks_follow_each_other() -> None:
    data = encode_block(RECORDS[:1]) + encode_block(RECORDS[1:])
    first = read_block(data, 0)
    assert first is not None
    assert first.records == RECORDS[:1]
    assert read_block(data, first.end) == (RECORDS[1:], len(data))
    assert read_block(data, len(data)) is None


def test_block_that_is_not_whole_is_none() -> None:
    data = encode_block(RECORDS)
    for end in range(len(data)):
        assert read_block(data[:end] + bytes(len(data) - end if end % 2 else 0), 0) is None
    for at in range(0, len(data), 7):
        assert read_block(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 0) is None
    # Nothing has a checksum, too.
    assert read_block(b"bmqraft\x01" + bytes(8), 0) is None


def test_block_is_found_behind_damage() -> None:
    data = encode_block(RECORDS[:1]) + encode_block(RECORDS[1:])
    second = len(encode_block(RECORDS[:1]))
    damaged = bytes([data[0] ^ 1]) + data[1:]
    assert read_block(damaged, 0) is None
    assert find_block(damaged, 0) == second
    assert find_block(damaged, second + 1) is None


def test_block_with_impossible_records_is_refused() -> None:
    for body in (b'{"records":[{"kind":"vote","term":-1}]}', b'{"records":[{}]}', b"x"):
        with pytest.raises(FormatError):
            read_block(b"bmqraft\x01" + struct.pack(">II", len(body), zlib.crc32(body)) + body, 0)
