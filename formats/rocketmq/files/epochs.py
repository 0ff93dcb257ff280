"""`epochFileCheckpoint`: the start of each master's term in the commit log (source: EpochFileCache, CheckpointFile).

Lines of text: the number of entries, the CRC-32 of the entries' lines without its top bit (0 is not compared), and one
`epoch-startOffset` each.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from formats.errors import FormatError

__all__ = ["EpochEntry", "decode_epochs", "encode_epochs"]

_ENTRY = re.compile(r"([0-9]{1,10})-([0-9]{1,19})")
_NUMBER = re.compile(r"[0-9]{1,10}")


class EpochEntry(NamedTuple):
    """An epoch, and the offset of its first record. It ends where the next begins."""

    epoch: int
    start_offset: int


def _checksum(lines: bytes) -> int:
    return zlib.crc32(lines) & 0x7FFFFFFF


def encode_epochs(entries: Sequence[EpochEntry]) -> bytes:
    lines = "".join(f"{epoch}-{offset}\n" for epoch, offset in entries).encode()
    return f"{len(entries)}\n{_checksum(lines)}\n".encode() + lines


def decode_epochs(data: bytes) -> list[EpochEntry]:
    """Decode a file's entries, in order. Raises `FormatError` if count, checksum or order are wrong."""
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise FormatError("EpochFile", error.start, "is not ASCII") from None
    if len(lines) < 2 or not all(_NUMBER.fullmatch(line) for line in lines[:2]):
        raise FormatError("EpochFile", 0, "does not begin with two lines of a number each")
    entries: list[EpochEntry] = []
    for line in lines[2:]:
        found = _ENTRY.fullmatch(line)
        if found is None:
            raise FormatError("EpochFile.entry", 0, f"{line!r} is not EPOCH-OFFSET")
        entries.append(EpochEntry(int(found[1]), int(found[2])))
    if len(entries) != int(lines[0]):
        raise FormatError("EpochFile.count", 0, f"says {lines[0]}, but there are {len(entries)} entries")
    checksum = _checksum("".join(f"{line}\n" for line in lines[2:]).encode())
    if int(lines[1]) not in (0, checksum):
        raise FormatError("EpochFile.checksum", 0, f"says {lines[1]}, but the entries make {checksum}")
    for before, entry in pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset < before.start_offset:
            raise FormatError("EpochFile.entry", 0, f"{entry} does not follow {before}")
    return entries
