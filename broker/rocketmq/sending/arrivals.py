# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Messages on their way into the store, and the requests that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from broker.common.faults import Inconsistent, describe
from broker.rocketmq.consuming.pulling import Puller
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.errors import DiskFull, Unstorable
from broker.rocketmq.store.message_store import MessageStore, Stored
from broker.rocketmq.store.writing import Placed, PlainMessage, Writer
from broker.rocketmq.tables.statistics import Statistics
from formats.rocketmq.lite import QUEUE_ID

__all__ = ["Arrivals"]

_T = TypeVar("_T")


class Arrivals:
    """Puts messages into the store; the step's end answers waiting requests with all of its messages."""

    def __init__(self, store: MessageStore, puller: Puller, statistics: Statistics) -> None:
        self._store = store
        self._writer = Writer(store, self.arrived)
        self._puller = puller
        self._others: list[Callable[[str, int, int], None]] = []
        self._statistics = statistics
        # The step's messages, and their bytes in the log, by queue.
        self._arrived: dict[tuple[str, int], list[int]] = {}
        # Queues of lite topics that got messages beside their own queues.
        self._lite: dict[tuple[str, int], None] = {}
        # Queues with messages that became readable; without holding back, messages are readable at once.
        self._shown: dict[tuple[str, int], None] = {}
        store.tell_shown(lambda topic, queue_id: self._shown.setdefault((topic, queue_id)))

    def tell(self, other: Callable[[str, int, int], None]) -> None:
        """Call `other` for new messages with the topic, the queue and the time."""
        self._others.append(other)

    def put(self, message: Message, now_ms: int, properties: Mapping[str, str] | None = None) -> Stored:
        """Store a message; see `Writer.put`. Raises `DiskFull` and `Unstorable`; it is not stored then."""
        stored = self._stored(lambda: self._writer.put(message, now_ms, properties))
        if stored.lite_queue is not None:
            self._lite[stored.lite_queue, QUEUE_ID] = None
        return stored

    def put_together(self, messages: Sequence[PlainMessage], now_ms: int) -> list[Placed]:
        """Store a batch; see `Writer.put_together`. Raises `DiskFull` and `Unstorable`."""
        return self._stored(lambda: self._writer.put_together(messages, now_ms))

    def _stored(self, store: Callable[[], _T]) -> _T:
        end = self._store.log.end
        try:
            return store()
        except (DiskFull, Unstorable):
            raise
        except Exception as error:
            if self._is_as_before(end, error):
                raise Unstorable(describe(error)) from error
            raise Inconsistent("storing messages", error) from error

    def put_all(self, messages: Sequence[PlainMessage], now_ms: int) -> list[Placed]:
        end = self._store.log.end
        try:
            return self._writer.put_all(messages, now_ms)
        except Exception as error:
            if self._is_as_before(end, error):
                return []
            raise Inconsistent("storing messages", error) from error

    def _is_as_before(self, end: int, error: Exception) -> bool:
        """Return whether the message, not the disk, made storing fail, and the log still ends at `end`."""
        return not isinstance(error, OSError) and self._store.log.end == end

    def arrived(self, topic: str, queue_id: int, messages: int, size: int) -> None:
        """Count stored messages, copies of the master's included; the step's end answers the waiting requests."""
        counts = self._arrived.get((topic, queue_id))
        if counts is None:
            self._arrived[topic, queue_id] = [messages, size]
        else:
            counts[0] += messages
            counts[1] += size

    def end_step(self, now_ms: int) -> None:
        """Answer the requests that wait for the step's messages, and count these."""
        while self._arrived or self._shown:
            arrived, self._arrived = self._arrived, {}
            shown, self._shown = self._shown, {}
            lite, self._lite = self._lite, {}
            for (topic, _), (count, size) in arrived.items():
                self._statistics.stored(topic, count, size)
            for topic, queue_id in shown if self._store.is_holding_back else (*arrived, *lite):
                self._puller.arrived(topic, queue_id, now_ms)
                for other in self._others:
                    other(topic, queue_id, now_ms)
