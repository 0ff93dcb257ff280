"""Raft messages between bmqctl's controllers, and the journal file of each controller.

The original has no such format: its controllers reach agreement differently, and do not mix with bmqctl's. A message is
a frame of the remoting protocol with `CODE`, `RaftHeader` as its fields, and JSON as its body. The file holds blocks,
each written and flushed as a whole: magic, length of the body, CRC-32 of the body, and the body, JSON with records.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.headers.codec import codec_of
from formats.schema import Buffer

__all__ = [
    "CODE",
    "ENTRIES_MAX",
    "KINDS",
    "RAFT_HEADER",
    "TEXT_CHARS_MAX",
    "Append",
    "Appended",
    "Ballot",
    "Block",
    "Entry",
    "Install",
    "JournalRecord",
    "Message",
    "RaftHeader",
    "Solicit",
    "encode_block",
    "encode_message",
    "find_block",
    "read_block",
    "read_message",
]

# Far from the original's request codes.
CODE: Final = 59_001
ENTRIES_MAX: Final = 64
# A snapshot is sent in one frame, which holds at most 16 MiB.
TEXT_CHARS_MAX: Final = 8 << 20
NUMBER_MAX: Final = (1 << 62) - 1

_MAGIC: Final = b"bmqraft\x01"
_HEAD: Final = struct.Struct(">8sII")


class RaftHeader(NamedTuple):
    """The group of controllers that a message is for, its sender, receiver and kind."""

    group: str
    sender: str
    receiver: str
    kind: str


class Entry(NamedTuple):
    """An entry of the log: the term in which a leader made it, and a command, if any."""

    term: int
    text: str


class Solicit(NamedTuple):
    """A candidate's request for a vote; with `pre`, it only asks whether it would get one."""

    term: int
    last_index: int
    last_term: int
    pre: bool = False


class Ballot(NamedTuple):
    """The answer to a `Solicit`. A refused ballot has the term of its sender."""

    term: int
    granted: bool
    pre: bool = False


class Append(NamedTuple):
    """A leader's entries after one that the receiver should have; may be empty. `sent_ms` is by the leader's clock."""

    term: int
    previous_index: int
    previous_term: int
    commit: int
    sent_ms: int
    entries: list[Entry] = []


class Install(NamedTuple):
    """A leader's state up to an entry that the receiver lacks and the leader's log has dropped."""

    term: int
    position: int
    entry_term: int
    sent_ms: int
    text: str


class Appended(NamedTuple):
    """The answer to `Append` and `Install`: the end of the part that the receiver shares with the leader or, if not
    `ok`, of its log.
    """

    term: int
    ok: bool
    position: int
    sent_ms: int


Message = Solicit | Ballot | Append | Install | Appended

KINDS: Final[dict[str, type[Any]]] = {
    "solicit": Solicit,
    "ballot": Ballot,
    "append": Append,
    "install": Install,
    "appended": Appended,
}
RAFT_HEADER: Final = codec_of(RaftHeader)
_CODECS: Final[dict[str, BodyCodec[Any]]] = {kind: BodyCodec(cls, fastjson.FILE) for kind, cls in KINDS.items()}
_NAMES: Final = {cls: kind for kind, cls in KINDS.items()}


def encode_message(message: Message) -> tuple[str, bytes]:
    """Encode a message as its kind and the body of its frame."""
    kind = _NAMES[type(message)]
    return kind, _CODECS[kind].write(message)


def read_message(kind: str, body: Buffer) -> Message:
    """Decode the body of a frame. Raises `FormatError`, also for numbers and texts that no controller would send."""
    codec = _CODECS.get(kind)
    if codec is None:
        raise FormatError("RaftHeader.kind", 0, f"{kind[:40]!r} is no kind of message")
    message: Message = codec.read(body)
    for name, value in zip(message._fields, message, strict=True):
        if type(value) is int and not 0 <= value <= NUMBER_MAX:
            raise FormatError(f"{kind}.{name}", 0, f"{value} is not between 0 and {NUMBER_MAX}")
    if isinstance(message, Append):
        _check_entries(message)
    elif isinstance(message, Install):
        _check_state(message)
    return message


def _check_state(message: Install) -> None:
    if len(message.text) > TEXT_CHARS_MAX:
        raise FormatError("install.text", 0, f"has {len(message.text)} characters, more than {TEXT_CHARS_MAX}")
    if message.entry_term > message.term:
        raise FormatError("install.entryTerm", 0, f"term {message.entry_term} is after {message.term}")


def _check_entries(message: Append) -> None:
    if len(message.entries) > ENTRIES_MAX:
        raise FormatError("append.entries", 0, f"there are {len(message.entries)}, more than {ENTRIES_MAX}")
    before = message.previous_term
    for entry in message.entries:
        if not before <= entry.term <= message.term:
            raise FormatError("append.entries", 0, f"term {entry.term} is not between {before} and {message.term}")
        before = entry.term


class JournalRecord(NamedTuple):
    """A record of the file, by its kind:

    - `vote`: the controller `text`, or nobody, has the vote in `term`.
    - `entry`: the entry at this position; it replaces this and all later entries of the log.
    - `snapshot`: the state up to an entry, with which the log begins; it precedes all entries of its file.
    """

    kind: str
    term: int
    position: int = 0
    text: str = ""


class Block(NamedTuple):
    """Some records of the file, and the end of their block."""

    records: list[JournalRecord]
    end: int


class _Body(NamedTuple):
    records: list[JournalRecord] = []


_BODY: Final = BodyCodec(_Body, fastjson.FILE)


def encode_block(records: Sequence[JournalRecord]) -> bytes:
    body = _BODY.write(_Body(list(records)))
    return _HEAD.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def read_block(data: bytes, at: int) -> Block | None:
    """Read the block at an offset; None if it is incomplete. Raises `FormatError` for a malformed one."""
    if at + _HEAD.size > len(data):
        return None
    magic, size, checksum = _HEAD.unpack_from(data, at)
    begin = at + _HEAD.size
    body = data[begin : begin + size]
    if magic != _MAGIC or not size or len(body) < size or zlib.crc32(body) != checksum:
        return None
    records = _BODY.read(body).records
    for record in records:
        if not (0 <= record.term <= NUMBER_MAX and 0 <= record.position <= NUMBER_MAX):
            raise FormatError("JournalRecord", at, f"impossible numbers: term {record.term}, index {record.position}")
    return Block(records, begin + size)


def find_block(data: bytes, at: int) -> int | None:
    """Return the offset of the first whole block at or after `at`."""
    while (at := data.find(_MAGIC, at)) >= 0:
        if read_block(data, at) is not None:
            return at
        at += 1
    return None
