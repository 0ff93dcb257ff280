"""The declarations of index files, read at run time; `formats.rocketmq.files.index` has the codec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from formats.rocketmq.java import index_hashes
from formats.schema import Annotated, Layout, i32, i64, u32

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["INDEX_ENTRY", "INDEX_HEADER", "IndexEntry", "IndexHeader", "IndexKeys"]


class IndexHeader(NamedTuple):
    """The span of a file. `slot_count` is the number of slots in use; `index_count` is the number of the next entry.

    rocketmq::IndexHeader, 40 bytes:

         0 | begin_ms 64     |
         8 | end_ms 64       |
        16 | begin_offset 64 |
        24 | end_offset 64   |
        32 | slot_count 32   |
        36 | index_count 32  |
    """

    begin_ms: Annotated[int, i64, "When the file's first message was stored."]
    end_ms: Annotated[int, i64, "When its last message was stored."]
    begin_offset: Annotated[int, i64, "Where the first message begins in the commit log."]
    end_offset: Annotated[int, i64, "Where the last one begins."]
    slot_count: Annotated[int, i32, "How many slots are in use."]
    index_count: Annotated[int, i32, "The number of the next entry."]


class IndexEntry(NamedTuple):
    """One key of one message.

    `seconds` is the time from the file's first message to this one, `previous` the number of the next entry to look at.

    rocketmq::IndexFile, 20 bytes:

         0 | key_hash 32        |
         4 | physical_offset 64 |
        12 | seconds 32         |
        16 | previous 32        |
    """

    key_hash: Annotated[int, u32, "Hash of topic and key."]
    physical_offset: Annotated[int, i64, "Where the message's record begins in the commit log."]
    seconds: Annotated[int, i32, "How long after the file's first message it was stored."]
    previous: Annotated[int, i32, "The number of the entry before it in the same slot; 0 for none."]


INDEX_HEADER = Layout(IndexHeader, size=40, upstream="rocketmq::IndexHeader")
INDEX_ENTRY = Layout(IndexEntry, size=20, upstream="rocketmq::IndexFile")


class IndexKeys(NamedTuple):
    """Keys of messages, in columns: `java.index_hash` of each, the message's offset, and its storing time."""

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    times: NDArray[np.int64]

    @classmethod
    def of(cls, keys: Sequence[bytes], offsets: Sequence[int], times: Sequence[int]) -> IndexKeys:
        """Hash texts in UTF-8, none of which is empty."""
        import numpy as np

        return cls(index_hashes(keys), np.array(offsets, np.int64), np.array(times, np.int64))

    def part(self, begin: int, end: int) -> IndexKeys:
        return IndexKeys(self.hashes[begin:end], self.offsets[begin:end], self.times[begin:end])
