# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Messages that are stored together: one reservation of room in the log and in each queue, and one write to each.

The store is byte for byte that of the same messages stored one by one. A batch that reaches the end of a file, meets a
full disk, or has messages that are held back or parts of transactions, is stored one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from zlib import crc32

from broker.rocketmq.store.commit_log import CRC_MASK, FRONT_PACKERS, V6_MASK, Message, topic_field
from broker.rocketmq.store.consume_queue import ConsumeQueue, pack_entry
from broker.rocketmq.store.errors import DiskFull, Unstorable
from broker.rocketmq.store.message_store import MessageStore
from formats.rocketmq.files.index import message_index_keys
from formats.rocketmq.files.record import BLANK_BYTES_MIN
from formats.rocketmq.flags import TRANSACTION_MASK
from formats.rocketmq.java import index_hash, tag_hash
from formats.schema import Buffer

__all__ = ["Batches", "Common", "Placed", "PlainMessage", "message_of", "plain_message"]

logger = logging.getLogger("broker.rocketmq.store")


class Common:
    """The fields that many messages have in common, as `Message` has them."""

    __slots__ = (
        "born_host",
        "flag",
        "front_size",
        "is_plain",
        "magic",
        "pack_front",
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
        version, self.topic_field = topic_field(message.topic)
        self.magic: int = version.value
        self.front_size, self.pack_front = FRONT_PACKERS[message.system_flags & V6_MASK]
        self.is_plain = not message.system_flags & TRANSACTION_MASK and not message.prepared_transaction_offset

    def record_end(self, properties: bytes) -> bytes:
        """Return the end of a record, after its body: the topic and the properties, each with its length."""
        return b"%b%b%b" % (self.topic_field, len(properties).to_bytes(2, "big"), properties)


# The fields in common, the queue and time, the body and the end of the record, the hashes in the index, and the tags
# code: a plain tuple, as one is made for each message.
PlainMessage = tuple[Common, int, int, Buffer, bytes, Sequence[int], int]
# The offset, the size and the queue offset of a message that was stored.
Placed = tuple[int, int, int]


def plain_message(
    common: Common, queue_id: int, born_ms: int, body: Buffer, properties: bytes, parsed: Mapping[str, str]
) -> PlainMessage:
    """Return a message with its hashes and tags code; `parsed` are its properties."""
    hashes = [index_hash(key) for key in message_index_keys(common.topic, parsed)]
    tags_code = tag_hash(parsed.get("TAGS", ""))
    return common, queue_id, born_ms, body, common.record_end(properties), hashes, tags_code


def message_of(plain: PlainMessage) -> Message:
    """Return the message as it is stored by itself."""
    common, queue_id, born_ms, body, end, _, _ = plain
    properties = end[len(common.topic_field) + 2 :]
    flags, hosts = (common.flag, common.system_flags), (common.born_host, common.store_host)
    return Message(common.topic, queue_id, *flags, born_ms, *hosts, common.reconsume_times, 0, body, properties)


class _BatchRun:
    """The messages of a batch in one queue; `next` is the queue offset of the next one."""

    __slots__ = ("entries", "next", "queue")

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.next = queue.end
        self.entries: list[bytes] = []


class Batches:
    """Stores messages together where that is possible."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def put(self, messages: Sequence[PlainMessage], now_ms: int) -> list[Placed]:
        """Store messages in their order; return the places of those before the first that is refused."""
        places = None if self._store.is_holding_back else self._put_together(messages, now_ms)
        return self._put_each(messages, now_ms) if places is None else places

    def _put_each(self, messages: Sequence[PlainMessage], now_ms: int) -> list[Placed]:
        places: list[Placed] = []
        for plain in messages:
            try:
                stored = self._store.put_plain(message_of(plain), now_ms, plain[5], plain[6])
            except (DiskFull, Unstorable):
                break
            places.append((stored.offset, stored.size, stored.queue_offset))
        return places

    def _put_together(self, messages: Sequence[PlainMessage], now_ms: int) -> list[Placed] | None:
        """Store messages with one write, and return their places; None, with nothing done, if that is impossible."""
        if not messages:
            return []
        store = self._store
        begin = store.log.end
        offset = begin
        parts: list[Buffer] = []
        places: list[Placed] = []
        keys: list[tuple[int, int]] = []
        runs: dict[tuple[str, int], _BatchRun] = {}
        for common, queue_id, born_ms, body, end, hashes, tags_code in messages:
            if not common.is_plain or end[-1] == 0:
                return None
            key = common.topic, queue_id
            run = runs.get(key)
            if run is None:
                try:
                    run = runs[key] = _BatchRun(store.open_queue(common.topic, queue_id))
                except (DiskFull, Unstorable):
                    return None
            body_size = len(body)
            size = common.front_size + body_size + len(end)
            front = common.pack_front(
                size,
                common.magic,
                crc32(body) & CRC_MASK,
                queue_id,
                common.flag,
                run.next,
                offset,
                common.system_flags,
                born_ms,
                common.born_host,
                now_ms,
                common.store_host,
                common.reconsume_times,
                0,
                body_size,
            )
            parts += (front, body, end)
            places.append((offset, size, run.next))
            run.entries.append(pack_entry(offset, size, tags_code))
            run.next += 1
            keys += [(key_hash, offset) for key_hash in hashes]
            offset += size
        if not self._has_room(offset - begin, runs):
            return None
        try:
            store.log.append_all(memoryview(b"".join(parts)))
        except DiskFull:
            return None
        for run in runs.values():
            run.queue.add_packed(b"".join(run.entries))
        store.note_entered([run.queue for run in runs.values()], now_ms)
        try:
            store.index.put_all(keys, now_ms)
        except DiskFull as error:
            logger.error("not all messages from %d to %d are in the index: %s", begin, offset, error)
        return places

    def _has_room(self, size: int, runs: dict[tuple[str, int], _BatchRun]) -> bool:
        """Return whether the log's file has room for `size` bytes, and the queues' files for their entries."""
        log = self._store.log
        left = log.files.file_size - log.end % log.files.file_size
        if size + BLANK_BYTES_MIN > left:
            return False
        try:
            for run in runs.values():
                queue = run.queue
                if run.next > queue.file_end(queue.end):
                    return False
                queue.make_later_room(queue.end, len(run.entries))
        except DiskFull:
            return False
        return True
