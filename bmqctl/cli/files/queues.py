"""`bmqctl journal queues`: which queues a store has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bmqctl.common.render import (
    Column,
    LateProgress,
    Output,
    OutputFormat,
    choose_format,
    print_table,
    print_values,
    until_reader_leaves,
)
from bmqctl.stores.blazingmq.read.times import shown_time

if TYPE_CHECKING:
    from formats.bmq.stores.queues import Event, Queue

__all__ = ["queues"]

_COLUMNS = [
    Column("partition_id", "partition", 9, right=True),
    Column("queue_key", "key", 10),
    Column("state", "state", 8),
    Column("created", "created", 20),
    Column("queue_uri", "queue", 56),
    Column("apps", "apps"),
]
_KEYS = ("partition_id", "queue_key", "queue_uri", "state", "created", "deleted", "apps", "purges")


def queues(
    path: Annotated[
        Path, typer.Argument(help="A store's directory, or a JOURNAL, QLIST or ledger file.", show_default=False)
    ],
    output: Output = None,
    name: Annotated[
        str | None,
        typer.Option(help="Only queues whose URI or topic contains this, or with this key.", show_default=False),
    ] = None,
) -> None:
    """List the queues of a store of BlazingMQ or RocketMQ, and what is known of each.

    BlazingMQ: keys and apps, and the times of creation, purges and deletion. Names come from the QLIST files or, where
    these lack one, from the cluster-state ledger. A queue without a creation time is created by no journal here: it is
    in QLIST or the ledger only.

    RocketMQ, ours or Apache's: the queues of each topic with the offset of the first message that is left, that of the
    next, the number of messages, the size of their records, and their tags.

    By default a table on a terminal, and one JSON object per line elsewhere.

    Examples:

        bmqctl journal queues store/

        bmqctl journal queues --name orders --output jsonl store/ | jq '.apps[].app_id'

        bmqctl journal queues --name orders --output jsonl rocketmq-store/ | jq .tags

    Exit codes: 0; 1 if a part of the store is damaged or missing; 2 if there is no store.
    """
    from bmqctl.cli.files import rocketmq_queues
    from bmqctl.cli.files.printing import end_with, stopped_by
    from bmqctl.stores.blazingmq.read.losses import record_losses
    from bmqctl.stores.blazingmq.summary.queues import find_queues
    from bmqctl.stores.rocketmq.read.files import is_store

    if is_store(path):
        rocketmq_queues.list_queues(path, output, name)
        return
    with stopped_by("journal queues", path), LateProgress("reading records") as on_progress:
        found = find_queues(path, on_progress)
        account = record_losses(path)
    if name is not None:
        found = [queue for queue in found if name in (queue.uri or "") or name.upper() == queue.queue_key]
    with until_reader_leaves():
        chosen = choose_format(output)
        if chosen is OutputFormat.TABLE:
            print_table(_rows(found), _COLUMNS)
        else:
            print_values(map(_as_json, found), _KEYS, chosen)
    end_with("journal queues", path, account)


def _as_json(queue: Queue) -> dict[str, Any]:
    return {
        "partition_id": queue.partition_id,
        "queue_key": queue.queue_key,
        "queue_uri": queue.uri,
        "state": _state(queue),
        "created": _event(queue.created),
        "deleted": _event(queue.deleted),
        "apps": [{"app_key": app.app_key, "app_id": app.app_id, "removed_offset": app.until} for app in queue.apps],
        "purges": [
            {
                "offset": purge.offset,
                "timestamp": purge.timestamp,
                "time": shown_time(purge.timestamp),
                "app_key": purge.app_key,
            }
            for purge in queue.purges
            # The end of a queue purges it, too.
            if queue.deleted is None or purge.offset != queue.deleted.offset
        ],
    }


def _event(event: Event | None) -> dict[str, Any] | None:
    return None if event is None else {**event._asdict(), "time": shown_time(event.timestamp)}


def _rows(found: Iterable[Queue]) -> Iterable[dict[str, Any]]:
    for queue in found:
        yield {
            "partition_id": queue.partition_id,
            "queue_key": queue.queue_key,
            "queue_uri": queue.uri or "?",
            "state": _state(queue),
            "created": "" if queue.created is None else shown_time(queue.created.timestamp),
            "apps": ", ".join(app.app_id if app.until is None else f"{app.app_id} (removed)" for app in queue.apps),
        }


def _state(queue: Queue) -> str:
    if queue.deleted is not None:
        return "deleted"
    return "named" if queue.created is None else "open"
