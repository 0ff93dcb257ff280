"""The table `queues`: one row per queue of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from bmqctl.pipeline.source.arrays import TIMESTAMP_MAX_S
from formats.bmq.stores.queues import Event, Queue
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["queue_batches"]


def queue_batches(queues: Iterable[Queue], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield all rows at once: queues are few."""
    rows = [_row(queue) for queue in queues]
    if rows:
        yield pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)


def _row(queue: Queue) -> dict[str, Any]:
    domain, name = _parts(queue.uri)
    return {
        "partition_id": queue.partition_id,
        "queue_uri": queue.uri,
        "queue_key": queue.queue_key,
        "domain": domain,
        "queue": name,
        "app_ids": sorted(app.app_id for app in queue.apps if app.until is None),
        "removed_app_ids": sorted(app.app_id for app in queue.apps if app.until is not None),
        "created_time": _time(queue.created),
        "deleted_time": _time(queue.deleted),
    }


def _parts(uri: str | None) -> tuple[str | None, str | None]:
    """Return domain (with its tier) and queue; None for an unknown or invalid URI."""
    if uri is None:
        return None, None
    try:
        parsed = parse_uri(uri)
    except FormatError:
        return None, None
    return parsed.qualified_domain, parsed.queue


def _time(event: Event | None) -> int | None:
    """Return an event's time in microseconds; None if it has none or one out of range."""
    return None if event is None or event.timestamp > TIMESTAMP_MAX_S else event.timestamp * 1_000_000
