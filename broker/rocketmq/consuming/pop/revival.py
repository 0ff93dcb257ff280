"""Moves popped messages that were not acknowledged in time to the retry topic of their group.

Source: PopReviveService. A retry topic is created for its first message. The progress in the revive log is an offset
like those of groups, and written with them: after a crash some messages come again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.rocketmq.consuming.pop.revive_log import REVIVE_GROUP
from broker.rocketmq.delays.levels import Storing, again
from broker.rocketmq.delays.timers import place_late
from broker.rocketmq.remoting.requests import Refused
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull, Unstorable
from broker.rocketmq.store.skips import Skips
from broker.rocketmq.tables.names import revive_topic
from broker.rocketmq.tables.services import Services
from formats.errors import FormatError
from formats.rocketmq.files.record import PROPERTIES_BYTES_MAX, Record
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.java import hash_map_order
from formats.rocketmq.properties import decode_properties, encode_properties
from formats.rocketmq.remoting.bodies.popping import AckNote, BatchAckNote, CheckPoint, read_note
from formats.rocketmq.remoting.receipts import RETRY_PREFIX, normal_topic, retry_topic

__all__ = ["Revival"]

log = logging.getLogger("broker.rocketmq.revival")

# The maxima of notes and messages in one step.
STEP_NOTES: Final = 2_000
STEP_MESSAGES: Final = 200

_HOSTS_V6: Final = int(SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6)

# An acknowledgement enters the log within a second of the time for which it is meant; another second is a margin.
_WAIT_MS: Final = 2_000
# A checkpoint enters the log a second before its messages become visible again. A later time would delay the
# checkpoints after it, so it counts as at most this much after the reading.
LATE_MS: Final = 10_000

_Key = tuple[str, str, int, int, int, str]


@dataclass(slots=True)
class _OpenPoint:
    point: CheckPoint
    revive_offset: int
    visible_ms: int
    acked: int


class ReviveQueue:
    """The open checkpoints of one queue of the revive log. `next_offset` is that of the next note.

    `name` is the broker's, for checkpoints without one. Notes are in the order of their times: a checkpoint before the
    acknowledgements of its messages, which arrive within a while after these were to become visible again. The original
    reads the log again from its offset every second; here it is read once, and open checkpoints are kept in memory.
    """

    def __init__(self, next_offset: int, name: str) -> None:
        self.next_offset = next_offset
        self._name = name
        self._open: dict[_Key, _OpenPoint] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, note: CheckPoint | AckNote | BatchAckNote, offset: int, now_ms: int) -> None:
        """Process a note that was read at a time, from an offset of the log."""
        key = (note.topic, note.group, note.queue_id, note.start_offset, note.popped_ms, note.broker or self._name)
        if isinstance(note, CheckPoint):
            self._take_point(key, note, offset, min(note.visible_ms, now_ms + LATE_MS))
            return
        known = self._open.get(key)
        if known is None:
            return
        offsets = known.point.offsets
        for each in note.ack_offsets if isinstance(note, BatchAckNote) else (note.ack_offset,):
            if each in offsets:
                known.acked |= 1 << offsets.index(each)

    def _take_point(self, key: _Key, note: CheckPoint, offset: int, visible_ms: int) -> None:
        """Open a checkpoint, which goes after all others, with the acknowledgements of one that it replaces.

        One that lacks messages of the other does not replace it: a process that was killed before it answered may have
        popped other messages in the millisecond in which the next process did. Both are one then, in the place of the
        first, from which a restart has to read again.
        """
        known = self._open.get(key)
        if known is None:
            self._open[key] = _OpenPoint(note, offset, visible_ms, note.bit_map)
            return
        acked = {*_acked(known.point, known.acked), *_acked(note, note.bit_map)}
        if set(note.offsets).issuperset(known.point.offsets):
            del self._open[key]
        else:
            offsets = sorted({*known.point.offsets, *note.offsets})
            differences = [each - note.start_offset for each in offsets]
            note, offset = note._replace(differences=differences, message_count=len(offsets)), known.revive_offset
        bits = sum(1 << place for place, each in enumerate(note.offsets) if each in acked)
        self._open[key] = _OpenPoint(note, offset, visible_ms, bits)

    def first_over(self, now_ms: int) -> tuple[CheckPoint, list[int], int] | None:
        """Return the first checkpoint if it is due; None otherwise.

        With it come the offsets of its unacknowledged messages, and its own offset in the log.
        """
        for known in self._open.values():
            point = known.point
            # The bound also holds after the clock was set back.
            known.visible_ms = min(known.visible_ms, now_ms + LATE_MS)
            if now_ms - known.visible_ms <= _WAIT_MS:
                return None
            left = [offset for place, offset in enumerate(point.offsets) if not known.acked >> place & 1]
            return point, left, known.revive_offset
        return None

    def drop_first(self) -> None:
        del self._open[next(iter(self._open))]


def _acked(point: CheckPoint, bits: int) -> list[int]:
    """Return the offsets of the acknowledged messages of a checkpoint."""
    return [each for place, each in enumerate(point.offsets) if bits >> place & 1]


class _RevivedMessage(NamedTuple):
    record: Record
    point: CheckPoint


class Revival:
    """Processes the revive log."""

    def __init__(self, services: Services, storing: Storing) -> None:
        self._services = services
        self._storing = storing
        self._topic = revive_topic(services.options.cluster)
        self._queues: dict[int, ReviveQueue] = {}
        self._skipped_notes = Skips("notes of the revive log")
        self._skipped = Skips("popped messages that were not acknowledged")
        self._is_full = False

    @property
    def open(self) -> int:
        """The number of checkpoints that are not due yet."""
        return sum(map(len, self._queues.values()))

    def give_out(self, now_ms: int, *, is_behind: bool) -> bool:
        """Read new notes of the log, and revive the messages that are due; return True if there is more to do.

        Nothing is revived while due notes are not in the log yet (`is_behind`).
        """
        left_notes, left = STEP_NOTES, STEP_MESSAGES
        for queue_id in range(self._services.options.revive_queues):
            left_notes -= self._read(queue_id, left_notes, now_ms)
        if is_behind or left_notes <= 0:
            return left_notes <= 0
        for queue_id, queue in self._queues.items():
            left = self._revive(queue_id, queue, now_ms, left)
        return left <= 0

    def _read(self, queue_id: int, most: int, now_ms: int) -> int:
        store = self._services.store
        stored = store.queues.get((self._topic, queue_id))
        if stored is None:
            return 0
        queue = self._queues.get(queue_id)
        if queue is None or queue.next_offset > stored.end:
            done = self._services.offsets.get(self._topic, REVIVE_GROUP, queue_id)
            first = 0 if done is None else done + 1
            queue = self._queues[queue_id] = ReviveQueue(min(first, stored.end), self._services.options.name)
        begin = max(queue.next_offset, stored.begin)
        end = min(stored.end, begin + most)
        for offset in range(begin, end):
            try:
                record = store.log.read(stored.get(offset).physical_offset).record
                tag = decode_properties(record.properties).get("TAGS", "")
                queue.take(read_note(tag, record.body), offset, now_ms)
            except (IndexError, FormatError) as error:
                self._skipped_notes.note(f"queue offset {offset} of queue {queue_id}", error)
        queue.next_offset = max(begin, end)
        return max(0, end - begin)

    def _revive(self, queue_id: int, queue: ReviveQueue, now_ms: int, left: int) -> int:
        while left > 0 and (found := queue.first_over(now_ms)) is not None:
            point, offsets, revive_offset = found
            if not self._put_all(point, offsets, now_ms):
                return left
            queue.drop_first()
            self._services.offsets.commit_own(self._topic, REVIVE_GROUP, queue_id, revive_offset)
            left -= 1 + len(offsets)
        return left

    def _put_all(self, point: CheckPoint, offsets: list[int], now_ms: int) -> bool:
        """Store the unacknowledged messages of a checkpoint; return False to try again."""
        if not offsets:
            return True
        place = f"topic {point.topic[:80]!r} and group {point.group[:80]!r}"
        try:
            topic = self._services.topics.get(normal_topic(point.topic, point.group))
            if topic is None or self._services.groups.find(point.group, now_ms) is None:
                self._skipped_notes.note(place, "one of them does not exist")
                return True
            for offset in offsets:
                record = self._find(point, offset)
                if record is not None:
                    self._put(_RevivedMessage(record, point), now_ms)
        except FormatError as error:
            self._skipped_notes.note(place, error)
        except (DiskFull, OSError) as error:
            if not self._is_full:
                log.error("popped messages wait for room on the disk: %s", error)
            self._is_full = True
            return False
        self._is_full = False
        return True

    def _find(self, point: CheckPoint, offset: int) -> Record | None:
        """Return a popped message; None if it is no longer in the log."""
        store = self._services.store
        queue = store.queues.get((point.topic, point.queue_id))
        if queue is None or not queue.begin <= offset < queue.end:
            return None
        try:
            return store.log.read(queue.get(offset).physical_offset).record
        except (IndexError, FormatError) as error:
            log.error("message %d of queue %d of topic %s is lost: %s", offset, point.queue_id, point.topic, error)
            return None

    def _put(self, popped: _RevivedMessage, now_ms: int) -> None:
        """Store a message in its retry topic. Raises `DiskFull` and `OSError`."""
        record, point = popped
        services, topic = self._services, point.topic
        if not topic.startswith(RETRY_PREFIX):
            topic = retry_topic(topic, point.group, is_v2=services.options.retry_v2)
        if services.topics.get(topic) is None:
            services.topics.make_for_group(topic, 1, 0, now_ms)
            if services.offsets.get(topic, point.group, 0) is None:
                services.offsets.commit(topic, point.group, 0, 0)
        try:
            self._storing.put(self._message(popped, topic, now_ms), now_ms)
        except (Refused, ValueError, Unstorable) as error:
            self._skipped.note(f"offset {record.physical_offset} of the log", error)

    def _message(self, popped: _RevivedMessage, retry: str, now_ms: int) -> Message:
        record, point = popped
        options = self._services.options
        properties = decode_properties(record.properties)
        buckets = _buckets(properties)
        if record.reconsume_times == 0 or "1ST_POP_TIME" not in properties:
            properties["1ST_POP_TIME"] = str(point.popped_ms)
        properties["ORIGIN_GROUP"] = point.group
        # As in the original, a message sent with a delay level is delayed once more.
        topic, queue_id = place_late(options, retry, 0, properties, now_ms)
        packed = encode_properties(hash_map_order(properties, buckets))
        if len(packed) > PROPERTIES_BYTES_MAX:
            topic, queue_id, packed = retry, 0, record.properties
        host, is_v6 = options.address.pack(), options.address.is_v6
        # Copied, as the log may begin a new file, or grow, while it is written.
        return again(record, topic, queue_id, packed, is_retried=True)._replace(
            body=bytes(record.body),
            system_flags=record.system_flags & ~_HOSTS_V6 | (_HOSTS_V6 if is_v6 else 0),
            born_host=host,
            store_host=host,
        )


def _buckets(properties: dict[str, str]) -> int:
    """Return the size of the original's map for the properties of a revived message."""
    # With a tag the map exists already; otherwise it gets the size that all properties need at once.
    return 16 if "TAGS" in properties or not properties else 1 << int(len(properties) / 0.75).bit_length()
