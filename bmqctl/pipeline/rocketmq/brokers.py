"""Brokers, whose logs are read from their replicas' stores.

A broker's replicas have the same bytes at the same offsets of the log. A controller's identity shows which replicas
belong together; without one, common bytes do. The log with the newest epoch leads: another is read up to where they
diverge.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bmqctl.common.regular import open_buffered, open_unbuffered
from bmqctl.pipeline.rocketmq.anchors import anchor, queues_of
from bmqctl.pipeline.source.partitions import find_stores
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.rocketmq.read.files import OFFSET_MAX, LogFile, log_files, open_store, store_of
from bmqctl.stores.rocketmq.read.queues import count_gone
from bmqctl.stores.rocketmq.read.records import FRONT_BYTES
from bmqctl.stores.rocketmq.read.scan import LogScan
from formats.errors import FormatError
from formats.rocketmq.files.epochs import EpochEntry, decode_epochs
from formats.rocketmq.files.identity import BrokerIdentity, decode_identity

__all__ = ["Broker", "ReplicaLog", "find_brokers", "find_gone", "is_rocketmq", "limit_of"]

_PROBES: Final = 8
_NAME_BYTES_MAX: Final = 1 << 12
_EPOCHS_BYTES_MAX: Final = 1 << 22


@dataclass(frozen=True)
class ReplicaLog:
    """The commit log in one store. Its records from the offset `limit` on are not the broker's."""

    root: Path
    files: tuple[LogFile, ...]
    epochs: tuple[EpochEntry, ...] = ()
    identity: BrokerIdentity | None = None
    limit: int = OFFSET_MAX

    def over(self, begin: int, end: int) -> ReplicaLog:
        """The log with only those files that have a part of the range."""
        return replace(self, files=tuple(file for file in self.files if file.begin < end and file.end > begin))

    def end(self) -> int:
        """The offset after the last record. Raises `OSError`."""
        queues = queues_of(self.root)
        for file in reversed(self.files):
            scan = LogScan([file], anchor([file], queues, file.end - 1), exact=True, tail=False)
            for _ in scan.chunks():
                pass
            if scan.end > file.begin:
                return scan.end
        return self.files[0].begin if self.files else 0

    def written_to(self) -> int:
        """The offset after the last record or the damaged bytes after it. Raises `OSError`."""
        end = self.end()
        files = [file for file in self.files if file.end > end]
        for chunk in LogScan(files, end, exact=True).chunks():
            end = max(end, *(fault.offset + fault.size for fault in chunk.faults if fault.is_loss), 0)
        return end


@dataclass(frozen=True)
class Broker:
    """A broker: its replicas' logs, the leading one first."""

    name: str
    logs: tuple[ReplicaLog, ...]

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        return self.logs[0].epochs

    def over(self, begin: int, end: int) -> Broker:
        return replace(self, logs=tuple(log.over(begin, end) for log in self.logs))


def is_rocketmq(paths: Iterable[str]) -> bool:
    """Return whether the paths are RocketMQ's stores. Raises StoreError if only some are."""
    found = find_stores(paths)
    others = [path for path in found if store_of(path) is None]
    if found and others and len(others) < len(found):
        raise StoreError(f"{others[0]}: no RocketMQ store, unlike other paths: read the stores of one system at a time")
    return bool(found) and not others


def find_brokers(paths: Iterable[str]) -> list[Broker]:
    """The brokers of the stores `paths`, in their order. Raises StoreError."""
    roots = {root.absolute(): None for path in find_stores(paths) if (root := store_of(path)) is not None}
    try:
        logs = [_open(root) for root in roots]
        groups: list[list[ReplicaLog]] = []
        for log in logs:
            group = next((group for group in groups if _are_replicas(group[0], log)), None)
            if group is None:
                groups.append([log])
            else:
                group.append(log)
        merged = [_in_order(group) for group in groups]
    except NotAStoreFile as error:
        raise StoreError(str(error)) from None
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from None
    names = [_name(group) for group in merged]
    return [
        Broker(name if names.count(name) == 1 else str(group[0].root), tuple(group))
        for name, group in zip(names, merged, strict=True)
    ]


def find_gone(paths: Iterable[str]) -> Account:
    """Account for messages that consume queues name after the end of every replica's log. Raises StoreError."""
    account = Account()
    for broker in find_brokers(paths):
        try:
            end = max(min(log.written_to(), log.limit) for log in broker.logs)
            damaged, missing = max((count_gone(open_store(log.root), end) for log in broker.logs), key=sum)
        except NotAStoreFile as error:
            raise StoreError(str(error)) from None
        except OSError as error:
            raise StoreError(f"{error.filename}: {error.strerror}") from None
        for count, is_missing in ((damaged, False), (missing, True)):
            if count:
                where = f"{broker.logs[0].root}: {count} messages that its queues name are not there"
                account.lose(where, 0, is_missing=is_missing, count=count)
    return account


def _open(root: Path) -> ReplicaLog:
    identity, epochs = (
        _read(root / "brokerIdentity", _NAME_BYTES_MAX),
        _read(root / "epochFileCheckpoint", _EPOCHS_BYTES_MAX),
    )
    files = tuple(log_files(root))
    for file in files:
        # A broker may delete its oldest files meanwhile.
        with suppress(FileNotFoundError):
            open_unbuffered(file.path).close()
    return ReplicaLog(root, files, _epochs(epochs), _identity(identity))


def _read(path: Path, size: int) -> bytes:
    try:
        with open_buffered(path) as file:
            return file.read(size)
    except OSError:
        return b""


def _epochs(data: bytes) -> tuple[EpochEntry, ...]:
    try:
        return tuple(decode_epochs(data))
    except FormatError:
        return ()


def _identity(data: bytes) -> BrokerIdentity | None:
    try:
        return decode_identity(data)
    except FormatError:
        return None


def _name(group: Sequence[ReplicaLog]) -> str:
    named = (log.identity.name for log in group if log.identity is not None)
    return next(named, group[0].root.name)


def _in_order(group: list[ReplicaLog]) -> list[ReplicaLog]:
    if len(group) == 1:
        return group
    ends = {log.root: log.end() for log in group}
    ordered = sorted(group, key=lambda log: (-(log.epochs[-1].epoch if log.epochs else 0), -ends[log.root]))
    return [ordered[0], *(replace(log, limit=limit_of(log.epochs, ordered[0].epochs)) for log in ordered[1:])]


def limit_of(epochs: Sequence[EpochEntry], leading: Sequence[EpochEntry]) -> int:
    """The offset up to which a log with `epochs` equals a log with the epochs `leading`.

    It is the earlier end of the last epoch that both have from the same offset on.
    """
    if not epochs or not leading:
        return OFFSET_MAX
    for number in range(len(epochs) - 1, -1, -1):
        if epochs[number] in leading:
            place = leading.index(epochs[number])
            ends = [
                each[at + 1].start_offset for each, at in ((epochs, number), (leading, place)) if at + 1 < len(each)
            ]
            return min(ends, default=OFFSET_MAX)
    # The epochs of deleted files are not kept: a lagging log may have none of the other's epochs.
    return leading[0].start_offset if epochs[-1].epoch < leading[0].epoch else 0


def _are_replicas(one: ReplicaLog, other: ReplicaLog) -> bool:
    """Return whether two logs are of one broker. Raises StoreError if their identities agree, but not their bytes."""
    names = [log.identity[:2] for log in (one, other) if log.identity is not None]
    if len(set(names)) > 1:
        return False
    same, seen = _compared(one, other)
    is_named = len(names) > 1
    if is_named and seen and not same:
        raise StoreError(
            f"{one.root} and {other.root}: both are of broker {names[0][1]}, but have different records at the same "
            "offsets: these are stores of two clusters"
        )
    return is_named or same * 2 > seen


def _compared(one: ReplicaLog, other: ReplicaLog) -> tuple[int, int]:
    """The number of common places of two logs with the same record, and of all compared ones with records."""
    leading, behind = sorted((one, other), key=lambda log: log.epochs[-1].epoch if log.epochs else 0, reverse=True)
    limit = limit_of(behind.epochs, leading.epochs)
    theirs = {file.begin: file for file in other.files}
    common = [file for file in one.files if file.begin in theirs and file.begin < limit]
    same = seen = 0
    for file in common[:: max(1, len(common) // _PROBES)]:
        fronts = [_front(each, file.begin) for each in (file, theirs[file.begin])]
        if any(fronts[0]) and any(fronts[1]):
            seen += 1
            same += fronts[0] == fronts[1]
    return same, seen


def _front(file: LogFile, offset: int) -> bytes:
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, FRONT_BYTES, offset - file.begin)
    finally:
        os.close(descriptor)
