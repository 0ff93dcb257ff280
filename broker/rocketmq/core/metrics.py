"""Metrics of a broker for Prometheus, by the original's names and labels (source: BrokerMetricsManager).

What this broker does not count is left out; the manual's page has the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from broker.common.exposition import Series, label_text, metric_pieces
from broker.rocketmq.core.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS
from broker.rocketmq.core.services import Services

__all__ = ["Metrics"]

SYSTEM_GROUP_PREFIX: Final = "cid_rmq_sys_"

# Offsets that are read in one piece of work.
OFFSETS_PER_PIECE: Final = 500


class Metrics:
    """The metrics of one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        options = services.options
        self._common = {"node_type": "broker", "cluster": options.cluster, "node_id": options.name}

    def pieces(self) -> Iterator[bytes]:
        """Make the text, in pieces of a few milliseconds; empty ones where there was other work."""
        services = self._services
        for name, value in (
            ("rocketmq_broker_permission", services.options.permission),
            ("rocketmq_topic_number", len(services.topics.table)),
            ("rocketmq_consumer_group_number", len(services.groups.table)),
        ):
            yield from metric_pieces(name, (Series((label_text(self._common),), (value,)),))
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
        yield from self._lag()

    def _lag(self) -> Iterator[bytes]:
        """Show how many messages each group has not yet confirmed of each topic that it consumes."""
        services = self._services
        labels, lags = [], []
        for number, (topic, group, offsets) in enumerate(services.offsets.all(), 1):
            if number % OFFSETS_PER_PIECE == 0:
                yield b""
            if services.topics.get(topic) is None or group not in services.groups.table:
                continue
            labels.append(self._group_labels(topic, group))
            lags.append(self._behind(topic, offsets))
        yield from metric_pieces("rocketmq_consumer_lag_messages", (Series(labels, lags),))

    def _behind(self, topic: str, offsets: Mapping[int, int]) -> int:
        behind = 0
        for queue_id, offset in offsets.items():
            begin, end = self._services.store.span(topic, queue_id)
            behind += max(0, end - max(begin, offset))
        return behind

    def _topic_labels(self, topic: str) -> str:
        return label_text({**self._common, "topic": topic, "is_system": _text(_is_system(topic))})

    def _group_labels(self, topic: str, group: str) -> str:
        is_system = _is_system(topic) or group.lower().startswith(SYSTEM_GROUP_PREFIX)
        is_retry = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        labels = {"topic": topic, "consumer_group": group, "is_retry": _text(is_retry), "is_system": _text(is_system)}
        return label_text({**self._common, **labels})


def _divided(key: str) -> tuple[str, str]:
    """Return topic and group of a counter's key."""
    topic, _, group = key.partition("@")
    return topic, group


def _is_system(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def _text(is_so: bool) -> str:
    return "true" if is_so else "false"
