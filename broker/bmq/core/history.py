# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""GUIDs of removed messages, to recognise a producer's repetition (source: bmqc::OrderedHashMapWithHistory).

A GUID ends with its producer, after an increasing tick: nearly every post is later than all earlier ones of its
producer, and thus new without a search. Removed GUIDs are in a list; its index is made on demand and has 64 bits of
each. For each stored GUID, a new one is taken for a repetition with a chance of one in 2**64.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker.bmq.store.removals import PRODUCER_SIZE, Removed, hashes_of, latest_of
from formats.bmq.guid import CLIENT_ID_SIZE, GUID_SIZE

__all__ = ["History"]

CHUNK_BYTES: Final = GUID_SIZE << 17
# The list since the last index is searched linearly up to this size.
TAIL_BYTES: Final = GUID_SIZE << 12


class GuidChunk:
    """GUIDs in the order of removal, or 64 bits of each in ascending order; `until_ms` is the last one's time."""

    __slots__ = ("_index", "_indexed", "data", "since_ms", "until_ms")

    def __init__(self, since_ms: int, hashes: NDArray[np.uint64] | None = None) -> None:
        self.data = bytearray()
        self.since_ms = self.until_ms = since_ms
        self._index: NDArray[np.uint64] = np.empty(0, np.uint64) if hashes is None else hashes
        self._indexed = 0

    @property
    def size(self) -> int:
        return len(self.data) // GUID_SIZE or len(self._index)

    def has(self, guid: bytes) -> bool:
        if len(self.data) - self._indexed > TAIL_BYTES:
            self._index = np.sort(hashes_of(bytes(self.data)))
            self._indexed = len(self.data)
        wanted = hashes_of(guid)[0]
        at = int(np.searchsorted(self._index, wanted))
        if at < len(self._index) and self._index[at] == wanted:
            return True
        at = self.data.find(guid, self._indexed)
        while at >= 0 and at % GUID_SIZE:
            at = self.data.find(guid, at + 1)
        return at >= 0


class History:
    """The GUIDs removed within `window_ms`; 0 for none.

    `_chunks` are in the order of time; the last is written to. `_latest` has each producer's greatest tick seen or
    removed in this window, `_latest_before` in the window before.
    """

    __slots__ = ("_buried", "_chunks", "_data", "_latest", "_latest_before", "_turned_ms", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._chunks: deque[GuidChunk] = deque()
        self._data: bytearray | None = None  # of the last chunk
        self._buried: list[Container[bytes]] = []
        self._latest: dict[bytes, bytes] = {}
        self._latest_before: dict[bytes, bytes] = {}
        self._turned_ms = 0

    @property
    def size(self) -> int:
        return sum(chunk.size for chunk in self._chunks)

    def is_new(self, guid: bytes) -> bool:
        """Return True if no message with this GUID has been seen, and note it as seen."""
        producer, ticks = guid[10:], guid[3:10]
        latest = self._latest.get(producer)
        if latest is None:
            latest = self._latest_before.get(producer, b"")
        if ticks > latest:
            self._latest[producer] = ticks
            # Buried messages may be older than both windows.
            return not (self._buried and any(guid in each for each in self._buried))
        self._latest.setdefault(producer, latest)
        return not any(chunk.has(guid) for chunk in self._chunks) and not any(guid in each for each in self._buried)

    def are_new(self, guids: Sequence[bytes]) -> bool:
        """Note GUIDs as seen and return True if each is later than its producer's earlier ones.

        Otherwise some may have been seen: nothing is noted; call `is_new` for each.
        """
        if self._buried:
            return False
        found: dict[bytes, bytes] = {}
        producer, latest = b"", b""
        for guid in guids:
            if guid[10:] != producer:
                if producer:
                    found[producer] = latest
                producer = guid[10:]
                latest = found.get(producer) or self._latest.get(producer) or self._latest_before.get(producer, b"")
            ticks = guid[3:10]
            if ticks <= latest:
                return False
            latest = ticks
        if producer:
            found[producer] = latest
        self._latest.update(found)
        return True

    def add(self, guid: bytes, now_ms: int) -> None:
        data = self._data
        if data is not None and len(data) < CHUNK_BYTES:
            data += guid
            # It may have waited since an earlier window.
            producer, ticks = guid[10:], guid[3:10]
            latest = self._latest.get(producer)
            if latest is None:
                latest = self._latest[producer] = self._latest_before.get(producer, b"")
            if ticks > latest:
                self._latest[producer] = ticks
        elif self.window_ms:
            self._open_chunk(now_ms)
            self.add(guid, now_ms)

    def bury(self, guids: Container[bytes]) -> None:
        """Note very many removed messages, which are `add`ed as they leave the container."""
        if self.window_ms:
            self._buried.append(guids)

    def unbury(self, guids: Container[bytes]) -> None:
        """End a `bury`: all its messages have been added."""
        self._buried = [each for each in self._buried if each is not guids]

    def restore(self, guids: bytes, now_ms: int, before: Iterable[Removed] = ()) -> None:
        """Restore messages removed before this process, first of all: `guids` count as removed now.

        `before` is oldest first; parts older than the window are left out.
        """
        removed = [each for each in before if each.age_ms <= self.window_ms]
        if guids:
            removed.append(Removed(np.sort(hashes_of(guids)), latest_of(guids), 0))
        if not self.window_ms:
            return
        latest = self._latest
        for hashes, producers, age_ms in removed:
            for at in range(0, len(producers), PRODUCER_SIZE):
                producer, ticks = (
                    producers[at : at + CLIENT_ID_SIZE],
                    producers[at + CLIENT_ID_SIZE : at + PRODUCER_SIZE],
                )
                if ticks > latest.get(producer, b""):
                    latest[producer] = ticks
            self._chunks.append(GuidChunk(now_ms - age_ms, hashes))

    def expire(self, now_ms: int) -> None:
        """Drop GUIDs older than the window; to be called periodically."""
        if self._data is not None and now_ms - self._chunks[-1].since_ms > self.window_ms // 8:
            self._close_chunk(now_ms)
        while self._chunks and self._chunks[0].data is not self._data:
            if now_ms - self._chunks[0].until_ms <= self.window_ms:
                break
            self._chunks.popleft()
        if (self._latest or self._latest_before) and now_ms - self._turned_ms > self.window_ms:
            self._latest, self._latest_before, self._turned_ms = {}, self._latest, now_ms

    def _open_chunk(self, now_ms: int) -> None:
        if self._data is not None:
            self._close_chunk(now_ms)
        chunk = GuidChunk(now_ms)
        self._chunks.append(chunk)
        self._data = chunk.data

    def _close_chunk(self, now_ms: int) -> None:
        self._chunks[-1].until_ms = now_ms
        self._data = None
