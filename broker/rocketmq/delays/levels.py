"""Messages that are consumed later, by levels of delay (source: ScheduleMessageService, HookUtils).

Those of a level wait in a queue of the broker's own topic, in the order of their due times. A due message is stored
again, in its destination. The progress is written to a file periodically: after a crash some come twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull, NoPlace
from broker.rocketmq.store.message_store import DueTime, MessageStore, Stored
from broker.rocketmq.store.places import check_place
from broker.rocketmq.store.skips import Skips
from broker.rocketmq.tables import names
from broker.rocketmq.tables.topics import QUEUES_MAX, Topics
from formats.rocketmq.files.record import Record
from formats.rocketmq.numbers import INT_MAX, read_int
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS, DelayOffsets
from formats.rocketmq.remoting.bodies.routes import DataVersion

__all__ = ["Delays", "Storing", "again", "due_place", "integer", "make_due_time", "place_delayed"]

log = logging.getLogger("broker.rocketmq.delays")

# The maximum that one step delivers.
STEP_MESSAGES: Final = 200
KEEP_MS: Final = 10_000


class Storing(Protocol):
    """A store that messages are put into; see `Writer.put`."""

    def put(self, message: Message, now_ms: int, properties: Mapping[str, str] | None = None) -> Stored: ...


def integer(text: str | None) -> int:
    return read_int(text) or 0


def place_delayed(levels: Sequence[int], topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
    """Return the topic and queue where a message waits: its own, unless it is delayed.

    The properties of a delayed message name its destination.
    """
    level = integer(properties.get("DELAY"))
    if level <= 0 or not levels:
        return topic, queue_id
    level = min(level, len(levels))
    properties["DELAY"] = str(level)
    properties["REAL_TOPIC"] = topic
    properties["REAL_QID"] = str(queue_id)
    return names.DELAY_TOPIC, level - 1


def due_place(
    topics: Topics, properties: Mapping[str, str], now_ms: int, allowed: str | None = None
) -> tuple[str, int]:
    """Return the destination, a topic and a queue, in the properties of a message that waited in another topic.

    Properties are not trusted: raises `NoPlace` for an own topic of the broker other than `allowed`, and for a topic or
    a queue that cannot exist. A queue that its topic no longer has is replaced.
    """
    topic, queue_id = properties.get("REAL_TOPIC", ""), read_int(properties.get("REAL_QID"))
    if names.is_own(topic) and topic != allowed:
        raise NoPlace(f"the destination is the broker's own topic {topic}")
    config = topics.get(topic)
    queues = QUEUES_MAX if config is None else max(config.read_queue_nums, config.write_queue_nums)
    if queue_id is None or (config is None and queue_id >= queues):
        raise NoPlace(f"topic {topic[:80]!r} has no queue {properties.get('REAL_QID', '')[:40]!r}")
    check_place(topic, queue_id)
    topics.restore(topic, queue_id, now_ms)
    return topic, queue_id % max(1, queues)


def make_due_time(levels: Sequence[int]) -> DueTime:
    """Make the function that returns when a stored message is due: None for one that is not delayed."""

    def due_ms(topic: str, properties: Mapping[str, str], stored_ms: int) -> int | None:
        if topic != names.DELAY_TOPIC or not levels:
            return None
        level = min(integer(properties.get("DELAY")), len(levels))
        return stored_ms + levels[level - 1] if level > 0 else None

    return due_ms


def again(record: Record, topic: str, queue_id: int, properties: bytes, *, is_retried: bool = False) -> Message:
    """Make the message of a record, to be stored again elsewhere. With `is_retried`, its count of retries grows."""
    return Message(
        topic,
        queue_id,
        record.flag,
        record.system_flags,
        record.born_ms,
        record.born_host,
        record.store_host,
        min(record.reconsume_times + is_retried, INT_MAX),
        0,
        record.body,
        properties,
    )


class Delays:
    """Delivers delayed messages. `keep` writes the file with the progress."""

    def __init__(
        self,
        levels: Sequence[int],
        topics: Topics,
        store: MessageStore,
        storing: Storing,
        file: DelayOffsets,
        keep: Callable[[bytes], None],
    ) -> None:
        self._levels = tuple(levels)
        self._topics = topics
        self._skips = Skips("delayed messages")
        self._store = store
        self._storing = storing
        self._keep = keep
        self._version = file.data_version
        # After a loss of power, the file may count messages that no longer exist. New messages reuse their offsets.
        self._offsets = {
            level: min(offset, store.end(names.DELAY_TOPIC, level - 1)) for level, offset in file.offset_table.items()
        }
        self._changed = self._offsets != file.offset_table
        self._kept_ms = 0
        self._is_full = False

    @property
    def offsets(self) -> dict[int, int]:
        """The offset of the next message in each level's queue, by level."""
        return dict(self._offsets)

    def give_out(self, now_ms: int) -> bool:
        """Store due messages in their destinations; return True if there are more than one step takes."""
        left = STEP_MESSAGES
        for level, delay_ms in enumerate(self._levels, 1):
            left = self._give_out_level(level, delay_ms, now_ms, left)
        return left <= 0

    def _give_out_level(self, level: int, delay_ms: int, now_ms: int, left: int) -> int:
        queue = self._store.queues.get((names.DELAY_TOPIC, level - 1))
        if queue is None:
            return left
        offset = min(max(self._offsets.get(level, 0), queue.begin), queue.end)
        begin = offset
        while offset < queue.end and left > 0:
            entry = queue.get(offset)
            # After the clock was set back, no message waits longer than its level says.
            if now_ms < entry.tags_code <= now_ms + delay_ms:
                break
            if not self._deliver(entry.physical_offset, now_ms):
                break
            offset += 1
            left -= 1
        if offset != begin or (level not in self._offsets and offset > 0):
            self._offsets[level] = offset
            self._changed = True
        return left

    def _deliver(self, physical_offset: int, now_ms: int) -> bool:
        try:
            record = self._store.log.read(physical_offset).record
            place = due_place(self._topics, decode_properties(record.properties), now_ms)
            message = again(record, *place, record.properties)
            # Copied, as the log may begin a new file, or grow, while it is written.
            self._storing.put(message._replace(body=bytes(record.body)), now_ms)
        except DiskFull as error:
            if not self._is_full:
                log.error("delayed messages wait for room on the disk: %s", error)
            self._is_full = True
            return False
        except Exception as error:
            self._skips.note(f"offset {physical_offset} of the log", error)
        self._is_full = False
        return True

    def tick(self, now_ms: int) -> None:
        if not 0 <= now_ms - self._kept_ms < KEEP_MS:
            self._kept_ms = now_ms
            self.keep(now_ms)

    def keep(self, now_ms: int) -> None:
        if not self._changed:
            return
        version = DataVersion(self._version.counter + 1, self._version.state_version, now_ms)
        file = DelayOffsets(self._offsets, version)
        try:
            self._keep(fastjson.dumps_pretty(DELAY_OFFSETS.write_value(file)).encode())
        except OSError as error:
            log.error("the delivery progress of delayed messages cannot be stored: %s", error)
        else:
            self._version, self._changed = version, False
