"""Metrics of a broker for Prometheus, by the original's names and labels (source: BrokerMetricsManager).

Values that this broker does not count are omitted; the manual's page lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from broker.common.exposition import Series, label_text, metric_pieces
from broker.rocketmq.tables import names
from broker.rocketmq.tables.services import Services
from broker.rocketmq.tables.statistics import DEAD_LETTERS
from formats.errors import FormatError
from formats.rocketmq.remoting.versions import version_name

__all__ = ["Metrics"]

# Offsets of groups read in one piece of work, which takes about a millisecond.
OFFSETS_PER_PIECE: Final = 50

_REMOTING: Final = "remoting"
_MODES: Final = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}


class _Behind(NamedTuple):
    messages: int
    oldest_ms: int | None


class Metrics:
    """The metrics of one broker. `disk_bytes` is the used size of the store's disk, None if unknown.

    `disk_alarm` returns True if unconsumed messages will be removed soon.
    """

    def __init__(
        self,
        services: Services,
        wall_ms: Callable[[], int],
        disk_bytes: Callable[[], int | None] = lambda: None,
        disk_alarm: Callable[[], bool] = lambda: False,
    ) -> None:
        self._services = services
        self._wall_ms = wall_ms
        self._disk_bytes = disk_bytes
        self._disk_alarm = disk_alarm
        options = services.options
        self._common = {"node_type": "broker", "cluster": options.cluster, "node_id": options.name}

    def pieces(self) -> Iterator[bytes]:
        """Yield the text in pieces of a few milliseconds; empty ones for other work."""
        services = self._services
        for name, value in (
            ("rocketmq_broker_permission", services.options.permission),
            ("rocketmq_topic_number", len(services.topics.table)),
            ("rocketmq_consumer_group_number", len(services.groups.table)),
        ):
            yield from metric_pieces(name, (Series((label_text(self._common),), (value,)),))
        yield from self._storage()
        yield from self._connections()
        totals = services.statistics.totals
        for name, counter in (
            ("rocketmq_messages_in_total", "TOPIC_PUT_NUMS"),
            ("rocketmq_throughput_in_total", "TOPIC_PUT_SIZE"),
        ):
            by_topic = totals(counter)
            labels = [self._topic_labels(topic) for topic in by_topic]
            yield from metric_pieces(name, (Series(labels, by_topic.values()),), "counter")
        for name, counter in (
            ("rocketmq_messages_out_total", "GROUP_GET_NUMS"),
            ("rocketmq_throughput_out_total", "GROUP_GET_SIZE"),
        ):
            by_group = totals(counter)
            labels = [self._group_labels(*_divided(key)) for key in by_group]
            yield from metric_pieces(name, (Series(labels, by_group.values()),), "counter")
        dead = totals(DEAD_LETTERS)
        labels = [self._dead_labels(*_divided(key)) for key in dead]
        yield from metric_pieces("rocketmq_send_to_dlq_messages_total", (Series(labels, dead.values()),), "counter")
        yield from self._lag()

    def _storage(self) -> Iterator[bytes]:
        store = self._services.store
        log = store.log
        labels = (label_text({**self._common, "storage_type": "local", "storage_medium": "disk"}),)
        oldest_ms = self._stored_ms(lambda: log.read(log.begin).record.stored_ms)
        values = {
            "rocketmq_storage_size": self._disk_bytes(),
            # Unknown to the original.
            "rocketmq_storage_unconsumed_alarm": 1 if self._disk_alarm() else 0,
            "rocketmq_storage_flush_behind_bytes": log.end - store.flushed,
            "rocketmq_storage_message_reserve_time": None if oldest_ms is None else self._since(oldest_ms),
        }
        for name, value in values.items():
            if value is not None:
                yield from metric_pieces(name, (Series(labels, (value,)),))

    def _connections(self) -> Iterator[bytes]:
        clients = self._services.clients
        producers = Counter(
            (member.language, member.version) for members in clients.producers.values() for member in members.values()
        )
        labels = [self._client_labels(*key) for key in producers]
        yield from metric_pieces("rocketmq_producer_connections", (Series(labels, producers.values()),))
        consumers = Counter(
            (member.language, member.version, name, group.consume_type)
            for name, group in clients.consumers.items()
            for member in group.members.values()
        )
        labels = [
            self._client_labels(
                language,
                version,
                consumer_group=group,
                consume_mode=_MODES.get(kind, kind.lower()),
                is_system=_text(names.is_system_group(group)),
            )
            for language, version, group, kind in consumers
        ]
        yield from metric_pieces("rocketmq_consumer_connections", (Series(labels, consumers.values()),))

    def _lag(self) -> Iterator[bytes]:
        """Yield the number of unconfirmed messages of each group and topic, and the age of the oldest."""
        services = self._services
        labels, lags, latencies_ms = [], [], []
        for number, (topic, group, offsets) in enumerate(services.offsets.all(), 1):
            if number % OFFSETS_PER_PIECE == 0:
                yield b""
            if services.topics.get(topic) is None or group not in services.groups.table:
                continue
            behind = self._behind(topic, offsets)
            labels.append(self._group_labels(topic, group))
            lags.append(behind.messages)
            latencies_ms.append(0 if behind.oldest_ms is None else self._since(behind.oldest_ms))
        yield from metric_pieces("rocketmq_consumer_lag_messages", (Series(labels, lags),))
        yield from metric_pieces("rocketmq_consumer_lag_latency", (Series(labels, latencies_ms),))

    def _behind(self, topic: str, offsets: Mapping[int, int]) -> _Behind:
        store, messages, oldest_ms = self._services.store, 0, []
        for queue_id, offset in offsets.items():
            begin, end = store.span(topic, queue_id)
            first = max(begin, offset)
            if first < end:
                messages += end - first
                oldest_ms.append(self._stored_ms(partial(store.stored_ms, topic, queue_id, first)))
        return _Behind(messages, min((each for each in oldest_ms if each is not None), default=None))

    def _since(self, ms: int) -> int:
        return max(0, self._wall_ms() - ms)

    def _stored_ms(self, read: Callable[[], int]) -> int | None:
        """Return when a message was stored; None if there is none, or it is unreadable."""
        try:
            stored_ms = read()
        except (IndexError, FormatError):
            return None
        return stored_ms if stored_ms >= 0 else None

    def _client_labels(self, language: str, version: int, **more: str) -> str:
        release = version_name(version).lower()
        known = {"language": language.lower(), "version": release, "protocol_type": _REMOTING}
        return label_text({**self._common, **known, **more})

    def _dead_labels(self, topic: str, group: str) -> str:
        is_system = _text(names.is_system(topic) or names.is_system_group(group))
        return label_text({**self._common, "topic": topic, "consumer_group": group, "is_system": is_system})

    def _topic_labels(self, topic: str) -> str:
        return label_text({**self._common, "topic": topic, "is_system": _text(names.is_system(topic))})

    def _group_labels(self, topic: str, group: str) -> str:
        is_system = names.is_system(topic) or names.is_system_group(group)
        is_retry = topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX))
        labels = {"topic": topic, "consumer_group": group, "is_retry": _text(is_retry), "is_system": _text(is_system)}
        return label_text({**self._common, **labels})


def _divided(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _text(is_so: bool) -> str:
    return "true" if is_so else "false"
