"""Small message stores, and messages for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.copying import copy_records
from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from formats.rocketmq.files.record import TOPIC_BYTES_MAX_V1, Magic, Record, body_crc, encode_record
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import encode_properties
from tests.broker.rocketmq.folders import MemoryFolder

GOLDEN = StoreOptions(262144, 6000, 500, 400)
SMALL = StoreOptions(commit_log_file_bytes=1024, consume_queue_file_bytes=100, index_slots=7, index_entries=10)
HOST = Host("127.0.0.1", 20911).pack()
DELAYS_MS = {"1": 1000, "2": 5000, "3": 10_000}


def due_ms(topic: str, properties: Mapping[str, str], stored_ms: int) -> int | None:
    if topic != "SCHEDULE_TOPIC_XXXX":
        return None
    return stored_ms + DELAYS_MS[properties["DELAY"]]


def make_message(number: int, *, topic: str = "topic", queue_id: int = 0, size: int = 20, **changes: Any) -> Message:
    """A message with a body that tells its number, a unique id, a key and a tag."""
    properties = encode_properties(
        {"UNIQ_KEY": f"id{number}", "KEYS": f"key{number % 3}", "TAGS": "even" if number % 2 else "odd"}
    )
    body = b"%d".ljust(size) % number
    return Message(topic, queue_id, 0, 0, number, HOST, HOST, 0, 0, body, properties)._replace(**changes)


def open_small(root: MemoryFolder) -> MessageStore:
    return open_store(root, SMALL, lambda ms: f"{ms:017d}")


def bodies(store: MessageStore, topic: str = "topic", queue_id: int = 0) -> list[int]:
    """The numbers of a queue's messages, read by way of the queue."""
    return [
        int(bytes(store.log.read(entry.physical_offset).record.body))
        for entry in store.get(topic, queue_id, 0, 1 << 30)
    ]


def record_of(message: Message, offset: int, queue_offset: int, stored_ms: int) -> bytes:
    """The record that a message becomes, with its parts as they are."""
    version = Magic.V1 if len(message.topic.encode()) <= TOPIC_BYTES_MAX_V1 else Magic.V2
    topic, queue_id, flag, system_flags, born_ms, born_host, store_host, retried, prepared, body, properties = message
    front = version, body_crc(body), queue_id, flag, queue_offset, offset, system_flags, born_ms, born_host, stored_ms
    return encode_record(Record(*front, store_host, retried, prepared, body, topic, properties))


ZERO_ENDED = make_message(2, properties=b"TAGS\1a\2x\1" + bytes(420))
"""Message 2, of whose properties the end is zeros, which are all of the record in its last sector."""


def put_zero_ended(store: MessageStore) -> None:
    """Store that message; the separator comes after the zeros."""
    assert Writer(store).put(ZERO_ENDED, 1_000_000).size > 512


def copy_zero_ended(store: MessageStore) -> None:
    """Have that message in a store as the original writes it, without a separator after the zeros."""
    copy_records(store, 0, memoryview(record_of(ZERO_ENDED, 0, 0, 1_000_000)))
