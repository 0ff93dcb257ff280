"""The messages removed from a partition, by GUID, for as long as producers may repeat them.

A journal has its removals only until the partition rolls over. They are kept in separate files beside the partition's,
which the reference ignores:

    bmqctl_<partition id>.<YYYYMMDD_HHMMSS>.removed

They are only appended to. A file begins with `FILE_MAGIC` and holds blocks of a header and a body. The header (`_HEAD`)
has a magic, the length of the body, the time of the last record in seconds, the monotonic clock in milliseconds, the
timestamp of the journal, and a CRC-32C over these and the body. The body has, for each queue, its key, the numbers of
producers and of GUIDs, for each producer its client id and greatest tick, and 64 bits of each GUID in ascending order,
since a new primary has no time to sort. Integers are little-endian.

Primary and replicas read a journal in parts while it grows, and write its removals here before they remove it. An
incomplete block ends its file. No message is lost then, but a repetition of a removed one may be taken for a new one.

A block's age is the lesser of those by two clocks, either of which may overstate it: a wall clock may be set, and a
monotonic one restarts with the machine, or is another machine's.
"""

from __future__ import annotations

import errno
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from broker.bmq.store.partition_files import PartitionFiles
from broker.bmq.store.purge_walk import PurgeWalk
from broker.bmq.store.recovery import deleted_guids, last_purges, purges
from broker.common.files import Directory, StoreFile
from formats.bmq.disk.files import FILE_HEADER, JOURNAL_FILE_HEADER, JOURNAL_RECORD_SIZE, FileType, open_file
from formats.bmq.disk.journal import ANY_RECORD, scan
from formats.bmq.disk.keys import KEY_SIZE
from formats.bmq.disk.padding import WORD
from formats.bmq.guid import GUID_SIZE
from formats.errors import FormatError
from formats.schema import Buffer

__all__ = ["PRODUCER_SIZE", "RETENTION_MS", "Removals", "Removed", "Told", "Unreadable", "hashes_of", "latest_of"]

log: Final = logging.getLogger("broker.partition")

FILE_MAGIC: Final = b"bmqctl removed 2"
# Maximum size of a file: this fraction of the journal's, and at most FILE_BYTES_MAX.
FILE_PART: Final = 4
FILE_BYTES_MAX: Final = 32 << 20
SUFFIX: Final = ".removed"

# Number of records read, or GUIDs packed, at once.
SLICE_RECORDS: Final = 1 << 16
# Maximum size of removals of the journal in use that wait in memory.
PENDING_BYTES_MAX: Final = 1 << 20
# Minimum time for which files are kept.
RETENTION_MS: Final = 900_000
# A file is closed after this fraction of that time, to be removed in time.
AGE_PART_MAX: Final = 4

# The journal's name in a block from another node.
NO_JOURNAL: Final = bytes(16)

_BLOCK_MAGIC: Final = 0x52_4D_56_44
_HEAD: Final = struct.Struct("<IIqq16sI")
_QUEUE: Final = struct.Struct(f"<{KEY_SIZE}s3xII")
PRODUCER_SIZE: Final = 13

_MIX: Final = np.uint64(0x9E37_79B9_7F4A_7C15)

# Errors of a temporary shortage in the process or its machine: the file itself is intact.
_LACKING: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Unreadable(OSError):
    """A file that cannot be opened for now, for lack of descriptors or memory."""


class Removed(NamedTuple):
    """Messages removed from a queue: 64 bits of each GUID, ascending; their `latest_of`; and the last one's age."""

    hashes: NDArray[np.uint64]
    latest: bytes
    age_ms: int


class Told(NamedTuple):
    """A block for another node, or from one: the time of its last record, and its age by the sender's clock."""

    last_s: int
    age_ms: int
    body: bytes


class RemovalBlock(NamedTuple):
    """A journal's removals, from a file; `last_s` and `ms` are the times in its header."""

    last_s: int
    ms: int
    journal: bytes
    body: memoryview


def hashes_of(guids: Buffer) -> NDArray[np.uint64]:
    halves = np.frombuffer(guids, ">u8").astype(np.uint64).reshape(-1, 2)
    mixed: NDArray[np.uint64] = halves[:, 0] * _MIX ^ halves[:, 1]
    return mixed


def latest_of(guids: Buffer) -> bytes:
    """Return each producer's client id and greatest tick; for their places in a GUID see `formats.bmq.guid`."""
    rows = np.frombuffer(guids, np.uint8).reshape(-1, GUID_SIZE)
    producers, ticks = (_numbers(rows[:, part]) for part in (slice(10, 16), slice(3, 10)))
    if (producers == producers[0]).all():
        firsts = order = np.zeros(1, np.int64)
        greatest = ticks.max(keepdims=True)
    else:
        order = np.argsort(producers, kind="stable")
        ordered = producers[order]
        firsts = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
        greatest = np.maximum.reduceat(ticks[order], firsts)
    out = np.empty((len(firsts), PRODUCER_SIZE), np.uint8)
    out[:, :6] = rows[order[firsts], 10:]
    out[:, 6:] = greatest.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 1:]
    return out.tobytes()


def _numbers(cells: NDArray[np.uint8]) -> NDArray[np.uint64]:
    wide = np.zeros((len(cells), 8), np.uint8)
    wide[:, 8 - cells.shape[1] :] = cells
    return wide.view(">u8").astype(np.uint64).reshape(-1)


class Removals:
    """The removals of one partition, kept for at least `retention_ms`."""

    def __init__(self, directory: Directory, partition_id: int, make_timestamp: Callable[[str], str]) -> None:
        self._directory = directory
        self._partition_id = partition_id
        self._prefix = f"bmqctl_{partition_id}."
        self._make_timestamp = make_timestamp
        self.retention_ms = RETENTION_MS
        self._closed_ms: dict[str, int | None] = {  # by file: when it was last written to, None for an earlier process
            name: None for name in directory.names() if name.startswith(self._prefix) and name.endswith(SUFFIX)
        }
        self._read_to: dict[str, int] = {}  # by journal
        self._walks: dict[str, PurgeWalk] = {}  # by journal: the search for messages removed by the purges read last
        self._found: deque[tuple[bytes, bytes]] = deque()  # queue keys and GUIDs, to be packed
        self._pending: list[bytes] = []  # blocks to be written
        self._file: StoreFile | None = None
        self._end = 0
        self._opened_ms = 0
        self._lacks_room = False

    def tick(self, files: PartitionFiles, now_ms: int) -> None:
        """Read on in the journal in use; called a few times a second, so that little is left at the end."""
        self._read(files)
        self._pack(files, SLICE_RECORDS, now_ms)
        if sum(map(len, self._pending)) > PENDING_BYTES_MAX:
            self._write(files, now_ms)
        if self._file is not None and now_ms - self._opened_ms > self.retention_ms // AGE_PART_MAX:
            self._close_file(now_ms)
        for name, closed_ms in list(self._closed_ms.items()):
            if closed_ms is None:
                self._closed_ms[name] = now_ms
            elif now_ms - closed_ms > self.retention_ms:
                self._remove(name)

    def _remove(self, name: str) -> None:
        del self._closed_ms[name]
        try:
            self._directory.remove(name)
        except OSError as error:
            log.warning("obsolete file %s cannot be removed: %s", name, error.strerror)

    def cut(self, files: PartitionFiles) -> None:
        name = files.journal.name
        if name in self._read_to:
            self._read_to[name] = min(self._read_to[name], files.journal_end)
        walk = self._walks.get(name)
        if walk is not None and walk.end > len(_records(files)):
            del self._walks[name]

    def catch_up(self, files: PartitionFiles, now_ms: int) -> bool:
        """Read a part of a journal that is about to be removed; return True if there is more."""
        more = self._read(files)
        self._pack(files, SLICE_RECORDS, now_ms)
        if sum(map(len, self._pending)) > PENDING_BYTES_MAX:
            self._write(files, now_ms)
        return more or bool(self._found)

    def note(self, queue_key: bytes, guids: bytes) -> None:
        """Keep GUIDs of messages that no app wants any longer, and that the journal in use does not remove.

        A process that dies after an app's purge or confirm leaves such messages.
        """
        self._found.append((queue_key, guids))

    def give_up(self, files: PartitionFiles, now_ms: int, *, synced: bool) -> None:
        """Keep the removals of a journal that is about to be removed, on the disk if `synced`."""
        while self._read(files) or self._found:
            self._pack(files, SLICE_RECORDS, now_ms)
        self._write(files, now_ms)
        self._read_to.pop(files.journal.name, None)
        self._walks.pop(files.journal.name, None)
        if synced and self._file is not None:
            self._file.flush()

    def _read(self, files: PartitionFiles) -> bool:
        name = files.journal.name
        walk = self._walks.get(name)
        if walk is not None:
            self._found.extend(walk.advance(_records(files), SLICE_RECORDS).items())
            if walk.is_over:
                del self._walks[name]
            return True
        first = open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
        start = self._read_to.get(name, first)
        end = min(files.journal_end, start + SLICE_RECORDS * JOURNAL_RECORD_SIZE)
        if end <= start:
            return False
        since = (start - first) // JOURNAL_RECORD_SIZE
        records = _records(files)[: (end - first) // JOURNAL_RECORD_SIZE]
        self._found.extend(deleted_guids(records[since:]).items())
        purged = last_purges(purges(records, since))
        if purged:
            self._walks[name] = PurgeWalk(purged)
        self._read_to[name] = end
        return True

    def _pack(self, files: PartitionFiles, count: int, now_ms: int) -> None:
        parts: list[bytes] = []
        while count and self._found:
            key, guids = self._found.popleft()
            taken = guids[: count * GUID_SIZE]
            if len(taken) < len(guids):
                self._found.appendleft((key, guids[len(taken) :]))
            count -= len(taken) // GUID_SIZE
            latest = latest_of(taken)
            parts += [
                _QUEUE.pack(key, len(latest) // PRODUCER_SIZE, len(taken) // GUID_SIZE),
                latest,
                np.sort(hashes_of(taken)).astype("<u8").tobytes(),
            ]
        if parts:
            at = self._read_to[files.journal.name] - JOURNAL_RECORD_SIZE
            last_s = ANY_RECORD.unpack(files.journal.buffer, at).timestamp
            body = b"".join(parts)
            fields = _BLOCK_MAGIC, len(body), last_s, now_ms, _stamp(files)
            self._pending.append(_HEAD.pack(*fields, _checksum(fields, body)) + body)

    # -- files

    def _write(self, files: PartitionFiles, now_ms: int) -> None:
        pending, self._pending = self._pending, []
        for block in pending:
            size = min(FILE_BYTES_MAX, len(files.journal.buffer) // FILE_PART)
            if not self._append(block, size, now_ms):
                if not self._lacks_room:
                    self._lacks_room = True
                    log.error(
                        "Partition [%d]: no room to record which messages were removed: messages that are resent after "
                        "the next restart or change of primary may be delivered twice",
                        self._partition_id,
                    )
                return
            self._lacks_room = False

    def _append(self, block: bytes, size: int, now_ms: int) -> bool:
        """Write a block, into a new file of `size` bytes if needed; return False if the disk is full."""
        if self._file is not None and self._end + len(block) > len(self._file.buffer):
            self._close_file(now_ms)
        file = self._file or self._open_file(max(size, len(FILE_MAGIC) + len(block)), now_ms)
        if file is None or not file.reserve(self._end + len(block)):
            return False
        # The head comes last: until then the block does not exist.
        start, self._end = self._end, self._end + len(block)
        file.buffer[start + _HEAD.size : self._end] = block[_HEAD.size :]
        file.buffer[start : start + _HEAD.size] = block[: _HEAD.size]
        return True

    def _open_file(self, size: int, now_ms: int) -> StoreFile | None:
        try:
            name = f"{self._prefix}{self._make_timestamp(self._prefix)}{SUFFIX}"
            file = self._directory.open(name, size)
        except OSError as error:
            log.warning("a file '%s*%s' cannot be made: %s", self._prefix, SUFFIX, error.strerror)
            return None
        if not file.reserve(len(FILE_MAGIC)):
            file.close()
            self._directory.remove(name)
            return None
        file.buffer[: len(FILE_MAGIC)] = FILE_MAGIC
        self._file, self._end, self._opened_ms = file, len(FILE_MAGIC), now_ms
        return file

    def _close_file(self, now_ms: int) -> None:
        assert self._file is not None
        self._closed_ms[self._file.name] = now_ms
        self._file.close(self._end)
        self._file = None

    def close(self, now_ms: int) -> None:
        """Close the file; removals in the journal in use stay there."""
        if self._file is not None:
            self._close_file(now_ms)

    # -- exchange between nodes

    def told(self, files: PartitionFiles, newest_s: int, now_ms: int) -> Iterator[Told]:
        """Yield blocks of messages removed before the journal in use began, within the retention, file by file.

        Files that cannot be opened for now are skipped.
        """
        current = _stamp(files)
        for name in [*sorted(self._closed_ms), *([self._file.name] if self._file is not None else ())]:
            try:
                content = self._content_of(name)
            except Unreadable as error:
                log.warning("%s cannot be read: %s", name, error.strerror)
                continue
            for block in _blocks(name, content):
                if block.journal != current and _age_ms(block, newest_s, now_ms) <= self.retention_ms:
                    yield Told(block.last_s, _passed_ms(block, now_ms), bytes(block.body))

    def take(self, files: PartitionFiles, told: Told, now_ms: int) -> None:
        """Keep a block from another node. Raises FormatError if its body is malformed."""
        _check_body(told.body)
        # The block belongs to no journal of this node, even one of that name.
        fields = _BLOCK_MAGIC, len(told.body), told.last_s, now_ms - told.age_ms, NO_JOURNAL
        self._pending.append(_HEAD.pack(*fields, _checksum(fields, told.body)) + told.body)
        self._write(files, now_ms)

    # -- queries

    def before(self, files: PartitionFiles, newest_s: int, now_ms: int) -> dict[bytes, list[Removed]]:
        """Return, by queue key, the messages removed before the journal in use began, oldest first.

        `newest_s` is the time of the last record. Raises `Unreadable`.
        """
        out: dict[bytes, list[Removed]] = {}
        for some in self.before_slowly(files, newest_s, now_ms):
            for key, removed in some:
                out.setdefault(key, []).append(removed)
        return out

    def before_slowly(self, files: PartitionFiles, newest_s: int, now_ms: int) -> Iterator[list[tuple[bytes, Removed]]]:
        """Yield the same as `before`, a block of a file at a time."""
        current, found = _stamp(files), False
        for name in (*sorted(self._closed_ms), *((self._file.name,) if self._file is not None else ())):
            for block in _blocks(name, self._content_of(name)):
                if block.journal == current:
                    continue  # the journal has these itself
                age_ms = _age_ms(block, newest_s, now_ms)
                told = [(key, Removed(hashes, latest, age_ms)) for key, latest, hashes in _queues(block.body)]
                found |= bool(told)
                yield told
        rolled_over_s = _rolled_over_s(files)
        if not found and rolled_over_s is not None and (newest_s - rolled_over_s) * 1000 < self.retention_ms:
            log.warning(
                "Partition [%d]: the messages removed before the last rollover are not known here: "
                "messages that are resent may be delivered twice",
                self._partition_id,
            )

    def _content_of(self, name: str) -> bytes:
        """Return a copy of a file's contents. Raises `Unreadable` for a temporary failure.

        A copy, since a file that is being read cannot be closed: the one in use when it is full or old enough, another
        when read to its end.
        """
        if self._file is not None and name == self._file.name:
            return bytes(self._file.buffer[: self._end])
        if name not in self._closed_ms:
            return b""  # removed meanwhile as too old
        try:
            file = self._directory.open(name, len(FILE_MAGIC))
        except OSError as error:
            if error.errno in _LACKING:
                raise Unreadable(error.errno, error.strerror, name) from error
            log.warning("%s cannot be read: %s", name, error.strerror)
            return b""
        try:
            return bytes(file.buffer[: file.data_end])
        finally:
            file.close()


def _records(files: PartitionFiles) -> NDArray[np.void]:
    """The journal's records, to be released soon: a file cannot be closed under a view."""
    first = open_file(files.journal.buffer, FileType.JOURNAL).first_record_offset
    return scan(files.journal.buffer, first, (files.journal_end - first) // JOURNAL_RECORD_SIZE)


def _age_ms(block: RemovalBlock, newest_s: int, now_ms: int) -> int:
    return min(_passed_ms(block, now_ms), max(0, newest_s - block.last_s) * 1000)


def _passed_ms(block: RemovalBlock, now_ms: int) -> int:
    # A machine restarted after the block was made has been running for `now_ms`.
    return now_ms - block.ms if block.ms <= now_ms else now_ms


def _blocks(name: str, content: bytes) -> Iterator[RemovalBlock]:
    data = memoryview(content)
    at = len(FILE_MAGIC)
    if len(data) >= at and not content.startswith(FILE_MAGIC):
        log.warning("%s: not a file of removed messages; ignored", name)
        return
    while at + _HEAD.size <= len(data):
        magic, length, last_s, ms, journal, checksum = _HEAD.unpack_from(data, at)
        if magic == 0:
            return
        body = data[at + _HEAD.size : at + _HEAD.size + length]
        fields = magic, length, last_s, ms, journal
        if magic != _BLOCK_MAGIC or len(body) < length or _checksum(fields, body) != checksum:
            log.warning("%s: damaged from offset %d on; messages removed since may be delivered twice", name, at)
            return
        at += _HEAD.size + length
        yield RemovalBlock(last_s, ms, journal, body)


def _rolled_over_s(files: PartitionFiles) -> int | None:
    header = JOURNAL_FILE_HEADER.unpack(files.journal.buffer, FILE_HEADER.size)
    offset = header.first_sync_point_after_rollover_offset_words * WORD
    return ANY_RECORD.unpack(files.journal.buffer, offset).timestamp if offset else None


def _stamp(files: PartitionFiles) -> bytes:
    return files.timestamp.encode().ljust(16, b"\0")


def _checksum(fields: tuple[int, int, int, int, bytes], body: Buffer) -> int:
    return crc32c(body, crc32c(_HEAD.pack(*fields, 0)))


def _check_body(body: bytes) -> None:
    """Raise FormatError unless a block's body consists of queues."""
    at = 0
    while at < len(body):
        if len(body) - at < _QUEUE.size:
            raise FormatError("removed messages", at, f"needs {_QUEUE.size} bytes, {len(body) - at} left")
        _, producers, count = _QUEUE.unpack_from(body, at)
        at += _QUEUE.size + producers * PRODUCER_SIZE + count * 8
    if at > len(body):
        raise FormatError("removed messages", len(body), f"ends {at - len(body)} bytes too early")


def _queues(body: memoryview) -> Iterator[tuple[bytes, bytes, NDArray[np.uint64]]]:
    """Yield queue keys, producers and hashes, as copies."""
    at = 0
    while at < len(body):
        key, producers, count = _QUEUE.unpack_from(body, at)
        at += _QUEUE.size
        latest = bytes(body[at : at + producers * PRODUCER_SIZE])
        at += len(latest)
        yield key, latest, np.frombuffer(body, "<u8", count, at).astype(np.uint64)
        at += count * 8
