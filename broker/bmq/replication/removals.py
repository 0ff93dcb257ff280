# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The messages removed before a journal begins, as sent to a node that receives the partition from scratch.

The reference's protocol has no message for that, so only nodes whose identity has the feature
`core.negotiation.REMOVALS_FEATURE` get it. It precedes the records, in RECOVERY events, one for each block of a file of
`store.removals`. The chunks have a file type that the reference does not use (UNDEFINED), and an MD5. A chunk begins
with `_HEAD`: the time of the block's last record in seconds, its age by the sender's monotonic clock in milliseconds,
and the length of the block's body, which follows. Integers are little-endian; the chunk is padded to words.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.store.removals import Told
from formats.bmq.codes import EventType, RecoveryFileChunkType
from formats.bmq.padding import WORD
from formats.bmq.wire.event import build_event
from formats.bmq.wire.recovery import RecoveryChunk, append_chunk, is_sound
from formats.errors import FormatError

__all__ = ["removals_events", "take_removals"]

_HEAD: Final = struct.Struct("<qqI")
_AGE_MS_MAX: Final = 1 << 40


def removals_events(stored: StoredPartition, newest_s: int) -> Iterator[bytes]:
    """Yield events with the messages known to be removed before this node's journal, oldest first.

    `newest_s` is the time of that journal's last record.
    """
    told = stored.removals.told(stored.files, newest_s, stored.now.ms)
    for number, block in enumerate(told):
        data = _HEAD.pack(block.last_s, block.age_ms, len(block.body)) + block.body
        out = bytearray()
        append_chunk(out, RecoveryFileChunkType.UNDEFINED, stored.partition_id, number, data + bytes(-len(data) % WORD))
        yield build_event(EventType.RECOVERY, out)


def take_removals(stored: StoredPartition, chunk: RecoveryChunk) -> None:
    """Store another node's removals. Raises FormatError if the chunk is not a complete block."""
    data = chunk.data
    if chunk.file_chunk_type != RecoveryFileChunkType.UNDEFINED or len(data) < _HEAD.size or not is_sound(chunk):
        raise FormatError("RecoveryHeader", 0, "not a complete block of removed messages")
    last_s, age_ms, length = _HEAD.unpack_from(data)
    body = data[_HEAD.size : _HEAD.size + length]
    if len(body) != length or not 0 <= age_ms <= _AGE_MS_MAX or not 0 <= last_s < 1 << 40:
        raise FormatError("RecoveryHeader", 0, f"a block of {length} bytes, {age_ms} ms old, in {len(data)} bytes")
    stored.removals.take(stored.files, Told(last_s, age_ms, bytes(body)), stored.now.ms)
