"""`bmqctl journal queues` on a store of RocketMQ: its topics and their queues."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from bmqctl.cli.files.printing import end_with, size_text, stopped_by
from bmqctl.common.render import (
    Column,
    LateProgress,
    OutputFormat,
    choose_format,
    print_table,
    print_values,
    until_reader_leaves,
)
from bmqctl.stores.rocketmq.dump.rows import time_text
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.read.losses import find_losses
from bmqctl.stores.rocketmq.read.queues import QueueFigures, lost_messages, read_queues

__all__ = ["list_queues", "missing_places", "queue_json", "shown_ms", "with_lost"]

COMMAND: Final = "journal queues"

_COLUMNS = [
    Column("topic", "topic", 36),
    Column("queue_id", "queue", 5, right=True),
    Column("begin", "begin", 10, right=True),
    Column("end", "end", 10, right=True),
    Column("messages", "messages", 10, right=True),
    Column("lost", "lost", 8, right=True),
    Column("size", "stored", 10, right=True),
    Column("last", "last message", 24),
    Column("tags", "tags"),
]
_KEYS = (
    *("topic", "queue_id", "begin", "end", "messages", "damaged", "missing", "size"),
    *("first_ms", "first", "last_ms", "last", "tags", "tag_count", "place"),
)


def list_queues(path: Path, output: OutputFormat | None, name: str | None) -> None:
    with stopped_by(COMMAND, path), LateProgress("reading the commit log") as on_progress:
        store = open_store(path)
        losses = find_losses(store, on_progress)
        found = read_queues(store, losses, lambda topic: name is None or name in topic)
    with until_reader_leaves():
        chosen = choose_format(output)
        if chosen is OutputFormat.TABLE:
            print_table(_rows(found), with_lost(_COLUMNS, lost_messages(found)))
        else:
            print_values(map(queue_json, found), _KEYS, chosen)
    end_with(COMMAND, path, losses.account, lost_messages(found), missing_places(found))


def queue_json(queue: QueueFigures) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "begin": queue.begin,
        "end": queue.end,
        "messages": queue.entries,
        "damaged": queue.damaged,
        "missing": queue.missing,
        "size": queue.size,
        "first_ms": queue.first_ms,
        "first": shown_ms(queue.first_ms),
        "last_ms": queue.last_ms,
        "last": shown_ms(queue.last_ms),
        "tags": queue.tags,
        "tag_count": queue.tag_count,
        "place": queue.place,
    }


def missing_places(queues: Iterable[QueueFigures]) -> list[str]:
    """Describe the queues whose entries do not name their messages in the log."""
    return [queue.place for queue in queues if queue.place is not None]


def with_lost(columns: list[Column], lost: int) -> list[Column]:
    return [column for column in columns if column.key != "lost" or lost]


def shown_ms(ms: int | None) -> str | None:
    """A time as text; None if there is none."""
    return None if ms is None else time_text(ms)


def _rows(found: Iterable[QueueFigures]) -> Iterable[dict[str, Any]]:
    for queue in found:
        tags = ", ".join(f"{tag} {count}" for tag, count in queue.tags.items())
        more = queue.tag_count - len(queue.tags)
        yield {
            **queue_json(queue),
            "lost": queue.damaged + queue.missing or "",
            "size": size_text(queue.size),
            "tags": f"{tags} and {more} more" if more > 0 else tags,
        }
