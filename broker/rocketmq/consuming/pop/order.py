"""Messages that groups pop in order: popped messages that are under way block their queue.

Source: QueueLevelConsumerManager. Ordered pops write no checkpoints: the group's offset stays before the first
unacknowledged message. The file is written periodically; after a crash some messages come again, still in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.popping import ORDER_FILE, OrderFile, OrderRecord
from formats.rocketmq.remoting.receipts import offset_counts_info, queue_count_info

__all__ = ["ILLEGAL", "UNCHANGED", "Key", "Orders"]

# Results of an acknowledgement that moves no offset.
ILLEGAL: Final = -1
UNCHANGED: Final = -2

_SEPARATOR: Final = "@"
# Unused records are forgotten after this time.
_KEEP_MS: Final = 24 * 3_600_000

# A topic, a group and a queue id.
Key = tuple[str, str, int]


class Orders:
    """The messages that are being consumed in order. `changed`: the file is older than the table."""

    def __init__(self, stored: bytes) -> None:
        file = ORDER_FILE.read(stored) if stored else OrderFile()
        self._level = file.level
        self._table: dict[Key, OrderRecord] = {}
        # Queues not known to be free yet, with the times when they become free.
        self._free_ms: dict[Key, int] = {}
        # Queues whose offsets were reset, and that were not popped since.
        self._reset: set[Key] = set()
        # The queue ids of each name in the file; the file's items; and the names of outdated items.
        self._queues: dict[str, dict[int, None]] = {}
        self._texts: dict[str, str] = {}
        self._stale: dict[str, None] = {}
        self.changed = False
        for name, queues in file.table.items():
            topic, _, group = name.partition(_SEPARATOR)
            for queue_id, record in queues.items():
                if record.offsets:
                    self._put((topic, group, queue_id), record)
        self.changed = False

    def popped(
        self, key: Key, attempt_id: str | None, now_ms: int, invisible_ms: int, offsets: Sequence[int]
    ) -> list[str]:
        """Note popped messages; return the parts of the answer's header with the number of earlier pops of each."""
        counts = self.note(key, attempt_id, now_ms, invisible_ms, offsets)
        topic, _, queue_id = key
        least = min(counts.values()) if len(counts) == len(offsets) else 0
        told = [offset_counts_info(topic, queue_id, offset, count) for offset, count in counts.items()]
        return [*told, queue_count_info(topic, queue_id, least)]

    def note(
        self, key: Key, attempt_id: str | None, now_ms: int, invisible_ms: int, offsets: Sequence[int]
    ) -> dict[int, int]:
        """Note popped messages; return the number of earlier pops of each that has any."""
        old = self._table.get(key)
        counts: dict[int, int] | None = None
        if old is not None:
            before = old.counts or {}
            if old.attempt_id is not None and old.attempt_id == attempt_id:
                counts = before
            else:
                known = set(_offsets(old))
                counts = {offset: before.get(offset, 0) + 1 for offset in offsets if offset in known}
        first = offsets[0]
        stored = [first, *(offset - first for offset in offsets[1:])]
        record = OrderRecord(
            now_ms, invisible_ms, stored, counts=counts, consumed_ms=now_ms, acked=0, attempt_id=attempt_id
        )
        self._put(key, record)
        self._reset.discard(key)
        return counts or {}

    def is_blocked(self, key: Key, attempt_id: str | None, now_ms: int) -> bool:
        """Return whether a queue has messages under way; these do not block the attempt that popped them."""
        record = self._table.get(key)
        if record is None or (record.attempt_id is not None and record.attempt_id == attempt_id):
            return False
        return _free_ms(record) > now_ms

    def acknowledge(self, key: Key, offset: int, popped_ms: int) -> int:
        """Note that a message is consumed; return the group's new offset, `UNCHANGED` or `ILLEGAL`."""
        record = self._table.get(key)
        if record is None:
            return UNCHANGED if key in self._reset else offset + 1
        if record.popped_ms != popped_ms:
            return UNCHANGED
        offsets = _offsets(record)
        if offset not in offsets:
            return ILLEGAL
        record = record._replace(acked=record.acked | 1 << offsets.index(offset))
        self._put(key, record)
        for place, each in enumerate(offsets):
            if not record.acked >> place & 1:
                return each
        return offsets[-1] + 1

    def change(self, key: Key, offset: int, popped_ms: int, visible_ms: int) -> None:
        record = self._table.get(key)
        if record is not None and record.popped_ms == popped_ms and offset in _offsets(record):
            self._put(key, record._replace(visible_ms={**(record.visible_ms or {}), offset: visible_ms}))

    def suspend(self, key: Key, popped_ms: int, visible_ms: int) -> None:
        """Make all popped messages visible again at another time, without counting this delivery."""
        record = self._table.get(key)
        if record is not None and record.popped_ms == popped_ms:
            counts = {offset: max(0, count - 1) for offset, count in (record.counts or {}).items()}
            record = record._replace(invisible_ms=visible_ms - popped_ms, visible_ms=None, counts=counts or None)
            self._put(key, record)

    def forget(self, key: Key) -> None:
        """Free a queue whose offset was reset; acknowledgements of messages under way then change nothing."""
        if self._remove(key):
            self._free_ms[key] = 0
            self._reset.add(key)
            self.changed = True

    def freed(self, now_ms: int) -> list[Key]:
        found = [key for key, free_ms in self._free_ms.items() if free_ms <= now_ms]
        for key in found:
            del self._free_ms[key]
        return found

    def _put(self, key: Key, record: OrderRecord) -> None:
        self._table[key] = record
        self.changed = True
        self._free_ms[key] = _free_ms(record)
        name = _name(key)
        self._queues.setdefault(name, {})[key[2]] = None
        self._stale[name] = None

    def _remove(self, key: Key) -> bool:
        if self._table.pop(key, None) is None:
            return False
        name = _name(key)
        del self._queues[name][key[2]]
        self._stale[name] = None
        return True

    def __len__(self) -> int:
        return len(self._table)

    def drop_unused(self, now_ms: int) -> None:
        for key in [key for key, record in self._table.items() if now_ms - record.consumed_ms > _KEEP_MS]:
            self._remove(key)

    def drop(self, key: Key) -> None:
        self._remove(key)
        self._free_ms.pop(key, None)
        self._reset.discard(key)

    def prepare(self, most: int) -> bool:
        """Encode up to `most` changed pairs of topic and group; return True if none is left."""
        for name in list(islice(self._stale, most)):
            del self._stale[name]
            topic, _, group = name.partition(_SEPARATOR)
            queues = {each: self._table[topic, group, each] for each in self._queues[name]}
            if queues:
                (value,) = ORDER_FILE.write_value(OrderFile({name: queues}))["table"].values()
                self._texts[name] = fastjson.dumps_pretty_item(name, value, 1)
            else:
                del self._queues[name]
                self._texts.pop(name, None)
        return not self._stale

    def file(self, now_ms: int) -> bytes:
        """Return the file's next content, without unused entries, which are forgotten."""
        self.drop_unused(now_ms)
        self.prepare(len(self._stale))
        self.changed = False
        value = {"orderedConsumptionLevel": self._level, "table": fastjson.Items(self._texts.values())}
        return fastjson.dumps_pretty(value).encode()


def _name(key: Key) -> str:
    return f"{key[0]}{_SEPARATOR}{key[1]}"


def _offsets(record: OrderRecord) -> list[int]:
    first = record.offsets[0]
    return [first, *(first + each for each in record.offsets[1:])]


def _free_ms(record: OrderRecord) -> int:
    """Return the time at which all unacknowledged messages of a queue are visible again."""
    changed = record.visible_ms or {}
    usual = record.popped_ms + (record.invisible_ms or 0)
    times = [
        changed.get(offset, usual) for place, offset in enumerate(_offsets(record)) if not record.acked >> place & 1
    ]
    return max(times, default=0)
