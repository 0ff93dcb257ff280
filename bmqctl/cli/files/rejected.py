"""`bmqctl journal rejected`: the poison messages of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.common.refusal import say
from bmqctl.common.render import (
    Column,
    LateProgress,
    Output,
    OutputFormat,
    choose_format,
    print_rows,
    refuse,
    until_reader_leaves,
)
from bmqctl.stores.blazingmq.read.files import NotAStoreFile, recovery_sets
from bmqctl.stores.rocketmq.read.files import is_store
from formats.errors import FormatError

if TYPE_CHECKING:
    from bmqctl.stores.blazingmq.rejected import Rejected

__all__ = ["rejected"]

COMMAND = "journal rejected"
LOGS = "bmqbrkr.log*"

_COLUMNS = [
    Column("time", "time", 24),
    Column("guid", "guid", 32),
    Column("app_id", "app", 20),
    Column("attempts", "attempts", 8, right=True),
    Column("is_stored", "stored", 6),
    Column("queue_uri", "queue"),
]


def rejected(
    path: Annotated[Path, typer.Argument(help="The directory of a store of BlazingMQ.", show_default=False)],
    logs: Annotated[
        list[Path] | None,
        typer.Option(
            "--log",
            help="A log file of a broker of this store; repeatable. By default bmqbrkr.log and older ones in the "
            "directory.",
            show_default=False,
        ),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", help="Only messages of this queue, by URI; repeatable.", show_default=False),
    ] = None,
    output: Output = None,
) -> None:
    """List the poison messages of a store of BlazingMQ: an app gave them up after the last delivery attempt.

    A journal has them only if other apps were left, as in a fan-out queue. A message of the last app, as in
    each priority queue, is deleted like any other, and only the logs of the brokers have it: each alarm
    POISON_PILL, at most one each 15 s and queue, and of a consumer that is lost the first 10 messages.

    `stored` says whether the journals still have the message: if so, `journal dump --guid` opens it, and `replay
    --guid` sends it again. The broker's own copy, for people, is at `kept_in`.

    By default a table on a terminal, and one JSON object per line elsewhere.

    Examples:

        bmqctl journal rejected store/

        bmqctl journal rejected store/ --queue bmq://my.domain/orders --output csv

        bmqctl journal rejected store/ --log /var/log/bmq/node1.log --log /var/log/bmq/node2.log

        bmqctl journal rejected store/ --output jsonl | jq -r .guid | xargs -n 1 bmqctl replay store/ --guid

    Exit codes: 0; 2 if there is no store, or no such log.
    """
    from bmqctl.stores.blazingmq.rejected import find_rejected, rejected_in_log

    if is_store(path):
        refuse(COMMAND, f"{path} is a store of RocketMQ: see bmqctl dead-letters list")
    files = sorted(path.glob(LOGS)) if logs is None else logs
    try:
        journals = [path / each.journal for each in recovery_sets(path).values() if each.journal is not None]
        with LateProgress("reading records") as on_progress:
            found = find_rejected(journals, rejected_in_log(_lines(files)), on_progress)
    except (NotAStoreFile, FormatError) as error:
        refuse(COMMAND, str(error))
    except OSError as error:
        refuse(COMMAND, f"{error.filename or path}: {error.strerror or error}")
    if not files:
        say(COMMAND, f"{path} has no {LOGS}: name the brokers' logs with --log, as journals lack the last app's")
    _print([each for each in found if queues is None or each.queue_uri in queues], choose_format(output))


def _print(found: list[Rejected], wanted: OutputFormat) -> None:
    from bmqctl.stores.blazingmq.rejected import Rejected

    rows = [each._asdict() for each in found]
    with until_reader_leaves():
        if wanted is OutputFormat.TABLE:
            rows = [{**row, "is_stored": "yes" if row["is_stored"] else "no"} for row in rows]
            print_rows(rows, _COLUMNS, wanted)
        else:
            print_rows(rows, [Column(name, name) for name in Rejected._fields], wanted)


def _lines(files: list[Path]) -> Iterator[str]:
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as stream:
            yield from stream
