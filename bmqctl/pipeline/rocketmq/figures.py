"""The tables `groups`, `topics` and `queues`, from a broker's consume queues and tables.

For each queue, the most advanced replica counts. Messages in the log that no consume queue has yet are added, as a
crashed broker adds them when it starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from bmqctl.common.regular import open_buffered
from bmqctl.pipeline.rocketmq.brokers import Broker, ReplicaLog
from bmqctl.pipeline.rocketmq.tables import batch_of_rows
from bmqctl.pipeline.source.arrays import micros_of_ms
from bmqctl.pipeline.source.options import Table
from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.blazingmq.read.account import Account
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.rocketmq.read.files import OFFSET_MAX, QueueFiles, StoreFiles
from bmqctl.stores.rocketmq.read.losses import LoggedQueues, find_losses
from bmqctl.stores.rocketmq.read.queues import QueueFigures, entry_at, read_queues, stored_ms_at
from bmqctl.stores.rocketmq.read.records import LogRecords
from bmqctl.stores.rocketmq.read.scan import LogScan
from bmqctl.stores.rocketmq.read.topics import kind_of
from formats.errors import FormatError
from formats.rocketmq.files.consume_queue import CONSUME_QUEUE_ENTRY
from formats.rocketmq.flags import TRANSACTION_MASK, Transaction
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS, OFFSET_FILES, ConsumerOffsets
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIGS, TopicConfig

__all__ = ["figure_batches"]

T = TypeVar("T")
Place = tuple[str, int]
Row = dict[str, Any]
_OFFSETS_MAX = OFFSET_MAX // CONSUME_QUEUE_ENTRY.size
_DISPATCHED = (Transaction.NONE, Transaction.COMMIT)


@dataclass(frozen=True)
class _Queue:
    """The figures of a queue, with their files, if any."""

    figures: QueueFigures
    log: ReplicaLog
    files: QueueFiles | None


def figure_batches(
    broker: Broker, table: Table, schema: pa.Schema, failfast: bool, account: Account
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a broker; `account` gets the messages that its queues have lost.

    Raises `OSError`, and StoreError if the stores cannot be read or, with `failfast`, have lost messages.
    """
    try:
        queues = _queues(broker)
    except NotAStoreFile as error:
        raise StoreError(str(error)) from None
    for (topic, queue_id), queue in queues.items():
        figures = queue.figures
        for count, is_missing in ((figures.damaged, False), (figures.missing, True)):
            if count:
                where = f"{queue.log.root}: {figures.place or f'queue {queue_id} of {topic} has lost {count} messages'}"
                if failfast:
                    raise StoreError(f"{where}; mode=permissive leaves them out")
                account.lose(where, 0, is_missing=is_missing, count=count)
    rows = list(_ROWS[table](broker, queues))
    if rows:
        yield batch_of_rows(rows, schema)


def _queues(broker: Broker) -> dict[Place, _Queue]:
    found: dict[Place, _Queue] = {}
    for log in broker.logs:
        if log.limit < OFFSET_MAX:
            continue
        store = StoreFiles(log.root, log.files, ())
        files = {(each.topic, each.queue_id): each for each in store.queues()}
        losses = find_losses(store)
        if not losses.queues.entered_to:
            # A starting broker enters all messages: they count as the rest, and none is missing.
            losses = replace(losses, queues=LoggedQueues())
        for figures in read_queues(store, losses):
            place = figures.topic, figures.queue_id
            if place not in found or found[place].figures.end < figures.end:
                found[place] = _Queue(figures, log, files.get(place))
    _add_rest(broker.logs[0], found)
    return dict(sorted(found.items()))


def _add_rest(log: ReplicaLog, queues: dict[Place, _Queue]) -> None:
    last = log.files[-1].end if log.files else 0
    known = max((each.figures.log_end for each in queues.values() if each.figures.log_end <= last), default=0)
    for chunk in LogScan(log.files, known or None, exact=True, tail=False).chunks():
        records = chunk.records
        numbers = records.front("queue_offset")
        is_dispatched = np.isin(records.flags & TRANSACTION_MASK, _DISPATCHED)
        # No queue's files reach offsets beyond this.
        is_dispatched &= (numbers >= 0) & (numbers < _OFFSETS_MAX)
        records = records if is_dispatched.all() else records.where(is_dispatched)
        for place, number, size, time in _rest(records):
            queue = queues.setdefault(place, _Queue(QueueFigures(*place, number, number), log, None)).figures
            if number >= queue.end:
                queue.end = number + 1
                queue.entries += 1
                queue.size += size
                queue.last_ms = time
                queue.first_ms = time if queue.first_ms is None else queue.first_ms


def _rest(records: LogRecords) -> Iterator[tuple[Place, int, int, int]]:
    columns = (records.front("queue_id"), records.front("queue_offset"), records.sizes, records.stored_ms)
    topics = (topic.decode(errors="replace") for topic in records.topics())
    for topic, queue_id, number, size, time in zip(topics, *(each.tolist() for each in columns), strict=True):
        yield (topic, queue_id), number, size, time


def _group_rows(broker: Broker, queues: dict[Place, _Queue]) -> Iterator[Row]:
    files = [found for name in OFFSET_FILES if (found := _config(broker, name, _offsets)) is not None]
    offsets = max(files, key=lambda file: file.changed_ms).all_offsets if files else {}
    for name, progress in sorted(offsets.items()):
        topic, _, group = name.partition("@")
        # A queue from which the group has taken nothing has no progress.
        numbers = {number for of_topic, number in queues if of_topic == topic and queues[topic, number].figures.entries}
        for queue_id in sorted(progress.keys() | numbers):
            queue, offset = queues.get((topic, queue_id)), progress.get(queue_id)
            begin, end = (0, 0) if queue is None else (queue.figures.begin, queue.figures.end)
            following = begin if offset is None else max(offset, begin)
            lag = max(0, end - following)
            yield {
                "broker": broker.name,
                "group": group,
                "topic": topic,
                "queue_id": queue_id,
                "min_offset": None if queue is None else begin,
                "max_offset": None if queue is None else end,
                "offset": offset,
                "lag": lag,
                "waiting_since": _stored(queue, following) if queue is not None and lag else None,
            }


def _offsets(data: bytes) -> ConsumerOffsets:
    """Return the offsets of all groups by queue. Raises FormatError."""
    found = CONSUMER_OFFSETS.read(data)
    for name, progress in found.offset_table.items():
        for queue_id in progress:
            if _int32(queue_id) is None:
                raise FormatError("ConsumerOffsets.offsetTable", 0, f"{name[:40]!r} has a queue {queue_id}")
    return found


def _stored(queue: _Queue, offset: int) -> int | None:
    """Return the time at which a message of a queue was stored; None if it is not available."""
    place = None if queue.files is None else entry_at(queue.files, offset)
    return None if place is None else micros_of_ms(stored_ms_at(queue.log.files, *place))


def _topic_rows(broker: Broker, queues: dict[Place, _Queue]) -> Iterator[Row]:
    configs = _config(broker, "topics.json", lambda data: TOPIC_CONFIGS.read(data).topic_config_table) or {}
    by_topic = {topic: [each for _, each in some] for topic, some in groupby(queues.items(), lambda item: item[0][0])}
    for topic in sorted(configs.keys() | by_topic.keys()):
        figures = [queue.figures for queue in by_topic.get(topic, [])]
        config: TopicConfig | None = configs.get(topic)
        tags: dict[str, int] = {}
        for each in figures:
            for tag, count in each.tags.items():
                tags[tag] = tags.get(tag, 0) + count
        yield {
            "broker": broker.name,
            "topic": topic,
            "kind": kind_of(topic).value,
            "read_queues": config and _int32(config.read_queue_nums),
            "write_queues": config and _int32(config.write_queue_nums),
            "permission": config and _int32(config.perm),
            **_extent(figures),
            "tags": sorted(tags.items()),
        }


def _queue_rows(broker: Broker, queues: dict[Place, _Queue]) -> Iterator[Row]:
    for (topic, queue_id), queue in queues.items():
        yield {
            "broker": broker.name,
            "topic": topic,
            "queue_id": queue_id,
            "min_offset": queue.figures.begin,
            "max_offset": queue.figures.end,
            **_extent([queue.figures]),
        }


_ROWS: dict[Table, Callable[[Broker, dict[Place, _Queue]], Iterator[Row]]] = {
    Table.GROUPS: _group_rows,
    Table.TOPICS: _topic_rows,
    Table.QUEUES: _queue_rows,
}


def _extent(figures: list[QueueFigures]) -> Row:
    return {
        "messages": sum(each.entries for each in figures),
        "bytes": sum(each.size for each in figures),
        "first_time": micros_of_ms(min((each.first_ms for each in figures if each.first_ms is not None), default=None)),
        "last_time": micros_of_ms(max((each.last_ms for each in figures if each.last_ms is not None), default=None)),
    }


def _int32(number: int) -> int | None:
    return number if -(1 << 31) <= number < 1 << 31 else None


def _config(broker: Broker, name: str, read: Callable[[bytes], T]) -> T | None:
    """A table of the first replica that has it; None if none has. Raises StoreError if none can be read."""
    fault: StoreError | None = None
    for log in broker.logs:
        path = StoreFiles(log.root, (), ()).config(name)
        try:
            with open_buffered(path) as file:
                return read(file.read())
        except FileNotFoundError:
            continue
        except (OSError, FormatError) as error:
            fault = fault or StoreError(f"{path}: {error}; the broker's own copy beside it ends in .bak")
    if fault is not None:
        raise fault
    return None
