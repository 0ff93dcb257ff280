# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Encodes messages as runs for a store: one reservation of room, and one write, for the log and for each queue.

The store is byte for byte that of the same messages stored one by one. A run ends before a message that does not fit
into the files of the log or the queue with those before it, and before one that is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final
from zlib import crc32

from broker.rocketmq.store.branches import branch_part, branch_tags
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull, TooLarge, Unstorable
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.queue_table import NOT_CONSUMED
from broker.rocketmq.store.runs import QueuePart, Run
from broker.rocketmq.store.terms import Arrived, Stored
from formats.rocketmq.fast.plain_records import PROPERTY_END, read_keys
from formats.rocketmq.files.index import index_key, message_index_keys, tag_index_key
from formats.rocketmq.files.record import BLANK_BYTES_MIN, FRONTS, PROPERTIES_BYTES_MAX, Magic
from formats.rocketmq.flags import TRANSACTION_MASK, SystemFlag, Transaction
from formats.rocketmq.java import HashedFront, index_hash, tag_hash
from formats.rocketmq.properties import decode_properties
from formats.schema import Buffer

__all__ = ["Common", "Placed", "PlainMessage", "Writer", "plain_message"]

_V6_MASK: Final = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)
_V1_TOPIC_BYTES_MAX: Final = 0x7F
_CRC_MASK: Final = 0x7FFFFFFF
_ROLLBACK: Final = int(Transaction.ROLLBACK)
_FRONT_PACKERS: Final = {flags: (front.size, front.words.pack) for flags, front in FRONTS.items()}


@lru_cache(maxsize=1024)
def _topic_field(topic: str) -> tuple[int, bytes]:
    data = topic.encode()
    if len(data) <= _V1_TOPIC_BYTES_MAX:
        return Magic.V1.value, len(data).to_bytes(1, "big") + data
    return Magic.V2.value, len(data).to_bytes(2, "big") + data


class Common:
    """The fields that many messages share."""

    __slots__ = (
        "born_host",
        "flag",
        "front_size",
        "is_consumed",
        "is_indexed",
        "magic",
        "pack_front",
        "prepared_offset",
        "reconsume_times",
        "store_host",
        "system_flags",
        "topic",
        "topic_field",
    )

    def __init__(self, message: Message) -> None:
        self.topic = message.topic
        self.flag = message.flag
        self.system_flags = message.system_flags
        self.born_host = message.born_host
        self.store_host = message.store_host
        self.reconsume_times = message.reconsume_times
        self.prepared_offset = message.prepared_transaction_offset
        self.magic, self.topic_field = _topic_field(message.topic)
        self.front_size, self.pack_front = _FRONT_PACKERS[message.system_flags & _V6_MASK]
        transaction = message.system_flags & TRANSACTION_MASK
        self.is_consumed = transaction not in NOT_CONSUMED
        self.is_indexed = transaction != _ROLLBACK

    def record_end(self, properties: bytes) -> bytes:
        """Return the end of a record, after its body: the topic and the properties, each with its length.

        Properties that end with a zero get the optional separator after them. Raises `TooLarge`.
        """
        if properties.endswith(b"\0"):
            # Otherwise the record's end would look like one that was never written.
            if len(properties) >= PROPERTIES_BYTES_MAX:
                raise TooLarge(f"{len(properties)} bytes of properties have no room for the separator after them")
            properties += PROPERTY_END
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise TooLarge(f"the properties have {len(properties)} bytes, more than {PROPERTIES_BYTES_MAX}")
        return b"%b%b%b" % (self.topic_field, len(properties).to_bytes(2, "big"), properties)


# The fields in common, the queue and time, the body and the record's end, the hashes in the index, and the tags code. A
# plain tuple, as one is made for each message.
PlainMessage = tuple[Common, int, int, Buffer, bytes, Sequence[int], int]
Placed = tuple[int, int, int]


def plain_message(
    common: Common, unique_keys: HashedFront, queue_id: int, born_ms: int, body: Buffer, properties: bytes
) -> PlainMessage:
    """Return a message with its hashes and tags code; `unique_keys` hashes the unique ids of its topic."""
    names, tags = read_keys(PROPERTY_END + properties)
    hashes, tags_code = [], 0
    if names and names[0].isascii():
        hashes.append(unique_keys.index_hash(names.pop(0)))
    hashes += [index_hash(index_key(common.topic, name.decode(errors="replace"))) for name in names]
    if tags:
        text = tags.decode(errors="replace")
        hashes.append(index_hash(tag_index_key(common.topic, text)))
        tags_code = tag_hash(text)
    return common, queue_id, born_ms, body, common.record_end(properties), hashes, tags_code


def _size(message: PlainMessage) -> int:
    common, _, _, body, end, _, _ = message
    return common.front_size + len(body) + len(end)


class Writer:
    """Puts messages into a store, in as few runs as possible, and reports them to `arrived`."""

    def __init__(self, store: MessageStore, arrived: Arrived = lambda topic, queue_id, count, size: None) -> None:
        self._store = store
        self._arrived = arrived

    def put(self, message: Message, now_ms: int, properties: Mapping[str, str] | None = None) -> Stored:
        """Store a message as a run of one. `properties` are its own, if already parsed.

        Raises `DiskFull`, `Unstorable`, and other exceptions for a part that does not fit its field; it is not stored
        then.
        """
        store, topic, queue_id, lite_queue = self._store, message.topic, message.queue_id, None
        properties = decode_properties(message.properties) if properties is None else properties
        branch = branch_part(store, topic, properties)
        common = Common(message)
        if common.is_consumed:
            store.open_queue(topic, queue_id)
        hashes = [index_hash(key) for key in message_index_keys(topic, properties)]
        tags_code = store.tags_code(topic, properties, now_ms)
        end = common.record_end(message.properties)
        plain = common, queue_id, message.born_ms, message.body, end, hashes, tags_code
        run, ((offset, size, queue_offset),) = self._encode([plain], 0, 1, now_ms)
        if branch is not None and branch.queue is not None and store.next_offset(branch.queue) == branch.first:
            branch.add(offset, size, branch_tags(properties))
            run.parts.append(branch)
            lite_queue = branch.topic
        store.put(run)
        self._arrived(topic, queue_id, 1, size)
        return Stored(offset, size, queue_offset, lite_queue)

    def put_all(self, messages: Sequence[PlainMessage], now_ms: int) -> list[Placed]:
        """Store messages in order; return the places of those before the first that is refused."""
        places: list[Placed] = []
        most = len(messages)
        while len(places) < len(messages):
            try:
                run, found = self._encode(messages, len(places), most, now_ms)
            except (DiskFull, Unstorable, struct.error):
                break
            try:
                self._store.put(run)
            except DiskFull:
                if len(found) == 1:
                    break
                # The disk may have room for the first of them.
                most = 1
                continue
            places += found
            self._report(run)
        return places

    def put_together(self, messages: Sequence[PlainMessage], now_ms: int) -> list[Placed]:
        """Store messages in order, in one file of the log; return their places.

        Raises what `put` raises; none is stored then, with one exception: where their queue begins a new file among
        them, the disk may be full after some.
        """
        places: list[Placed] = []
        while len(places) < len(messages):
            size = sum(map(_size, messages[len(places) :]))
            run, found = self._encode(messages, len(places), len(messages), now_ms, size)
            self._store.put(run)
            places += found
            self._report(run)
        return places

    def _report(self, run: Run) -> None:
        for part in run.parts:
            self._arrived(part.topic, part.queue_id, part.count, part.size)

    def _part(self, common: Common, queue_id: int) -> QueuePart:
        """Begin the part of a run in a queue, if it is consumed. Raises `DiskFull` and `NoPlace`."""
        store = self._store
        if not common.is_consumed:
            return QueuePart(common.topic, queue_id, None, 0)
        queue = store.open_queue(common.topic, queue_id)
        return QueuePart(common.topic, queue_id, queue, store.next_offset(queue))

    def _begin(self, size: int) -> tuple[int, int]:
        """Return the offset for a run of `size` bytes, and the bytes left in its file. Raises `TooLarge`."""
        # Each record leaves room for a blank one.
        log, needed = self._store.log, size + BLANK_BYTES_MIN if size else 0
        file_size: int = log.files.file_size
        start: int = log.end
        left = file_size - start % file_size
        if needed > file_size:
            raise TooLarge(f"a batch of {size} bytes does not fit into a file of {file_size}")
        return (start + left, file_size) if needed > left else (start, left)

    def _encode(
        self, messages: Sequence[PlainMessage], begin: int, most: int, now_ms: int, whole_size: int = 0
    ) -> tuple[Run, list[Placed]]:
        """Return a run of up to `most` messages from `begin` on, and their places. A run of all has a `whole_size`."""
        file_size: int = self._store.log.files.file_size
        start, left = self._begin(whole_size)
        offset = start
        data: list[Buffer] = []
        places: list[Placed] = []
        keys: list[tuple[int, int, int]] = []
        parts: dict[tuple[str, int], QueuePart] = {}
        for common, queue_id, born_ms, body, end, hashes, tags_code in messages[begin : begin + most]:
            size = common.front_size + len(body) + len(end)
            try:
                key = common.topic, queue_id if common.is_consumed else -1
                part = parts.get(key)
                if part is None:
                    part = self._part(common, queue_id)
                # Each record leaves room for a blank one.
                if size + BLANK_BYTES_MIN > left:
                    if size + BLANK_BYTES_MIN > file_size:
                        raise TooLarge(f"a record of {size} bytes does not fit into a file of {file_size}")
                    if places:
                        break
                    offset = start = start + left
                    left = file_size
                if part.count >= part.most:
                    break
                queue_offset = 0 if part.queue is None else part.first + part.count
                front = common.pack_front(
                    size,
                    common.magic,
                    crc32(body) & _CRC_MASK,
                    queue_id,
                    common.flag,
                    queue_offset,
                    offset,
                    common.system_flags,
                    born_ms,
                    common.born_host,
                    now_ms,
                    common.store_host,
                    common.reconsume_times,
                    common.prepared_offset,
                    len(body),
                )
            except (DiskFull, Unstorable, struct.error):
                if whole_size or not places:
                    raise
                break
            if part.count == 0:
                parts[key] = part
            data += (front, body, end)
            places.append((offset, size, queue_offset))
            part.add(offset, size, tags_code)
            if common.is_indexed:
                keys += zip(hashes, repeat(offset), repeat(now_ms))
            offset += size
            left -= size
        return Run(start, b"".join(data), list(parts.values()), keys, now_ms), places
