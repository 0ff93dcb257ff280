# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Storage of a queue's messages: in its partition's files, or in memory."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from crc32c import crc32c

from broker.bmq.core.messages import Buffer, Message, Unrecorded
from broker.bmq.partition.stored_partition import StoredPartition
from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag, QueueOpType
from formats.bmq.disk.keys import NULL_KEY

__all__ = ["FileLog", "MemoryLog"]


class FileLog:
    """One queue's messages in its partition."""

    __slots__ = ("_key", "_partition", "_records")

    def __init__(self, partition: StoredPartition, queue_key: bytes) -> None:
        self._partition = partition
        self._records = partition.records
        self._key = queue_key

    @property
    def wants_copies(self) -> bool:
        return self._partition.kept.copies_wanted > 1

    @property
    def is_cut_off(self) -> bool:
        return self._partition.kept.is_cut_off

    @property
    def is_replicated(self) -> bool:
        return True

    def when_copied(self, messages: Sequence[Message], action: Callable[[Sequence[Message]], None]) -> None:
        kept = self._partition.kept
        first = self._records.sequence_number - len(messages) + 1
        for number, message in enumerate(messages, first):
            kept.await_copies(number, message, action)

    def append(
        self,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer,
        ref_count: int,
        auto_confirms: Sequence[bytes] = (),
    ) -> bool:
        return self._partition.append(self._key, messages, payloads, options, ref_count, auto_confirms)

    def settle(
        self, messages: Sequence[Message], app_key: bytes, reason: ConfirmReason = ConfirmReason.CONFIRMED
    ) -> None:
        self._records.settle(self._key, app_key, messages, reason)

    def remove(self, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        self._records.remove(self._key, message, flag)

    def purge(self, app_key: bytes = NULL_KEY, first: Message | None = None, awaiting: Container[bytes] = ()) -> None:
        self._partition.append_queue_op(QueueOpType.PURGE, self._key, app_key, first, awaiting)

    def holds(self, messages: Mapping[bytes, Message]) -> None:
        self._partition.register(self._key, messages)

    def when_open(self, post: Callable[[], None], size: int) -> None:
        self._partition.rollovers.when_open(post, size)

    @property
    def is_copying(self) -> bool:
        return self._partition.rollovers.is_copying

    @property
    def is_rolling_over(self) -> bool:
        return self._partition.is_rolling_over

    def begin_purge(self, task: Iterator[None]) -> None:
        self._partition.rollovers.begin_purge(task)

    def release(self, records: int) -> None:
        self._partition.release(records)

    def read(self, message: Message) -> Buffer:
        return self._records.read(message)

    def read_sound(self, message: Message) -> Buffer | None:
        data = self._records.read(message)
        if crc32c(data) == message.checksum:
            return data
        self._partition.payloads.found(self._key, message, has_copies=self._partition.kept.is_copied)
        return None

    def awaits_payload(self, message: Message) -> bool:
        return self._partition.payloads.is_wanted(self._key, message.guid)


class MemoryLog(Unrecorded):
    """A queue whose messages are kept in memory only; their offsets are their numbers."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def append(
        self,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer,
        ref_count: int,
        auto_confirms: Sequence[bytes] = (),
    ) -> bool:
        for message, payload in zip(messages, payloads, strict=True):
            message.payload = bytes(payload)
            message.offset = self._count
            self._count += 1
        return True

    def read(self, message: Message) -> Buffer:
        assert message.payload is not None
        return message.payload

    def read_sound(self, message: Message) -> Buffer | None:
        return self.read(message)
