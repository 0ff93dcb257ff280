"""Metrics of a node's queues, by the reference's names and labels (source: bmqprometheus).

There may be very many queues: a few are read at a time, with an empty piece of text for each lot. Each queue becomes a
row, from which every metric takes its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.statistics import Kept
from broker.bmq.node.node import Node
from broker.bmq.queue.queue import App, Queue
from broker.common.exposition import LINES_MAX, MetricLabels, Series, label_text, metric_pieces
from formats.bmq.uri import parse_uri

__all__ = ["HOST_DATA", "QueueMetrics", "shows_apps"]

NS_PER_MS = 1_000_000

HOST_DATA = "host-data"
PRIMARY, REPLICA, PROXY = "PRIMARY", "REPLICA", "PROXY"

# Queues read in one piece of work: about a millisecond.
QUEUES_PER_PIECE = 200

# A row has the fields of `Kept` as they are, the same fields over the last minute, and these.
_FIELDS = Kept._fields
_MORE = (
    "writers",
    "readers",
    "cfg_msgs",
    "cfg_bytes",
    "msgs_used",
    "bytes_used",
    "wait",
    "wait_max",
    "answer",
    "answer_max",
)
_AT = {name: number for number, name in enumerate((*_FIELDS, *(f"{name}:lately" for name in _FIELDS), *_MORE))}

Row = tuple[int, ...]

# For queues of any role. A queue that shows its apps leaves its highest times to them.
_QUEUE = (
    ("queue_producers_count", "writers"),
    ("queue_consumers_count", "readers"),
    ("queue_put_msgs_delta", "puts:lately"),
    ("queue_put_msgs", "puts"),
    ("queue_put_bytes_delta", "put_bytes:lately"),
    ("queue_put_bytes", "put_bytes"),
    ("queue_push_msgs_delta", "pushes:lately"),
    ("queue_push_msgs", "pushes"),
    ("queue_push_bytes_delta", "push_bytes:lately"),
    ("queue_push_bytes", "push_bytes"),
    ("queue_ack_msgs_delta", "acks:lately"),
    ("queue_ack_msgs", "acks"),
    ("queue_nack_msgs_delta", "nacks:lately"),
    ("queue_nack_msgs", "nacks"),
    ("queue_confirm_msgs", "confirms"),
    ("queue_confirm_time_avg", "answer"),
)
_OF_APPS = (("queue_confirm_time_max", "answer_max"),)

# For queues whose primary is this node.
_PRIMARY = (
    ("queue_gc_msgs_delta", "expired:lately"),
    ("queue_gc_msgs", "expired"),
    ("queue_cfg_msgs", "cfg_msgs"),
    ("queue_cfg_bytes", "cfg_bytes"),
    ("queue_msgs_utilization_max", "msgs_used"),
    ("queue_bytes_utilization_max", "bytes_used"),
    ("queue_queue_time_avg", "wait"),
    ("queue_reject_msgs_delta", "rejects:lately"),
    ("queue_reject_msgs", "rejects"),
)
_OF_PRIMARYS_APPS = (("queue_queue_time_max", "wait_max"),)
_CONTENT = (("queue_content_msgs_max", "messages_max:lately"), ("queue_content_bytes_max", "bytes_max:lately"))

_MESSAGES_MAX, _BYTES_MAX = _FIELDS.index("messages_max"), _FIELDS.index("bytes_max")
_WAITS, _WAITS_MS, _WAIT_MAX = (_FIELDS.index(name) for name in ("waits", "waits_ms", "wait_ms_max"))
_ANSWERS, _ANSWERS_MS, _ANSWER_MAX = (_FIELDS.index(name) for name in ("answers", "answers_ms", "answer_ms_max"))


class MetricRows(NamedTuple):
    """Rows of the same kind, with the labels of each."""

    labels: MetricLabels
    rows: list[Row]

    def add(self, labels: str, row: Row) -> None:
        self.labels.add(labels)
        self.rows.append(row)

    def series(self, key: str) -> Series:
        return Series(self.labels, map(itemgetter(_AT[key]), self.rows))


class Read(NamedTuple):
    """The rows of all queues: first of queues whose primary is this node, then of the others.

    The third and the fourth are the rows of their apps. The last two repeat the queues that do not show their apps.
    """

    primary: MetricRows
    others: MetricRows
    apps: MetricRows
    others_apps: MetricRows
    alone: MetricRows
    others_alone: MetricRows

    def add(self, queue: Queue, labels: str, row: Row) -> None:
        (self.primary if queue.is_root else self.others).add(labels, row)

    def add_alone(self, queue: Queue, labels: str, row: Row) -> None:
        (self.alone if queue.is_root else self.others_alone).add(labels, row)

    def add_app(self, queue: Queue, labels: str, row: Row) -> None:
        (self.apps if queue.is_root else self.others_apps).add(labels, row)


class QueueMetrics:
    """The metrics of one node's queues; their labels are cached between pages."""

    def __init__(self, node: Node, instance: str) -> None:
        self._node = node
        self._instance = instance
        self._labels: dict[tuple[str, str, str], str] = {}

    def pieces(self) -> Iterator[bytes]:
        read = Read(*(MetricRows(MetricLabels(), []) for _ in Read._fields))
        queues = list(self._node.queues.values())
        if len(self._labels) > 2 * len(queues) + LINES_MAX:
            self._labels.clear()
        for number, queue in enumerate(queues):
            self._read(queue, read)
            if number % QUEUES_PER_PIECE == QUEUES_PER_PIECE - 1:
                yield b""
        yield from _text(read)

    def _read(self, queue: Queue, read: Read) -> None:
        row = _row(queue)
        labels = self._label(queue)
        read.add(queue, labels, row)
        # A proxy does not know the domain's setting for apps.
        if self._node.role.is_proxy or not shows_apps(queue.config):
            read.add_alone(queue, labels, row)
            return
        for app in queue.apps.values():
            read.add_app(queue, self._label(queue, app.app_id), _app_row(app))

    def _label(self, queue: Queue, app_id: str | None = None) -> str:
        role = PRIMARY if queue.is_root else PROXY if self._node.role.is_proxy else REPLICA
        key = (queue.uri, role, app_id or "")
        known = self._labels.get(key)
        if known is not None:
            return known
        uri = parse_uri(queue.uri)
        labels = {
            "Cluster": queue.config.cluster or self._node.identity.cluster_name,
            "Domain": uri.domain,
            "Tier": uri.tier,
            "Queue": uri.queue,
            "Role": role,
            "Instance": self._instance,
            "DataType": HOST_DATA,
        }
        if app_id is not None:
            labels["AppId"] = app_id
        text = self._labels[key] = label_text(labels)
        return text


def _text(read: Read) -> Iterator[bytes]:
    primary, others, apps, others_apps, alone, others_alone = read
    heartbeats = (Series(each.labels, [0] * len(each.labels)) for each in (primary, others))
    yield from metric_pieces("queue_heartbeat", heartbeats)
    for name, key in _QUEUE:
        yield from metric_pieces(name, (primary.series(key), others.series(key)))
    for name, key in _PRIMARY:
        yield from metric_pieces(name, (primary.series(key),))
    for name, key in _CONTENT:
        yield from metric_pieces(name, (primary.series(key), apps.series(key)))
    for name, key in _OF_APPS:
        yield from metric_pieces(name, (part.series(key) for part in (alone, others_alone, apps, others_apps)))
    for name, key in _OF_PRIMARYS_APPS:
        yield from metric_pieces(name, (alone.series(key), apps.series(key)))


def shows_apps(config: DomainConfig) -> bool:
    """Return True if a domain's queues have statistics of each app, too."""
    if config.mode is not Mode.FANOUT:
        return False
    return bool(config.shown.get("mode", {}).get("fanout", {}).get("publishAppIdMetrics", True))


def _row(queue: Queue) -> Row:
    config = queue.config
    messages_limit, bytes_limit = config.queue_messages_max, config.queue_bytes_max
    now, lately = queue.statistics.since(len(queue.messages), queue.bytes)
    waits = wait_ms = wait_max = answers = answer_ms = answer_max = readers = 0
    for app in queue.apps.values():
        readers += len(app.streams)
        _, of_app = app.statistics.since(app.messages, app.bytes)
        waits += of_app[_WAITS]
        wait_ms += of_app[_WAITS_MS]
        answers += of_app[_ANSWERS]
        answer_ms += of_app[_ANSWERS_MS]
        wait_max = max(wait_max, of_app[_WAIT_MAX])
        answer_max = max(answer_max, of_app[_ANSWER_MAX])
    return (
        *now,
        *lately,
        queue.writers,
        readers,
        messages_limit,
        bytes_limit,
        100 * lately[_MESSAGES_MAX] // messages_limit if messages_limit else 0,
        100 * lately[_BYTES_MAX] // bytes_limit if bytes_limit else 0,
        *_times(waits, wait_ms, wait_max),
        *_times(answers, answer_ms, answer_max),
    )


def _app_row(app: App) -> Row:
    now, lately = app.statistics.since(app.messages, app.bytes)
    waited = _times(lately[_WAITS], lately[_WAITS_MS], lately[_WAIT_MAX])
    answered = _times(lately[_ANSWERS], lately[_ANSWERS_MS], lately[_ANSWER_MAX])
    return (*now, *lately, len(app.streams), 0, 0, 0, 0, 0, *waited, *answered)


def _times(count: int, total_ms: int, max_ms: int) -> tuple[int, int]:
    return (total_ms // count * NS_PER_MS if count else 0, max_ms * NS_PER_MS)
